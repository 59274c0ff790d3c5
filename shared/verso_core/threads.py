"""How the threads of one process share the interpreter."""

from __future__ import annotations

import sys

_SWITCH_S = 0.0005


def share_interpreter() -> None:
    """Let a thread hold the interpreter for half a millisecond at most while another one waits.

    Python's own 5 ms would be added several times to every short request that comes while a thread
    reads a large body or prepares a large batch. Called once, by ``main``.
    """
    sys.setswitchinterval(_SWITCH_S)
