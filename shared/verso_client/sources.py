"""Documents out of files, for `verso ingest`.

    lines    every line is a document: its bytes without the line feed, id "<name>:<line number>"
    jsonl    every line is a JSON object: text or text_base64, and optionally id, metadata, time
    files    every file is a document: all its bytes, its path as id

Bytes are never decoded on the way, so files in any encoding come back as they were.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from verso_client.documents import Document
from verso_core.errors import RequestInvalid
from verso_core.texts import Scalar

_FIELDS = frozenset({"id", "text", "text_base64", "metadata", "time"})


class Format(StrEnum):
    """How a file is read."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    FILES = "files"


def guess_format(name: str) -> Format:
    """Choose a format by a file's name: logs are lines, JSON lines are known, the rest is whole."""
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
        name: what its documents' ids start with.
        how: how it is read; AUTO goes by the name.
        metadata: given to every document; what a document says itself goes before it.

    Raises:
        RequestInvalid: a line is not what the format asks for.
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


def _parsed(line: bytes, place: str, *, metadata: Mapping[str, Scalar]) -> Document:
    try:
        row: Any = json.loads(line)
    except ValueError as exc:
        raise RequestInvalid(f"{place}: expected a JSON object, got malformed JSON") from exc
    if not isinstance(row, dict):
        raise RequestInvalid(f"{place}: expected a JSON object, got {type(row).__name__}")
    if unknown := sorted(row.keys() - _FIELDS):
        raise RequestInvalid(f"{place}: expected the keys {sorted(_FIELDS)}, got {unknown[0]!a}")
    own = {} if row.get("metadata") is None else row["metadata"]
    if not isinstance(own, dict):
        raise RequestInvalid(f"{place}: expected an object as metadata, got {type(own).__name__}")
    return Document(
        _text(row, place), id=row.get("id"), metadata={**metadata, **own}, time=row.get("time")
    )


def _text(row: Mapping[str, Any], place: str) -> str | bytes:
    text, encoded = row.get("text"), row.get("text_base64")
    if isinstance(text, str) and encoded is None:
        return text
    if isinstance(encoded, str) and text is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as exc:
            raise RequestInvalid(f"{place}: expected base64 in text_base64") from exc
    raise RequestInvalid(f"{place}: expected exactly one of text and text_base64, as a string")
