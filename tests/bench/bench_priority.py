"""How much of a core does a process of low priority leave to one that also wants it?

Two processes keep one core busy, each in a session of its own, as those that a supervisor starts
are. One has its usual priority. The other has the niceness of a fit: by itself, or as
``verso_core.interpreter.lower_priority`` sets it, which also counts where Linux shares the cores
out among sessions first (``/proc/sys/kernel/sched_autogroup_enabled``). Reported is the share of
what both got; what else wants the core takes from both.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sheet

from verso_core.interpreter import lower_priority

_NICE = 10
_ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")


def _usual() -> None:
    os.setsid()


def _nice() -> None:
    os.setsid()
    os.nice(_NICE)


def _lowered() -> None:
    lower_priority(_NICE)


WAYS: dict[str, Callable[[], None]] = {
    "the usual one": _usual,
    "niceness 10": _nice,
    "as a fit has it": _lowered,
}


def _busy(way: str, core: int, seconds: float, spent: Any) -> None:
    os.sched_setaffinity(0, {core})
    WAYS[way]()
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        pass
    spent.value = time.process_time()


def share(way: str, *, seconds: float) -> float:
    """Return the share of a core that is left by a process with a priority, of what both got."""
    spawn = multiprocessing.get_context("spawn")
    core = min(os.sched_getaffinity(0))
    spent = [spawn.Value("d", 0.0) for _ in range(2)]
    both = [
        spawn.Process(target=_busy, args=(one, core, seconds, value))
        for one, value in zip((way, "the usual one"), spent, strict=True)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join()
    own, other = (value.value for value in spent)
    return float(other / (own + other))


def main() -> None:
    """Run the measurement and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each")
    arguments = parser.parse_args()
    paper = sheet.Sheet("priority")
    left = {way: share(way, seconds=arguments.seconds) for way in WAYS}
    grouped = _ENABLED.read_text("ascii").strip() if _ENABLED.exists() else "no"
    sheet.table(
        f"Share of a core left to another process (sessions are grouped: {grouped})",
        ["priority", "%"],
        [[way, 100 * one] for way, one in left.items()],
    )
    paper.finish({"left": left, "grouped": grouped})


if __name__ == "__main__":
    main()
