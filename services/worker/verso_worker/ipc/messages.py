"""Send and receive messages on a Unix socket, and find out whether the other side is there."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from verso_core.errors import FrameInvalid, RequestInvalid

MESSAGE_BYTES_MAX = 1 << 30
"""Longest message either side sends or takes: a bound against a broken length, not a target."""

_LENGTH = struct.Struct("<I")
_AT_ONCE = 1 << 16
_ADDRESS_BYTES_MAX = 100  # sun_path holds 108 bytes on Linux and 104 on BSD, with the final NUL


def bounded(message: bytes) -> bytes:
    """Return a message that may be sent.

    Raises:
        RequestInvalid: it is too long.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise RequestInvalid(
            f"expected a message of <= {MESSAGE_BYTES_MAX} bytes, got {len(message)}"
        )
    return message


def send(connection: socket.socket, message: bytes, *, deadline: float | None = None) -> None:
    """Write one message.

    Raises:
        TimeoutError: the deadline has passed.
        OSError: the connection is lost.
    """
    connection.settimeout(left_s(deadline))
    if len(message) < _AT_ONCE:
        connection.sendall(_LENGTH.pack(len(message)) + message)  # one wake-up of the other side
        return
    connection.sendall(_LENGTH.pack(len(message)))
    connection.sendall(message)


def receive(connection: socket.socket, *, deadline: float | None) -> bytes | None:
    """Read one message; None when the other side closed between messages.

    Raises:
        FrameInvalid: the bytes are no message.
        TimeoutError: the deadline has passed.
        OSError: the connection is lost.
    """
    connection.settimeout(left_s(deadline))
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
        connection.settimeout(left_s(deadline))
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise ConnectionResetError("connection closed inside a message")
        filled += count
    return bytes(data)


def left_s(deadline: float | None) -> float | None:
    """Return the seconds until a deadline on the monotonic clock, or None for no limit.

    Raises:
        TimeoutError: it has passed.
    """
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@contextlib.contextmanager
def address(path: Path) -> Iterator[str]:
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


def is_gone(connection: socket.socket) -> bool:
    """Whether the other side closed a connection on which it waits for a reply.

    A server that drains reads no further requests (SHUT_RD), which makes the connection readable;
    only the other side's end of it is a hang-up (poll(2), POLLHUP).
    """
    waiting = select.poll()
    waiting.register(connection, 0)
    return bool(waiting.poll(0))


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side closed an idle connection; between calls nothing is readable."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))


def reason(exc: Exception) -> str:
    """Return what an exception says, or else its name."""
    return str(exc) or type(exc).__name__
