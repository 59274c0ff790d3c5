"""One process of the platform, kept running: started, watched, restarted, never left behind.

    1. A thread of its own starts the process and waits for it to end.
    2. A process that ends unasked is started again after a pause that grows with each early death
       and is short again after ten seconds of life.
    3. :meth:`Process.stop` sends SIGTERM, and SIGKILL when that takes too long.

Each process leads a session of its own, so that a Ctrl-C in the terminal reaches the supervisor
alone, which then ends them in the right order. The kernel kills a process whose supervisor has died
(``PR_SET_PDEATHSIG``). That signal is tied to the *thread* that started the process, which is why
this thread lives as long as the process does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PAUSES_S = (0.2, 1.0, 3.0, 10.0)
_SETTLED_S = 10.0
"""Seconds after which a death is not an early one: who lived so long has worked, and is needed at
once. Docker's restart policy has the same bound."""

# Runs in front of the program proper, because a function run between fork and exec may hang a
# process that has threads. Argument 1 is the supervisor: had it died before prctl, nobody would
# tell this process, hence the second look.
_TETHER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Process:
    """A supervised process.

    Args:
        name: what tables and log files call it.
        argv: program and arguments.
        log_path: file that its standard output and error are appended to.
        environment: variables added to the supervisor's own.
        keep_open: file descriptors that it inherits.
        where: what a person is told about where it listens.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        environment: Mapping[str, str],
        keep_open: Sequence[int] = (),
        where: str = "",
    ) -> None:
        self.name = name
        self.where = where
        self.log_path = log_path
        self.deaths = 0
        self.restarts = 0
        self._argv = list(argv)
        self._environment = dict(environment)
        self._keep_open = tuple(keep_open)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._spawned = threading.Event()
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The running process, or None between two lives."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the process and its supervision; returns when the process runs."""
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._thread = threading.Thread(target=self._supervise, name=f"up-{self.name}", daemon=True)
        self._thread.start()
        self._spawned.wait()

    def stop(self, *, grace_s: float) -> None:
        """End the process and its supervision; safe before any start and more than once."""
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread is not None:
            self._thread.join()

    def last_words(self, lines: int = 12) -> str:
        """Return the end of what the process has logged since it was first started here."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(self._log_start)
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def _supervise(self) -> None:
        early_deaths = 0
        while not self._stopping.is_set():
            born = time.monotonic()
            process = self._spawn()
            if self._stopping.is_set():  # stop() may have looked before the process was there
                process.terminate()
            status = process.wait()
            if self._stopping.is_set():
                return
            self.deaths += 1
            early_deaths = 1 if time.monotonic() - born > _SETTLED_S else early_deaths + 1
            pause_s = PAUSES_S[min(early_deaths, len(PAUSES_S)) - 1]
            self._note(f"{self.name} ended with status {status}; restart in {pause_s:g} s")
            self._stopping.wait(pause_s)
            self.restarts += 1

    def _spawn(self) -> subprocess.Popen[bytes]:
        tether = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid())]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*tether, *self._argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=self._keep_open,
                env={**os.environ, **self._environment},
            )
        self._spawned.set()
        return self._process

    def _note(self, message: str) -> None:
        with self.log_path.open("a", encoding="utf-8") as log:
            log.write(f"-- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {message}\n")
