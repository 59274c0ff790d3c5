"""How a process shares the interpreter and the cores, collects garbage and returns memory."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_SWITCH_S = 0.0005
_YOUNG_OBJECTS = 5_000
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # glibc, malloc.h
_BLOCK_BYTES = 128 * 1024
_ARENAS = 2
_AUTOGROUP = Path("/proc/self/autogroup")
_NICE = 5
"""A quarter of a core that another thread wants as well (sched(7)), all of an idle one. With less,
work of seconds could take longer beside bulk work than a caller waits."""


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Look for no garbage while the modules of a process are loaded, nor among them afterwards.

    What they hold lives as long as the process. Looking for garbage takes a sixth of the time of
    their imports.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
    end_at_once()


def end_at_once() -> None:
    """Look for no garbage when the process ends.

    Python would look through all modules several times, a third of the time that loading them took.
    What must happen at the end is said by ``with`` and :mod:`atexit`, not by destructors in cycles.
    """
    atexit.register(gc.freeze)


def share_interpreter() -> None:
    """Let a thread hold the interpreter for half a millisecond at most while another one waits.

    Python's own 5 ms would be added several times to every short request that comes while a thread
    reads a large body or prepares a large batch. Called once, by ``main``.
    """
    sys.setswitchinterval(_SWITCH_S)


def yield_cores() -> None:
    """Let all other threads go before the calling one, and before those that it starts, on a core.

    Linux has a priority for each thread (setpriority(2)); elsewhere it is the whole process's, and
    stays as it is.
    """
    if sys.platform == "linux":
        os.nice(_NICE)


def lower_priority(nice: int) -> None:
    """Let other processes of the machine go before this one on a core.

    Linux may share the cores out among sessions first (autogroup, sched(7)); niceness then counts
    within a session only. So the process leads a session of its own, with the same niceness among
    the others. It still ends with its parent if that was asked for (``PR_SET_PDEATHSIG``).

    Args:
        nice: what is added to its niceness, above 0.
    """
    os.nice(nice)
    with contextlib.suppress(OSError):  # it leads a process group already
        os.setsid()
        if sys.platform == "linux":
            _AUTOGROUP.write_text(str(nice), "ascii")


def freeze_loaded() -> None:
    """Leave what has been loaded so far out of garbage collection.

    Modules and models are a hundred thousand objects and more that live as long as the process.
    Each full collection would visit them all and stop every request for tens of milliseconds.
    The young generation is collected after 5,000 new objects instead of Python's own 700: a request
    makes hundreds, nearly all of which are freed by their reference counts.
    Called once, by ``main``, before it serves.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def return_freed() -> None:
    """Let the memory of a large block go back to the system when the block is freed.

    By itself glibc gives each thread an arena, and once a large block was freed it takes blocks of
    that size from the heap (mallopt(3)): bodies of some MiB then leave holes that no one fills.
    Other C libraries do neither.
    """
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
        library.mallopt(_M_ARENA_MAX, _ARENAS)
