"""Log files of a platform's processes, kept within a bound while they are written.

A process writes to its standard error, which the supervisor opened to append. So a file that is too
long is copied to ``.1`` and emptied, and its process goes on at the beginning; what it writes
between the two is lost. Renaming would not do: the process would go on writing to the old file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

_LOOK_S = 1.0


class LogRotation:
    """A thread that keeps log files within a bound.

    Args:
        paths: the files; they need not exist yet.
        limit_bytes: length above which a file is set aside; one older file is kept.
    """

    def __init__(self, paths: Sequence[Path], *, limit_bytes: int) -> None:
        self._paths = list(paths)
        self._limit_bytes = limit_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-rotation", daemon=True)

    def start(self) -> None:
        """Rotate what is too long now, and start the thread."""
        self.step()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; safe before the start and more than once."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> None:
        """Look at each file once."""
        for path in self._paths:
            with contextlib.suppress(OSError):  # not there yet; the next look may fare better
                if path.stat().st_size > self._limit_bytes:
                    _set_aside(path)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.step()


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.1")
    aside.unlink(missing_ok=True)  # first, as the disk may be full
    try:
        shutil.copyfile(path, aside)
    except OSError:
        aside.unlink(missing_ok=True)  # the bound matters more than old lines
    os.truncate(path, 0)
