"""What the commands read from files and from the command line.

Documents of ``verso ingest``, by format:

    lines    every line is a document: its bytes without the line feed, id "<name>:<line number>"
    jsonl    every line is a JSON object: text or text_base64, and optionally id, metadata, time
    files    every file is a document: all its bytes, with its path as id

Bytes are not decoded, so files in any encoding are returned exactly.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import typer

from verso_client.operations.documents import Document
from verso_core.errors import RequestInvalid
from verso_core.jobs import Filter
from verso_core.texts import Scalar

_FIELDS = frozenset({"id", "text", "text_base64", "metadata", "time"})


class Format(StrEnum):
    """How a file is read."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    FILES = "files"


def guess_format(name: str) -> Format:
    """Return a file's format by its name: logs as lines, JSON lines, others as a whole."""
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return Format.JSONL
    return (
        Format.LINES if name == "-" or suffix in (".log", ".txt", ".out", ".err") else Format.FILES
    )


def read(
    stream: IO[bytes],
    name: str,
    *,
    how: Format,
    metadata: Mapping[str, Scalar],
) -> Iterator[Document]:
    """Read the documents of one open file.

    Args:
        stream: the file, open for reading bytes.
        name: prefix of its documents' ids.
        how: how to read it; AUTO decides by the name.
        metadata: added to every document; a document's own values have precedence.

    Raises:
        RequestInvalid: a line does not have the format.
    """
    chosen = guess_format(name) if how is Format.AUTO else how
    if chosen is Format.FILES:
        yield Document(stream.read(), id=name, metadata=metadata)
        return
    for number, line in enumerate(stream, start=1):
        line = line.removesuffix(b"\n")
        if chosen is Format.JSONL and line.strip():
            yield _parsed(line, f"{name}:{number}", metadata=metadata)
        elif chosen is Format.LINES and line:
            yield Document(line, id=f"{name}:{number}", metadata=metadata)


def documents(
    files: Iterable[str],
    format: Format,  # noqa: A002
    *,
    name: str | None,
    metadata: dict[str, Scalar],
) -> Iterator[Document]:
    """Yield the documents of files; ``-`` is standard input."""
    for file in files:
        if file == "-":
            # Without the time, lines would overwrite those of the last run, which had the same ids.
            prefix = name or f"stdin-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            chosen = Format.LINES if format is Format.AUTO else format
            yield from read(sys.stdin.buffer, prefix, how=chosen, metadata=metadata)
        else:
            with Path(file).open("rb") as stream:
                yield from read(stream, file, how=format, metadata=metadata)


def pairs(given: list[str] | None) -> dict[str, Scalar]:
    """Return ``key=value`` arguments as a mapping.

    Raises:
        typer.BadParameter: an argument is not a pair.
    """
    found: dict[str, Scalar] = {}
    for pair in given or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected key=value, got {pair!r}")
        found[key] = _scalar(value)
    return found


def _scalar(value: str) -> Scalar:
    """Return a JSON scalar as its value, anything else as the string."""
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, str | int | float | bool) else value


def condition(
    where: list[str] | None, since: datetime | None, until: datetime | None
) -> Filter | None:
    """Return the filter of a search; several values of a key are alternatives."""
    wanted: dict[str, Scalar | list[Scalar]] = {}
    for pair in where or []:
        for key, value in pairs([pair]).items():
            before = wanted.get(key)
            if before is None:
                wanted[key] = value
            else:
                wanted[key] = [*(before if isinstance(before, list) else [before]), value]
    if not wanted and since is None and until is None:
        return None
    return Filter(metadata=wanted, time_gte=unix(since), time_lt=unix(until))


def unix(time: datetime | None) -> float | None:
    """Return a time as Unix seconds; without a zone it is UTC."""
    if time is None:
        return None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()


def vectors(path: Path) -> list[list[float]]:
    """Return the vectors in a JSON file; ``-`` is standard input.

    Raises:
        RequestInvalid: the file holds neither a vector nor a list of vectors.
    """
    try:
        parsed = json.loads(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
    except ValueError as exc:
        raise RequestInvalid(f"expected JSON in {path}") from exc
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], int | float):
        parsed = [parsed]
    if not isinstance(parsed, list) or not all(isinstance(row, list) for row in parsed):
        raise RequestInvalid(f"expected a vector or a list of vectors in {path}")
    return parsed


def _parsed(line: bytes, where: str, *, metadata: Mapping[str, Scalar]) -> Document:
    try:
        row: Any = json.loads(line)
    except ValueError as exc:
        raise RequestInvalid(f"{where}: expected a JSON object, got malformed JSON") from exc
    if not isinstance(row, dict):
        raise RequestInvalid(f"{where}: expected a JSON object, got {type(row).__name__}")
    if unknown := sorted(row.keys() - _FIELDS):
        raise RequestInvalid(f"{where}: expected the keys {sorted(_FIELDS)}, got {unknown[0]!a}")
    own = {} if row.get("metadata") is None else row["metadata"]
    if not isinstance(own, dict):
        raise RequestInvalid(f"{where}: expected an object as metadata, got {type(own).__name__}")
    return Document(
        _text(row, where), id=row.get("id"), metadata={**metadata, **own}, time=row.get("time")
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
