"""Check what is stored of a log collection, and correct what one flipped bit has damaged.

1. What lines share is read as it is stored: the list of segments, the streams' numbers and labels,
   shapes, fitted tables, vectors of templates. A value with one flipped bit is written again; one
   with more is named by its kind, in parentheses.
2. The counters are compared with what they count.
3. Every block of every segment is decoded, and the bitmaps of deleted lines are read. A segment
   with flipped bits that can be corrected is written again. A block that cannot be decoded is
   named by the id of its first line, and only its lines count as damaged.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verso_core import crc
from verso_core.errors import RecordCorrupt
from verso_core.jobs import BucketRange, Collection
from verso_core.jobs.lines import line_id
from verso_core.jobs.scrub import Scrubbed
from verso_core.segments import LogState, LogValue, Segment
from verso_worker.records.segments import BLOCK_LINES, SEGMENT_LINES, set_bits
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.segments import opened_segment
from verso_worker.rules.ports.stores import Logs

LISTED = 100
"""Most damaged blocks that one result names."""
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
        [data] = logs.read(log.uid, [place])
        if data is None:
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
            repaired = "repaired" in (bits, self._written(log, segment, data, one.data))
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
    }


def bucket_of(segment: Segment) -> int:
    """Return the bucket of a segment, of any number of buckets by the remainder."""
    return segment.stream + segment.first // SEGMENT_LINES
