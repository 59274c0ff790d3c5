"""A child process of the worker, kept alive: started, watched, restarted, never left behind.

    1. A thread of its own starts the process and waits until its socket answers ``ping``.
    2. It waits for the process to end. When it ends unasked, the thread starts it again, after a
       pause that grows with each early death and starts anew once it has worked for a while: one
       that can work and was killed is needed at once.
    3. :meth:`Child.stop` ends the process with SIGTERM, and with SIGKILL when that takes too long.

The kernel kills the child when the worker dies (``PR_SET_PDEATHSIG``), so a SIGKILL of the worker
leaves no engine holding memory and no shard holding its lock. The signal is tied to the *thread*
that started the child, which is one more reason for that thread to live as long as the child.

A child that must not serve (a broken artifact, a lock held by another process) calls
:func:`refuse`: the first :meth:`Child.start` then raises the very error it named.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from verso_core.errors import Unavailable, VersoError, error_body, from_body
from verso_worker.ipc.rpc import Client

REFUSED = 3
"""Exit status of a child that will not serve and has said why."""

_PAUSES_S = (0.0, 0.2, 1.0, 3.0, 10.0)
_SETTLED_S = 10.0
"""Seconds of work, counted from when it was ready, after which a death is not an early one."""
_POLL_S = 0.02
_log = logging.getLogger(__name__)

# Runs in front of the child's own program, because a function run between fork and exec may hang a
# process that has threads. Argument 1 is the worker: a worker that died before prctl is noticed.
_TETHER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Child:
    """One supervised child process that serves on a socket.

    Args:
        name: what logs and errors call it.
        argv: program and arguments.
        socket_path: where the child listens once it is ready to work.
        ready_timeout_s: seconds from start to the first answered ping.
        hang_s: restart a child that leaves a ping unanswered for so many seconds; None never does,
            right for a process whose libraries hold the interpreter lock for long.
        environment: variables added to the worker's own.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        socket_path: Path,
        ready_timeout_s: float,
        hang_s: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._argv = list(argv)
        self._socket_path = socket_path
        self._ready_timeout_s = ready_timeout_s
        self._hang_s = hang_s
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ready_at = 0.0
        self._ready = threading.Event()
        self._first = threading.Event()
        self._refusal: VersoError | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The running process, or None between two lives."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def ready(self) -> bool:
        """Whether the present process has answered a ping and has not ended since."""
        return self._ready.is_set()

    def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            VersoError: the child refused to serve; the error it named.
            Unavailable: it ended or stayed silent; it is not tried again.
        """
        self._thread = threading.Thread(
            target=self._supervise, name=f"child-{self.name}", daemon=True
        )
        self._thread.start()
        self._first.wait()
        if self._refusal is not None:
            self._thread.join()
            raise self._refusal

    def stop(self, grace_s: float = 10.0) -> None:
        """End the process and the supervision; safe more than once and before any start."""
        self._stopping.set()
        self._end(grace_s)
        if self._thread is not None:
            self._thread.join()
        self._socket_path.unlink(missing_ok=True)

    def _supervise(self) -> None:
        early_deaths = 0
        while not self._stopping.is_set():
            failure = self._live()
            worked_s = time.monotonic() - self._ready_at if failure is None else 0.0
            if failure is not None and not self._first.is_set():
                self._refusal = failure
                self._first.set()
                return
            if self._stopping.is_set():
                break
            early_deaths = 0 if worked_s > _SETTLED_S else early_deaths + 1
            pause_s = _PAUSES_S[min(early_deaths, len(_PAUSES_S)) - 1] if early_deaths else 0.0
            reason = failure.detail if failure is not None else self._status()
            _log.error("%s ended (%s); restart in %.1f s", self.name, reason, pause_s)
            self._stopping.wait(pause_s)
            self.restarts += 1
        self._first.set()

    def _live(self) -> VersoError | None:
        """Run one life of the process; give why it never became ready, or None if it did."""
        _refusal_path(self._socket_path).unlink(missing_ok=True)
        self._socket_path.unlink(missing_ok=True)
        process = self._spawn()
        if self._stopping.is_set():  # stop() may have looked before the process was there
            process.kill()
        failure = self._await_ready(process)
        if failure is None:
            self._ready_at = time.monotonic()
            self._ready.set()
            self._first.set()
            self._watch(process)
            self._ready.clear()
        _kill(process)
        return failure

    def _spawn(self) -> subprocess.Popen[bytes]:
        tether = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid())]
        self._process = subprocess.Popen(
            [*tether, *self._argv],
            stdin=subprocess.DEVNULL,
            # A Ctrl-C in the terminal is for the worker, which then ends the child in its own time.
            start_new_session=True,
            env={**os.environ, **self._environment},
        )
        return self._process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> VersoError | None:
        deadline = time.monotonic() + self._ready_timeout_s
        while process.poll() is None:
            if self._socket_path.exists() and self._ping(self._ready_timeout_s):
                return None
            if time.monotonic() > deadline:
                return Unavailable(f"{self.name} was not ready within {self._ready_timeout_s:g} s")
            time.sleep(_POLL_S)
        return _read_refusal(self._socket_path) or Unavailable(
            f"{self.name} ended before it was ready ({self._status()})"
        )

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the process has ended or hangs."""
        if self._hang_s is None:
            process.wait()
            return
        while True:
            try:
                process.wait(timeout=self._hang_s / 4)
                return
            except subprocess.TimeoutExpired:
                if not self._ping(self._hang_s):
                    _log.error("%s left a ping unanswered for %g s", self.name, self._hang_s)
                    return

    def _ping(self, timeout_s: float) -> bool:
        client = Client(self._socket_path, timeout_s)
        try:
            client.call("ping")
        except Unavailable:
            return False
        finally:
            client.close()
        return True

    def _end(self, grace_s: float) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            _log.warning("%s did not end within %g s and is killed", self.name, grace_s)
            _kill(process)

    def _status(self) -> str:
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return "still running"
        return f"signal {-code}" if code < 0 else f"exit status {code}"


def refuse(socket_path: Path, error: VersoError) -> NoReturn:
    """End this process because it must not serve, leaving the reason for its parent.

    One line on standard error tells a person; a file beside the socket tells :class:`Child`.
    """
    _refusal_path(socket_path).write_text(json.dumps(error_body(error)), encoding="ascii")
    sys.stderr.write(f"{error.code}: {error.detail}\n")
    sys.exit(REFUSED)


def _refusal_path(socket_path: Path) -> Path:
    return socket_path.with_name(socket_path.name + ".refused")


def _read_refusal(socket_path: Path) -> VersoError | None:
    path = _refusal_path(socket_path)
    try:
        body = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    path.unlink(missing_ok=True)
    return from_body(body)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
