"""Where the lines of statements and values are, among the lines that a filter passes.

The index says which segments have a statement's lines, how many, and in which blocks. Segments all
of whose lines pass are counted by it, and only blocks are decoded that may have the newest lines or
the first. Of segments that pass in part, or have deleted lines, every line of the statement is
looked at.

The newest lines are those of the segments that end last, and the first one is in a segment that
begins first. Segments are looked at until no other can have a newer line, or an earlier one; where
times ascend within a segment it is in the last block with lines of the statement, or in the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import filters
from verso_core.errors import RecordCorrupt
from verso_core.jobs.logs.records import read_line
from verso_core.segments import Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import ASCENDING, set_bits
from verso_worker.rules.logs.blocks import BlockRef, Blocks, blocks_with
from verso_worker.rules.logs.bodies import bodies, no_ends
from verso_worker.rules.logs.collection import LogCollection
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.index import Statements
from verso_worker.rules.logs.segments import Block

VALUE_SEGMENTS = 256
"""Most segments that are decoded for the values of one question, the newest first."""
VALUE_LINES = 16
"""Lines with the values of a question, at least, after which no further segment is decoded."""
LINE_SEGMENTS = 4
"""Most segments in which a whole line is looked for: its statement is known without them."""
OVERLAPPING = 8
"""Most segments that are looked at for the newest lines of a statement, and for the first. Where
the times of more overlap, as of many streams, these are the newest and the first of so many."""
_DECODED_TOGETHER = 32
_VALUE_BLOCKS = 4  # decoded first for values: often they have enough lines
_GROWTH = 3  # each time the ledger is asked for whole segments

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class FoundLine:
    """A line that a search found."""

    stream: int
    number: int
    time_ns: int
    text: bytes


@dataclass(slots=True, eq=False)
class Found:
    """The lines of one statement: how many, the times of the first and last, and the newest."""

    statement: int
    score: float
    lines: list[FoundLine] = field(default_factory=list)
    count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    def note(self, times: NDArray[np.int64]) -> None:
        """Take note of the times of lines, Unix nanoseconds."""
        if len(times):
            least, greatest = int(times.min()), int(times.max())
            self.first_ns = least if self.first_ns is None else min(self.first_ns, least)
            self.last_ns = greatest if self.last_ns is None else max(self.last_ns, greatest)

    def show(self, lines: Sequence[FoundLine], *, keep: int) -> None:
        """Keep the newest of these lines and those before."""
        both = [*self.lines, *lines]
        self.lines = sorted(both, key=lambda line: (-line.time_ns, -line.number))[:keep]


class Occurrences:
    """What a filter passes of a log collection, as it is now.

    Args:
        log: the collection.
        statements: its statements.
        blocks: reads its blocks.
        condition: the filter.
        keep: newest lines that are shown of each statement.
    """

    def __init__(
        self,
        log: LogCollection,
        statements: Statements,
        blocks: Blocks,
        condition: Condition,
        *,
        keep: int,
    ) -> None:
        self._log = log
        self._blocks = blocks
        self._condition = condition
        self._keep = keep
        self._view = view = log.view()
        self._bitmaps = log.bitmaps()
        self._passing = condition.of_segments(view.spans, log.source)
        self._whole = self._passing.all & ~self._with_deleted()
        self._of_shape = np.append(statements.of_shape, -1)  # of shapes that came since
        self._entries = log.entries(view, statements)
        none = self._passing.none
        self._occurring = self._entries.occurring(~none[view.rows] if none.any() else None)

    def best(
        self, ranked: Sequence[int], scores: NDArray[np.float64], *, count: int
    ) -> list[Found]:
        """Return the first statements of a ranking that have lines."""
        waiting = [one for one in ranked if self._occurring[one]]
        found: list[Found] = []
        while waiting and len(found) < count:
            part, waiting = waiting[: count - len(found)], waiting[count - len(found) :]
            places = {one: self._places(one) for one in part}
            self._blocks.read(self._log, [p for one in places.values() for p in one.first_read()])
            for one, held in places.items():
                gathered = Found(one, float(scores[one]))
                self._gather(gathered, held)
                if gathered.count:
                    found.append(gathered)
        return found

    def with_values(self, tokens: Sequence[bytes], *, only: int | None = None) -> list[Found]:
        """Return the statements of the newest lines that hold every value, the newest first.

        Segments are decoded until there are enough such lines. ``only``: the one statement whose
        lines are looked at, of the newest segment that may have some, until enough can be shown.
        """
        if not tokens:
            return []
        rows = self._rows_with(tokens, only=only)
        row_of = {segment: row for row, segment, _ in rows}
        newest_first = [(one, number) for _, one, numbers in rows for number in reversed(numbers)]
        found: dict[int, Found] = {}
        enough = self._keep if only is not None else max(VALUE_LINES, self._keep)
        for place, block in self._decoded(newest_first, together=_VALUE_BLOCKS, kept=False):
            held = np.logical_and.reduce(
                [filters.lines_with(block.lines, token) for token in tokens]
            )
            self._add_values(found, row_of[place[0]], block, held)
            if sum(one.count for one in found.values()) >= enough:
                break
        return sorted(found.values(), key=lambda one: -(one.last_ns or 0))

    def _rows_with(self, tokens: Sequence[bytes], *, only: int | None) -> list[_Row]:
        """Return the segments that may have lines with all values, and in which of their blocks.

        ``only``: the one statement whose lines are meant.
        """
        told = filters.find_joined(self._view.filters, tokens)
        told[self._passing.none] = 0
        if only is None:
            chosen = self._newest_first(np.flatnonzero(told))[:VALUE_SEGMENTS].tolist()
            segments = [(row, self._view.segments[row]) for row in chosen]
            return [(row, one, blocks_with(one, int(told[row]))) for row, one in segments]
        places = self._places(only)
        with_line = chain(places.partly.among(told), places.whole.among(told))
        rows = (
            (row, segment, [n for n in blocks_with(segment, int(told[row])) if n in numbers])
            for row, segment, numbers in with_line
        )
        return list(islice((row for row in rows if row[2]), LINE_SEGMENTS))

    def _add_values(self, found: dict[int, Found], row: int, block: Block, held: Mask) -> None:
        held = held & self._passing_lines(row, block)
        statements = self._statements_of(block.shapes)
        for statement in np.unique(statements[held & (statements >= 0)]).tolist():
            one = found.setdefault(statement, Found(statement, 1.0))
            self._add(one, row, block, np.flatnonzero(held & (statements == statement)))

    def _statements_of(self, shapes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the statements of shapes, -1 for those that are not known yet."""
        return self._of_shape[np.minimum(shapes, len(self._of_shape) - 1)]

    def _with_deleted(self) -> Mask:
        """Return which segments have deleted lines. Shape: (segments,)."""
        if not self._bitmaps:
            return np.zeros(len(self._view.segments), np.bool_)
        flags = [(one.stream, one.first) in self._bitmaps for one in self._view.segments]
        return np.array(flags, np.bool_)

    def _newest_first(self, rows: Indices) -> Indices:
        spans = self._view.spans
        return rows[np.lexsort((spans.first[rows], spans.latest[rows]))[::-1]]

    def _places(self, statement: int) -> _Places:
        """Return where the lines of a statement are that pass."""
        entries = self._entries.of_statement(statement)
        entries = entries[~self._passing.none[self._view.rows[entries]]]
        if not len(entries):
            return _NOWHERE
        rows, starts = np.unique(self._view.rows[entries].astype(np.int64), return_index=True)
        masks = np.bitwise_or.reduceat(self._view.blocks[entries], starts)
        counts = np.add.reduceat(self._view.counts[entries].astype(np.int64), starts)
        spans = self._view.spans
        order = np.lexsort((spans.first[rows], spans.latest[rows]))[::-1]
        rows, masks, counts = rows[order], masks[order], counts[order]
        whole = self._whole[rows]
        return _Places(
            count=int(counts[whole].sum()),
            whole=_Listed(self._view.segments, rows[whole], masks[whole]),
            oldest=_least(spans.earliest[rows[whole]], count=OVERLAPPING),
            partly=_Listed(self._view.segments, rows[~whole], masks[~whole]),
        )

    def _gather(self, one: Found, held: _Places) -> None:
        """Count a statement's lines, and note the newest and the first of them."""
        for row, segment, numbers in held.partly:
            for _, block in self._decoded([(segment, n) for n in numbers]):
                chosen = self._statements_of(block.shapes) == one.statement
                chosen &= self._passing_lines(row, block)
                self._add(one, row, block, np.flatnonzero(chosen))
        one.count += held.count
        for looked_at, (_, segment, numbers) in enumerate(held.whole):
            if self._has_newest(one, segment, looked_at=looked_at):
                break
            shown = 0
            for number in reversed(numbers):
                if shown >= self._keep and segment.flags & ASCENDING:
                    break
                shown += self._show(one, segment, number)
        for _, segment, numbers in map(held.whole.__getitem__, held.oldest):
            if one.first_ns is not None and one.first_ns <= segment.earliest:
                break
            chosen = numbers[:1] if segment.flags & ASCENDING else numbers
            for _, block in self._decoded([(segment, number) for number in chosen]):
                one.note(block.when[self._statements_of(block.shapes) == one.statement])

    def _has_newest(self, one: Found, segment: Segment, *, looked_at: int) -> bool:
        """Whether a segment, and those that end before it, have no line that is to be shown."""
        if len(one.lines) < self._keep:
            return False
        return looked_at >= OVERLAPPING or segment.latest <= one.lines[self._keep - 1].time_ns

    def _show(self, one: Found, segment: Segment, number: int) -> int:
        """Keep the newest lines of a block of which all lines pass; return how many it has."""
        for _, block in self._decoded([(segment, number)]):
            chosen = np.flatnonzero(self._statements_of(block.shapes) == one.statement)
            one.note(block.when[chosen])
            self._keep_newest(one, segment.stream, block, chosen)
            return len(chosen)
        return 0

    def _add(self, one: Found, row: int, block: Block, chosen: Indices) -> None:
        """Count lines of a block, and keep the newest."""
        one.count += len(chosen)
        one.note(block.when[chosen])
        self._keep_newest(one, self._view.segments[row].stream, block, chosen)

    def _keep_newest(self, one: Found, stream: int, block: Block, chosen: Indices) -> None:
        """Keep the newest lines of some of a block."""
        order = np.argsort(block.when[chosen], kind="stable")
        newest = np.sort(chosen[order[-self._keep :]])
        one.show(_lines(self._log, stream, block, newest), keep=self._keep)

    def _decoded(
        self, places: Sequence[BlockRef], *, together: int = _DECODED_TOGETHER, kept: bool = True
    ) -> Iterator[tuple[BlockRef, Block]]:
        """Yield blocks with their places, first a few at a time, then more."""
        start = 0
        while part := places[start : start + together]:
            found = self._blocks.read(self._log, part, keep=kept)
            yield from ((place, found[place]) for place in part if place in found)
            start += together
            together = min(_GROWTH * together, _DECODED_TOGETHER)

    def _passing_lines(self, row: int, block: Block) -> Mask:
        """Return which lines of a block pass and are not deleted. Shape: (lines,)."""
        segment = self._view.segments[row]
        if self._whole[row]:
            return np.ones(len(block.when), np.bool_)
        bitmap = self._bitmaps.get((segment.stream, segment.first))
        return passing_lines(self._log, self._condition, segment, block, bitmap)


