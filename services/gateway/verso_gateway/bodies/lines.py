"""Lines of a body as slices, cut at line ends while the body arrives. No step is made a line."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import orjson
import zstandard
from fastapi import Query

from verso_core.errors import RequestInvalid
from verso_core.jobs import SliceSpec, cut_lines
from verso_core.jobs.logs import time_formats
from verso_core.jobs.logs.lines import LINES_BYTES, MAX_LABELS, IngestLinesParams, LinesItem
from verso_core.texts import check_metadata

_LEVEL = 1  # a tenth of most logs at hundreds of megabytes a second


@dataclass(frozen=True, slots=True)
class TimesRead:
    """How the times of plain lines are read.

    ``offset_s`` is the zone of those without one, seconds east of UTC; ``time_format`` as in
    :mod:`verso_core.jobs.logs.time_formats`.
    """

    offset_s: int = 0
    time_format: str = time_formats.AUTO


def times_read(
    zone_offset_s: Annotated[
        int,
        Query(
            ge=-86_400,
            le=86_400,
            description="of times in plain lines without a zone: seconds east of UTC",
        ),
    ] = 0,
    time_format: Annotated[
        str,
        Query(
            description="of times in plain lines: auto, none, iso, syslog, apache, epoch, or a "
            "pattern such as %d.%m.%Y %H:%M:%S"
        ),
    ] = time_formats.AUTO,
) -> TimesRead:
    """Return how a request has the times of its lines read.

    Raises:
        RequestInvalid: there is no such format.
    """
    time_formats.check(time_format)
    return TimesRead(zone_offset_s, time_format)


class LineUpload:
    """Takes the bytes of a body and cuts them after line ends into parts of about one slice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._rest: list[bytes] = []
        self._size = 0

    async def read(self, chunks: AsyncIterator[bytes]) -> None:
        """Take a whole body."""
        async for chunk in chunks:
            self.take(chunk)

    def take(self, chunk: bytes) -> None:
        """Take some bytes of a body."""
        self._rest.append(chunk)
        self._size += len(chunk)
        if self._size < LINES_BYTES or b"\n" not in chunk:
            return
        data = b"".join(self._rest)
        end = data.rfind(b"\n") + 1
        if end:
            self._parts.append(data[:end])
        self._rest, self._size = [data[end:]], len(data) - end

    def finish(self) -> list[bytes]:
        """Return the parts.

        Raises:
            RequestInvalid: there was not a byte.
        """
        if self._size:
            self._parts.append(b"".join(self._rest))
        if not self._parts:
            raise RequestInvalid("expected at least one line")
        return self._parts


def lines_in(part: bytes) -> int:
    """Count the lines of a part; the last one may lack its line end."""
    return part.count(b"\n") + (not part.endswith(b"\n"))


def texts_of(part: bytes) -> bytes | None:
    """Return the texts of NDJSON as lines; None unless every row is ``{"text": one line}``."""
    rows = [row for row in part.split(b"\n") if row and not row.isspace()]
    try:
        values = orjson.loads(b"[" + b",".join(rows) + b"]")
    except orjson.JSONDecodeError:
        return None
    if len(values) != len(rows) or not all(map(_is_plain, values)):
        return None
    texts = [value["text"] for value in values]
    joined = "\n".join(texts)
    if joined.count("\n") != max(0, len(texts) - 1):
        return None  # a text of several lines is a document
    return joined.encode() + b"\n" if texts else b""


def _is_plain(value: object) -> bool:
    return type(value) is dict and len(value) == 1 and type(value.get("text")) is str


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Read the labels of a query: ``key=value``.

    Raises:
        RequestInvalid: one is no pair, or stands twice, or there are too many.
        MetadataInvalid: they are longer than metadata may be.
    """
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in labels:
            raise RequestInvalid(f"expected label=key=value, each key once, got {pair[:64]!a}")
        labels[name] = value
    if len(labels) > MAX_LABELS:
        raise RequestInvalid(f"expected <= {MAX_LABELS} labels, got {len(labels)}")
    check_metadata(labels)
    return labels


def slices_of(
    parts: Sequence[bytes],
    *,
    collection: str,
    uid: str,
    stream: int,
    first: int,
    labels: dict[str, str],
    times: TimesRead,
) -> list[SliceSpec]:
    """Return the slices of a body whose lines have numbers from ``first`` on."""
    params = IngestLinesParams(
        collection=collection,
        uid=uid,
        stream=stream,
        labels=labels,
        arrived=time.time_ns(),
        offset_s=times.offset_s,
        time_format=times.time_format,
    )
    found: list[SliceSpec] = []
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    for part in parts:
        count = lines_in(part)
        item = LinesItem(first, count, packer.compress(part), size=len(part))
        found.append(cut_lines(params, item))
        first += count
    return found
