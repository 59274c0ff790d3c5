"""Count the lines that a filter passes, by stream, and those of each statement.

Labels are those of a stream and inventories count shapes, so most segments are counted without
decoding them: only those of which some lines pass, or some are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs import Collection, Filter
from verso_core.segments import Segment
from verso_worker.records.segments import BLOCK_LINES, RECORDS, set_bits
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition, Spans
from verso_worker.rules.logs.index import Statements
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.ports.outcome import OnProgress, no_progress

_TOGETHER = 64

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Counts lines in blocks; those that are documents are counted as documents are."""

    store: LogStore
    lines: LineReader

    def by_stream(
        self,
        collection: Collection,
        where: Filter | None,
        *,
        on_progress: OnProgress = no_progress,
    ) -> Counter[int]:
        """Count the lines of each stream that a filter passes; ``on_progress`` may end it.

        Raises:
            RecordCorrupt: a block of which some lines pass does not read back.
        """
        log = self.store.open(collection.name, dim=collection.dim)
        condition = Condition.of(where)
        bitmaps = log.bitmaps()
        found: Counter[int] = Counter()
        partly: list[Segment] = []
        for stream in log.streams():
            segments = [one for one in log.segments(stream) if not one.flags & RECORDS]
            passing = condition.of_stream(Spans.of(segments), log.source(stream))
            for n in np.flatnonzero(passing.all).tolist():
                bits = bitmaps.get((stream, segments[n].first))
                gone = 0 if bits is None else int(set_bits(bits, segments[n].lines).sum())
                found[stream] += segments[n].lines - gone
            partly += [segments[n] for n in np.flatnonzero(~passing.all & ~passing.none)]
        for n, segment in enumerate(partly):
            for batch in self.lines.batches(log, collection, segment, condition):
                found[segment.stream] += int(batch.passing.sum())
            if n % _TOGETHER == _TOGETHER - 1:
                on_progress("scan", n, len(partly))
        return +found  # without streams of which no line passes

    def labels(self, collection: Collection) -> dict[int, dict[str, str]]:
        """Return the labels of every stream that has lines."""
        log = self.store.open(collection.name, dim=collection.dim)
        return {stream: log.labels(stream) for stream in log.streams()}


def by_statement(log: LogCollection, statements: Statements, blocks: Blocks) -> Counts:
    """Return how many lines each statement has. Shape: (statements,).

    Lines of segments that are damaged are left out: the scrub reports them.
    """
    view, bitmaps = log.view(), log.bitmaps()
    of_shape = np.append(statements.of_shape, -1)  # of shapes that came since
    counts = np.zeros(len(statements.texts), np.int64)

    def add(shapes: NDArray[np.int32], lines: Sequence[int] | NDArray[np.int64]) -> None:
        found = of_shape[np.minimum(shapes, len(of_shape) - 1)]
        np.add.at(counts, found[found >= 0], np.asarray(lines)[found >= 0])

    partly = [(one.stream, one.first) in bitmaps for one in view.segments]
    whole = ~np.array(partly, np.bool_)[view.rows]
    add(view.shapes[whole], view.counts[whole].astype(np.int64))
    for row in np.flatnonzero(partly).tolist():
        segment = view.segments[row]
        there = ~set_bits(bitmaps[segment.stream, segment.first], segment.lines)
        places = [(segment, n) for n in range(-(-segment.lines // BLOCK_LINES))]
        for block in blocks.read(log, places, keep=False).values():
            first = block.first - segment.first
            add(block.shapes, there[first : first + len(block.when)].astype(np.int64))
    return counts


def in_blocks(log: LogCollection) -> list[Segment]:
    """Return the segments whose lines are in blocks."""
    return [one for one in log.every_segment() if not one.flags & RECORDS]
