"""Pages of lines in order, as a filter passes them.

Lines of one stream keep their order. Streams are merged by time: a line goes where the greatest
time of its stream so far says, so that a clock that is set back does not tear a stream apart. For
the newest lines first everything is the other way round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import lines as line_codec
from verso_codecs.logs.parsing import Lines
from verso_core.errors import RecordCorrupt
from verso_core.jobs import Collection
from verso_core.jobs.logs.lines import PAGE_BYTES, LineOrder, LinesParams
from verso_core.segments import MISSING, Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import BLOCK_LINES, OPEN, RECORDS, SEGMENT_BLOCKS
from verso_worker.rules.logs.collection import LogCollection
from verso_worker.rules.logs.conditions import Condition, Spans
from verso_worker.rules.logs.query.choice import Choice
from verso_worker.rules.logs.query.context import Around
from verso_worker.rules.logs.reading import Batch, Line, LineReader, passing_batch
from verso_worker.rules.logs.rows import rendered
from verso_worker.rules.logs.segments import Block, Opened, open_segments

Numbers = NDArray[np.int64]
Part = tuple[Lines, Numbers, Numbers, Numbers, NDArray[np.object_]]
"""Lines in order, with the stream, number, time and end of each."""
_TRIES = 3
"""Readings of a segment that others may have replaced."""
_MOST_BYTES = 8 * PAGE_BYTES
"""Most bytes of a page but for its last line, however many streams have lines of one time."""
_FEW_LINES = 10_000
"""For a page of at most so many lines no stream is read whose lines are behind all of them."""


_MOST_BLOCKS, _FEW_BLOCKS = 2048, 256
"""Blocks that are in memory, as many of each stream, one at least: what was read is kept until its
lines come, and those of a later page are read again. The second is for pages of few lines."""


@dataclass(slots=True, eq=False)
class _Stream:
    """Where the list stands in one stream.

    ``waiting``: segments to read. ``blocks``: those of the first one that are left, if it was not
    read as a whole. ``batch``: what was read of the stream and is not in a page yet,
    in the list's order, with ascending ``keys``. ``missed``: how often a segment was not there.
    """

    number: int
    waiting: list[Segment]
    place: int
    batch: Batch | None = None
    keys: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    greatest: int = MISSING
    missed: int = 0
    blocks: list[int] = field(default_factory=list)

    def take(self, most: int) -> tuple[Segment, list[int]]:
        """Return the segment that is read next, and which of its blocks; none: all of it."""
        segment = self.waiting[0]
        numbers, self.blocks = self.blocks[:most], self.blocks[most:]
        if not self.blocks:
            self.waiting.pop(0)
        return segment, numbers


@dataclass(slots=True, eq=False)
class _Bound:
    """How far it is known which lines come next, by what was read of the streams.

    Attributes:
        room: lines that fit into the page; 0: it does not matter how many.
        last: the least of the last keys; streams that begin behind it need not be read.
        nearest: the least keys of lines that pass, ``room`` of them as soon as there are as many.
    """

    room: int
    last: int | None = None
    nearest: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, one: _Stream) -> None:
        """Add what was read of a stream."""
        assert one.batch is not None
        last = int(one.keys[-1])
        self.last = last if self.last is None else min(self.last, last)
        if not 0 < self.room <= _FEW_LINES:
            return
        keys = np.concatenate((self.nearest, one.keys[one.batch.passing][: self.room]))
        more = len(keys) > self.room
        self.nearest = np.partition(keys, self.room - 1)[: self.room] if more else keys

    @property
    def key(self) -> int | None:
        """The greatest key that matters; None while nothing was read."""
        if self.last is None or not self._is_full:
            return self.last
        return min(self.last, int(self.nearest.max()))

    def needs(self, least: int) -> bool:
        """Whether a stream that begins with a key may have lines that come next."""
        if self.last is None:
            return True
        return least <= self.last and not (self._is_full and least >= int(self.nearest.max()))

    @property
    def _is_full(self) -> bool:
        return len(self.nearest) >= max(1, self.room)


class Page:
    """One page of a list.

    Args:
        reader: reads segments.
        log: the collection.
        collection: its settings.
        asked: which lines.
        places: where each stream of the list goes on.
        records: whether lines that are documents are listed.
        choice: which of the lines that pass are listed.
    """

    def __init__(
        self,
        reader: LineReader,
        log: LogCollection,
        collection: Collection,
        asked: LinesParams,
        places: Mapping[int, int],
        *,
        records: bool = True,
        choice: Choice | None = None,
    ) -> None:
        self._reader = reader
        self._log = log
        self._collection = collection
        self._asked = asked
        self._limit = asked.page_limit
        self._newest = asked.order is LineOrder.NEWEST
        self._condition = Condition.of(asked.filter, start_ns=asked.start_ns, end_ns=asked.end_ns)
        self._needle = (asked.contains or "").encode("utf-8", "surrogatepass")
        self._records = records
        self.places = dict(places)
        self._choice = choice
        self._blocks: dict[Segment, list[int]] = {}
        self._chosen: dict[int, list[Segment]] = {}
        self._choose()
        self.parts: list[Part] = []
        self.size = 0
        self.count = 0
        self._open_end = False
        self._streams = self._started()

    def fill(self) -> None:
        """Read lines until the page is full or the list ends."""
        while self._streams and not self._full:
            bound = self._ready()
            if bound is None:
                break
            self._emit(bound)

    @property
    def more(self) -> bool:
        """Whether the list goes on behind the page."""
        return bool(self._streams)

    @property
    def open_end(self) -> bool:
        """Whether the page ends the list, with a line that came without a line end."""
        return self._open_end and not self._newest and not self.more

    @property
    def _full(self) -> bool:
        limit = self._limit
        return self.size >= PAGE_BYTES or (limit > 0 and self.count >= limit)

    def _started(self) -> dict[int, _Stream]:
        found: dict[int, _Stream] = {}
        streams = self._log.streams() if self._choice is None else sorted(self._chosen)
        for stream in streams:
            start = self.places.get(stream, 1 << 62 if self._newest else 0)
            if waiting := self._waiting(stream, start):
                found[stream] = _Stream(stream, waiting, start)
        return found

    def _choose(self) -> None:
        """Find the blocks that may hold chosen lines."""
        if self._choice is None:
            return
        self._blocks, self._chosen = self._choice.blocks(self._log.view()), {}
        for segment in sorted(self._blocks, key=lambda one: (one.stream, one.first)):
            self._chosen.setdefault(segment.stream, []).append(segment)

    def _waiting(self, stream: int, start: int) -> list[Segment]:
        """Return the segments of a stream that hold lines of the list from a place on."""
        if self._choice is not None:
            segments = self._chosen.get(stream, [])
        else:
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
        bound = _Bound(self._limit - self.count if self._limit else 0)
        late: list[tuple[int, int]] = []
        for stream, one in self._streams.items():
            if one.batch is None:
                late.append((self._least(one), stream))
            else:
                bound.add(one)
        heapify(late)
        while late and bound.needs(late[0][0]):
            _, stream = heappop(late)
            if self._read(self._streams[stream]):
                bound.add(self._streams[stream])
            else:
                del self._streams[stream]
        return self._reach(bound, late)

    def _reach(self, bound: _Bound, late: Sequence[tuple[int, int]]) -> int | None:
        """Return up to which key no line comes but of what was read; None: no line comes.

        late: the streams that were not read, the one with the least key first
        """
        key = bound.key
        if key is None or bound.last is None or key < bound.last:
            return key
        opened = [one for one in self._streams.values() if one.batch is not None]
        ends = [int(one.keys[-1]) for one in opened if one.waiting]
        ends += [least - 1 for least, _ in late[:1]]
        return max(key, min(ends, default=max(int(one.keys[-1]) for one in opened)))

    def _least(self, one: _Stream) -> int:
        """Return a bound of the keys that the next segment of a stream may have."""
        segment = one.waiting[0]
        return max(one.greatest, -segment.latest if self._newest else segment.earliest)

    def _read(self, one: _Stream) -> bool:
        """Read a stream's next lines; return whether there are any."""
        while one.waiting:
            blocks = _FEW_BLOCKS if 0 < self._limit <= _FEW_LINES else _MOST_BLOCKS
            most = max(1, blocks // len(self._streams))
            if not one.blocks and most < SEGMENT_BLOCKS:
                one.blocks = self._blocks_of(one.waiting[0], one.place)
            try:
                batch = self._batch(*one.take(most))
            except RecordCorrupt:
                if not self._asked.skip_damaged:
                    raise
                continue  # none of its lines is known
            if batch is None:  # it was replaced or deleted meanwhile
                one.missed += 1
                if one.missed > _TRIES:
                    raise RecordCorrupt("a segment is not where the ledger lists it")
                self._log.refresh()
                self._choose()
                one.waiting, one.blocks = self._waiting(one.number, one.place), []
                continue
            one.missed = 0
            inside = batch.numbers < one.place if self._newest else batch.numbers >= one.place
            chosen = np.flatnonzero(inside)
            if not len(chosen):
                continue
            chosen = chosen[::-1] if self._newest else chosen
            batch = batch.take(chosen)
            if self._needle:
                found = batch.passing & line_codec.find(batch.lines, self._needle)
                batch = replace(batch, passing=found)
            keys = np.maximum.accumulate(-batch.when if self._newest else batch.when)
            one.keys = np.maximum(keys, one.greatest)
            one.greatest = int(one.keys[-1])
            one.batch = batch
            return True
        return False

    def _blocks_of(self, segment: Segment, place: int) -> list[int]:
        """Return the blocks of a segment from a place on, in the list's order; none of records."""
        if segment.flags & RECORDS:
            return []
        if self._choice is not None:
            numbers = self._blocks[segment]
            return numbers[::-1] if self._newest else list(numbers)
        numbers = list(range(-(-segment.lines // BLOCK_LINES)))
        if self._newest:
            return [n for n in numbers[::-1] if segment.first + n * BLOCK_LINES < place]
        return [n for n in numbers if segment.first + (n + 1) * BLOCK_LINES > place]

    def _batch(self, segment: Segment, numbers: Sequence[int]) -> Batch | None:
        skip = self._asked.skip_damaged
        if self._choice is None and not numbers:
            return self._reader.batch(
                self._log, self._collection, segment, self._condition, skip_damaged=skip
            )
        numbers = sorted(numbers) or self._blocks[segment]
        return _chosen(
            self._reader, self._log, segment, self._condition, self._choice or Choice(), numbers,
            skip_damaged=skip,
        )  # fmt: skip

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
        if len(parts) > 1:
            order = np.argsort(np.concatenate([one.keys[:n] for one, n in parts]), kind="stable")
        else:
            order = np.arange(len(numbers))
        sizes = lines.ends - lines.begins + 1
        chosen, done = self._fitting(order, passing[order], sizes[order])
        found = line_arrays.take(lines, chosen)
        self.parts.append((found, stream_of[chosen], numbers[chosen], when[chosen], ends[chosen]))
        self.count += len(chosen)
        self.size += len(found.data)
        self._pass_over(stream_of[order[:done]])
        if len(chosen):
            self._note_end(int(stream_of[chosen[-1]]), int(numbers[chosen[-1]]))

    def _fitting(
        self, order: Numbers, passing: NDArray[np.bool_], sizes: Numbers
    ) -> tuple[Numbers, int]:
        """Return the passing lines that fit into the page, and how many lines that passes over."""
        chosen = np.flatnonzero(passing)
        left = _MOST_BYTES - self.size
        room = 1 + int(np.searchsorted(np.cumsum(sizes[chosen]), left))
        if self._limit:
            room = min(room, self._limit - self.count)
        if room < len(chosen):
            return order[chosen[:room]], int(chosen[room - 1]) + 1
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
        return [line for part in self.parts for line in lines_in(*part)]

    def rendered(self, more: str = "", around: Around | None = None) -> Iterator[bytes]:
        """Yield the page as it is answered: NDJSON, or bytes.

        Args:
            more: members that every row has, as JSON.
            around: the lines around each, if they are wanted.
        """
        for part in self.parts:
            if self._asked.raw:
                yield part[0].data.tobytes()
                continue
            labels = {stream: self._log.labels(stream) for stream in np.unique(part[1]).tolist()}
            beside = None if around is None else [around.members(*row) for row in _places(part)]
            yield rendered(*part, labels, more=more, beside=beside)


def _places(part: Part) -> Iterator[tuple[int, int, int]]:
    return zip(part[1].tolist(), part[2].tolist(), part[3].tolist(), strict=True)


def lines_in(
    lines: Lines, streams: Numbers, numbers: Numbers, when: Numbers, ends: NDArray[np.object_]
) -> Iterator[Line]:
    """Yield each line of a part."""
    texts = line_arrays.rows(lines)
    places = streams.tolist(), numbers.tolist(), when.tolist()
    for row in zip(*places, texts, ends.tolist(), strict=True):
        yield Line(*row)


def _chosen(
    reader: LineReader,
    log: LogCollection,
    segment: Segment,
    condition: Condition,
    choice: Choice,
    numbers: Sequence[int],
    *,
    skip_damaged: bool = False,
) -> Batch | None:
    """Return the lines of some blocks of a segment; those that are not chosen do not pass.

    Args:
        reader: reads segments.
        log: the collection.
        segment: one whose lines are in blocks.
        condition: the filter.
        choice: which lines.
        numbers: of the blocks.
        skip_damaged: leave out blocks that cannot be read.

    Returns:
        None if the segment was replaced or deleted meanwhile.

    Raises:
        RecordCorrupt: a block does not read back.
    """
    deleted = reader.deleted(log, segment)
    [opened] = open_segments(reader.store, log, [segment])
    if opened is None:
        return None
    read = partial(_block, log, opened, skip_damaged=skip_damaged)
    blocks = [one for one in reader.store.readers.map(read, numbers) if one is not None]
    none = np.zeros(0, np.int64)
    at = np.concatenate([one.first + np.arange(len(one.when)) for one in blocks] or [none])
    when = np.concatenate([one.when for one in blocks] or [none])
    shapes = np.concatenate([one.shapes for one in blocks] or [none.astype(np.int32)])
    lines = line_arrays.joined([one.lines for one in blocks])
    there = ~deleted[at - segment.first] & choice.of_lines(lines, shapes)
    return passing_batch(log, segment, condition, numbers=at, when=when, there=there, lines=lines)


def _block(log: LogCollection, opened: Opened, number: int, *, skip_damaged: bool) -> Block | None:
    try:
        return opened.block(log, number)
    except RecordCorrupt:
        if not skip_damaged:
            raise
        return None
