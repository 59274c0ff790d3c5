"""Log lines: ingest whole bodies of them, and read them back in order.

A line's id is ``stream:number``: the stream is that of its labels, the number its place in it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from verso_core.errors import RequestInvalid
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.filters.times import seconds
from verso_core.jobs.logs.records import TimeFrom
from verso_core.jobs.logs.time_formats import AUTO
from verso_core.jobs.models import (
    ITEM_COST,
    Item,
    ItemError,
    ItemResult,
    MissingPartitions,
    Name,
    OpenModel,
    Params,
)

LINES_BYTES = 2 << 20
"""Bytes of lines in one slice, about: cut at the next line end."""
PAGE_BYTES = 4 << 20
"""Bytes of text in one page of lines, about."""
MAX_AROUND = 100
"""Most lines before a line, and after it, that a query shows."""
MAX_CURSOR = 786_432
"""Most characters of a cursor that a caller sends: of a list that has come to 45,000 streams."""
PAGE_AROUND = 200
"""Lines in one page with others around each."""
MAX_LABELS = 32
"""Most labels of a stream."""
_SHARE = 64  # a line is parsed and coded so many times faster than a model reads its text
_SECOND_NS = 1_000_000_000
_LIMIT_NS = (1 << 63) - 1
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})\d*")
_NEAREST = "nearest"
_ID = re.compile(r"(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,15})")


def line_id(stream: int, number: int) -> str:
    """Return the id of a line."""
    return f"{stream}:{number}"


def line_place(name: str) -> tuple[int, int] | None:
    """Return the stream and number that an id names; None for an id of another kind."""
    found = _ID.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


class IngestLinesParams(Params):
    """Where the lines of a slice are written.

    ``uid`` is that of the collection when the numbers were reserved, ``arrived`` is in Unix
    nanoseconds, ``time_format`` as in :mod:`verso_core.jobs.logs.time_formats`.
    """

    collection: str
    uid: str
    stream: int
    labels: dict[str, str]
    arrived: int
    offset_s: int = 0
    time_format: str = AUTO

    def cost(self, item: Item) -> int:
        """Return the cost of lines, which no model reads but those of a new statement."""
        size = max(item.size, len(item.text)) if isinstance(item, LinesItem) else 0
        return ITEM_COST + size // _SHARE


@dataclass(frozen=True, slots=True)
class LinesItem(Item):
    """Consecutive lines of a stream, each with its line end but perhaps the last.

    ``text`` is a Zstandard frame of ``size`` bytes of lines, or the lines themselves where that
    is 0: they wait in the ledger until they are verified and then for the retention of raw texts.
    """

    BLOB: ClassVar = "text"

    first: int
    count: int
    text: bytes
    size: int = 0


class LinesIngested(ItemResult):
    """What became of the lines of a slice."""

    stream: int
    first: int
    lines: int
    records: int = Field(default=0, description="lines that were stored as records of their own")
    bytes_text: int = 0
    bytes_stored: int = 0
    shapes: int = Field(default=0, description="new ones")
    statements: int = Field(default=0, description="new ones")


class LineOrder(StrEnum):
    """Which lines come first. Lines of one stream keep their order, or have it reversed."""

    OLDEST = "oldest"
    NEWEST = "newest"


def time_ns(value: float | str) -> int:
    """Return a time as Unix nanoseconds: from Unix seconds, or RFC 3339 with an offset.

    A time before 1678 or after 2262 is as early or late as a time can be.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str):
        found = _FRACTION.search(value)
        fraction = found[1] if found else ""
        whole = value if found is None else value[: found.start()] + value[found.end() :]
        return _in_range(round(seconds(whole)) * _SECOND_NS + int(fraction.ljust(9, "0")))
    # as a float first: nanoseconds of the largest numbers are infinite
    return round(max(-_LIMIT_NS, min(seconds(value) * _SECOND_NS, _LIMIT_NS)))


