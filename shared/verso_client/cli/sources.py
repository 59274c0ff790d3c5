"""What the commands read from files and from the command line.

Documents of ``verso ingest``, by format:

    lines    every line is a document: its bytes without the line feed
    jsonl    every line is a JSON object: text or text_base64, and optionally id, metadata, time
    files    every file is a document: all its bytes
    extract  every file is a document: the text that the platform reads in it, as of a PDF; or a
             document a page

Bytes are not decoded, so files in any encoding are returned exactly.

Ids say where a document was found, so that reading the same file again changes nothing and nothing
else is ever replaced:

    line of a file     HOST:FILE:OFFSET-CHECK     FILE: device, inode and first line, hashed, so
                                                  that a rotated or truncated file is another one
    line of a pipe     HOST:START:OFFSET-CHECK    START: when this command began
    whole file         PATH@CONTENT               the path alone with ``--replace``

OFFSET is the line's first byte, CHECK a hash of its bytes: what a program writes over a line is
another document. ``--name`` stands for the host, for the path, and for HOST:START of a pipe, whose
sender so says that the same bytes at the same offset are the same line.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import os
import secrets
import select
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import typer

from verso_client.cli.line_times import LineTimes
from verso_client.cli.tailing.identity import digest, identity
from verso_client.cli.tailing.joining import Joining
from verso_client.operations.documents import Document, File
from verso_core.errors import RequestInvalid, TextTooLarge
from verso_core.texts import Scalar

_FIELDS = frozenset({"id", "text", "text_base64", "metadata", "time"})
_FLUSH_S = 0.5
"""Longest time that a line of a pipe waits for others, seconds."""
_READ_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 64 << 20
"""Longest line of a pipe, which is kept whole: what the platform can code as one line."""
_LOOKED_AT_BYTES = 8192
"""Where text has no NUL, as most programs tell it from other bytes."""


class Format(StrEnum):
    """How a file is read."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    FILES = "files"
    EXTRACT = "extract"


_EXTRACTED = frozenset(
    [".pdf", ".html", ".htm", ".xhtml", ".docx", ".pptx", ".xlsx", ".odt", ".odp", ".ods", ".eml"]
)


def guess_format(name: str) -> Format:
    """Return a file's format by its name: logs as lines, JSON lines, others as a whole."""
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return Format.JSONL
    if suffix in _EXTRACTED:
        return Format.EXTRACT
    return (
        Format.LINES if name == "-" or suffix in (".log", ".txt", ".out", ".err") else Format.FILES
    )


@dataclass(frozen=True)
class Reading:
    """How the files of one command are read.

    Attributes:
        how: their format; AUTO decides by the name.
        name: what the ids start with; by default the host, or a whole file's path.
        metadata: added to every document; a document's own values have precedence.
        times: format of the times in lines, None to look for none.
        replace: the id of a whole file is its name alone.
        joining: joins lines to records; None where each line is a document.
        pages: each page of a file whose text is extracted is a document.
    """

    how: Format = Format.AUTO
    name: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    times: str | None = "auto"
    replace: bool = False
    joining: Joining | None = None
    pages: bool = False


def below(files: Iterable[str]) -> Iterator[str]:
    """Yield files, and those below folders in the order of their names.

    Of a folder hidden files are left out, and those that are neither text nor extracted.
    """
    for file in files:
        if file == "-" or not Path(file).is_dir():
            yield file
            continue
        for path in sorted(Path(file).rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(file).parts)
            if not hidden and path.is_file() and _readable(path):
                yield str(path)


def _readable(path: Path) -> bool:
    if guess_format(path.name) is Format.EXTRACT:
        return True
    with path.open("rb") as stream:
        return b"\0" not in stream.read(_LOOKED_AT_BYTES)


def documents(files: Iterable[str], reading: Reading) -> Iterator[Document | File | None]:
    """Yield the documents of files; ``-`` is standard input, and None means: send now.

    Raises:
        RequestInvalid: a line does not have the format.
        OSError: a file cannot be read.
    """
    for file in files:
        if file == "-":
            yield from read(sys.stdin.buffer, file, reading)
        else:
            with Path(file).open("rb") as stream:
                yield from read(stream, file, reading)


def read(stream: IO[bytes], path: str, reading: Reading) -> Iterator[Document | File | None]:
    """Yield the documents of one open file; None where a pipe has no more at the moment.

    Raises:
        RequestInvalid: a line does not have the format.
    """
    how = guess_format(path) if reading.how is Format.AUTO else reading.how
    if how in (Format.FILES, Format.EXTRACT):
        yield _whole(stream.read(), path, reading, extracted=how is Format.EXTRACT)
        return
    status = _status(stream)
    regular = status is not None and stat.S_ISREG(status.st_mode)
    if status is not None and regular and path != "-":
        prefix = f"{reading.name or socket.gethostname()}:{identity(status, stream.fileno())}"
    else:
        started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        run = f"{socket.gethostname()}:{started}-{secrets.token_hex(2)}"
        prefix = reading.name or run
    times = None
    if reading.times is not None:
        times = LineTimes(reading.times, until=_latest(status if regular else None))
    offset = number = 0
    lines: Iterable[bytes | None] = stream
    if status is not None and not regular:
        lines = _arriving(stream.fileno())
    if reading.joining is not None and how is Format.LINES:
        lines = reading.joining.joined(lines)
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        content = line.removesuffix(b"\n")
        where = f"{prefix}:{offset}-{digest(content, size=3)}"
        offset += len(line)
        if how is Format.JSONL and content.strip():
            yield _parsed(content, f"{path}:{number}", id=where, metadata=reading.metadata)
        elif how is Format.LINES and content:
            time_s = None if times is None else times.of(content)
            yield Document(content, id=where, metadata=reading.metadata, time=time_s)


