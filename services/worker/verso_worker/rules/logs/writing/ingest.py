"""Ingest lines of a log collection, and verify from the ledger that they can be read back.

1. Parse the lines: each has a shape and values. No step of this rule is made a line.
2. The ledger numbers the shapes that are new. Templates are mined from all shapes; a new one is
   encoded and its vector stored.
3. Code the lines in blocks. Lines that are text become records.
4. The ledger commits the segments and the result in one step. The payload stays in the slice.
5. Later, in any worker, :meth:`LogIngest.verify` reads the segments, decodes them and compares them
   with the payload. Only then does the ledger drop it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import zstandard
from numpy.typing import NDArray

from verso_codecs.logs import parsing, times
from verso_codecs.logs.parsing import Lines, Parsed
from verso_codecs.logs.tables import Tables
from verso_core.errors import (
    CollectionUnknown,
    MetadataInvalid,
    ObjectsUnavailable,
    RecordCorrupt,
)
from verso_core.jobs import Collection, Result, Slice
from verso_core.jobs.logs import time_formats
from verso_core.jobs.logs.lines import IngestLinesParams, LinesIngested, LinesItem, line_id
from verso_core.jobs.logs.records import is_marked, public, read_line
from verso_core.record import Entry
from verso_core.segments import LinesWrite, Segment, SegmentWrite
from verso_core.texts import Metadata, check_metadata
from verso_worker.records import line_arrays
from verso_worker.records.outputs import Timings
from verso_worker.records.segments import BLOCK_LINES, RECORDS, TimeSource, set_bits
from verso_worker.rules.ingest import Ingest, Source, writer_of
from verso_worker.rules.logs.bodies import TIME_PATTERN
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.segments import (
    Destination,
    coded,
    of_records,
    open_segments,
    read_times,
)
from verso_worker.rules.logs.writing.texts import Judge
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.outcome import SliceOutcome, Verdict, Write
from verso_worker.rules.reader import Reader

LONG_LINE_BYTES = 8192
"""A longer line is stored as a record."""
FIT_LINES = 1024
"""Least lines that tables are fitted to."""
FIT_AGAIN = 8
"""Tables are fitted again when the collection has so many times the lines that it had."""
GENERATIONS = 6
"""Most generations of tables."""
_STORED_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class _Payload:
    """The lines of a slice, and their bytes as they came.

    ``is_open``: the last one came without a line end.
    """

    lines: Lines
    size_bytes: int
    is_open: bool

    @classmethod
    def of(cls, item: LinesItem) -> _Payload:
        """Read the lines of a slice.

        Raises:
            RecordCorrupt: a bit of them is not as it was sent.
        """
        text = item.text
        if item.size:
            try:
                if zstandard.frame_content_size(text) != item.size:
                    raise RecordCorrupt("the lines of a slice are damaged")
                text = zstandard.ZstdDecompressor().decompress(text)
            except zstandard.ZstdError as exc:
                raise RecordCorrupt("the lines of a slice are damaged") from exc
        is_open = not text.endswith(b"\n")
        return cls(parsing.split(text + b"\n" if is_open else text), len(text), is_open)


@dataclass(frozen=True, slots=True)
class LogIngest:
    """Writes lines into log collections and verifies them."""

    models: Models
    store: LogStore
    reader: Reader
    records: Ingest
    management: LogManagement
    _judge: Judge = field(default_factory=Judge)
    _formats: dict[tuple[str, int, str], times.TimeFormat] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self,
        work: Slice[IngestLinesParams, LinesItem],
        collection: Collection,
        *,
        seq: int,
        timings: Timings,
    ) -> SliceOutcome:
        """Code the lines of a slice, ready to be committed.

        Raises:
            CollectionUnknown: the collection for which the numbers were reserved is gone.
            RecordCorrupt: shapes or tables of the collection cannot be read.
        """
        item, params = work.only, work.params
        log = self._open(collection, params)
        payload = _Payload.of(item)
        target = Destination(params.stream, item.first, self._times(payload.lines, params))
        with timings.phase("tokenize"):
            texts, parsed = self._parse(payload.lines, log, params)
            known = len(log.shapes)
            parsed.number(log.number(parsed.new_rows))
        with timings.phase("store"):
            tables = self._tables(log, parsed)
            segments = self._segments(payload, parsed, texts, log=log, tables=tables, target=target)
        with timings.phase("infer"):
            made = self._embed(log, collection)
        writes = self._records(payload.lines, texts, collection, params, target=target, seq=seq)
        found = LinesIngested(
            stream=params.stream,
            first=item.first,
            lines=item.count,
            records=int(texts.sum()),
            bytes_text=payload.size_bytes,
            bytes_stored=sum(len(one.data) for one in segments),
            shapes=len(log.shapes) - known,
            statements=made,
        )
        return SliceOutcome(
            Result([found]),
            writes=writes,
            collection=collection.name,
            lines=LinesWrite(collection.name, log.uid, segments, log.basis(tables)),
        )

    def verify(
        self, work: Slice[IngestLinesParams, LinesItem], collection: Collection, *, seq: int
    ) -> Verdict:
        """Compare the lines that the ledger returns with a slice's payload.

        What does not read back is coded again, written, and read once more.

        Raises:
            RecordCorrupt: it does not read back even then.
        """
        item, params = work.only, work.params
        try:
            log = self._open(collection, params)
        except CollectionUnknown:
            return Verdict([], [])
        payload = _Payload.of(item)
        if not self._reads_back(payload, item, log, params):
            self._rewrite(payload, item, log, params)
            log.refresh()
            if not self._reads_back(payload, item, log, params):
                raise RecordCorrupt("lines do not read back, even written again")
        # Another segment is damaged, as the scrub reports, or in cold storage that is away.
        with suppress(RecordCorrupt, ObjectsUnavailable):
            self.management.merge_stream(log, params.stream, at=item.first + item.count - 1)
        documents = self._documents(log, params, item, payload)
        verdict = self._verify_records(documents, collection, seq=seq)
        return replace(verdict, lines=(collection.name, log.uid, item.count))

    def _parse(
        self, lines: Lines, log: LogCollection, params: IngestLinesParams
    ) -> tuple[NDArray[np.bool_], Parsed]:
        """Return which lines are text, and the others parsed. Shape of the first: (lines,)."""
        texts = lines.ends - lines.begins > LONG_LINE_BYTES
        parsed = _without(lines, texts, log)
        judged = self._judge.texts(
            (params.uid, params.stream), parsed, log.shapes, statements=log.state.statements
        )
        if judged.any():
            texts[np.flatnonzero(~texts)[judged]] = True
            parsed = _without(lines, texts, log)
        return texts, parsed

    def _open(self, collection: Collection, params: IngestLinesParams) -> LogCollection:
        log = self.store.open(collection.name, dim=collection.dim)
        if log.uid != params.uid:
            raise CollectionUnknown("the collection that these lines were sent to is gone")
        return log

    def _times(self, lines: Lines, params: IngestLinesParams) -> TimeSource:
        """Find where the times of lines stand; a stream keeps the format it had."""
        if is_marked(params.labels):
            return TimeSource(TIME_PATTERN, 0, params.arrived)
        if params.time_format == time_formats.NONE:
            return TimeSource(arrived_ns=params.arrived)
        key = params.uid, params.stream, params.time_format
        patterns = time_formats.patterns(params.time_format)
        found = times.find_format(lines, patterns, arrived_ns=params.arrived)
        with self._lock:
            found = self._formats.get(key) if found is None else found
            if found is None:
                return TimeSource(arrived_ns=params.arrived, offset_s=params.offset_s)
            self._formats[key] = found
        return TimeSource(found.pattern, found.field, params.arrived, params.offset_s)

    def _embed(self, log: LogCollection, collection: Collection) -> int:
        """Encode the templates that have no vector yet."""

        def encode(texts: Sequence[bytes]) -> NDArray[np.float32]:
            vectors: NDArray[np.float32] = (
                self.models.writing(collection).recorder.engine.encode(texts).vectors
            )
            return vectors

        return log.embed(encode)

    def _tables(self, log: LogCollection, parsed: Parsed) -> Tables:
        """Return the tables to code with, fitted to these lines if it is time to."""
        with log.fitting:  # a slice that is coded beside this one takes the same tables
            generation, at = log.fitted
            due = log.state.lines >= FIT_AGAIN * at if generation else True
            if parsed.count >= FIT_LINES and due and generation < GENERATIONS:
                fitted = Tables.fit([parsed], log.shapes, generation=generation + 1)
                log.put_tables(fitted, lines=max(log.state.lines, parsed.count))
            return log.tables()

    def _segments(
        self,
        payload: _Payload,
        parsed: Parsed,
        texts: NDArray[np.bool_],
        *,
        log: LogCollection,
        tables: Tables,
        target: Destination,
    ) -> list[SegmentWrite]:
        found: list[SegmentWrite] = []
        when = read_times(payload.lines, target.times) if texts.any() else np.zeros(0, np.int64)
        passed = 0  # text lines before the run, which are not among the parsed ones
        for begin, end, is_text in _runs(texts):
            is_open = payload.is_open and end == len(texts)
            if is_text:
                for start in range(begin, end, BLOCK_LINES):
                    stop = min(end, start + BLOCK_LINES)
                    own = replace(target, times=replace(target.times, arrived_ns=int(when[start])))
                    opened = is_open and stop == end
                    found.append(
                        of_records(payload.lines, target=own, begin=start, end=stop, is_open=opened)
                    )
                passed += end - begin
                continue
            found += coded(
                parsed, log, tables,
                target=replace(target, first=target.first + passed),
                begin=begin - passed, end=end - passed, is_open=is_open, pool=self.store.writers,
                text_is_kept=True,
            )  # fmt: skip
        return found

    def _records(
        self,
        lines: Lines,
        texts: NDArray[np.bool_],
        collection: Collection,
        params: IngestLinesParams,
        *,
        target: Destination,
        seq: int,
    ) -> list[Write]:
        """Store the lines that are text as documents."""
        sources = [(one, seq) for one in _sources(lines, np.flatnonzero(texts), params, target)]
        if not sources:
            return []
        model = self.models.writing(collection)
        writes: list[Write] = []
        for start in range(0, len(sources), _STORED_TOGETHER):
            part = sources[start : start + _STORED_TOGETHER]
            writes += self.records.store(part, collection, model=model)
        return writes

    def _reads_back(
        self, payload: _Payload, item: LinesItem, log: LogCollection, params: IngestLinesParams
    ) -> bool:
        """Whether the ledger's segments hold the lines of a payload, but for deleted ones."""
        end = item.first + item.count
        segments = log.overlapping(params.stream, item.first, end)
        places = [(one.stream, one.first) for one in segments]
        bitmaps = self.store.ledger.gone(log.uid, places)
        at, missing = item.first, False
        try:
            opened = open_segments(self.store, log, segments)
            for segment, one, bitmap in zip(segments, opened, bitmaps, strict=True):
                if one is None or not one.intact:
                    return False
                missing = missing or segment.first > at
                at = max(at, segment.first)
                stop = min(end, segment.end)
                if not one.is_records:
                    asked = np.arange(at - item.first, stop - item.first)
                    given = line_arrays.take(payload.lines, asked)
                    inside = np.arange(at - segment.first, stop - segment.first)
                    held = line_arrays.take(one.lines(log, self.store.writers), inside)
                    deleted = set_bits(bitmap, segment.lines)[inside]
                    if not _same(given, held, deleted):
                        return False
                at = stop
        except RecordCorrupt:
            return False
        missing = missing or at < end
        return not missing or self._none_lost(log)

    def _none_lost(self, log: LogCollection) -> bool:
        """Whether segments that are missing were removed since all their lines were deleted.

        The list of segments then has as many lines as the counters say.
        """
        lines, removed, members = self.store.ledger.listed(log.uid)
        return removed > 0 and lines == sum(Segment.unpack(member).lines for member in members)

    def _rewrite(
        self, payload: _Payload, item: LinesItem, log: LogCollection, params: IngestLinesParams
    ) -> None:
        """Code the lines of a slice again and replace its segments."""
        target = Destination(params.stream, item.first, self._times(payload.lines, params))
        end = item.first + item.count
        for old in log.overlapping(params.stream, item.first, end):
            if old.first < item.first or old.end > end:
                raise RecordCorrupt("a segment that was merged does not read back")
            asked = np.arange(old.first - item.first, old.end - item.first)
            lines = line_arrays.take(payload.lines, asked)
            parsed = parsing.parse(lines, log.shapes)
            parsed.number(log.number(parsed.new_rows))
            bitmap = self.store.ledger.gone(log.uid, [(old.stream, old.first)])[0] or b""
            tables = log.tables()
            new = coded(
                parsed, log, tables,
                target=replace(target, first=old.first), begin=0, end=parsed.count,
                is_open=payload.is_open and old.end == end, pool=self.store.writers,
            )  # fmt: skip
            if len(new) == 1:
                log.swap([(old, bitmap)], [(new[0].segment, new[0].data, bitmap)], tables)

    def _documents(
        self, log: LogCollection, params: IngestLinesParams, item: LinesItem, payload: _Payload
    ) -> dict[str, Source]:
        """Return the lines of a slice that are documents, by id."""
        end = item.first + item.count
        parts = [
            np.arange(max(one.first, item.first), min(one.end, end)) - item.first
            for one in log.overlapping(params.stream, item.first, end)
            if one.flags & RECORDS
        ]
        if not parts:
            return {}
        target = Destination(params.stream, item.first, self._times(payload.lines, params))
        sources = _sources(payload.lines, np.concatenate(parts), params, target)
        return {one.id: one for one in sources}

    def _verify_records(
        self, documents: Mapping[str, Source], collection: Collection, *, seq: int
    ) -> Verdict:
        verdict = Verdict([], [], collection.name)
        if not documents:
            return verdict
        texts = self.reader.texts(collection, list(documents), use_kept=False)
        live = self.reader.live(collection, documents)
        for name, source in documents.items():
            entry, found = live.get(name), texts[name]
            if entry is None:
                continue  # deleted
            if isinstance(entry, Entry) and not entry.damaged:
                verdict.written_by[name] = writer_of(entry, collection)
            if isinstance(entry, Entry) and isinstance(found, tuple) and found[1] == source.text:
                verdict.sound.append(name)
            else:
                verdict.rewritten.append(self.records.rewrite(source, collection, seq=seq))
        return verdict


