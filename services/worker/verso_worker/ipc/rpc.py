"""Calls between the worker and its child processes: frames over a Unix socket.

One connection carries one call at a time: a request, then its reply. Several concurrent calls need
several connections; :class:`Client` keeps a pool of them.

    message  = u32 length, little endian, then one frame (verso_core.frame)
    request  = frame with header {"op": name, "header": {...}} and the call's blobs; and, if known,
               {"trace": traceparent, "slice": id} of the work that the call belongs to
    reply    = frame with header {"header": {...}} and blobs, or {"error": error body}

The server itself answers the operation ``ping``, which never waits for a busy handler. An error of
Verso's tree crosses as its body and is raised on the other side as the same class. Any other
exception of a handler arrives as ``internal`` and is logged where it happened.

A caller hangs up when its time is over, when its work was cancelled (:class:`Cancellation`), and
when it dies. A handler that works in batches calls :func:`check_caller` between them, so that work
that nobody waits for ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from verso_core import telemetry, tracing
from verso_core.errors import (
    Cancelled,
    EngineUnavailable,
    FrameInvalid,
    RequestInvalid,
    Unavailable,
    VersoError,
    error_body,
    from_body,
)
from verso_core.frame import Bytes, pack, unpack

MESSAGE_BYTES_MAX = 1 << 30
"""Longest message either side sends or takes: a bound against a broken length, not a target."""

POOL_MAX = 64
"""Idle connections a client keeps."""

DRAIN_S = 10.0
"""Seconds that a closing server waits for running calls."""

Handler = Callable[[dict[str, Any], list[bytes]], tuple[Mapping[str, Any], Sequence[Bytes]]]

_LENGTH = struct.Struct("<I")
_AT_ONCE = 1 << 16
_ADDRESS_BYTES_MAX = 100  # sun_path holds 108 bytes on Linux and 104 on BSD, with the final NUL
_log = logging.getLogger(__name__)


_caller: ContextVar[socket.socket | None] = ContextVar("caller", default=None)
_cancellation: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


def check_caller() -> None:
    """Check that the caller of the running handler still waits.

    Raises:
        Cancelled: it has hung up.
    """
    connection = _caller.get()
    if connection is not None and _is_gone(connection):
        raise Cancelled("nobody waits for the reply")


class Cancellation:
    """Ends the calls of one piece of work from another thread.

    Calls made in a thread while it has entered the cancellation can be ended by :meth:`cancel`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._connections: set[socket.socket] = set()

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Hang up the calls under way; later ones are refused."""
        with self._lock:
            self._cancelled = True
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let the calls that this thread makes in the block be cancelled."""
        token = _cancellation.set(self)
        try:
            yield
        finally:
            _cancellation.reset(token)

    @contextlib.contextmanager
    def covering(self, connection: socket.socket) -> Iterator[None]:
        """Hang up a connection if the work is cancelled in the block.

        Raises:
            Cancelled: it was, before the block or in it.
        """
        with self._lock:
            if not self._cancelled:
                self._connections.add(connection)
        try:
            if self._cancelled:
                raise Cancelled("cancelled, or done by another worker")
            yield
        except Unavailable as error:
            if self._cancelled:
                raise Cancelled("cancelled, or done by another worker") from error
            raise
        finally:
            with self._lock:
                self._connections.discard(connection)


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
                request = _receive(connection, deadline=None)
                if request is None:
                    return
                _caller.set(connection)
                _send(connection, self._answer(request))
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
            return _bounded(pack({"header": header}, reply))
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
        request = _bounded(pack(message, blobs))
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
            raise self._unavailable(f"nothing answers for {op!r}: {_reason(exc)}") from exc
        cancellation = _cancellation.get()
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
            _send(connection, request, deadline=deadline)
            answer = _receive(connection, deadline=deadline)
            if answer is None:
                raise ConnectionResetError("connection closed before the reply")
        except TimeoutError as exc:
            error = self._unavailable(f"no answer to {op!r} within {limit_s:g} s")
            error.timed_out = True
            raise error from exc
        except (OSError, FrameInvalid) as exc:
            raise self._unavailable(f"connection lost during {op!r}: {_reason(exc)}") from exc
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
            if not _hung_up(connection):
                return connection
            connection.close()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left_s(deadline))
            with _address(self._path) as address:
                connection.connect(address)
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
    with _address(path) as address:
        listener.bind(address)
    listener.listen(128)
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a path that is short enough for a socket address.

    Data folders lie deep on some machines, and a socket address holds about a hundred bytes. A
    longer path is given through a descriptor of its folder.
    """
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _is_gone(connection: socket.socket) -> bool:
    """Whether the other side closed a connection on which it waits for a reply.

    A server that drains reads no further requests (SHUT_RD), which makes the connection readable;
    only the other side's end of it is a hang-up (poll(2), POLLHUP).
    """
    waiting = select.poll()
    waiting.register(connection, 0)
    return bool(waiting.poll(0))


def _hung_up(connection: socket.socket) -> bool:
    """Whether the other side closed an idle connection; between calls nothing is readable."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))


def _bounded(message: bytes) -> bytes:
    if len(message) > MESSAGE_BYTES_MAX:
        raise RequestInvalid(
            f"expected a message of <= {MESSAGE_BYTES_MAX} bytes, got {len(message)}"
        )
    return message


def _send(connection: socket.socket, message: bytes, *, deadline: float | None = None) -> None:
    connection.settimeout(_left_s(deadline))
    if len(message) < 1 << 16:
        connection.sendall(_LENGTH.pack(len(message)) + message)  # one wake-up of the other side
        return
    connection.sendall(_LENGTH.pack(len(message)))
    connection.sendall(message)


def _receive(connection: socket.socket, *, deadline: float | None) -> bytes | None:
    """Read one message; None when the other side closed between messages."""
    connection.settimeout(_left_s(deadline))
    data = connection.recv(_AT_ONCE)  # a short message arrives whole: one call at a time
    if not data:
        return None
    while len(data) < _LENGTH.size:
        data += _more(connection, _LENGTH.size - len(data), deadline=deadline)
    (size,) = _LENGTH.unpack_from(data)
    if size > MESSAGE_BYTES_MAX:
        raise FrameInvalid(f"expected a message of <= {MESSAGE_BYTES_MAX} bytes, got {size}")
    left = _LENGTH.size + size - len(data)
    if left == 0:
        return data[_LENGTH.size :]
    if left < 0:
        raise FrameInvalid(f"expected one message of {size} bytes, got {-left} more")
    return data[_LENGTH.size :] + _more(connection, left, deadline=deadline)


def _more(connection: socket.socket, size: int, *, deadline: float | None) -> bytes:
    """Read exactly `size` bytes."""
    data = bytearray(size)
    view = memoryview(data)
    filled = 0
    while filled < size:
        connection.settimeout(_left_s(deadline))
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise ConnectionResetError("connection closed inside a message")
        filled += count
    return bytes(data)


def _left_s(deadline: float | None) -> float | None:
    """Seconds until a deadline on the monotonic clock, or None for no limit."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _reason(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
