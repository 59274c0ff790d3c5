"""Child processes of the worker that serve calls on a Unix socket.

:class:`verso_core.supervise.Process` starts, watches and restarts them, so a SIGKILL of the worker
leaves no engine that holds memory and no vector store that holds its lock. A child is ready when
its socket answers ``ping``.

A child that must not serve (a broken artifact, a lock held by another process) calls
:func:`refuse`: the first ``start()`` then raises the very error that it named.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from verso_core.errors import Unavailable, VersoError, error_body, from_body
from verso_core.supervise import SETTLED_S, Process, status
from verso_worker.ipc.client import Client

REFUSED = 3
"""Exit status of a child that will not serve and has said why."""

_POLL_S = 0.02
_log = logging.getLogger(__name__)


def make_child(
    name: str,
    argv: Sequence[str],
    *,
    socket_path: Path,
    ready_timeout_s: float,
    hang_s: float | None = None,
    settled_s: float = SETTLED_S,
) -> Process:
    """Return a supervised process, not yet started, that serves on a socket.

    Args:
        name: its name in logs and errors.
        argv: program and arguments.
        socket_path: where the child listens once it is ready to work.
        ready_timeout_s: seconds from start to the first answered ping.
        hang_s: restart a child that leaves a ping unanswered for so many seconds; None never does,
            right for a process whose libraries hold the interpreter lock for long.
        settled_s: seconds of work after which a death is not an early one.
    """
    health = SocketHealth(name, socket_path, ready_timeout_s=ready_timeout_s, hang_s=hang_s)
    return Process(name, argv, health=health, settled_s=settled_s)


@dataclass(frozen=True, slots=True)
class SocketHealth:
    """A child is ready when its socket answers ``ping``; one that stops answering hangs."""

    name: str
    socket_path: Path
    ready_timeout_s: float
    hang_s: float | None

    def clear(self) -> None:
        """Remove the socket and the refusal of an earlier process."""
        _refusal_path(self.socket_path).unlink(missing_ok=True)
        self.socket_path.unlink(missing_ok=True)

    def await_ready(self, process: subprocess.Popen[bytes]) -> VersoError | None:
        """Wait until the child answers; return why it never did, or None."""
        deadline = time.monotonic() + self.ready_timeout_s
        while process.poll() is None:
            if self.socket_path.exists() and self._ping(self.ready_timeout_s):
                return None
            if time.monotonic() > deadline:
                return Unavailable(f"{self.name} was not ready within {self.ready_timeout_s:g} s")
            time.sleep(_POLL_S)
        return _read_refusal(self.socket_path) or Unavailable(
            f"{self.name} ended before it was ready ({status(process)})"
        )

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the child has ended or hangs."""
        if self.hang_s is None:
            process.wait()
            return
        while True:
            try:
                process.wait(timeout=self.hang_s / 4)
                return
            except subprocess.TimeoutExpired:
                if not self._ping(self.hang_s):
                    _log.error("%s left a ping unanswered for %g s", self.name, self.hang_s)
                    return

    def _ping(self, timeout_s: float) -> bool:
        client = Client(self.socket_path, timeout_s)
        try:
            client.call("ping")
        except Unavailable:
            return False
        finally:
            client.close()
        return True


def refuse(socket_path: Path, error: VersoError) -> NoReturn:
    """End this process because it must not serve.

    The reason goes to standard error for people, and to a file beside the socket for the parent.
    """
    _refusal_path(socket_path).write_text(json.dumps(error_body(error)), encoding="ascii")
    sys.stderr.write(f"{error.code}: {error.detail}\n")
    sys.exit(REFUSED)


def _refusal_path(socket_path: Path) -> Path:
    return socket_path.with_name(socket_path.name + ".refused")


def _read_refusal(socket_path: Path) -> VersoError | None:
    try:
        body = json.loads(_refusal_path(socket_path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return from_body(body)
