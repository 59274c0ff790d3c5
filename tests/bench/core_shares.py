"""Which of a bench's processes hold the cores, and which wait for one, while something runs.

The times of a thread are those of ``/proc/PID/task/TID/schedstat``: what it ran, and what it was
ready to run and waited for a core. Threads that end are counted up to the last look at them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_LOOK_S = 0.5
_NS = 1e9
_Task = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Share:
    """Threads of one process that have one niceness.

    process: its module or program.
    nice: of the threads; a lower one goes first.
    cores: that they held, on average.
    waited: how many of them waited for a core, on average.
    """

    process: str
    nice: int
    cores: float
    waited: float


class CoreShares:
    """Adds up the threads of this process and of all below it from :meth:`looking` on."""

    def __init__(self) -> None:
        self._first: dict[_Task, tuple[int, int]] = {}
        self._last: dict[_Task, tuple[int, int]] = {}
        self._about: dict[_Task, tuple[str, int]] = {}
        self._over = threading.Event()
        self._spent_s = 0.0

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Look while the block runs."""
        for task, times in self._look():
            self._first[task] = times
        started = time.monotonic()
        thread = threading.Thread(target=self._repeat, name="core shares")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._last.update(self._look())
            self._spent_s = time.monotonic() - started

    def found(self) -> list[Share]:
        """Return the shares, the largest first."""
        ran: Counter[tuple[str, int]] = Counter()
        waited: Counter[tuple[str, int]] = Counter()
        for task, (ran_ns, waited_ns) in self._last.items():
            ran_before, waited_before = self._first.get(task, (0, 0))
            ran[self._about[task]] += ran_ns - ran_before
            waited[self._about[task]] += waited_ns - waited_before
        whole = self._spent_s * _NS
        return [
            Share(process, nice, ran_ns / whole, waited[process, nice] / whole)
            for (process, nice), ran_ns in ran.most_common()
        ]

    def _repeat(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._last.update(self._look())

    def _look(self) -> Iterator[tuple[_Task, tuple[int, int]]]:
        """Yield each thread with what it ran and waited so far, nanoseconds."""
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.Error, OSError):
                name = "the bench" if process == own else _name(process.cmdline())
                for folder in Path(f"/proc/{process.pid}/task").iterdir():
                    task = process.pid, int(folder.name)
                    with contextlib.suppress(OSError):  # a thread that has ended
                        ran, waited, _ = (folder / "schedstat").read_text("ascii").split()
                        self._about[task] = name, _nice(folder)
                        yield task, (int(ran), int(waited))


def _name(command: list[str]) -> str:
    """Return the module of ``python -m MODULE``, else the program's name."""
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return "a caller" if "multiprocessing" in " ".join(command) else Path(command[0]).name


def _nice(task: Path) -> int:
    return int((task / "stat").read_text("ascii").rpartition(")")[2].split()[16])