def _whole(data: bytes, path: str, reading: Reading, *, extracted: bool) -> Document | File:
    name = reading.name or path
    chosen = name if reading.replace else f"{name}@{digest(data)}"
    if not extracted:
        return Document(data, id=chosen, metadata=reading.metadata)
    shown = name if path == "-" else path
    return File(data, name=shown, id=chosen, metadata=reading.metadata, pages=reading.pages)


def _status(stream: IO[bytes]) -> os.stat_result | None:
    """Return the status of an open file; None of a stream that is none."""
    try:
        return os.fstat(stream.fileno())
    except (OSError, io.UnsupportedOperation):
        return None


def _latest(status: os.stat_result | None) -> Callable[[], datetime]:
    """Return what says when a line was written at the latest: a file's last change, or now."""
    if status is None:
        return lambda: datetime.now(UTC)
    changed = datetime.fromtimestamp(status.st_mtime, UTC)
    return lambda: changed


def _arriving(descriptor: int) -> Iterator[bytes | None]:
    """Yield the lines of a pipe as they arrive, and None when some have waited ``_FLUSH_S``.

    None comes once more where the pipe is silent for so long, so that two in a row are a pause.
    Ctrl-C while the pipe is silent is its end: what was read is sent and reported.

    Raises:
        TextTooLarge: a line has more than ``LONGEST_LINE_BYTES``; those before it are sent.
    """
    parts: list[bytes] = []
    size = 0
    flush_at: float | None = None
    paused = True
    while True:
        left_s = None if paused else _FLUSH_S
        if flush_at is not None:
            left_s = max(0.0, flush_at - time.monotonic())
        try:
            ready, _, _ = select.select([descriptor], [], [], left_s)
        except KeyboardInterrupt:
            break
        if flush_at is not None and time.monotonic() >= flush_at:
            yield None
            flush_at = None
        elif not ready and flush_at is None:
            yield None
            paused = True
        if not ready:
            continue
        paused = False
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        first, *others = data.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts) + b"\n"
            parts, size = [other], 0
        size += len(parts[-1])
        if size > LONGEST_LINE_BYTES:
            yield None
            check_line(size)
        if others and flush_at is None:
            flush_at = time.monotonic() + _FLUSH_S
    if last := b"".join(parts):
        yield last


def check_line(size_bytes: int) -> None:
    """Check the size of a line that has not ended yet.

    Raises:
        TextTooLarge: it has more than ``LONGEST_LINE_BYTES``.
    """
    if size_bytes > LONGEST_LINE_BYTES:
        raise TextTooLarge(f"expected lines of <= {LONGEST_LINE_BYTES} bytes in a pipe, got more")


def pairs(given: list[str] | None) -> dict[str, Scalar]:
    """Return ``key=value`` arguments as a mapping.

    Raises:
        typer.BadParameter: an argument is not a pair.
    """
    return {key: scalar(value) for key, value in labels(given).items()}


def labels(given: list[str] | None) -> dict[str, str]:
    """Return ``key=value`` arguments as labels, whose values are the strings that were given.

    Raises:
        typer.BadParameter: an argument is not a pair.
    """
    found: dict[str, str] = {}
    for pair in given or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected key=value, got {pair!r}")
        found[key] = value
    return found


def scalar(value: str) -> Scalar:
    """Return a JSON scalar as its value, anything else as the string.

    NaN, Infinity and numbers beyond the largest float are strings: JSON cannot carry them.
    """
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    if isinstance(parsed, float) and not math.isfinite(parsed):
        return value
    return parsed if isinstance(parsed, str | int | float | bool) else value


def vectors(path: Path) -> list[list[float]]:
    """Return the vectors in a JSON file; ``-`` is standard input.

    Raises:
        RequestInvalid: the file holds neither a vector nor a list of vectors.
    """
    try:
        parsed = json.loads(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise RequestInvalid(f"expected JSON in {path}") from exc
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], int | float):
        parsed = [parsed]
    if not isinstance(parsed, list) or not all(map(_is_vector, parsed)):
        raise RequestInvalid(f"expected a vector or a list of vectors in {path}")
    return parsed


def _is_vector(row: object) -> bool:
    return isinstance(row, list) and all(map(_is_number, row))


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) <= sys.float_info.max
    return isinstance(value, float)


def _parsed(
    line: bytes,
    where: str,
    *,
    id: str,  # noqa: A002 - the field's name
    metadata: Mapping[str, Scalar],
) -> Document:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise RequestInvalid(f"{where}: expected a JSON object, got malformed JSON") from exc
    if not isinstance(row, dict):
        raise RequestInvalid(f"{where}: expected a JSON object, got {type(row).__name__}")
    if unknown := sorted(row.keys() - _FIELDS):
        raise RequestInvalid(f"{where}: expected the keys {sorted(_FIELDS)}, got {unknown[0]!a}")
    own = {} if row.get("metadata") is None else row["metadata"]
    if not isinstance(own, dict):
        raise RequestInvalid(f"{where}: expected an object as metadata, got {type(own).__name__}")
    chosen = id if row.get("id") is None else row["id"]
    return Document(
        _text(row, where), id=chosen, metadata={**metadata, **own}, time=row.get("time")
    )


def _text(row: Mapping[str, Any], where: str) -> str | bytes:
    text, encoded = row.get("text"), row.get("text_base64")
    if isinstance(text, str) and encoded is None:
        return text
    if isinstance(encoded, str) and text is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as exc:
            raise RequestInvalid(f"{where}: expected base64 in text_base64") from exc
    raise RequestInvalid(f"{where}: expected exactly one of text and text_base64, as a string")