def _in_range(found_ns: int) -> int:
    return max(-_LIMIT_NS, min(found_ns, _LIMIT_NS))


def _checked_time(value: float | str | None) -> float | str | None:
    if value is not None:
        time_ns(value)
    return value


LineTime = Annotated[
    float | str | None,
    AfterValidator(_checked_time),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "format": "date-time"},
                {"type": "null"},
            ]
        }
    ),
]
"""A bound of the times of lines: Unix seconds, or RFC 3339, exact to the nanosecond."""


class LinesOptions(Params):
    """Which lines are read; shared by its request and its slice."""

    filter: Filter | None = Field(default=None, description="of labels, time and id")
    contains: str | None = Field(default=None, max_length=4096, description="bytes of the line")
    question: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="the lines nearest to it come first, and order says nothing",
    )
    statement: str | None = Field(
        default=None, pattern=r"^[0-9]{1,15}$", description="id of the statement of the lines"
    )
    order: LineOrder = LineOrder.OLDEST
    before: int = Field(
        default=0, ge=0, le=MAX_AROUND, description="lines of the same source before each"
    )
    after: int = Field(default=0, ge=0, le=MAX_AROUND, description="likewise behind it")
    limit: int = Field(default=1000, ge=0, description="0: all")
    cursor: str | None = Field(default=None, max_length=MAX_CURSOR)
    raw: bool = Field(default=False, description="the lines' bytes alone, not JSON")
    skip_damaged: bool = Field(
        default=False, description="leave out lines that cannot be read; else they are an error"
    )


class LinesRequest(LinesOptions):
    """Body of ``POST /v1/logs/query``."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    collection: Name = "default"
    from_: LineTime = Field(default=None, alias="from", description="the first time, inclusive")
    to: LineTime = Field(default=None, description="the last time, exclusive")

    def check_cursor(self) -> None:
        """Check the cursor.

        Raises:
            RequestInvalid: it is none of this list.
        """
        if self.cursor is None:
            return
        if self.question is None:
            read_cursor(self.cursor, self.order)
        else:
            Nearest.read(self.cursor)

    def params(self) -> LinesParams:
        """Return the params of the request's first slice."""
        options = {name: getattr(self, name) for name in LinesOptions.model_fields}
        return LinesParams(**options, collection=self.collection, **span_ns(self.from_, self.to))


def span_ns(start: float | str | None, end: float | str | None) -> dict[str, int]:
    """Return a range of times as params have it, without a bound that is not given."""
    bounds = {"start_ns": start, "end_ns": end}
    return {name: time_ns(one) for name, one in bounds.items() if one is not None}


class LinesParams(LinesOptions):
    """A page of the lines of a collection; their times are in [``start_ns``, ``end_ns``).

    ``template``: only of the statement whose template this is, as partitions are asked.
    ``cursor``: of any length, as a list of all lines goes on by itself.
    """

    collection: str
    cursor: str | None = None
    template: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def page_limit(self) -> int:
        """Return most lines of a page; 0: as many as fit."""
        if not (self.before or self.after):
            return self.limit
        return min(self.limit or PAGE_AROUND, PAGE_AROUND)

    def cost(self, item: Item) -> int:
        """Return the cost of a page."""
        return super().cost(item) + PAGE_BYTES // _SHARE


class Waiting(OpenModel):
    """Lines that were accepted and are not stored yet, so that no read finds them."""

    lines: int = 0
    oldest_s: float | None = Field(default=None, description="age of the oldest, seconds")


