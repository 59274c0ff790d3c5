"""Walk over the lines that a condition passes, in as large pieces as a question allows.

1. A segment all of whose lines pass, and whose times need not be told apart, is one piece.
2. Of others the blocks are asked, by their summaries; a block may be one piece too.
3. Only blocks of which some lines pass, or whose times matter, are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import lines as line_codec
from verso_core.jobs import Collection
from verso_core.segments import Segment
from verso_worker.records.segments import BLOCK_LINES, RECORDS
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogCollection
from verso_worker.rules.logs.conditions import END_NS, START_NS, Condition, Spans
from verso_worker.rules.logs.query.summaries import Summaries
from verso_worker.rules.logs.reading import LineReader

Parted = Callable[[int, int], bool]
"""Whether lines between two times are to be told apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Lines of a stream that pass: their times; or how many, and the time of one of them."""

    stream: int
    times: NDArray[np.int64]
    lines: int

    @classmethod
    def whole(cls, stream: int, lines: int, at_ns: int) -> Piece:
        """Return a piece whose lines need not be told apart."""
        return cls(stream, np.array([at_ns]), lines)

    @classmethod
    def each(cls, stream: int, times: NDArray[np.int64]) -> Piece:
        """Return a piece with the time of each line."""
        return cls(stream, times, len(times))

    @property
    def weights(self) -> NDArray[np.int64]:
        """Return for how many lines each time stands. Shape: (times,)."""
        if len(self.times) == self.lines:
            return np.ones(self.lines, np.int64)
        return np.array([self.lines])


@dataclass(frozen=True, slots=True)
class Pieces:
    """Finds the lines that pass, those stored as documents included."""

    lines: LineReader
    blocks: Blocks
    summaries: Summaries

    def of(
        self,
        log: LogCollection,
        collection: Collection,
        condition: Condition,
        *,
        parted: Parted = lambda _start, _end: False,
        contains: bytes = b"",
    ) -> Iterator[Piece]:
        """Yield the lines that pass, stream by stream.

        Args:
            log: the collection.
            collection: its settings.
            condition: which lines.
            parted: of which lines the times are told apart.
            contains: only lines with these bytes in them; every line is read then.

        Raises:
            RecordCorrupt: a segment of which some lines pass does not read back.
        """
        any_time = replace(condition, start_ns=START_NS, end_ns=END_NS)
        bitmaps = log.bitmaps()
        for stream in log.streams():
            segments, source = log.segments(stream), log.source(stream)
            spans = Spans.of(segments)
            passing = condition.of_stream(spans, source)
            by_time = any_time.of_stream(spans, source).all
            for n in np.flatnonzero(~passing.none).tolist():
                one = segments[n]
                intact = (stream, one.first) not in bitmaps and not one.flags & RECORDS
                intact = intact and not contains
                if intact and passing.all[n] and not parted(one.earliest, one.latest):
                    yield Piece.whole(stream, one.lines, one.earliest)
                elif intact and by_time[n]:
                    yield from self._of_blocks(log, one, condition, parted)
                else:
                    for batch in self.lines.batches(log, collection, one, condition):
                        chosen = batch.passing
                        if contains:
                            chosen = chosen & line_codec.find(batch.lines, contains)
                        if chosen.any():
                            yield Piece.each(stream, batch.when[chosen])

    def _of_blocks(
        self, log: LogCollection, segment: Segment, condition: Condition, parted: Parted
    ) -> Iterator[Piece]:
        """Yield the lines of a segment that pass, where times alone decide."""
        places = [(segment, n) for n in range(-(-segment.lines // BLOCK_LINES))]
        opened = []
        for place, summary in self.summaries.read(log, places).items():
            first, last = summary.span
            if last < condition.start_ns or first >= condition.end_ns:
                continue
            inside = first >= condition.start_ns and last < condition.end_ns
            if inside and not parted(first, last):
                yield Piece.whole(segment.stream, summary.lines, first)
            else:
                opened.append(place)
        for block in self.blocks.read(log, opened).values():
            when = block.when
            when = when[(when >= condition.start_ns) & (when < condition.end_ns)]
            if len(when):
                yield Piece.each(segment.stream, when)