def passing_lines(
    log: LogCollection, condition: Condition, segment: Segment, block: Block, bitmap: bytes | None
) -> Mask:
    """Return which lines of a segment's block pass and are not deleted. Shape: (lines,).

    None of them where it is not known which are deleted: the scrub reports it.
    """
    numbers = block.first + np.arange(len(block.when))
    source = log.source(segment.stream)
    read = condition.reads_attributes(source)
    passing = condition.of_lines(
        source, stream=segment.stream, numbers=numbers, when=block.when,
        ends=bodies(block.lines).ends if read else no_ends(len(numbers)),
    )  # fmt: skip
    try:
        deleted = set_bits(bitmap, segment.lines)
    except RecordCorrupt:
        return np.zeros(len(numbers), np.bool_)
    return passing & ~deleted[numbers - segment.first]


_Row = tuple[int, Segment, list[int]]
"""The row of a segment, the segment, and those of its blocks that hold lines, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class _Listed:
    """Segments and their blocks; thousands of them, of which the first few are looked at.

    Attributes:
        segments: of the view.
        rows: of the listed ones. Shape of this and the next: (listed,).
        masks: bit n is set if block n holds lines.
    """

    segments: Sequence[Segment]
    rows: Indices
    masks: NDArray[np.uint16]

    def __iter__(self) -> Iterator[_Row]:
        return (self[n] for n in range(len(self.rows)))

    def among(self, chosen: NDArray[np.uint8]) -> Iterator[_Row]:
        """Yield those whose row is chosen, which is not zero there. Shape: (segments,)."""
        return (self[n] for n in np.flatnonzero(chosen[self.rows]).tolist())

    def __getitem__(self, n: int) -> _Row:
        row, mask = int(self.rows[n]), int(self.masks[n])
        numbers = [block for block in range(mask.bit_length()) if mask >> block & 1]
        return row, self.segments[row], numbers


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the lines of one statement are.

    Attributes:
        count: how many there are in segments that pass as a whole.
        whole: those segments, the newest first.
        oldest: which of them begin first, in this order.
        partly: the other segments.
    """

    count: int
    whole: _Listed
    oldest: Sequence[int]
    partly: _Listed

    def first_read(self) -> list[BlockRef]:
        """Return the blocks that are decoded whatever they hold."""
        found = []
        if self.oldest:
            _, newest, numbers = self.whole[0]
            _, oldest, first = self.whole[self.oldest[0]]
            found = [(newest, numbers[-1]), (oldest, first[0])]
        return found


_NONE = _Listed((), np.zeros(0, np.int64), np.zeros(0, np.uint16))
_NOWHERE = _Places(0, _NONE, (), _NONE)


def _least(values: NDArray[np.int64], *, count: int) -> list[int]:
    """Return the places of the least values, in their order."""
    least = np.arange(len(values))
    if count < len(values):
        least = np.argpartition(values, count)[:count]
    found: list[int] = least[np.argsort(values[least], kind="stable")].tolist()
    return found


def _lines(log: LogCollection, stream: int, block: Block, chosen: Indices) -> list[FoundLine]:
    texts = line_arrays.rows(line_arrays.take(block.lines, chosen))
    if log.holds_records(stream):
        texts = [read_line(text).text for text in texts]
    rows = zip(chosen.tolist(), block.when[chosen].tolist(), texts, strict=True)
    return [FoundLine(stream, block.first + at, when, text) for at, when, text in rows]
