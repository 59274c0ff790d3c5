"""Read lines back: one by its id, or all that a filter passes, in order.

Lines of one stream keep their order. Streams are merged by time: a line goes where the greatest
time of its stream so far says, so that a clock that is set back does not tear a stream apart. For
the newest lines first everything is the other way round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import lines as line_codec
from verso_codecs.logs.parsing import Lines
from verso_core.errors import DocumentUnknown, RecordCorrupt, VersoError
from verso_core.jobs import Collection, Failed, NoItem, Result, Slice
from verso_core.jobs.lines import (
    PAGE_BYTES,
    LineOrder,
    LinesPage,
    LinesParams,
    line_id,
    line_place,
    read_cursor,
    write_cursor,
)
from verso_core.jobs.log_records import read_line
from verso_core.jobs.models import text_field
from verso_core.jobs.reconstruct import StoredText
from verso_core.segments import MISSING, Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import BLOCK_LINES, OPEN, RECORDS, set_bits
from verso_worker.rules.logs.bodies import bodies, no_ends
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition, Spans
from verso_worker.rules.logs.rows import rendered
from verso_worker.rules.logs.segments import Opened, open_segments, read_times
from verso_worker.rules.reader import Reader

Numbers = NDArray[np.int64]
_Part = tuple[Lines, Numbers, Numbers, Numbers, NDArray[np.object_]]
"""Lines in order, with the stream, number, time and end of each."""
_TRIES = 3
"""Readings of a segment that others may have replaced."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Lines of a stream, in its order. Shape of each array: (lines,).

    Attributes:
        stream: their stream.
        numbers: of the lines.
        when: their times, Unix nanoseconds.
        passing: whether each is there and passes the filter.
        lines: the lines themselves, of records their bodies.
        ends: what stands behind the body of each record, bytes.
    """

    stream: int
    numbers: Numbers
    when: Numbers
    passing: NDArray[np.bool_]
    lines: Lines
    ends: NDArray[np.object_]

    def take(self, chosen: Numbers) -> Batch:
        """Return some of the lines, in the order of ``chosen``."""
        return Batch(
            self.stream,
            self.numbers[chosen],
            self.when[chosen],
            self.passing[chosen],
            line_arrays.take(self.lines, chosen),
            self.ends[chosen],
        )


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was read, and its time, Unix nanoseconds; ``end``: as :class:`Batch` has it."""

    stream: int
    number: int
    time_ns: int
    text: bytes
    end: bytes = b""


