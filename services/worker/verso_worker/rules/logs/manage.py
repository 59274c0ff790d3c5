"""Delete lines, merge small segments, and say what they take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import parsing
from verso_core.errors import LedgerUnavailable, RecordCorrupt
from verso_core.jobs import Collection, Filter
from verso_core.jobs.logs.lines import line_place
from verso_core.jobs.statistics import LineStatistics
from verso_core.segments import LinesDelete, Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import (
    BLOCK_LINES,
    OPEN,
    RECORDS,
    SEGMENT_LINES,
    TimeSource,
    bitmap,
    set_bits,
)
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.segments import Destination, Opened, coded, open_segments
from verso_worker.rules.ports.outcome import OnProgress, no_progress

MERGED_TOGETHER = 16
"""Small neighbours that are merged once there are so many."""
_TOGETHER = 64
_TRIES = 64
_SMALL_LINES = SEGMENT_LINES // 2
_DAY_NS = 86_400_000_000_000


Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogManagement:
    """Keeps log collections in order."""

    store: LogStore
    lines: LineReader

    def delete(self, collection: Collection, ids: Sequence[str]) -> set[str]:
        """Delete lines by id; return the ids of those that were there.

        Raises:
            LedgerUnavailable: others change the same segments again and again.
        """
        for _ in range(_TRIES):
            log = self._open(collection)
            there = set(self.lines.texts(collection, ids))
            chosen: dict[Segment, list[int]] = defaultdict(list)
            for name in there:
                place = line_place(name)
                assert place is not None
                for segment in log.overlapping(place[0], place[1], place[1] + 1):
                    chosen[segment].append(place[1] - segment.first)
            rows = {one: np.array(places, np.int64) for one, places in chosen.items()}
            if self._delete(log, rows) is not None:
                return there
        raise LedgerUnavailable("others change the segments of these lines all the while")

    def delete_matching(
        self,
        collection: Collection,
        where: Filter,
        *,
        on_progress: OnProgress = no_progress,
    ) -> int:
        """Delete the lines that a filter passes; return how many. ``on_progress`` may end it.

        Raises:
            RecordCorrupt: lines cannot be read; all others that pass have been deleted.
        """
        log = self._open(collection)
        condition = Condition.of(where)
        deleted = 0
        damage: RecordCorrupt | None = None
        waiting: dict[Segment, Indices] = {}
        segments = log.every_segment()
        for n, segment in enumerate(segments):
            try:
                waiting |= self._chosen(log, collection, [segment], condition)
            except RecordCorrupt as error:
                damage = error
                continue
            if len(waiting) >= _TOGETHER:
                deleted += self._delete_all(log, collection, waiting, condition)
                waiting = {}
                on_progress("scan", n, len(segments))
        deleted += self._delete_all(log, collection, waiting, condition)
        if damage is not None:
            raise damage
        return deleted

    def _chosen(
        self,
        log: LogCollection,
        collection: Collection,
        segments: Iterable[Segment],
        condition: Condition,
    ) -> dict[Segment, Indices]:
        """Return which lines of segments a filter passes; of those that are now in their place.

        Raises:
            RecordCorrupt: a block does not read back.
        """
        for _ in range(_TRIES):
            found = {one: self._passing(log, collection, one, condition) for one in segments}
            rows = {one: places for one, places in found.items() if places is not None}
            if len(rows) == len(found):
                return {one: places for one, places in rows.items() if len(places)}
            log.refresh()
            segments = _in_place_of(log, found)
        raise RecordCorrupt("a segment is not where the ledger lists it")

    def _passing(
        self, log: LogCollection, collection: Collection, segment: Segment, condition: Condition
    ) -> Indices | None:
        """Return which lines of a segment a filter passes, as indices; None if it was replaced."""
        passes = condition.of_segment(segment, log.source(segment.stream))
        if segment.flags & RECORDS and not passes:  # its lines are deleted as documents
            return np.arange(0)
        if passes is not None:
            return np.arange(segment.lines if passes else 0)
        batch = self.lines.batch(log, collection, segment, condition)
        return None if batch is None else np.flatnonzero(batch.passing)

    def merge(self, collection: Collection) -> int:
        """Merge small neighbours of every stream; return how many segments there are fewer."""
        log = self._open(collection)
        return sum(self.merge_stream(log, stream, least=2) for stream in log.streams())

    def merge_stream(
        self,
        log: LogCollection,
        stream: int,
        *,
        at: int | None = None,
        least: int = MERGED_TOGETHER,
    ) -> int:
        """Merge small neighbours of a stream; return how many segments there are fewer.

        Lines that were deleted are blanked: their values are gone from then on.

        Args:
            log: the collection.
            stream: whose segments.
            at: number of a line: only neighbours of it are merged, and read for that; None: all.
            least: segments that are worth it, if they have fewer lines than half a full one.
        """
        fewer = 0
        for run in _small_runs(log.segments(stream)):
            near = at is None or run[0].first <= at < run[-1].end
            if near and _is_worth(run, least):
                with suppress(RecordCorrupt):  # the scrub reports it
                    fewer += self._merged(log, run, least)
        return fewer

    def statistics(self, collection: Collection) -> LineStatistics:
        """Return what a collection holds of lines, and what they take."""
        log = self._open(collection)
        state = log.state
        memory = self.store.ledger.memory(log.uid, vectors=state.vectors)
        records = sum(one.lines for one in log.every_segment() if one.flags & RECORDS)
        lines = state.lines - state.deleted - records
        return LineStatistics(
            lines=lines,
            records=records,
            deleted=state.deleted,
            verified=min(lines, state.verified),  # which counts the records, too
            streams=len(log.streams()),
            segments=len(log.every_segment()),
            shapes=len(log.shapes),
            statements=len(log.statements().texts),
            bytes_text=state.text_bytes,
            bytes_segments=state.segment_bytes,
            bytes_cold=state.cold_bytes,
            bytes_shapes=memory.shapes,
            bytes_statements=memory.statements,
            bytes_tables=memory.tables,
            bytes_memory=memory.total,
        )

    def _open(self, collection: Collection) -> LogCollection:
        return self.store.open(collection.name, dim=collection.dim)

    def _delete_all(
        self,
        log: LogCollection,
        collection: Collection,
        chosen: Mapping[Segment, Indices],
        condition: Condition,
    ) -> int:
        """Delete lines of segments; those that were replaced meanwhile are looked at again.

        Raises:
            LedgerUnavailable: others change the same segments again and again.
        """
        for _ in range(_TRIES):
            deleted = self._delete(log, chosen)
            if deleted is not None:
                return deleted
            log.refresh()
            chosen = self._chosen(log, collection, _in_place_of(log, chosen), condition)
        raise LedgerUnavailable("others change the segments of these lines all the while")

    def _delete(self, log: LogCollection, chosen: Mapping[Segment, Indices]) -> int | None:
        """Delete lines of segments, by index; return how many, None if a segment has changed."""
        if not chosen:
            return 0
        places = [(one.stream, one.first) for one in chosen]
        rows = []
        for one, old in zip(chosen, self.store.ledger.gone(log.uid, places), strict=True):
            was = set_bits(old, one.lines)
            now = was.copy()
            now[chosen[one]] = True
            new = bitmap(np.flatnonzero(now), one.lines)
            size = self._text_bytes(log, one, np.flatnonzero(now & ~was))
            rows.append(LinesDelete(one, old or b"", new, int(was.sum()), int(now.sum()), size))
        deleted = self.store.ledger.delete(log.name, log.uid, rows)
        if deleted is None:
            return None
        # Lines that are documents are counted as such.
        return deleted - sum(row.after - row.before for row in rows if row.segment.flags & RECORDS)

    def _text_bytes(self, log: LogCollection, segment: Segment, places: Indices) -> int:
        """Return the size of lines; of those of a damaged segment their share of all text."""
        if segment.flags & RECORDS:
            return 0
        size = 0
        try:
            [opened] = open_segments(self.store, log, [segment])
            if opened is None:  # replaced meanwhile: the step says so
                return 0
            if len(places) == segment.lines:
                return opened.text_bytes()
            for number in np.unique(places // BLOCK_LINES).tolist():
                lines = opened.block(log, number).lines
                inside = places[places // BLOCK_LINES == number] % BLOCK_LINES
                size += int((lines.ends[inside] - lines.begins[inside] + 1).sum())
        except RecordCorrupt:
            state = log.state
            return state.text_bytes * len(places) // max(1, state.lines - state.deleted)
        return size

    def _merged(self, log: LogCollection, run: Sequence[Segment], least: int) -> int:
        """Merge consecutive segments, those of about the same day; return how many are fewer."""
        opened = [one for one in open_segments(self.store, log, run) if one is not None]
        if len(opened) < len(run):  # replaced meanwhile
            return 0
        parts = [part for part in _alike(opened) if _is_worth([one.segment for one in part], least)]
        return sum(self._joined(log, part) for part in parts)

    def _joined(self, log: LogCollection, parts: Sequence[Opened]) -> int:
        """Merge consecutive segments into one; return how many there are fewer."""
        run = [one.segment for one in parts]
        bitmaps = self.store.ledger.gone(log.uid, [(one.stream, one.first) for one in run])
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
        tables = log.tables()
        new = coded(
            parsed, log, tables,
            target=Destination(run[0].stream, run[0].first, parts[0].front.times),
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
        return len(run) - len(new) if log.swap(old, rows_new, tables) else 0


def _in_place_of(log: LogCollection, segments: Iterable[Segment]) -> set[Segment]:
    """Return the segments that have the lines of these now."""
    return {one for old in segments for one in log.overlapping(old.stream, old.first, old.end)}


def _is_worth(run: Sequence[Segment], least: int) -> bool:
    """Whether segments are to be merged: there are so many, or they are half a full one."""
    enough = len(run) >= least or sum(one.lines for one in run) >= _SMALL_LINES
    return enough and len(run) > 1


def _alike(opened: Sequence[Opened]) -> Iterator[list[Opened]]:
    """Cut segments where their times are read in another way, or with years of another day."""
    part: list[Opened] = []
    for one in opened:
        if part and not _same_times(part[0].front.times, one.front.times):
            yield part
            part = []
        part.append(one)
    yield part


def _same_times(first: TimeSource, other: TimeSource) -> bool:
    """Whether times are read in one way, with years from about the same day."""
    return (
        replace(other, arrived_ns=0) == replace(first, arrived_ns=0)
        and (bool(first.pattern) or other.arrived_ns == first.arrived_ns)
        and abs(other.arrived_ns - first.arrived_ns) < _DAY_NS
    )


def _small_runs(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Yield runs of two and more small neighbours without a gap, at most a segment's lines each."""
    run: list[Segment] = []
    for one in segments:
        fits = (
            run
            and run[-1].end == one.first
            and not run[-1].flags & (OPEN | RECORDS)
            and not one.flags & RECORDS
            and sum(part.lines for part in run) + one.lines <= SEGMENT_LINES
        )
        if not fits:
            if len(run) > 1:
                yield run
            run = []
        if fits or (one.lines < _SMALL_LINES and not one.flags & (OPEN | RECORDS)):
            run.append(one)
    if len(run) > 1:
        yield run
