"""Read lines back: one by its id, or those of a segment that a filter passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs.parsing import Lines
from verso_core.errors import DocumentUnknown, RecordCorrupt, VersoError
from verso_core.jobs import Collection, Failed
from verso_core.jobs.logs.lines import line_id, line_place
from verso_core.jobs.logs.records import read_line
from verso_core.jobs.models import text_field
from verso_core.jobs.reconstruct import StoredText
from verso_core.segments import MISSING, Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import BLOCK_LINES, set_bits
from verso_worker.rules.logs.bodies import bodies, no_ends
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.segments import Opened, open_segments, read_times, year_bound
from verso_worker.rules.reader import Reader

Numbers = NDArray[np.int64]
_TRIES = 3
"""Readings of a segment that others may have replaced."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Lines of a stream, in its order. Shape of each array: (lines,).

    Attributes:
        stream: their stream.
        numbers: of the lines.
        when: their times, Unix nanoseconds.
        passing: whether each is there and passes the filter.
        lines: the lines themselves, of records their bodies.
        ends: what stands behind the body of each record, bytes.
    """

    stream: int
    numbers: Numbers
    when: Numbers
    passing: NDArray[np.bool_]
    lines: Lines
    ends: NDArray[np.object_]

    def take(self, chosen: Numbers) -> Batch:
        """Return some of the lines, in the order of ``chosen``."""
        return Batch(
            self.stream,
            self.numbers[chosen],
            self.when[chosen],
            self.passing[chosen],
            line_arrays.take(self.lines, chosen),
            self.ends[chosen],
        )


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was read, and its time, Unix nanoseconds; ``end``: as :class:`Batch` has it."""

    stream: int
    number: int
    time_ns: int
    text: bytes
    end: bytes = b""


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads lines of log collections."""

    store: LogStore
    reader: Reader

    def texts(self, collection: Collection, ids: Sequence[str]) -> dict[str, StoredText | Failed]:
        """Return lines by id, or the error of each; those that no segment holds are left out."""
        log = self.store.open(collection.name, dim=collection.dim)
        found: dict[str, StoredText | Failed] = {}
        for name in ids:
            place = line_place(name)
            if place is None:
                continue
            try:
                row = self._line(log, collection, *place)
            except VersoError as error:
                if error.retryable:
                    raise
                found[name] = Failed.of(error, id=name)
                continue
            if row is not None:
                text, time_ns = row
                found[name] = StoredText.model_validate(
                    {
                        "id": name,
                        "exact": True,
                        "chunks": 1,
                        "metadata": log.labels(place[0]),
                        "time": time_ns / 1e9,
                        **text_field(text),
                    }
                )
        return found

    def _line(
        self, log: LogCollection, collection: Collection, stream: int, number: int
    ) -> tuple[bytes, int] | None:
        """Return a line and its time; None if no segment holds it."""
        for _ in range(_TRIES):
            segments = log.overlapping(stream, number, number + 1)
            if not segments:
                return None
            deleted = self.deleted(log, segments[0])
            [opened] = open_segments(self.store, log, segments)
            if opened is not None:
                break
            log.refresh()  # it was merged with others
        else:
            raise RecordCorrupt("a segment is not where the ledger lists it")
        at = number - segments[0].first
        if opened.is_records:
            return self._body(log, collection, opened, at)
        if deleted[at]:
            return None
        block, place = opened.block(log, at // BLOCK_LINES), at % BLOCK_LINES
        text = block.lines.line(place)
        if log.holds_records(stream):
            text = read_line(text).text
        return text, int(block.when[place])

    def _body(
        self, log: LogCollection, collection: Collection, opened: Opened, at: int
    ) -> tuple[bytes, int] | None:
        """Return the body and the time of a record that is a document; None of a plain line."""
        stream, number = opened.segment.stream, opened.segment.first + at
        if not log.holds_records(stream):
            return None
        name = line_id(stream, number)
        found = self.reader.texts(collection, [name])[name]
        if not isinstance(found, tuple):
            return None
        when = read_times(line_arrays.of_rows([found[1]]), opened.front.times)
        return read_line(found[1]).text, int(when[0])

    def deleted(self, log: LogCollection, segment: Segment) -> NDArray[np.bool_]:
        """Return which lines of a segment are deleted. Shape: (lines,).

        It is to be read before the segment: a segment that is replaced loses its bitmap.

        Raises:
            RecordCorrupt: it is not known any more.
        """
        [bitmap] = self.store.ledger.gone(log.uid, [(segment.stream, segment.first)])
        return set_bits(bitmap, segment.lines)

    def batch(
        self,
        log: LogCollection,
        collection: Collection,
        segment: Segment,
        condition: Condition,
        *,
        skip_damaged: bool = False,
    ) -> Batch | None:
        """Return all lines of a segment; None if it was replaced or deleted meanwhile.

        Lines that cannot be read are empty and do not pass, with ``skip_damaged``.

        Raises:
            RecordCorrupt: a block does not read back.
        """
        deleted = self.deleted(log, segment)
        [opened] = open_segments(self.store, log, [segment])
        if opened is None:
            return None
        numbers = np.arange(segment.first, segment.end)
        whole = not opened.is_records and not skip_damaged
        if opened.is_records:
            lines, there = self._documents(collection, segment, skip_damaged=skip_damaged)
        elif skip_damaged:
            lines, there = self._readable(log, opened)
            there = there & ~deleted
        else:
            lines, there = opened.lines(log, self.store.readers), ~deleted
        # As when they were written; a part of them would have other years.
        source = opened.front.times
        latest_ns = MISSING if whole else year_bound(segment, source)
        before = (lambda: source.arrived_ns) if opened.is_records else None
        when = read_times(lines, source, latest_ns=latest_ns, before=before)
        return passing_batch(
            log, segment, condition, numbers=numbers, when=when, there=there, lines=lines
        )

    def batches(
        self, log: LogCollection, collection: Collection, segment: Segment, condition: Condition
    ) -> list[Batch]:
        """Return all lines of a segment, in order; if others have replaced it meanwhile, of those.

        Raises:
            RecordCorrupt: a block does not read back.
        """
        places = [segment]
        for _ in range(_TRIES):
            found = [self.batch(log, collection, one, condition) for one in places]
            parts = [one for one in found if one is not None]
            if len(parts) == len(places):
                first, end = segment.first, segment.end
                inside = [(one.numbers >= first) & (one.numbers < end) for one in parts]
                return [
                    one if own.all() else one.take(np.flatnonzero(own))
                    for one, own in zip(parts, inside, strict=True)
                ]
            log.refresh()
            places = log.overlapping(segment.stream, segment.first, segment.end)
        raise RecordCorrupt("a segment is not where the ledger lists it")

    def _readable(self, log: LogCollection, opened: Opened) -> tuple[Lines, NDArray[np.bool_]]:
        """Return the lines of a segment, empty ones for those of damaged blocks, and which are."""
        blocks = opened.readable(log, self.store.readers)
        sizes = [opened.front.lines_of(number) for number in range(len(blocks))]
        there = np.repeat([block is not None for block in blocks], sizes)
        return opened.joined(blocks), there

    def _documents(
        self, collection: Collection, segment: Segment, *, skip_damaged: bool
    ) -> tuple[Lines, NDArray[np.bool_]]:
        names = [line_id(segment.stream, n) for n in range(segment.first, segment.end)]
        texts = self.reader.texts(collection, names)
        rows = [found[1] if isinstance(found := texts[name], tuple) else b"" for name in names]
        for name in names:
            error = texts[name]
            if not isinstance(error, VersoError) or isinstance(error, DocumentUnknown):
                continue
            if error.retryable or not skip_damaged:
                raise error
        there = np.array([isinstance(texts[name], tuple) for name in names], np.bool_)
        return line_arrays.of_rows(rows), there


def passing_batch(
    log: LogCollection,
    segment: Segment,
    condition: Condition,
    *,
    numbers: Numbers,
    when: Numbers,
    there: NDArray[np.bool_],
    lines: Lines,
) -> Batch:
    """Return lines of a segment, those that are there and pass a filter marked."""
    source = log.source(segment.stream)
    ends = no_ends(len(numbers))
    if source.records:
        lines, ends = bodies(lines)
    passes = condition.of_segment(segment, source)
    if passes is None:
        there = there & condition.of_lines(
            source, stream=segment.stream, numbers=numbers, when=when, ends=ends
        )
    elif not passes:
        there = np.zeros(len(numbers), np.bool_)
    return Batch(segment.stream, numbers, when, there, lines, ends)
