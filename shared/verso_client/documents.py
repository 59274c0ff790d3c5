"""Documents on their way in: what a caller gives, and the NDJSON uploads made of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from verso_core.errors import RequestInvalid
from verso_core.texts import Scalar

UPLOAD_DOCUMENTS = 2048
UPLOAD_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """A text to be taken in.

    Attributes:
        text: a string, or bytes of any kind; what comes back is these bytes.
        id: 1..256 bytes of UTF-8; without one the platform derives it from the content, so that
            the same document given twice is stored once.
        metadata: scalars that a search may filter on.
        time: Unix seconds, or an aware datetime.
    """

    text: str | bytes
    id: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    time: float | datetime | None = None

    def line(self) -> bytes:
        """Write the document as one line of NDJSON, in ASCII and without its line end.

        A string with lone surrogates is sent as it is: the platform then names the fault.

        Raises:
            RequestInvalid: ``time`` is a datetime without its offset from UTC.
        """
        row: dict[str, Any] = _text_field(self.text)
        if self.id is not None:
            row["id"] = self.id
        if self.metadata:
            row["metadata"] = dict(self.metadata)
        if self.time is not None:
            row["time"] = _unix_seconds(self.time)
        return json.dumps(row, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True)
class Upload:
    """Some documents as one request body."""

    body: bytes
    documents: int


def uploads(
    documents: Iterable[Document],
    *,
    max_documents: int = UPLOAD_DOCUMENTS,
    max_bytes: int = UPLOAD_BYTES,
) -> Iterator[Upload]:
    """Cut documents into uploads, in order; one larger than ``max_bytes`` goes alone."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        line = document.line()
        if lines and (len(lines) >= max_documents or size + len(line) > max_bytes):
            yield Upload(b"\n".join(lines), len(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield Upload(b"\n".join(lines), len(lines))


def _unix_seconds(time: float | datetime) -> float:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise RequestInvalid("expected a time with its offset from UTC, got a naive one")
    return time.timestamp()


def _text_field(text: str | bytes) -> dict[str, Any]:
    if isinstance(text, str):
        return {"text": text}
    try:
        return {"text": text.decode("utf-8")}
    except UnicodeDecodeError:
        return {"text_base64": base64.b64encode(text).decode("ascii")}
