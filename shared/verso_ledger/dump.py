"""Copy a whole Redis or Valkey server over its own port, as of one moment.

The server is asked for what it would send a replica: it forks, and streams its memory as of that
moment as an RDB file, which ends in a checksum of its own. So the copy is consistent, needs no
access to the server's disk, and works the same from any machine. Sources: the replication part of
redis.io's documentation, and ``redis-cli --rdb``, which works the same way.

    ->  REPLCONF capa eof        this side takes a stream of unknown length
    ->  SYNC
    <-  newlines while it forks, then
        ``$EOF:`` 40 bytes of mark, the file, the mark again      (streamed from memory)
        or ``$`` length, the file                                 (by way of the server's disk)
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRWPair
from pathlib import Path
from typing import Any, BinaryIO

from redis.connection import parse_url

from verso_core.errors import LedgerUnavailable
from verso_ledger.connection import primary_address
from verso_ledger.sentinel import sentinel_address

_MARK_BYTES = 40
_PART = 1 << 16
_SILENCE_S = 60.0


def dump(url: str, path: Path) -> int:
    """Write the server's memory to a file; return the file's size in bytes.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://`` or ``redis+sentinel://``, as for any client.
        path: made or overwritten; not synced.

    Raises:
        LedgerUnavailable: the server did not answer, refused, or stopped; the file is incomplete.
    """
    try:
        with _connected(url) as wire, path.open("wb") as file:
            _copy(wire, file)
            file.flush()
            return path.stat().st_size
    except OSError as exc:
        raise LedgerUnavailable(f"the ledger could not be copied: {type(exc).__name__}") from exc


@contextmanager
def _connected(url: str) -> Iterator[BufferedRWPair]:
    behind = sentinel_address(url)
    given: dict[str, Any]
    if behind is None:
        given = dict(parse_url(url))  # type: ignore[no-untyped-call]
    else:
        host, port = primary_address(behind)
        given = behind.server_options | {"host": host, "port": port}
    if "path" in given:
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(_SILENCE_S)
        raw.connect(given["path"])
    else:
        address = (given.get("host", "localhost"), int(given.get("port", 6379)))
        raw = socket.create_connection(address, timeout=_SILENCE_S)
        if url.startswith("rediss:"):
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=address[0])
    with raw, raw.makefile("rwb") as wire:
        if given.get("password"):
            words = [given[name] for name in ("username", "password") if given.get(name)]
            _ask(wire, "AUTH", *words)
        yield wire


def _copy(wire: BufferedRWPair, file: BinaryIO) -> None:
    _ask(wire, "REPLCONF", "capa", "eof")
    _say(wire, "SYNC")
    head = _head(wire)
    if head.startswith(b"EOF:") and len(head) == 4 + _MARK_BYTES:
        _until(head[4:], wire, file)
    elif head.isdigit():
        _exactly(int(head), wire, file)
    else:
        raise LedgerUnavailable("expected a bulk from SYNC, got another reply")


def _head(wire: BufferedRWPair) -> bytes:
    while True:
        line = wire.readline()
        if not line:
            raise LedgerUnavailable("the ledger closed the connection before its copy")
        if line.startswith(b"-"):
            raise LedgerUnavailable(f"the ledger refused to be copied: {_word(line)}")
        if line.startswith(b"$"):
            return line[1:].rstrip(b"\r\n")


def _exactly(size: int, wire: BufferedRWPair, file: BinaryIO) -> None:
    left = size
    while left:
        part = wire.read(min(left, _PART))
        if not part:
            raise LedgerUnavailable(f"the ledger's copy broke off, {left} bytes before its end")
        file.write(part)
        left -= len(part)


def _until(mark: bytes, wire: BufferedRWPair, file: BinaryIO) -> None:
    tail = b""
    while True:
        part = wire.read1(_PART)
        if not part:
            raise LedgerUnavailable("the ledger's copy broke off before its end")
        tail += part
        end = tail.find(mark)
        if end >= 0:
            file.write(tail[:end])
            return
        file.write(tail[: -len(mark)])
        tail = tail[-len(mark) :]


def _ask(wire: BufferedRWPair, *words: str) -> None:
    _say(wire, *words)
    line = wire.readline()
    if not line.startswith(b"+"):
        raise LedgerUnavailable(f"the ledger refused {words[0]}: {_word(line)}")


def _say(wire: BufferedRWPair, *words: str) -> None:
    parts = [word.encode() for word in words]
    wire.write(b"*%d\r\n" % len(parts))
    wire.writelines(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    wire.flush()


def _word(line: bytes) -> str:
    """Return the code of a server's error without its message, which may quote data."""
    return line[1:].split(b" ", 1)[0].strip().decode("ascii", "replace")
