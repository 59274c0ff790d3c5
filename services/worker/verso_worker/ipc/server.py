"""Answer calls on a Unix socket."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from verso_core import telemetry, tracing
from verso_core.errors import Cancelled, FrameInvalid, RequestInvalid, VersoError, error_body
from verso_core.frame import Bytes, pack, unpack
from verso_worker.ipc.messages import address, bounded, is_gone, receive, send

DRAIN_S = 10.0
"""Seconds that a closing server waits for running calls."""

Handler = Callable[[dict[str, Any], list[bytes]], tuple[Mapping[str, Any], Sequence[Bytes]]]

_log = logging.getLogger(__name__)
_caller: ContextVar[socket.socket | None] = ContextVar("caller", default=None)


def check_caller() -> None:
    """Check that the caller of the running handler still waits.

    Raises:
        Cancelled: it has hung up.
    """
    connection = _caller.get()
    if connection is not None and is_gone(connection):
        raise Cancelled("nobody waits for the reply")


class Server:
    """Answers calls on a Unix socket with one handler for each operation.

    The socket listens from construction on, accessible to its owner only; calls are accepted once
    :meth:`serve_forever` runs. Each connection has a thread; at most `threads` handlers run at
    once.
    """

    def __init__(self, path: Path, handlers: Mapping[str, Handler], *, threads: int = 8) -> None:
        self._path = path
        self._handlers = dict(handlers)
        self._turns = threading.BoundedSemaphore(threads)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)  # written to from signal handlers
        self._listener = _listen(path)

    def serve_forever(self) -> None:
        """Accept calls until :meth:`close`, then finish the running calls and return."""
        waiting = select.poll()
        waiting.register(self._listener, select.POLLIN)
        waiting.register(self._wake_read, select.POLLIN)
        while not self._closing.is_set():
            waiting.poll()
            if self._closing.is_set():
                break
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue  # the caller hung up before the accept
            self._start_thread(connection)
        self._drain()

    def close(self) -> None:
        """Let :meth:`serve_forever` end; safe from a signal handler and more than once."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _start_thread(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        thread = threading.Thread(
            target=self._serve_connection, args=(connection,), name="rpc-call", daemon=True
        )
        with self._lock:
            self._connections[connection] = thread
        thread.start()

    def _serve_connection(self, connection: socket.socket) -> None:
        try:
            while not self._closing.is_set():
                request = receive(connection, deadline=None)
                if request is None:
                    return
                _caller.set(connection)
                send(connection, self._answer(request))
        except (OSError, FrameInvalid) as exc:
            _log.debug("connection ended: %s", exc)
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()

    def _answer(self, request: bytes) -> bytes:
        op = "?"
        try:
            message, blobs = unpack(request)
            op = str(message.get("op"))
            if op == "ping":
                return pack({"header": {}})
            handler = self._handlers.get(op)
            if handler is None:
                raise RequestInvalid(f"expected one of {sorted(self._handlers)}, got {op!r}")
            with _labelled(op, message), self._turns:
                check_caller()
                header, reply = handler(message.get("header", {}), blobs)
            return bounded(pack({"header": header}, reply))
        except VersoError as exc:
            return pack({"error": error_body(exc)})
        except Exception as exc:  # noqa: BLE001  (the caller must have an answer)
            # Stack without the message: a foreign message may quote a text.
            stack = "".join(traceback.format_tb(exc.__traceback__))
            _log.error("handler %s failed with %s\n%s", op, type(exc).__name__, stack)
            return pack({"error": error_body(exc)})

    def _drain(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        with self._lock:
            left = dict(self._connections)
        for connection in left:
            # Ends the wait for a next request; a reply under way still goes out.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        end = time.monotonic() + DRAIN_S
        for thread in left.values():
            thread.join(max(0.0, end - time.monotonic()))
        self._wake_read.close()
        self._wake_write.close()


@contextlib.contextmanager
def _labelled(op: str, message: Mapping[str, Any]) -> Iterator[None]:
    """Let logs name the slice that a call belongs to, and its trace include the call."""
    with contextlib.ExitStack() as stack:
        if (slice_id := message.get("slice")) is not None:
            stack.enter_context(telemetry.about(slice_id))
        if (trace := message.get("trace")) is not None:
            stack.enter_context(tracing.span(op, parent=trace))
        yield


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.fchmod(listener.fileno(), 0o600)  # bind() gives the file this mode; Linux, unix(7)
    with address(path) as short:
        listener.bind(short)
    listener.listen(128)
    listener.setblocking(False)
    return listener
