"""A log record as a line of a log collection, and back.

A log collection keeps lines: bytes without a line feed whose time is read from them. A record that
an agent sends has a time beside its body, its body may have line feeds, and it may have attributes.
As a line it is

    2026-11-23T02:06:04.123456789Z BODY
    2026-11-23T02:06:04.123456789Z BODY <NUL><1> T ATTRIBUTES

without the blanks around the second line's parts. In BODY a line feed is written as NUL and a
blank, and NUL as NUL twice. T says whose time it is (:class:`TimeFrom`); ATTRIBUTES is a JSON
object or nothing. A record with the sender's time and without attributes has no such end.

The time is in the first field, where the codec of lines finds it and codes it as a difference to
the line before; attributes that stay the same cost nothing, as they are a part of the line's shape.

The labels of a stream whose lines are records have a mark, so that they are no stream of plain
lines. No caller can send the mark, and none sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from verso_core.errors import RecordCorrupt
from verso_core.jobs.filters.nodes import METADATA
from verso_core.texts import Scalar, values_of

MARK = ""
"""Name of the label that a stream of records has."""
TIME_BYTES = 31
"""Length of the time and the blank behind it."""
EARLIEST_NS, LATEST_NS = 0, (1 << 63) - 1
"""Range of the times of records, Unix nanoseconds: 1970 to 2262."""

_SECOND_NS = 1_000_000_000
_NUL, _END = b"\0", b"\0\1"
_BODY = re.compile(rb"(?:[^\0]++|\0[\0 ])*+", re.DOTALL)
_ESCAPED = re.compile(rb"\0([\0 ])")


class TimeFrom(StrEnum):
    """Whose time a record's time is."""

    SENDER = "sender"
    OBSERVED = "observed"
    ARRIVAL = "arrival"

    @property
    def letter(self) -> bytes:
        """Return the letter that stands for it in a line."""
        return self.value[:1].encode()

    @classmethod
    def of(cls, letter: bytes) -> TimeFrom:
        """Return whose time a letter says.

        Raises:
            RecordCorrupt: it says none.
        """
        for one in cls:
            if one.letter == letter:
                return one
        raise RecordCorrupt("expected the line of a record, got another")


class LineRecord(NamedTuple):
    """What a record's line says, without its time. ``attributes``: JSON of an object, or empty."""

    text: bytes
    time_from: TimeFrom = TimeFrom.SENDER
    attributes: bytes = b""


def marked(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a stream of records."""
    return {**labels, MARK: "record"}


def is_marked(labels: Mapping[str, str]) -> bool:
    """Whether labels are those of a stream of records."""
    return MARK in labels


def public(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels as callers see them."""
    return {name: value for name, value in labels.items() if name != MARK}


def write_line(record: LineRecord, time_ns: int) -> bytes:
    """Return a record as a line, without a line end.

    Args:
        record: the record; its attributes hold no line feed and no NUL, as JSON without indents.
        time_ns: its time, in [``EARLIEST_NS``, ``LATEST_NS``].
    """
    text, time_from, attributes = record
    if _NUL in text:
        text = text.replace(_NUL, _NUL + _NUL)
    if b"\n" in text:
        text = text.replace(b"\n", b"\0 ")
    seconds, rest = divmod(time_ns, _SECOND_NS)
    line = b"%s.%09dZ %s" % (_second(seconds), rest, text)
    if attributes or time_from is not TimeFrom.SENDER:
        return b"".join((line, _END, time_from.letter, attributes))
    return line


def read_line(line: bytes) -> LineRecord:
    """Read what :func:`write_line` wrote.

    Raises:
        RecordCorrupt: it is no record's line.
    """
    if len(line) < TIME_BYTES or line[TIME_BYTES - 2 : TIME_BYTES] != b"Z ":
        raise RecordCorrupt("expected the line of a record, got another")
    text = line[TIME_BYTES:]
    if _NUL not in text:
        return LineRecord(text)
    found = _BODY.match(text)
    end = found.end() if found else 0
    rest = text[end:]
    body = _ESCAPED.sub(lambda one: b"\n" if one[1] == b" " else _NUL, text[:end])
    if not rest:
        return LineRecord(body)
    if not rest.startswith(_END):
        raise RecordCorrupt("expected the line of a record, got another")
    return LineRecord(body, TimeFrom.of(rest[2:3]), rest[3:])


def line_seconds(line: bytes) -> float:
    """Return the time of a record's line, Unix seconds."""
    whole, fraction = line[: TIME_BYTES - 12].decode(), int(line[TIME_BYTES - 11 : TIME_BYTES - 2])
    return (_seconds(whole) * _SECOND_NS + fraction) / 1e9


def attribute_fields(attributes: bytes) -> dict[str, list[Scalar]]:
    """Return the values of a record's attributes by the names that filters have for them."""
    if not attributes:
        return {}
    return {
        METADATA + name: [one for one in values if isinstance(one, str | int | float)]
        for name, values in values_of(json.loads(attributes)).items()
    }


@lru_cache(maxsize=1024)
def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@lru_cache(maxsize=1024)
def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