class LineRow(OpenModel):
    """One row in the stream that a query answers: a line; or at last where the next page starts."""

    id: str | None = Field(default=None, examples=["3:1042"])
    time: str | None = Field(default=None, description="RFC 3339, UTC, as exact as it was written")
    text: str | None = None
    text_base64: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    time_from: TimeFrom | None = Field(
        default=None, description="of a log record whose time is not its sender's"
    )
    attributes: dict[str, Any] | None = Field(
        default=None, description="of a log record: what it says besides text, time and labels"
    )
    score: float | None = Field(
        default=None, description="of its statement, of lines nearest to a question"
    )
    statement: str | None = Field(default=None, description="likewise: the statement's id")
    before: tuple[LineRow, ...] = Field(default=(), description="lines before it, in order")
    after: tuple[LineRow, ...] = Field(default=(), description="lines behind it, in order")
    next_cursor: str | None = Field(default=None, description="in a row of its own, if more follow")
    waiting: Waiting | None = Field(
        default=None, description="in a row of its own, if accepted lines are not stored yet"
    )
    missing_partitions: MissingPartitions = ()
    error: ItemError | None = Field(default=None, description="in a row of its own, which is last")

    @property
    def data(self) -> bytes:
        """The exact bytes of the line; none in a row that is no line."""
        if self.text_base64 is not None:
            return base64.b64decode(self.text_base64, validate=True)
        return (self.text or "").encode()


class LinesPage(ItemResult):
    """A page of lines: NDJSON, or the lines' bytes. ``next_cursor`` is None on the last one."""

    lines: int
    data: SkipJsonSchema[bytes] = Field(default=b"", exclude=True, repr=False)
    next_cursor: str | None = None

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object, in which the lines are a blob."""
        header = super().frame_header(blobs)
        header.pop("data", None)
        blobs.append(self.data)
        return header | {"blob": len(blobs) - 1}

    @classmethod
    def from_frame(cls, header: Mapping[str, Any], blobs: list[bytes]) -> LinesPage:
        """Read what :meth:`frame_header` wrote."""
        fields = {name: value for name, value in header.items() if name != "blob"}
        return cls.model_validate(fields | {"data": bytes(blobs[header["blob"]])})


@dataclass(frozen=True, slots=True)
class Nearest:
    """Where a list of the lines nearest to a question goes on.

    Attributes:
        done: statements all of whose lines were listed, each by a number that stays.
        current: the one under way.
        places: the number at which each stream of it goes on.
    """

    done: tuple[int, ...] = ()
    current: int | None = None
    places: Mapping[int, int] = field(default_factory=dict)

    def cursor(self) -> str:
        """Write the place as a cursor."""
        return _written([_NEAREST, self.done, self.current, sorted(self.places.items())])

    @classmethod
    def read(cls, cursor: str) -> Nearest:
        """Read a cursor.

        Raises:
            RequestInvalid: it is none of such a list.
        """
        try:
            kept, done, current, places = _row_of(cursor)
            found = cls(
                tuple(int(one) for one in done),
                None if current is None else int(current),
                {int(stream): int(number) for stream, number in places},
            )
        except (ValueError, TypeError) as exc:
            raise RequestInvalid("expected a cursor of this list") from exc
        if kept != _NEAREST:
            raise RequestInvalid("expected a cursor of this list, of a question")
        return found


def write_cursor(order: LineOrder, places: Mapping[int, int]) -> str:
    """Return the cursor of a list that goes on at a number in each stream."""
    return _written([order, sorted(places.items())])


def read_cursor(cursor: str, order: LineOrder) -> dict[int, int]:
    """Read a cursor of a list in the same order.

    Raises:
        RequestInvalid: it is none.
    """
    try:
        kept, rows = _row_of(cursor)
        places = {int(stream): int(number) for stream, number in rows}
    except (ValueError, TypeError) as exc:
        raise RequestInvalid("expected a cursor of this list") from exc
    if kept != order:
        raise RequestInvalid("expected a cursor of this list, in the same order")
    return places


def _written(row: list[Any]) -> str:
    text = json.dumps(row, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _row_of(cursor: str) -> Any:
    """Return what a cursor says.

    Raises:
        ValueError: it is none.
    """
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, RecursionError) as exc:
        raise ValueError("expected a cursor") from exc