@dataclass(frozen=True, slots=True)
class LinesRead:
    """Lines in order; ``places``: where each stream goes on behind them."""

    lines: list[Line]
    places: dict[int, int]


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads lines of log collections."""

    store: LogStore
    reader: Reader

    def texts(self, collection: Collection, ids: Sequence[str]) -> dict[str, StoredText | Failed]:
        """Return lines by id, or the error of each; those that no segment holds are left out."""
        log = self.store.open(collection.name, dim=collection.dim)
        found: dict[str, StoredText | Failed] = {}
        for name in ids:
            place = line_place(name)
            if place is None:
                continue
            try:
                row = self._line(log, collection, *place)
            except VersoError as error:
                if error.retryable:
                    raise
                found[name] = Failed.of(error, id=name)
                continue
            if row is not None:
                text, time_ns = row
                found[name] = StoredText.model_validate(
                    {
                        "id": name,
                        "exact": True,
                        "chunks": 1,
                        "metadata": log.labels(place[0]),
                        "time": time_ns / 1e9,
                        **text_field(text),
                    }
                )
        return found

    def _line(
        self, log: LogCollection, collection: Collection, stream: int, number: int
    ) -> tuple[bytes, int] | None:
        """Return a line and its time; None if no segment holds it."""
        for _ in range(_TRIES):
            segments = log.overlapping(stream, number, number + 1)
            if not segments:
                return None
            deleted = self.deleted(log, segments[0])
            [opened] = open_segments(self.store.ledger, log, segments)
            if opened is not None:
                break
            log.refresh()  # it was merged with others
        else:
            raise RecordCorrupt("a segment is not where the ledger lists it")
        at = number - segments[0].first
        if opened.is_records:
            return self._body(log, collection, opened, at)
        if deleted[at]:
            return None
        block, place = opened.block(log, at // BLOCK_LINES), at % BLOCK_LINES
        text = block.lines.line(place)
        if log.holds_records(stream):
            text = read_line(text).text
        return text, int(block.when[place])

    def _body(
        self, log: LogCollection, collection: Collection, opened: Opened, at: int
    ) -> tuple[bytes, int] | None:
        """Return the body and the time of a record that is a document; None of a plain line."""
        stream, number = opened.segment.stream, opened.segment.first + at
        if not log.holds_records(stream):
            return None
        name = line_id(stream, number)
        found = self.reader.texts(collection, [name])[name]
        if not isinstance(found, tuple):
            return None
        when = read_times(line_arrays.of_rows([found[1]]), opened.front.times)
        return read_line(found[1]).text, int(when[0])

    def deleted(self, log: LogCollection, segment: Segment) -> NDArray[np.bool_]:
        """Return which lines of a segment are deleted. Shape: (lines,).

        It is to be read before the segment: a segment that is replaced loses its bitmap.

        Raises:
            RecordCorrupt: it is not known any more.
        """
        [bitmap] = self.store.ledger.gone(log.uid, [(segment.stream, segment.first)])
        return set_bits(bitmap, segment.lines)

    def batch(
        self,
        log: LogCollection,
        collection: Collection,
        segment: Segment,
        condition: Condition,
        *,
        skip_damaged: bool = False,
    ) -> Batch | None:
        """Return all lines of a segment; None if it was replaced or deleted meanwhile.

        Lines that cannot be read are empty and do not pass, with ``skip_damaged``.

        Raises:
            RecordCorrupt: a block does not read back.
        """
        deleted = self.deleted(log, segment)
        [opened] = open_segments(self.store.ledger, log, [segment])
        if opened is None:
            return None
        numbers = np.arange(segment.first, segment.end)
        if opened.is_records:
            lines, there = self._documents(collection, segment, skip_damaged=skip_damaged)
        elif skip_damaged:
            lines, there = self._readable(log, opened)
            there = there & ~deleted
        else:
            lines, there = opened.lines(log, self.store.readers), ~deleted
        when = read_times(lines, opened.front.times, latest_ns=segment.latest)
        source = log.source(segment.stream)
        ends = no_ends(segment.lines)
        if source.records:
            lines, ends = bodies(lines)
        passes = condition.of_segment(segment, source)
        if passes is None:
            there = there & condition.of_lines(
                source, stream=segment.stream, numbers=numbers, when=when, ends=ends
            )
        elif not passes:
            there = np.zeros(segment.lines, np.bool_)
        return Batch(segment.stream, numbers, when, there, lines, ends)

    def _readable(self, log: LogCollection, opened: Opened) -> tuple[Lines, NDArray[np.bool_]]:
        """Return the lines of a segment, empty ones for those of damaged blocks, and which are."""
        blocks = opened.readable(log, self.store.readers)
        sizes = [opened.front.lines_of(number) for number in range(len(blocks))]
        parts = [
            line_arrays.of_rows([b""] * size) if block is None else block
            for block, size in zip(blocks, sizes, strict=True)
        ]
        there = np.repeat([block is not None for block in blocks], sizes)
        return line_arrays.joined(parts), there

    def _documents(
        self, collection: Collection, segment: Segment, *, skip_damaged: bool
    ) -> tuple[Lines, NDArray[np.bool_]]:
        names = [line_id(segment.stream, n) for n in range(segment.first, segment.end)]
        texts = self.reader.texts(collection, names)
        rows = [found[1] if isinstance(found := texts[name], tuple) else b"" for name in names]
        for name in names:
            error = texts[name]
            if not isinstance(error, VersoError) or isinstance(error, DocumentUnknown):
                continue
            if error.retryable or not skip_damaged:
                raise error
        there = np.array([isinstance(texts[name], tuple) for name in names], np.bool_)
        return line_arrays.of_rows(rows), there

    def page(self, work: Slice[LinesParams, NoItem], collection: Collection) -> Result[LinesPage]:
        """Return a page of the lines that a filter passes.

        Raises:
            RequestInvalid: the cursor is none of this list.
            RecordCorrupt: a block does not read back.
        """
        asked = work.params
        log = self.store.open(collection.name, dim=collection.dim)
        places = {} if asked.cursor is None else read_cursor(asked.cursor, asked.order)
        page = _Page(self, log, collection, asked, places)
        page.fill()
        return Result([page.result()])

    def read(
        self,
        log: LogCollection,
        collection: Collection,
        asked: LinesParams,
        places: Mapping[int, int],
    ) -> LinesRead:
        """Return lines of blocks, without those that are documents, from places in streams on.

        Raises:
            RecordCorrupt: a block does not read back.
        """
        page = _Page(self, log, collection, asked, places, records=False)
        page.fill()
        return LinesRead(page.lines(), page.places)


@dataclass(slots=True, eq=False)
class _Stream:
    """Where the list stands in one stream.

    ``waiting``: segments to read. ``batch``: what was read of the stream and is not in a page yet,
    in the list's order, with ascending ``keys``. ``missed``: how often a segment was not there.
    """

    number: int
    waiting: list[Segment]
    place: int
    batch: Batch | None = None
    keys: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    greatest: int = MISSING
    missed: int = 0


class _Page:
    """One page of a list."""

    def __init__(
        self,
        reader: LineReader,
        log: LogCollection,
        collection: Collection,
        asked: LinesParams,
        places: Mapping[int, int],
        *,
        records: bool = True,
    ) -> None:
        self._reader = reader
        self._log = log
        self._collection = collection
        self._asked = asked
        self._newest = asked.order is LineOrder.NEWEST
        self._condition = Condition.of(asked.filter, start_ns=asked.start_ns, end_ns=asked.end_ns)
        self._needle = (asked.contains or "").encode("utf-8", "surrogatepass")
        self._records = records
        self.places = dict(places)
        self._parts: list[_Part] = []
        self._size = 0
        self._count = 0
        self._open_end = False
        self._streams = self._started()

    def fill(self) -> None:
        """Read lines until the page is full or the list ends."""
        while self._streams and not self._full:
            bound = self._ready()
            if bound is None:
                break
            self._emit(bound)

    def result(self) -> LinesPage:
        """Return the page."""
        more = bool(self._streams)
        data = b"".join(self._rendered())
        if not more and self._asked.raw and self._open_end and not self._newest:
            data = data.removesuffix(b"\n")
        cursor = write_cursor(self._asked.order, self.places) if more else None
        return LinesPage(lines=self._count, data=data, next_cursor=cursor)

    @property
    def _full(self) -> bool:
        limit = self._asked.limit
        return self._size >= PAGE_BYTES or (limit > 0 and self._count >= limit)

    def _started(self) -> dict[int, _Stream]:
        found: dict[int, _Stream] = {}
        for stream in self._log.streams():
            start = self.places.get(stream, 1 << 62 if self._newest else 0)
            if waiting := self._waiting(stream, start):
                found[stream] = _Stream(stream, waiting, start)
        return found

    def _waiting(self, stream: int, start: int) -> list[Segment]:
        """Return the segments of a stream that hold lines of the list from a place on."""
        segments = self._log.segments(stream)
        if not self._records:
            segments = [one for one in segments if not one.flags & RECORDS]
        at = bisect_left(segments, start, key=lambda one: one.first)
        if self._newest:
            segments = segments[:at]
        else:  # the one before may hold the place too
            segments = [one for one in segments[max(0, at - 1) :] if one.end > start]
        passing = self._condition.of_stream(Spans.of(segments), self._log.source(stream))
        chosen = [segments[n] for n in np.flatnonzero(~passing.none).tolist()]
        return chosen[::-1] if self._newest else chosen

    def _ready(self) -> int | None:
        """Read until it is known which lines come next; return the greatest of their keys."""
        while True:
            opened = [one for one in self._streams.values() if one.batch is not None]
            bound = min((int(one.keys[-1]) for one in opened), default=None)
            late = [
                (self._least(one), stream)
                for stream, one in self._streams.items()
                if one.batch is None and (bound is None or self._least(one) <= bound)
            ]
            if not late:
                return bound
            _, stream = min(late)
            if not self._read(self._streams[stream]):
                del self._streams[stream]

    def _least(self, one: _Stream) -> int:
        """Return a bound of the keys that the next segment of a stream may have."""
        segment = one.waiting[0]
        return max(one.greatest, -segment.latest if self._newest else segment.earliest)

    def _read(self, one: _Stream) -> bool:
        """Read a stream's next lines; return whether there are any."""
        while one.waiting:
            skip = self._asked.skip_damaged
            try:
                batch = self._reader.batch(
                    self._log, self._collection, one.waiting.pop(0), self._condition,
                    skip_damaged=skip,
                )  # fmt: skip
            except RecordCorrupt:
                if not skip:
                    raise
                continue  # none of its lines is known
            if batch is None:  # it was replaced or deleted meanwhile
                one.missed += 1
                if one.missed > _TRIES:
                    raise RecordCorrupt("a segment is not where the ledger lists it")
                self._log.refresh()
                one.waiting = self._waiting(one.number, one.place)
                continue
            one.missed = 0
            inside = batch.numbers < one.place if self._newest else batch.numbers >= one.place
            chosen = np.flatnonzero(inside)
            if not len(chosen):
                continue
            chosen = chosen[::-1] if self._newest else chosen
            batch = batch.take(chosen)
            keys = np.maximum.accumulate(-batch.when if self._newest else batch.when)
            one.keys = np.maximum(keys, one.greatest)
            one.greatest = int(one.keys[-1])
            one.batch = batch
            return True
        return False

    def _emit(self, bound: int) -> None:
        """Move the lines up to a key into the page, in order, as far as they fit."""
        taken = {
            stream: int(np.searchsorted(one.keys, bound, side="right"))
            for stream, one in sorted(self._streams.items())
            if one.batch is not None
        }
        parts = [(self._streams[stream], count) for stream, count in taken.items() if count]
        lines = line_arrays.joined(
            [line_arrays.take(one.batch.lines, np.arange(n)) for one, n in parts if one.batch]
        )
        stream_of = np.concatenate([np.full(n, one.batch.stream) for one, n in parts if one.batch])
        numbers = np.concatenate([one.batch.numbers[:n] for one, n in parts if one.batch])
        when = np.concatenate([one.batch.when[:n] for one, n in parts if one.batch])
        passing = np.concatenate([one.batch.passing[:n] for one, n in parts if one.batch])
        ends = np.concatenate([one.batch.ends[:n] for one, n in parts if one.batch])
        if self._needle:
            passing = passing & line_codec.find(lines, self._needle)
        if len(parts) > 1:
            order = np.argsort(np.concatenate([one.keys[:n] for one, n in parts]), kind="stable")
        else:
            order = np.arange(len(numbers))
        chosen, done = self._fitting(order, passing[order])
        found = line_arrays.take(lines, chosen)
        self._parts.append((found, stream_of[chosen], numbers[chosen], when[chosen], ends[chosen]))
        self._count += len(chosen)
        self._size += len(found.data)
        self._pass_over(stream_of[order[:done]])
        if len(chosen):
            self._note_end(int(stream_of[chosen[-1]]), int(numbers[chosen[-1]]))

    def _fitting(self, order: Numbers, passing: NDArray[np.bool_]) -> tuple[Numbers, int]:
        """Return the passing lines that fit into the page, and how many lines that passes over."""
        chosen = np.flatnonzero(passing)
        limit = self._asked.limit
        room = limit - self._count if limit else len(chosen)
        if room < len(chosen):
            return order[chosen[:room]], int(chosen[room - 1]) + 1 if room else 0
        return order[chosen], len(order)

    def _pass_over(self, stream_of: Numbers) -> None:
        """Note how far the list has come in each stream."""
        streams, counts = np.unique(stream_of, return_counts=True)
        for stream, count in zip(streams.tolist(), counts.tolist(), strict=True):
            one = self._streams[stream]
            assert one.batch is not None
            last = int(one.batch.numbers[count - 1])
            self.places[stream] = one.place = last if self._newest else last + 1
            if count < len(one.keys):
                one.batch = one.batch.take(np.arange(count, len(one.keys)))
                one.keys = one.keys[count:]
                continue
            one.batch = None
            if not one.waiting:
                del self._streams[stream]

    def _note_end(self, stream: int, number: int) -> None:
        """Note whether the last line of the page is the last of its stream, without a line end."""
        last = self._log.segments(stream)[-1]
        self._open_end = bool(last.flags & OPEN) and number == last.end - 1

    def lines(self) -> list[Line]:
        """Return the lines of the page."""
        return [line for part in self._parts for line in _lines_in(*part)]

    def _rendered(self) -> Iterator[bytes]:
        for part in self._parts:
            if self._asked.raw:
                yield part[0].data.tobytes()
                continue
            labels = {stream: self._log.labels(stream) for stream in np.unique(part[1]).tolist()}
            yield rendered(*part, labels)


def _lines_in(
    lines: Lines, streams: Numbers, numbers: Numbers, when: Numbers, ends: NDArray[np.object_]
) -> Iterator[Line]:
    texts = line_arrays.rows(lines)
    places = streams.tolist(), numbers.tolist(), when.tolist()
    for row in zip(*places, texts, ends.tolist(), strict=True):
        yield Line(*row)
