"""Keep a process running: start it, watch it, restart it, and never leave it behind.

1. A thread of its own starts the process and waits until it is ready.
2. The thread waits for the process to end. If it ends unasked, the thread restarts it after a pause
   that grows with each early death. A process that worked for a while is restarted at once. One
   that cannot be started, on a full disk for example, counts as ended: the thread never gives up.
3. :meth:`Process.stop` sends SIGTERM, and SIGKILL if the process does not end in time.

The kernel kills the process when its supervisor dies (``PR_SET_PDEATHSIG``). That signal is tied to
the *thread* that started the process, so this thread lives as long as the process does.

Each process leads a session of its own: a Ctrl-C in the terminal reaches the supervisor alone,
which then ends its processes in the right order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from verso_core.errors import Unavailable, VersoError

PAUSES_S = (0.0, 0.2, 1.0, 3.0, 10.0)
"""Pause before a restart, by the number of early deaths in a row."""

SETTLED_S = 10.0
"""Seconds of work after which a death is not an early one; Docker's restart policy uses as many."""

_log = logging.getLogger(__name__)

# Runs in front of the program, because a function that runs between fork and exec may hang in a
# process with threads. Argument 1 is the supervisor: one that died before prctl is noticed.
_TETHER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Health(Protocol):
    """How the readiness and the end of a process are detected."""

    def clear(self) -> None:
        """Remove what an earlier process left; called before each start and after the last end."""
        ...

    def await_ready(self, process: subprocess.Popen[bytes]) -> VersoError | None:
        """Wait until the process is ready.

        Returns:
            Why it never became ready, or None if it did.
        """
        ...

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the process has ended or must be replaced."""
        ...


class RunningHealth:
    """A process is ready when it runs."""

    def clear(self) -> None:
        """Remove nothing."""

    def await_ready(self, process: subprocess.Popen[bytes]) -> VersoError | None:  # noqa: ARG002
        """Return None at once."""
        return None

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the process has ended."""
        process.wait()


class Process:
    """A supervised process.

    Args:
        name: its name in logs and errors.
        argv: program and arguments.
        health: detects that the process is ready; by default as soon as it runs.
        environment: variables added to the supervisor's own.
        log_path: file that its standard output and error are appended to; None shares the
            supervisor's own.
        keep_open: file descriptors that it inherits.
        settled_s: seconds of work after which a death is not an early one.
        umask: of the process; -1 for the supervisor's own.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        health: Health | None = None,
        environment: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        keep_open: Sequence[int] = (),
        settled_s: float = SETTLED_S,
        umask: int = -1,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.deaths = 0
        self.restarts = 0
        self._argv = list(argv)
        self._health = health or RunningHealth()
        self._environment = dict(environment or {})
        self._keep_open = tuple(keep_open)
        self._settled_s = settled_s
        self._umask = umask
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ready_at = 0.0
        self._ready = threading.Event()
        self._first = threading.Event()
        self._failure: VersoError | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The running process, or None between an end and a restart."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def ready(self) -> bool:
        """Whether the present process became ready and has not ended since."""
        return self._ready.is_set()

    def start(self) -> None:
        """Start the process and its supervision, and wait until the process is ready.

        Raises:
            VersoError: the process never became ready; it is not tried again.
        """
        self.launch()
        self.await_started()

    def launch(self) -> None:
        """Start the process and its supervision; :meth:`await_started` waits for it."""
        if self.log_path is not None and self.log_path.exists():
            self._log_start = self.log_path.stat().st_size
        self._thread = threading.Thread(
            target=self._supervise, name=f"supervise-{self.name}", daemon=True
        )
        self._thread.start()

    def await_started(self) -> None:
        """Wait until the launched process is ready.

        Raises:
            VersoError: the process never became ready; it is not tried again.
        """
        self._first.wait()
        if self._failure is not None and self._thread is not None:
            self._thread.join()
            raise self._failure

    def stop(self, *, grace_s: float = 10.0) -> None:
        """End the process and its supervision; safe before any start and more than once.

        Args:
            grace_s: seconds from SIGTERM to SIGKILL.
        """
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                _log.warning("%s did not end within %g s and is killed", self.name, grace_s)
                _kill(process)
        if self._thread is not None:
            self._thread.join()
        self._health.clear()

    def last_words(self, lines: int = 12) -> str:
        """Return the last lines that the process wrote to its log file since :meth:`start`."""
        if self.log_path is None:
            return ""
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
            failure = self._run_once()
            if failure is not None and not self._first.is_set():
                self._failure = failure
                self._first.set()
                return
            if self._stopping.is_set():
                break
            self.deaths += 1
            worked_s = time.monotonic() - self._ready_at if failure is None else 0.0
            early_deaths = 1 if worked_s > self._settled_s else early_deaths + 1
            pause_s = PAUSES_S[min(early_deaths, len(PAUSES_S)) - 1]
            reason = failure.detail if failure is not None else status(self._process)
            self._note(f"{self.name} ended with {reason}; restart in {pause_s:.1f} s")
            self._stopping.wait(pause_s)
            self.restarts += 1
        self._first.set()

    def _run_once(self) -> VersoError | None:
        """Start the process and wait for its end; return why it never became ready, or None."""
        try:
            self._health.clear()
            process = self._spawn()
        except OSError as exc:
            where = "" if exc.filename is None else f": {exc.filename}"
            return Unavailable(f"{self.name} could not be started: {exc.strerror}{where}")
        if self._stopping.is_set():  # stop() may have looked before the process was there
            process.kill()
        failure = self._health.await_ready(process)
        if failure is None:
            self._ready_at = time.monotonic()
            self._ready.set()
            self._first.set()
            self._health.watch(process)
            self._ready.clear()
        _kill(process)
        return failure

    def _spawn(self) -> subprocess.Popen[bytes]:
        log = None if self.log_path is None else self.log_path.open("ab")
        try:
            self._process = subprocess.Popen(
                tethered(self._argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=None if log is None else subprocess.STDOUT,
                start_new_session=True,
                pass_fds=self._keep_open,
                env={**os.environ, **self._environment},
                umask=self._umask,
            )
        finally:
            if log is not None:
                log.close()
        return self._process

    def _note(self, message: str) -> None:
        """Write to the process's log file if it has one with room, else to the supervisor's log."""
        if self.log_path is not None:
            line = f"-- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {message}\n"
            with contextlib.suppress(OSError), self.log_path.open("a", encoding="utf-8") as log:
                log.write(line)
                return
        _log.error("%s", message)


def tethered(argv: Sequence[str]) -> list[str]:
    """Return the command line of a program that ends with the thread that starts it."""
    return [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *argv]


def status(process: subprocess.Popen[bytes] | None) -> str:
    """Describe how a process ended."""
    code = process.poll() if process is not None else None
    if code is None:
        return "no status: it still runs"
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
