"""How the threads of one process share the interpreter and the cores."""

from __future__ import annotations

import os
import sys

_SWITCH_S = 0.0005
_NICE = 10
"""A tenth of a core that another thread wants as well (sched(7)), all of an idle one."""


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
