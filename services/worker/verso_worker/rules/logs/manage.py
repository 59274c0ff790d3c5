"""Count and delete lines, check them, merge small segments, and say what they take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from verso_codecs.logs import filters, parsing
from verso_core.errors import RecordCorrupt
from verso_core.jobs import BucketRange, Collection, Filter
from verso_core.jobs.admin import LineStatistics, Scrubbed
from verso_core.jobs.filters import compiled
from verso_core.jobs.lines import line_id, line_place
from verso_core.segments import Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import OPEN, SEGMENT_LINES, bitmap, set_bits
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.segments import Opened, Place, coded, open_segments
from verso_worker.rules.ports import OnProgress, no_progress

MERGED_TOGETHER = 16
"""Small neighbours that are merged once there are so many."""
_TOGETHER = 64
_LISTED = 100
_SMALL_LINES = SEGMENT_LINES // 2
_DAY_NS = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class LogManagement:
    """Keeps log collections in order."""

    store: LogStore
    lines: LineReader

    def count(
        self,
        collection: Collection,
        where: Filter | None,
        *,
        on_progress: OnProgress = no_progress,
    ) -> int:
        """Count the lines that a filter passes."""
        log = self._open(collection)
        if where is None:
            return log.state.lines - log.state.deleted
        condition = Condition(compiled(where))
        total = 0
        segments = log.every_segment()
        for n, segment in enumerate(segments):
            passes = condition.of_segment(segment, log.labels(segment.stream))
            if passes is False:
                continue
            if passes and log.state.deleted == 0:
                total += segment.lines
                continue
            batch = self.lines.batch(log, collection, segment, condition)
            total += 0 if batch is None else int(batch.passing.sum())
            if n % _TOGETHER == _TOGETHER - 1:
                on_progress("scan", n, len(segments))
        return total

    def delete(self, collection: Collection, ids: Sequence[str]) -> set[str]:
        """Delete lines by id; return the ids of those that were there."""
        log = self._open(collection)
        there = set(self.lines.texts(collection, ids))
        chosen: dict[Segment, list[int]] = defaultdict(list)
        for name in there:
            place = line_place(name)
            assert place is not None
            for segment in log.overlapping(place[0], place[1], place[1] + 1):
                chosen[segment].append(place[1] - segment.first)
        rows = [
            (segment, bitmap(np.array(places, np.int64), segment.lines))
            for segment, places in chosen.items()
        ]
        if rows and self.store.ledger.delete(log.name, log.uid, rows) is None:
            return self.delete(collection, ids)  # segments were merged meanwhile
        return there

    def delete_matching(
        self,
        collection: Collection,
        where: Filter,
        *,
        on_progress: OnProgress = no_progress,
    ) -> int:
        """Delete the lines that a filter passes; return how many. ``on_progress`` may end it."""
        log = self._open(collection)
        condition = Condition(compiled(where))
        deleted = 0
        waiting: list[tuple[Segment, bytes]] = []
        segments = log.every_segment()
        for n, segment in enumerate(segments):
            passes = condition.of_segment(segment, log.labels(segment.stream))
            if passes is False:
                continue
            if passes:
                chosen = np.arange(segment.lines)
            else:
                batch = self.lines.batch(log, collection, segment, condition)
                chosen = np.zeros(0, np.int64) if batch is None else np.flatnonzero(batch.passing)
            if len(chosen):
                waiting.append((segment, bitmap(chosen, segment.lines)))
            if len(waiting) == _TOGETHER:
                deleted += self._delete(log, waiting)
                waiting = []
                on_progress("scan", n, len(segments))
        return deleted + self._delete(log, waiting)

    def scrub(self, collection: Collection, asked: BucketRange) -> Scrubbed:
        """Decode the segments of a range of buckets, and merge small ones.

        A segment has a bucket as documents have, so that a pass over all buckets reads each once.
        """
        log = self._open(collection)
        found: Counter[str] = Counter()
        damaged: list[str] = []
        last = asked.first + asked.count
        for segment in log.every_segment():
            if not asked.first <= _bucket(segment) % collection.buckets < last:
                continue
            status = self._status(log, segment)
            found.update({"documents": segment.lines, status: segment.lines})
            if status == "damaged":
                damaged.append(line_id(segment.stream, segment.first))
        if asked.first == 0:
            self.merge(collection)
        return Scrubbed.of(asked.count, found, damaged[:_LISTED])

    def merge(self, collection: Collection) -> int:
        """Merge small neighbours of every stream; return how many segments there are fewer."""
        log = self._open(collection)
        return sum(self.merge_stream(log, stream, least=2) for stream in log.streams())

    def merge_stream(self, log: LogCollection, stream: int, *, least: int = MERGED_TOGETHER) -> int:
        """Merge small neighbours of a stream; return how many segments there are fewer.

        Lines that were deleted are blanked: their values are gone from then on.

        Args:
            log: the collection.
            stream: whose segments.
            least: segments that are worth it, if they have fewer lines than half a full one.
        """
        runs = [
            run
            for run in _small_runs(log.segments(stream))
            if len(run) >= least or sum(one.lines for one in run) >= _SMALL_LINES
        ]
        return sum(self._merged(log, run) for run in runs)

    def statistics(self, collection: Collection) -> LineStatistics:
        """Return what a collection holds of lines, and what they take."""
        log = self._open(collection)
        memory = self.store.ledger.memory(log.uid)
        state = log.state
        return LineStatistics(
            lines=state.lines - state.deleted,
            deleted=state.deleted,
            verified=state.verified,
            streams=len(log.streams()),
            segments=len(log.every_segment()),
            shapes=len(log.shapes),
            statements=len(log.statements().texts),
            bytes_text=state.text_bytes,
            bytes_segments=state.segment_bytes,
            bytes_shapes=memory.shapes,
            bytes_statements=memory.statements,
            bytes_tables=memory.tables,
            bytes_memory=memory.total,
        )

    def _open(self, collection: Collection) -> LogCollection:
        return self.store.open(collection.name, dim=collection.dim)

    def _delete(self, log: LogCollection, rows: Sequence[tuple[Segment, bytes]]) -> int:
        if not rows:
            return 0
        deleted = self.store.ledger.delete(log.name, log.uid, rows)
        if deleted is None:
            raise RecordCorrupt("segments were merged while lines were deleted")
        return deleted

    def _status(self, log: LogCollection, segment: Segment) -> str:
        try:
            [opened] = open_segments(self.store.ledger, log, [segment])
            if opened is not None and not opened.is_records:
                opened.lines(log, self.store.writers)
                if opened.front.filter:
                    filters.check(opened.front.filter)
        except RecordCorrupt:
            log.refresh()
            known = log.overlapping(segment.stream, segment.first, segment.end)
            return "damaged" if segment in known else "sound"
        return "sound"

    def _merged(self, log: LogCollection, run: Sequence[Segment]) -> int:
        """Merge consecutive segments into one; return how many there are fewer."""
        opened = open_segments(self.store.ledger, log, run)
        bitmaps = self.store.ledger.gone(log.uid, [(one.stream, one.first) for one in run])
        parts = [one for one in opened if one is not None]
        if len(parts) < len(run) or not _same_times(parts):
            return 0
        lines = line_arrays.joined([one.lines(log, self.store.writers) for one in parts])
        deleted = np.concatenate(
            [set_bits(bits, one.lines) for bits, one in zip(bitmaps, run, strict=True)]
        )
        if deleted.any():
            rows = line_arrays.rows(lines)
            text = b"".join(
                b"\n" if gone else row + b"\n"
                for row, gone in zip(rows, deleted.tolist(), strict=True)
            )
            lines = parsing.split(text)
        parsed = parsing.parse(lines, log.shapes)
        parsed.number(log.number(parsed.new_rows))
        new = coded(
            parsed, log, log.tables(),
            place=Place(run[0].stream, run[0].first, parts[0].front.times),
            begin=0, end=parsed.count, is_open=bool(run[-1].flags & OPEN),
            pool=self.store.writers,
        )  # fmt: skip
        rows_new = []
        at = 0
        for one in new:
            part = deleted[at : at + one.segment.lines]
            bits = bitmap(np.flatnonzero(part), one.segment.lines) if part.any() else b""
            rows_new.append((one.segment, one.data, bits))
            at += one.segment.lines
        old = [(one, bits or b"") for one, bits in zip(run, bitmaps, strict=True)]
        return (
            len(run) - len(new) if self.store.ledger.swap(log.name, log.uid, old, rows_new) else 0
        )


def _bucket(segment: Segment) -> int:
    return segment.stream + segment.first // SEGMENT_LINES


def _same_times(parts: Sequence[Opened]) -> bool:
    """Whether the times of segments are read in one way, with years from about the same day."""
    first = parts[0].front.times
    return all(
        replace(one.front.times, arrived_ns=0) == replace(first, arrived_ns=0)
        and (first.pattern or one.front.times.arrived_ns == first.arrived_ns)
        and abs(one.front.times.arrived_ns - first.arrived_ns) < _DAY_NS
        for one in parts[1:]
    )


def _small_runs(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Yield runs of two and more small neighbours without a gap, at most a segment's lines each."""
    run: list[Segment] = []
    for one in segments:
        fits = (
            run
            and run[-1].end == one.first
            and not run[-1].flags
            and one.flags in (0, OPEN)
            and sum(part.lines for part in run) + one.lines <= SEGMENT_LINES
        )
        if not fits:
            if len(run) > 1:
                yield run
            run = []
        if fits or (one.lines < _SMALL_LINES and one.flags == 0):
            run.append(one)
    if len(run) > 1:
        yield run
