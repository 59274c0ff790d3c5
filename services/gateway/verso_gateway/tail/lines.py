"""Lines of accepted slices as events, before any worker has seen them."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
import zstandard

from verso_core.errors import RecordCorrupt
from verso_core.jobs import Filter, read_slice
from verso_core.jobs.filters.compiled import compiled
from verso_core.jobs.filters.nodes import ID, METADATA, TIME, Node, holds, tests_in
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem, line_id
from verso_core.jobs.logs.records import (
    TIME_BYTES,
    LineRecord,
    TimeFrom,
    attribute_fields,
    is_marked,
    line_seconds,
    public,
    read_line,
)
from verso_core.jobs.logs.tail import TailPlace
from verso_core.texts import Scalar

_ESCAPED = (b"\n", b"\0")


@dataclass(frozen=True, slots=True)
class OpenedSlice:
    """The lines of a slice.

    Attributes:
        text: the lines, each with its line end but perhaps the last.
        stream: number of their stream.
        first: number of the first line in the stream.
        lines: how many there are.
        labels: of the stream, as callers see them.
        records: whether the lines are log records.
        arrived: when they were accepted, RFC 3339.
        arrived_s: the same, Unix seconds.
    """

    text: bytes
    stream: int
    first: int
    lines: int
    labels: dict[str, str]
    records: bool
    arrived: str
    arrived_s: float

    @classmethod
    def read(cls, payload: bytes) -> OpenedSlice:
        """Read the payload of a slice of lines.

        Raises:
            FrameInvalid: it is none.
        """
        read = read_slice(payload)
        params, item = read.params, read.only
        assert isinstance(params, IngestLinesParams)
        assert isinstance(item, LinesItem)
        text = item.text
        if item.size:
            text = zstandard.ZstdDecompressor().decompress(text, max_output_size=item.size)
        return cls(
            text=text,
            stream=params.stream,
            first=item.first,
            lines=item.count,
            labels=public(params.labels),
            records=is_marked(params.labels),
            arrived=_moment(params.arrived),
            arrived_s=params.arrived / 1e9,
        )

    def offset(self, index: int) -> int:
        """Return where a line begins, bytes."""
        place = 0
        for _ in range(index):
            place = self.text.index(b"\n", place) + 1
        return place


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines a reader wants: those that pass a filter and hold some bytes.

    Of a log record a field is an attribute if no label has the name. A plain line has the time of
    its arrival: a worker finds its own later. ``fields``: those that the filter names.
    """

    node: Node | bool = True
    contains: bytes = b""
    fields: frozenset[str] = frozenset()

    @classmethod
    def of(cls, where: Filter | None, contains: str | None) -> Wanted:
        """Return what a request wants."""
        node = compiled(where)
        tests = () if isinstance(node, bool) else tests_in(node)
        return cls(node, (contains or "").encode(), frozenset(one.field for one in tests))

    def may_hold(self, opened: OpenedSlice) -> bool:
        """Whether a slice may hold lines that are wanted."""
        if isinstance(self.node, bool):
            fits = self.node
        else:
            fits = self._differs(opened) or holds(self.node, _fields(opened))
        plain = not (opened.records and any(one in self.contains for one in _ESCAPED))
        return fits and (not plain or self.contains in opened.text)

    def fits(self, opened: OpenedSlice, name: str, line: bytes, record: LineRecord | None) -> bool:
        """Whether the filter holds for a line of a slice that may hold wanted ones.

        Args:
            opened: the slice.
            name: the line's id.
            line: its bytes.
            record: what they say; None of a plain line.
        """
        if isinstance(self.node, bool) or not self._differs(opened):
            return True
        fields: dict[str, list[Scalar]] = {**_fields(opened), ID: [name]}
        if record is not None:
            if TIME in self.fields:
                fields[TIME] = [line_seconds(line)]
            fields = {**attribute_fields(record.attributes), **fields}
        return holds(self.node, fields)

    def _differs(self, opened: OpenedSlice) -> bool:
        """Whether the filter may hold for one line of a slice and not for another."""
        shared = _fields(opened).keys() - {TIME}
        return ID in self.fields or (opened.records and not self.fields <= shared)


class Part(NamedTuple):
    """Events of some lines of a slice.

    Attributes:
        data: the events.
        line: place in the slice of the first line that was not looked at.
        offset: where that line begins, bytes.
        sent: how many lines are in the events.
    """

    data: bytes
    line: int
    offset: int
    sent: int


def part_of(
    opened: OpenedSlice, wanted: Wanted, start: TailPlace, index: int, offset: int, *, most: int
) -> Part:
    """Return the events of the lines of a slice from one on.

    Args:
        opened: the slice.
        wanted: which lines become events.
        start: the place of the slice's first line.
        index: of the first line that is looked at, in the slice.
        offset: where it begins, bytes.
        most: bytes of events after which no more are added.
    """
    text, events, size, sent = opened.text, [], 0, 0
    while offset < len(text) and size < most:
        end = text.find(b"\n", offset)
        end = len(text) if end < 0 else end
        name = line_id(opened.stream, opened.first + index)
        row = _row(opened, text[offset:end], name, wanted)
        if row is not None:
            data = b"event: line\ndata: %b\nid: %b\n\n" % (
                orjson.dumps(row),
                str(TailPlace(start.uid, start.number + index)).encode(),
            )
            events.append(data)
            size += len(data)
            sent += 1
        offset, index = end + 1, index + 1
    return Part(b"".join(events), opened.lines if offset >= len(text) else index, offset, sent)


def _row(opened: OpenedSlice, line: bytes, name: str, wanted: Wanted) -> dict[str, Any] | None:
    """Return the data of a line's event; None for a line that is not wanted."""
    read = None
    row: dict[str, Any] = {"id": name, "arrived": opened.arrived}
    if opened.records:
        with suppress(RecordCorrupt):  # it is shown as it is
            read = read_line(line)
            row["time"] = _shortened(line[: TIME_BYTES - 1].decode())
    record = read or LineRecord(line)
    if wanted.contains not in record.text or not wanted.fits(opened, name, line, read):
        return None
    try:
        row["text"] = record.text.decode()
    except UnicodeDecodeError:
        row["text_base64"] = base64.b64encode(record.text).decode("ascii")
    if opened.labels:
        row["labels"] = opened.labels
    if record.time_from is not TimeFrom.SENDER:
        row["time_from"] = record.time_from
    if record.attributes:
        row["attributes"] = orjson.Fragment(record.attributes)
    return row


def _fields(opened: OpenedSlice) -> dict[str, list[Scalar]]:
    """Return the values that all lines of a slice have."""
    labels: dict[str, list[Scalar]] = {
        METADATA + name: [value] for name, value in opened.labels.items()
    }
    return {**labels, TIME: [opened.arrived_s]}


def _moment(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return _shortened(f"{whole}.{rest:09d}Z")


def _shortened(time: str) -> str:
    """Return a time without zeros at the end of its fraction."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    digits = fraction.rstrip("0")
    return f"{whole}.{digits}Z" if digits else f"{whole}Z"
