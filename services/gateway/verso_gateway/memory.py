"""How the gateway's memory follows the requests that it holds."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # glibc, malloc.h
_BLOCK_BYTES = 128 * 1024
_ARENAS = 2


def return_freed() -> None:
    """Let the memory of a body go back to the system when the body is freed.

    By itself glibc gives each thread an arena, and once a large block was freed it takes blocks of
    that size from the heap (mallopt(3)): bodies of some MiB then leave holes that no one fills.
    Other C libraries do neither.
    """
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
        library.mallopt(_M_ARENA_MAX, _ARENAS)
