"""How a process shares the interpreter and the cores among its threads, and collects garbage."""

from __future__ import annotations

import gc
import os
import sys

_SWITCH_S = 0.0005
_YOUNG_OBJECTS = 5_000
_NICE = 5
"""A quarter of a core that another thread wants as well (sched(7)), all of an idle one. With less,
work of seconds could take longer beside bulk work than a caller waits."""


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
