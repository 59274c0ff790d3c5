"""Check what is stored of a log collection, and correct what one flipped bit has damaged.

1. What lines share is read as it is stored: the list of segments, the streams' numbers and labels,
   shapes, fitted tables, vectors of templates. A value with one flipped bit is written again; one
   with more is named by its kind, in parentheses.
2. The counters are compared with what they count.
3. Every block of every segment is decoded, and the bitmaps of deleted lines are read. A segment
   with flipped bits that can be corrected is written again. A block that cannot be decoded is
   named by the id of its first line, and only its lines count as damaged. Blocks of a sound segment
   whose lines arrived long enough ago are moved to cold storage.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verso_core import crc
from verso_core.errors import ObjectsUnavailable, RecordCorrupt, Unavailable
from verso_core.jobs import BucketRange, Collection
from verso_core.jobs.logs.lines import line_id
from verso_core.jobs.scrub import Scrubbed
from verso_core.segments import LogState, LogValue, Segment
from verso_worker.records.segments import (
    BLOCK_LINES,
    COLD_BYTES,
    SEGMENT_LINES,
    ColdBlocks,
    set_bits,
)
from verso_worker.rules.cold.storage import NAMED_S
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.segments import Opened, opened_segment
from verso_worker.rules.ports.stores import Logs

LISTED = 100
"""Most damaged blocks that one result names."""
LINES_OF_A_JOB = 1 << 17
"""Most lines of the buckets that one job checks, unless it is one bucket: some seconds of a core.
Verifying shares its queue, and what a job has read is read again if the worker ends before it."""
_TRIES = 3
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Found:
    """What a scrub has found so far: counts of lines, and names of what is damaged."""

    counts: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def add(self, status: str, count: int, name: str) -> None:
        """Count lines, or a value that they share, and name them if they are damaged."""
        self.counts.update({"documents": count, status: count})
        if status == "damaged":
            self.names.append(name)


@dataclass(frozen=True, slots=True)
class LogScrub:
    """Checks log collections."""

    store: LogStore
    management: LogManagement

    def part(self, collection: Collection, asked: BucketRange) -> BucketRange:
        """Return the first of some buckets: as many as have lines for one job, one at least."""
        try:
            log = self.store.open(collection.name, dim=collection.dim)
        except RecordCorrupt:  # no line can be read
            return asked
        lines: Counter[int] = Counter()
        for segment in log.every_segment():
            lines[bucket_of(segment) % collection.buckets] += segment.lines
        count, held = 1, lines[asked.first]
        while count < asked.count and held + lines[asked.first + count] <= LINES_OF_A_JOB:
            held += lines[asked.first + count]
            count += 1
        return replace(asked, count=count)

    def run(self, collection: Collection, asked: BucketRange) -> Scrubbed:
        """Check the segments of a range of buckets, and before the first one what all lines share.

        A segment has a bucket as documents have, so that a pass over all buckets reads each once.
        """
        found = _Found()
        logs, name = self.store.ledger, collection.name
        if asked.first == 0:
            _correct_shared(logs, name, found)
        try:
            log = self.store.open(name, dim=collection.dim)
        except RecordCorrupt:  # what is shared is named already
            return Scrubbed.of(asked.count, found.counts, found.names)
        if asked.first == 0:
            self._count_again(log)
        last = asked.first + asked.count
        for segment in log.every_segment():
            if asked.first <= bucket_of(segment) % collection.buckets < last:
                self._check(log, segment, found)
        if asked.first == 0:
            self.management.merge(collection)
            self._sweep(log)
        return Scrubbed.of(asked.count, found.counts, found.names[:LISTED])

    def _check(self, log: LogCollection, segment: Segment, found: _Found) -> None:
        """Check a segment and its bitmap; correct them if that is possible."""
        for _ in range(_TRIES):
            seen = self._seen(log, segment)
            if seen is not None:
                found.counts += seen.counts
                found.names += seen.names
                return
            log.refresh()
            if segment not in log.overlapping(segment.stream, segment.first, segment.end):
                return  # it was replaced: a later pass checks the new one
        found.add("damaged", segment.lines, line_id(segment.stream, segment.first))

    def _seen(self, log: LogCollection, segment: Segment) -> _Found | None:
        """Return what one segment is like; None if it is not there."""
        logs, seen = self.store.ledger, _Found()
        name, place = line_id(segment.stream, segment.first), (segment.stream, segment.first)
        bits, deleted = self._bits(log, segment)
        [stored] = logs.read(log.uid, [place])
        [data] = self.store.cold.whole(log.uid, [stored])
        if stored is None or data is None:
            return None
        try:
            one = opened_segment(segment, data)
        except RecordCorrupt:
            seen.add("damaged", segment.lines, name)
            return seen
        if one is None:
            return None
        if bits == "damaged":
            seen.add("damaged", segment.lines, name)
        elif not one.is_records:  # lines that are documents are checked as such
            lines = one.readable(log, self.store.writers)
            kept = self._kept(log, one, stored, data, whole=None not in lines)
            repaired = "repaired" in (bits, kept)
            for number, block in enumerate(lines):
                status = "damaged" if block is None else "repaired" if repaired else "sound"
                begin = number * BLOCK_LINES
                there = ~deleted[begin : begin + one.front.lines_of(number)]
                first = line_id(segment.stream, one.first_of(number))
                if there.any():
                    seen.add(status, int(there.sum()), first)
                if block is not None:
                    seen.counts["bytes"] += int((block.ends - block.begins + 1)[there].sum())
        return seen

    def _bits(self, log: LogCollection, segment: Segment) -> tuple[str, NDArray[np.bool_]]:
        """Check the bitmap of a segment's deleted lines, and correct it.

        Return what it was like, and which lines are deleted. Shape: (lines,).
        """
        [stored] = self.store.ledger.gone(log.uid, [(segment.stream, segment.first)])
        try:
            deleted = set_bits(stored, segment.lines)
        except RecordCorrupt:
            return "damaged", np.zeros(segment.lines, np.bool_)
        if not stored or crc.intact(stored):
            return "sound", deleted
        right = crc.closed(crc.opened(stored))
        return self._written(log, segment, stored, right, kind="gone"), deleted

    def _kept(
        self, log: LogCollection, one: Opened, stored: bytes, data: bytes, *, whole: bool
    ) -> str:
        """Correct what is stored of a segment, and move its blocks to cold storage if that is due.

        stored: what the ledger holds of it; ``data``: it with its blocks, as they were read;
        ``whole``: all of them can be decoded.
        """
        cold, front = ColdBlocks.read(stored), one.front
        size = front.size_bytes
        if cold is not None and one.data[size:] == data[size:]:
            return self._written(log, one.segment, stored, cold.pack(one.data[:size]))
        if cold is None and not (whole and self.store.cold.is_due(front)):
            return self._written(log, one.segment, stored, one.data)
        if not whole:  # nothing but a backup has the rest
            return "sound"
        self._move(log, one, stored)
        if one.data == data:
            return "sound"
        _warn(log.name, "segment")
        return "repaired"

    def _move(self, log: LogCollection, one: Opened, stored: bytes) -> None:
        """Move the blocks of a segment to cold storage; while that is full or away they stay."""
        until = self.store.ledger.now() + NAMED_S
        try:
            made, left = self.store.cold.moved(log.uid, one.data, one.front)
        except Unavailable as error:
            _log.warning("lines are not moved to cold storage: %s", error.detail)
            return
        where = f"{one.segment.stream}:{one.segment.first}"
        if made.is_fresh:
            self.store.ledger.correct(
                log.name, log.uid, "segment", where=where, old=stored, new=left, until=until
            )

    def _written(
        self,
        log: LogCollection,
        segment: Segment,
        old: bytes,
        new: bytes,
        *,
        kind: LogValue = "segment",
    ) -> str:
        if old == new:
            return "sound"
        where = f"{segment.stream}:{segment.first}"
        self.store.ledger.correct(log.name, log.uid, kind, where=where, old=old, new=new)
        _warn(log.name, kind)
        return "repaired"

    def _sweep(self, log: LogCollection) -> None:
        """Remove objects of cold storage that no segment names."""
        logs, cold = self.store.ledger, self.store.cold
        try:
            log.refresh()
            cold.sweep(logs, log.uid, [(one.stream, one.first) for one in log.every_segment()])
        except ObjectsUnavailable as error:
            _log.warning("cold storage is not swept: %s", error.detail)

    def _count_again(self, log: LogCollection) -> None:
        """Set the counters of a collection right, unless it changes all the while."""
        logs = self.store.ledger
        for _ in range(_TRIES):
            state = logs.state(log.name)
            segments = [Segment.unpack(member) for member in logs.segments(log.uid)]
            places = [(one.stream, one.first) for one in segments]
            bitmaps = logs.gone(log.uid, places)
            masks = sum(bits is not None for bits in bitmaps)
            try:
                gone = sum(
                    int(set_bits(bits, one.lines).sum())
                    for one, bits in zip(segments, bitmaps, strict=True)
                )
            except RecordCorrupt:
                return  # it is named where the segment is checked
            counts = {
                "lines": sum(one.lines for one in segments),
                "gone": gone,
                "masks": masks,
                "bytes": sum(logs.sizes(log.uid, places)),
                "cold": sum(
                    cold.size_bytes
                    for head in logs.heads(log.uid, places, size=COLD_BYTES)
                    if (cold := ColdBlocks.read(head)) is not None
                ),
            }
            if _counted(state) == counts:
                return
            if logs.put_counts(log.name, state, counts):
                _warn(log.name, "log")
                return


def _correct_shared(logs: Logs, name: str, found: _Found) -> None:
    """Check the values that many lines need, as they are stored, and correct them."""
    state = logs.state(name)
    uid, vectors = state.uid, state.vectors
    rows: list[tuple[LogValue, int | str, bytes]] = [
        ("segments", "", member) for member in logs.segments(uid)
    ]
    rows += [("shapes", n, row) for n, row in enumerate(logs.rows(uid, "shapes"))]
    rows += [("statements", n, row) for n, row in enumerate(logs.rows(vectors, "statements"))]
    rows += [("fitted", n, row) for n, row in logs.tables(uid).items()]
    for kind, where, old in rows:
        if crc.intact(old):
            continue
        right = crc.corrected(old)
        if right is not None:
            logs.correct(name, uid, kind, where=where, old=old, new=right)
        _note(name, kind, right is not None, found)
    _correct_streams(logs, name, uid, found)


def _correct_streams(logs: Logs, name: str, uid: str, found: _Found) -> None:
    for labels, value in logs.stored_streams(uid).items():
        right = logs.correct_stream(labels, value)
        if right == (labels, value):
            continue
        if right is not None:
            logs.correct(
                name, uid, "streams", where=labels, old=value, new=right[1], labels=right[0]
            )
        _note(name, "streams", right is not None, found)


def _note(name: str, kind: LogValue, corrected: bool, found: _Found) -> None:
    found.add("repaired" if corrected else "damaged", 1, f"({kind})")
    if corrected:
        _warn(name, kind)


def _warn(name: str, kind: str) -> None:
    _log.warning(
        "a damaged value of a log collection was set right",
        extra={"collection": name, "key": kind},
    )


def _counted(state: LogState) -> dict[str, int]:
    return {
        "lines": state.lines,
        "gone": state.deleted,
        "masks": state.bitmaps,
        "bytes": state.segment_bytes,
        "cold": state.cold_bytes,
    }


def bucket_of(segment: Segment) -> int:
    """Return the bucket of a segment, of any number of buckets by the remainder."""
    return segment.stream + segment.first // SEGMENT_LINES
