"""Call a server on a Unix socket."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verso_core import telemetry, tracing
from verso_core.errors import EngineUnavailable, FrameInvalid, Unavailable, VersoError, from_body
from verso_core.frame import Bytes, pack, unpack
from verso_worker.ipc.cancellation import current
from verso_worker.ipc.messages import address, bounded, hung_up, left_s, reason, receive, send

POOL_MAX = 64
"""Idle connections a client keeps."""


class Client:
    """Calls a :class:`Server`; any number of threads may share one client.

    Args:
        path: the server's socket.
        timeout_s: seconds a call may take from connecting to the last byte of its reply.
        unavailable: what to raise when the server is away, dies in a call or answers too late.
    """

    def __init__(
        self,
        path: Path,
        timeout_s: float,
        *,
        unavailable: type[Unavailable] = EngineUnavailable,
    ) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._unavailable = unavailable
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()
        self._calls = 0
        self._ended = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last call ended, or since the client was made; 0 while one runs."""
        with self._lock:
            return 0.0 if self._calls else time.monotonic() - self._ended

    def call(
        self,
        op: str,
        header: Mapping[str, Any] | None = None,
        blobs: Sequence[Bytes] = (),
        *,
        timeout_s: float | None = None,
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Run one operation on the server.

        Raises:
            Unavailable: (the subclass given to the client) the call was not answered. It may or may
                not have been carried out, so operations are made safe to repeat.
            VersoError: what the handler raised, as the class it raised.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        message: dict[str, Any] = {"op": op, "header": header or {}}
        context = {"trace": tracing.current(), "slice": telemetry.subject()}
        message |= {key: value for key, value in context.items() if value is not None}
        request = bounded(pack(message, blobs))
        with self._counted():
            answer = self._exchange(op, request, limit_s=limit_s)
        found, reply = unpack(answer)
        if "error" in found:
            raise from_body(found["error"])
        return found.get("header", {}), reply

    def _exchange(self, op: str, request: bytes, *, limit_s: float) -> bytes:
        deadline = time.monotonic() + limit_s
        try:
            connection = self._connection(deadline)
        except OSError as exc:
            raise self._unavailable(f"nothing answers for {op!r}: {reason(exc)}") from exc
        cancellation = current()
        covered = (
            contextlib.nullcontext() if cancellation is None else cancellation.covering(connection)
        )
        try:
            with covered:
                answer = self._answered(connection, op, request, deadline=deadline, limit_s=limit_s)
        except VersoError:
            connection.close()
            raise
        self._keep(connection)
        return answer

    def _answered(
        self,
        connection: socket.socket,
        op: str,
        request: bytes,
        *,
        deadline: float,
        limit_s: float,
    ) -> bytes:
        try:
            send(connection, request, deadline=deadline)
            answer = receive(connection, deadline=deadline)
            if answer is None:
                raise ConnectionResetError("connection closed before the reply")
        except TimeoutError as exc:
            error = self._unavailable(f"no answer to {op!r} within {limit_s:g} s")
            error.timed_out = True
            raise error from exc
        except (OSError, FrameInvalid) as exc:
            raise self._unavailable(f"connection lost during {op!r}: {reason(exc)}") from exc
        return answer

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._ended = time.monotonic()

    def close(self) -> None:
        """Close the idle connections; calls under way end as they would."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connection(self, deadline: float) -> socket.socket:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if not hung_up(connection):
                return connection
            connection.close()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(left_s(deadline))
            with address(self._path) as short:
                connection.connect(short)
        except OSError:
            connection.close()
            raise
        return connection

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < POOL_MAX:
                self._idle.append(connection)
                return
        connection.close()