def _sources(
    lines: Lines, chosen: NDArray[np.int64], params: IngestLinesParams, target: Destination
) -> list[Source]:
    """Return lines of a slice as documents; ``target`` is where its first line is stored."""
    if not len(chosen):
        return []
    when = read_times(lines, target.times)[chosen] / 1e9
    texts = line_arrays.rows(line_arrays.take(lines, chosen))
    return [
        Source(
            line_id(params.stream, target.first + index),
            text,
            _metadata(text, params.labels),
            time_s,
        )
        for index, text, time_s in zip(chosen.tolist(), texts, when.tolist(), strict=True)
    ]


def _metadata(line: bytes, labels: Mapping[str, str]) -> Metadata:
    """Return the metadata of a line that is stored as a document: labels, and its attributes.

    Attributes that are larger than metadata may be are of the line alone.
    """
    own: Metadata = dict(public(labels))
    if not is_marked(labels):
        return own
    try:
        attributes = json.loads(read_line(line).attributes or b"{}")
        return check_metadata({**attributes, **own})
    except (MetadataInvalid, RecordCorrupt):
        return own


def _without(lines: Lines, texts: NDArray[np.bool_], log: LogCollection) -> Parsed:
    """Parse the lines that are no text."""
    kept = line_arrays.take(lines, np.flatnonzero(~texts)) if texts.any() else lines
    return parsing.parse(kept, log.shapes)


def _runs(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int, bool]]:
    """Yield the runs of equal flags: begin, end, flag."""
    if not len(flags):
        return
    edges = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), len(flags)]
    for begin, end in pairwise(edges):
        yield begin, end, bool(flags[begin])


def _same(given: Lines, held: Lines, deleted: NDArray[np.bool_]) -> bool:
    """Whether two sequences of lines are equal, but for deleted ones."""
    if np.array_equal(given.data, held.data):
        return True
    if not deleted.any():
        return False
    kept = np.flatnonzero(~deleted)
    return np.array_equal(line_arrays.take(given, kept).data, line_arrays.take(held, kept).data)
