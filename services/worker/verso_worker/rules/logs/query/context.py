"""The lines before and after a line, of the same source.

A source is the streams whose labels are the same but for the level: a stream holds lines of one
level, and what a program wrote before an error is seldom an error. Lines of the line's own stream
keep their order; lines of the others go where their time says.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from verso_core.errors import RecordCorrupt
from verso_core.jobs import Collection
from verso_core.segments import Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import BLOCK_LINES, RECORDS, set_bits
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.bodies import bodies, no_ends
from verso_worker.rules.logs.collection import LogCollection
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.reading import Batch, Line, LineReader
from verso_worker.rules.logs.rows import row

LEVEL = "level"
"""The label in which the streams of a source differ."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many lines before and after each are wanted."""

    before: int
    after: int


class Around:
    """Finds the lines around lines; blocks that were decoded are kept for the next.

    Args:
        reader: reads lines that are documents.
        blocks: reads blocks.
        log: the collection.
        collection: its settings.
        wanted: how many lines.
    """

    def __init__(
        self,
        reader: LineReader,
        blocks: Blocks,
        log: LogCollection,
        collection: Collection,
        wanted: Wanted,
    ) -> None:
        self._reader = reader
        self._blocks = blocks
        self._log = log
        self._collection = collection
        self._wanted = wanted
        self._bitmaps = log.bitmaps()
        self._sources: dict[str, list[int]] = defaultdict(list)
        for stream in log.streams():
            self._sources[self._source(stream)].append(stream)

    def members(self, stream: int, number: int, time_ns: int) -> str:
        """Return the lines around one as members of its JSON object."""
        rows = {
            "before": self.before(stream, number, time_ns)[::-1],
            "after": self.after(stream, number, time_ns),
        }
        return "".join(
            f',"{name}":[{",".join(row(one, self._log.labels(one.stream)) for one in lines)}]'
            for name, lines in rows.items()
        )

    def before(self, stream: int, number: int, time_ns: int) -> list[Line]:
        """Return the lines before one, the nearest first."""
        found = [
            at
            for other in self._siblings(stream)
            for at in self._nearest(other, stream, number, time_ns, back=True)
        ]
        found.sort(key=lambda at: (-at[0], -at[1].stream, -at[1].number))
        return [one for _, one in found[: self._wanted.before]]

    def after(self, stream: int, number: int, time_ns: int) -> list[Line]:
        """Return the lines after one, in order."""
        found = [
            at
            for other in self._siblings(stream)
            for at in self._nearest(other, stream, number, time_ns, back=False)
        ]
        found.sort(key=lambda at: (at[0], at[1].stream, at[1].number))
        return [one for _, one in found[: self._wanted.after]]

    def _siblings(self, stream: int) -> list[int]:
        return self._sources[self._source(stream)]

    def _source(self, stream: int) -> str:
        labels = self._log.labels(stream)
        return json.dumps({n: v for n, v in labels.items() if n != LEVEL}, sort_keys=True)

    def _nearest(
        self, stream: int, own: int, number: int, time_ns: int, *, back: bool
    ) -> Iterator[tuple[int, Line]]:
        """Yield lines of a stream next to a line, the nearest first, each with its place in time.

        A clock that is set back does not change the order of a stream.
        """
        count = self._wanted.before if back else self._wanted.after
        if not count:
            return
        start = number + (not back) if stream == own else self._first_after(stream, time_ns)
        at_ns = time_ns
        for one in islice(self._walked(stream, start, back=back), count):
            at_ns = min(at_ns, one.time_ns) if back else max(at_ns, one.time_ns)
            yield at_ns, one

    def _first_after(self, stream: int, time_ns: int) -> int:
        """Return the number of a stream's first line that is later than a time."""
        segments = self._log.segments(stream)
        later = [one for one in segments if one.latest > time_ns]
        if not later:
            return segments[-1].end
        segment = later[0]
        if segment.earliest > time_ns:
            return segment.first
        low, high = 0, -(-segment.lines // BLOCK_LINES) - 1
        if segment.flags & RECORDS:
            high = 0
        while low < high:  # the first block whose last line is later
            middle = (low + high) // 2
            batch = self._read(segment, middle)
            if batch is not None and int(batch.when.max()) > time_ns:
                high = middle
            else:
                low = middle + 1
        batch = self._read(segment, low)
        if batch is None:
            return segment.end
        inside = np.flatnonzero(batch.when > time_ns)
        return int(batch.numbers[inside[0]]) if len(inside) else int(batch.numbers[-1]) + 1

    def _walked(self, stream: int, start: int, *, back: bool) -> Iterator[Line]:
        """Yield the lines of a stream before a number, backwards, or from it on."""
        segments = self._log.segments(stream)
        chosen = (
            [one for one in reversed(segments) if one.first < start]
            if back
            else [one for one in segments if one.end > start]
        )
        for segment in chosen:
            count = 1 if segment.flags & RECORDS else -(-segment.lines // BLOCK_LINES)
            blocks = list(range(count))
            for block in blocks[::-1] if back else blocks:
                first = segment.first + block * BLOCK_LINES
                if (back and first >= start) or (
                    not back and count > 1 and first + BLOCK_LINES <= start
                ):
                    continue
                batch = self._read(segment, block)
                if batch is None:
                    continue
                inside = batch.numbers < start if back else batch.numbers >= start
                places = np.flatnonzero(inside & batch.passing)
                for place in places[::-1] if back else places:
                    yield self._line(batch, int(place))

    def _line(self, batch: Batch, place: int) -> Line:
        [text] = line_arrays.rows(line_arrays.take(batch.lines, np.array([place])))
        when = int(batch.when[place])
        return Line(batch.stream, int(batch.numbers[place]), when, text, batch.ends[place])

    def _read(self, segment: Segment, block: int) -> Batch | None:
        """Return the lines of a block, or of a segment of documents; None if they are not there."""
        try:
            if segment.flags & RECORDS:
                return self._reader.batch(self._log, self._collection, segment, Condition(True))
            found = self._blocks.read(self._log, [(segment, block)]).get((segment, block))
            bitmap = self._bitmaps.get((segment.stream, segment.first))
            deleted = set_bits(bitmap, segment.lines)
        except RecordCorrupt:  # what can be read around a line is shown
            return None
        if found is None:
            return None
        numbers = found.first + np.arange(len(found.when))
        lines, ends = found.lines, no_ends(len(numbers))
        if self._log.holds_records(segment.stream):
            lines, ends = bodies(lines)
        there = ~deleted[numbers - segment.first]
        return Batch(segment.stream, numbers, found.when, there, lines, ends)
