"""Write lines as segments, and read segments back as lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import blocks as block_codec
from verso_codecs.logs import filters, times
from verso_codecs.logs.parsing import Lines, Parsed
from verso_codecs.logs.tables import Tables
from verso_core import crc
from verso_core.errors import PatchCorrupt, RecordCorrupt
from verso_core.jobs.logs.lines import line_id
from verso_core.segments import MISSING, Segment, SegmentWrite
from verso_worker.records import line_arrays
from verso_worker.records.segments import (
    ASCENDING,
    BLOCK_LINES,
    EMPTY,
    OPEN,
    RECORDS,
    SEGMENT_LINES,
    Front,
    Inventory,
    TimeSource,
    corrected,
)
from verso_worker.rules.logs.collection import LogCollection, LogStore

Times = NDArray[np.int64]
_YEAR_NS = 364 * 86_400 * 10**9
"""In a segment that is shorter a date without a year is one moment; a time may be a day ahead."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where lines are to be stored: their stream, the number of the first, and their times."""

    stream: int
    first: int
    times: TimeSource


def coded(
    parsed: Parsed,
    log: LogCollection,
    tables: Tables,
    *,
    target: Destination,
    begin: int,
    end: int,
    is_open: bool,
    pool: Executor,
    text_is_kept: bool = False,
) -> list[SegmentWrite]:
    """Code lines [begin, end) of a parsed payload as segments, each decoded again and compared.

    Args:
        parsed: the lines, their shapes numbered.
        log: the collection.
        tables: that the blocks are coded with.
        target: of line 0 of ``parsed``.
        begin: first line.
        end: behind the last line.
        is_open: the last line has no line end.
        pool: codes several blocks at once.
        text_is_kept: the ledger keeps the lines until the verify has decoded what it stored: the
            blocks are not decoded here as well, which costs twice as much as to code them.

    Raises:
        RecordCorrupt: a block does not decode to its lines.
    """

    def coded_block(at: int, count: int) -> bytes:
        block = block_codec.encode(
            parsed, log.shapes, tables, first=at, count=count, first_sequence=target.first + at
        )
        if text_is_kept:
            return block
        text = line_arrays.take(parsed.lines, np.arange(at, at + count)).data
        if not np.array_equal(block_codec.decode(block, log.shapes, tables).data, text):
            raise RecordCorrupt("a block does not decode to its lines")
        return block

    starts = [
        (at, min(BLOCK_LINES, stop - at))
        for start, stop in _parts(begin, end)
        for at in range(start, stop, BLOCK_LINES)
    ]
    blocks = pool.map(coded_block, *zip(*starts, strict=True)) if starts else iter(())
    found = []
    for start, stop in _parts(begin, end):
        own = list(islice(blocks, -(-(stop - start) // BLOCK_LINES)))
        opened = is_open and stop == end
        found.append(_segment(parsed, target, own, start=start, stop=stop, is_open=opened))
    return found


def _segment(
    parsed: Parsed,
    target: Destination,
    blocks: Sequence[bytes],
    *,
    start: int,
    stop: int,
    is_open: bool,
) -> SegmentWrite:
    """Return the segment of lines [start, stop), with its blocks behind what is said of them."""
    whole = line_arrays.take(parsed.lines, np.arange(start, stop))
    when = read_times(whole, target.times)
    flags = ASCENDING if _ascends(whole, when, target.times) else 0
    front = Front(
        flags=flags | (OPEN if is_open else 0),
        lines=stop - start,
        times=target.times,
        inventory=Inventory.of(parsed.shapes[start:stop]),
        filter=filters.build(parsed, first=start, count=stop - start, block_lines=BLOCK_LINES),
        sizes=tuple(map(len, blocks)),
    )
    segment = Segment(
        target.stream, target.first + start, stop - start, *_span(when), flags=front.flags
    )
    return SegmentWrite(segment, front.pack(blocks), len(whole.data))


def _parts(begin: int, end: int) -> list[tuple[int, int]]:
    """Return the bounds of the segments of some lines."""
    return [(at, min(end, at + SEGMENT_LINES)) for at in range(begin, end, SEGMENT_LINES)]


def of_records(
    lines: Lines, *, target: Destination, begin: int, end: int, is_open: bool
) -> SegmentWrite:
    """Return the segment of lines [begin, end) that are stored as documents.

    ``target`` has the time of the first of them as that of their arrival: a line without one has
    that of the line before, which this segment lacks.
    """
    whole = line_arrays.take(lines, np.arange(begin, end))
    flags = RECORDS | (OPEN if is_open else 0)
    front = Front(flags, end - begin, target.times, EMPTY, b"", ())
    span = _span(read_times(whole, target.times, before=lambda: target.times.arrived_ns))
    segment = Segment(target.stream, target.first + begin, end - begin, *span, flags=flags)
    return SegmentWrite(segment, front.pack([]), 0)  # the documents count their own text


def read_times(
    lines: Lines,
    source: TimeSource,
    *,
    latest_ns: int = MISSING,
    before: Callable[[], int | None] | None = None,
) -> Times:
    """Return the time of each line, Unix nanoseconds. Shape: (lines,).

    ``latest_ns`` is the latest time of the lines' segment, if it is known: some of its blocks then
    get the years that they have in the whole of it, where lines write none.

    A line without one has its predecessor's, the first ones what ``before`` returns, or else that
    of the first line that has one; where none has one they all have the time of their arrival.
    """
    count = len(lines.begins)
    if not source.pattern:
        return np.full(count, source.arrived_ns, np.int64)
    found = times.read(
        lines,
        times.TimeFormat(source.pattern, source.field),
        now_ns=source.arrived_ns if latest_ns == MISSING else latest_ns,
        offset_s=source.offset_s,
    )
    there = found != times.MISSING
    if there.all():
        return found
    first = None if before is None else before()
    if first is None:
        first = int(found[int(np.argmax(there))]) if there.any() else source.arrived_ns
    return np.where(there, found, np.int64(first))


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A decoded block. Shape of each array: (lines,).

    Attributes:
        first: number of its first line in the stream.
        lines: its lines.
        shapes: the numbers of their shapes.
        when: their times, Unix nanoseconds.
    """

    first: int
    lines: Lines
    shapes: NDArray[np.int32]
    when: Times

    def __len__(self) -> int:
        """Return the bytes that it takes in memory."""
        return sum(one.nbytes for one in (*self.lines, self.shapes, self.when))


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A segment that was read: its front and its blocks' bytes.

    ``data`` is the whole of it. A flipped bit of the front or of a block is corrected in all three,
    and ``intact`` is False.
    """

    segment: Segment
    front: Front
    blocks: list[bytes]
    data: bytes
    intact: bool = True

    @property
    def is_records(self) -> bool:
        """Whether its lines are documents."""
        return bool(self.front.flags & RECORDS)

    def lines(self, log: LogCollection, pool: Executor) -> Lines:
        """Decode all blocks, in order.

        Raises:
            RecordCorrupt: one does not decode to what it was made of; it names the lines.
        """
        parts = pool.map(lambda number: self._decoded(log, number)[0], range(len(self.blocks)))
        return line_arrays.joined(list(parts))

    def block(self, log: LogCollection, number: int) -> Block:
        """Decode one block.

        Raises:
            RecordCorrupt: it does not decode to what it was made of; it names the lines.
        """
        lines, shapes = self._decoded(log, number)
        return Block(self.first_of(number), lines, shapes, self._times(log, number, lines))

    def _times(self, log: LogCollection, number: int, lines: Lines) -> Times:
        """Return the times of a block's lines, as they are in the whole segment."""
        source = self.front.times
        if (latest_ns := year_bound(self.segment, source)) != MISSING:
            return read_times(
                lines, source, latest_ns=latest_ns, before=lambda: self._before(log, number)
            )
        parts = [
            lines if one == number else self._readable(log, one) for one in range(len(self.blocks))
        ]
        at = number * BLOCK_LINES
        whole = read_times(self.joined(parts), source)
        return whole[at : at + len(lines.begins)]

    def _before(self, log: LogCollection, number: int) -> int | None:
        """Return the time of the first lines of a block, which have none; None: no line has one.

        As in the whole segment it is that of the line before, or else of the first that has one.
        """
        for one in range(number - 1, -1, -1):
            if len(timed := self._timed(log, one)):
                return int(timed[-1])
        for one in range(number, len(self.blocks)):
            if len(timed := self._timed(log, one)):
                return int(timed[0])
        return None

    def _timed(self, log: LogCollection, number: int) -> Times:
        """Return the times of a block from its first line that has one on."""
        lines, source = self._readable(log, number), self.front.times
        if lines is None:
            return np.zeros(0, np.int64)
        form = times.TimeFormat(source.pattern, source.field)
        found = times.read(lines, form, now_ns=self.segment.latest, offset_s=source.offset_s)
        timed: Times = found[found != times.MISSING]
        return timed

    def text_bytes(self) -> int:
        """Return the size of all its lines, with their line ends; nothing is decoded.

        Raises:
            RecordCorrupt: a block has no header.
        """
        return sum(block_codec.header(block).size_bytes for block in self.blocks)

    def readable(self, log: LogCollection, pool: Executor) -> list[Lines | None]:
        """Decode all blocks, in order; None for one that does not decode to what it was made of."""
        blocks = range(len(self.blocks))
        return list(pool.map(lambda number: self._readable(log, number), blocks))

    def joined(self, blocks: Sequence[Lines | None]) -> Lines:
        """Return the lines of all blocks as one, empty ones for those of damaged blocks."""
        parts = [
            line_arrays.of_rows([b""] * self.front.lines_of(number)) if block is None else block
            for number, block in enumerate(blocks)
        ]
        return line_arrays.joined(parts)

    def first_of(self, number: int) -> int:
        """Return the number of a block's first line."""
        return self.segment.first + number * BLOCK_LINES

    def _readable(self, log: LogCollection, number: int) -> Lines | None:
        try:
            return self._decoded(log, number)[0]
        except RecordCorrupt:
            return None

    def _decoded(self, log: LogCollection, number: int) -> tuple[Lines, NDArray[np.int32]]:
        block = self.blocks[number]
        first, count = self.first_of(number), self.front.lines_of(number)
        try:
            head = block_codec.header(block)
            if head.line_count != count or head.first_sequence != first:
                raise RecordCorrupt("expected the next block of a segment, got another")
            block_codec.check(block)
            if head.shape_count > len(log.shapes):
                log.refresh()  # it was listed after the shapes were read
            return block_codec.decode_numbered(block, log.shapes, log.tables(head.generation))
        except (RecordCorrupt, ValueError) as exc:
            log.check()  # else it may be what is known here that is wrong
            raise _unreadable(self.segment.stream, first, count, exc) from exc


def open_segments(
    store: LogStore, log: LogCollection, asked: Sequence[Segment]
) -> list[Opened | None]:
    """Read segments; None for one that was replaced or deleted meanwhile.

    Raises:
        ObjectsUnavailable: one is in cold storage, which did not answer.
        RecordCorrupt: one is damaged; it names the lines.
    """
    rows = store.read(log.uid, [(one.stream, one.first) for one in asked])
    return [opened_segment(segment, data) for segment, data in zip(asked, rows, strict=True)]


def opened_segment(segment: Segment, data: bytes | None) -> Opened | None:
    """Return a segment whose bytes were read; None if it is not the one that was listed.

    Raises:
        RecordCorrupt: its front is damaged; it names the lines.
    """
    if data is None:
        return None
    try:
        front, blocks, whole = _front_of(data)
    except PatchCorrupt as exc:
        raise _unreadable(segment.stream, segment.first, segment.lines, exc) from exc
    if (front.lines, front.flags) != (segment.lines, segment.flags):
        return None
    right = [block if (found := crc.corrected(block)) is None else found for block in blocks]
    if right != blocks:
        whole = whole[: front.size_bytes] + b"".join(right)
    return Opened(segment, front, right, whole, intact=whole == data)


def _front_of(data: bytes) -> tuple[Front, list[bytes], bytes]:
    """Return the front and the blocks of a segment, and all of it with its front corrected."""
    try:
        front = Front.read(data)
        if front is None:
            raise PatchCorrupt("a segment is shorter than its front says")
    except PatchCorrupt:
        right = corrected(data)
        if right is None:
            raise
        data, front = right, Front.read(right)
        assert front is not None, "its CRC is behind it"
    return front, front.blocks(data), data


def _unreadable(stream: int, first: int, count: int, cause: Exception) -> RecordCorrupt:
    last = line_id(stream, first + count - 1)
    return RecordCorrupt(f"the lines {line_id(stream, first)} to {last} cannot be read: {cause}")


def _ascends(lines: Lines, when: Times, source: TimeSource) -> bool:
    """Whether no line is earlier than the line before, also where blocks are read one by one.

    A worker of an earlier release reads other times for a block's first lines if they have none.

    Args:
        lines: of a segment.
        when: their times.
        source: where these come from.
    """
    if (np.diff(when) < 0).any():
        return False
    blocks = [
        read_times(
            line_arrays.take(lines, np.arange(at, min(at + BLOCK_LINES, len(when)))),
            source,
            latest_ns=int(when[-1]),
        )
        for at in range(0, len(when), BLOCK_LINES)
    ]
    return not (np.diff(np.concatenate(blocks)) < 0).any()


def year_bound(segment: Segment, source: TimeSource) -> int:
    """Return the latest time of a segment if it tells the years of all its lines, else MISSING."""
    is_short = segment.latest - segment.earliest < _YEAR_NS
    return segment.latest if is_short or _has_years(source) else MISSING


def _has_years(source: TimeSource) -> bool:
    """Whether one line tells its time."""
    return not source.pattern or times.TimeFormat(source.pattern, source.field).has_year


def _span(when: Times) -> tuple[int, int]:
    if not len(when):
        return MISSING, MISSING
    return int(when.min()), int(when.max())
