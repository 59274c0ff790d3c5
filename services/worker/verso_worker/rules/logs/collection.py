"""What a worker knows of a log collection, read from the ledger and kept.

Shapes and vectors only grow in the ledger, so what was read stays right and :meth:`refresh` reads
what came since. Templates are not stored: they are mined from the shapes, in the order of their
numbers, so that every worker finds the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables
from verso_core import crc
from verso_core.errors import ArtifactInvalid, LedgerUnavailable, PatchCorrupt, RecordCorrupt
from verso_core.jobs.logs.records import is_marked, public
from verso_core.segments import Basis, LogState, Segment
from verso_worker.records import quarters
from verso_worker.records.space import Vector
from verso_worker.rules.cold.storage import ColdStorage
from verso_worker.rules.logs.cold import ColdSegments
from verso_worker.rules.logs.conditions import Source
from verso_worker.rules.logs.index import SegmentIndex, StatementEntries, Statements, View
from verso_worker.rules.logs.mining import Templates
from verso_worker.rules.ports.stores import Logs

_HASH_BYTES = 8
_ENCODED_TOGETHER = 64
_TABLES_KEPT = 4
_LENGTH_BYTES = 8
_MOST_THREADS = 8

Encode = Callable[[Sequence[bytes]], Vector]
"""Returns the unit vectors of texts. Shape: (texts, dim)."""


class LogCollection:
    """One log collection; any number of threads may share it.

    Args:
        logs: the ledger's lines.
        name: own name of the collection.
        uid: of the collection's lines.
        dim: of its vectors.
    """

    def __init__(self, logs: Logs, name: str, uid: str, *, dim: int) -> None:
        self.name = name
        self.uid = uid
        self.lock = threading.RLock()
        self.fitting = threading.Lock()
        self._encoding = threading.Lock()
        self.shapes = Shapes()
        self.state = LogState(uid)
        self.lost = False
        self._logs = logs
        self._dim = dim
        self._packed_shapes = 0
        self._last_shapes = b""
        self._ends: dict[int, bytes] = {0: b""}
        self._read_vectors = 0
        self._vectors: dict[bytes, bytes] = {}
        self._templates = Templates(self.shapes)
        self._without_vector: tuple[int, list[str]] = (0, [])
        self._statements: tuple[int, int, Statements] | None = None
        self._tables: dict[int, Tables] = {0: Tables.builtin()}
        self._newest = 0
        self._fitted_lines = 0
        self._streams: dict[int, dict[str, str]] = {}
        self._of_records: set[int] = set()
        self._by_stream: dict[int, list[Segment]] = {}
        self._index = SegmentIndex(logs, uid)
        self._bitmaps: tuple[int, dict[tuple[int, int], bytes]] = (-1, {})
        self._entries: tuple[View, Statements, StatementEntries] | None = None

    def refresh(self, state: LogState | None = None) -> None:
        """Read what came since the last call."""
        state = self._logs.state(self.name) if state is None else state
        with self.lock:
            old = self.state
            if state.written < old.written and state.removed == old.removed:
                state = self._logs.state(self.name)  # another thread's may have been read later
            if state.shapes != self._packed_shapes:
                self._read_shapes()
            if state.statements > self._read_vectors:
                self._read_statements(state)
            members = self._written_since(old, state)
            if members is None:
                if state.removed <= old.removed:  # the ledger went back: streams may be others
                    self._streams = {}
                self._list_segments(self._logs.segments(self.uid), whole=True)
            elif members:
                self._list_segments(members, whole=False)
            self.state = state  # only now: what could not be read is read again

    def _written_since(self, old: LogState, state: LogState) -> Sequence[bytes] | None:
        """Return the members of new segments; None if ones that are known may be gone."""
        if state.removed != old.removed:
            return None
        if (state.written, state.newest) == (old.written, old.newest):
            return ()
        rows = self._logs.segments(self.uid, after=old.written - 1)
        return rows[1:] if rows[:1] == [old.newest] else None

    def number(self, rows: Sequence[bytes]) -> list[int]:
        """Return the numbers of shapes; those that the ledger does not know are added to it.

        Raises:
            LedgerUnavailable: other workers were faster again and again.
        """
        with self.lock:
            for _ in range(64):
                new = [row for row in dict.fromkeys(rows) if self.shapes.find(row) < 0]
                if not new:
                    return [self.shapes.find(row) for row in rows]
                packed = crc.closed(self.shapes.pack_rows(new))
                known, last = self._packed_shapes, self._last_shapes
                if self._logs.append(
                    self.name, self.uid, "shapes", known=known, last=last, rows=[packed]
                ):
                    self.shapes.extend(new)
                    self._packed_shapes += 1
                    self._last_shapes = _end_of(packed)
                else:
                    self._read_shapes()
        raise LedgerUnavailable("other workers number shapes all the while")

    def embed(self, encode: Encode) -> int:
        """Encode the templates that have no vector yet; return how many these were."""
        made = 0
        while True:
            with self._encoding:
                with self.lock:  # not while the model computes: readers wait for it
                    missing, known = self._missing()[:_ENCODED_TOGETHER], self._read_vectors
                if not missing:
                    return made
                vectors = quarters.pack(encode([text.encode() for text in missing]))
                rows = [
                    crc.closed(digest(text) + vector)
                    for text, vector in zip(missing, vectors, strict=True)
                ]
                if self._logs.append(self.name, self.uid, "statements", known=known, rows=rows):
                    made += len(rows)
                with self.lock:
                    self._read_statements(self.state)

    def statements(self) -> Statements:
        """Return the templates of the known shapes, with the vectors that there are."""
        with self.lock:
            key = len(self.shapes), len(self._vectors)
            if self._statements is None or self._statements[:2] != key:
                self._statements = (*key, self._group())
            return self._statements[2]

    def tables(self, generation: int | None = None) -> Tables:
        """Return the tables of a generation; of the newest for None.

        Raises:
            RecordCorrupt: the ledger has none of this generation.
        """
        with self.lock:
            wanted = self._newest if generation is None else generation
            if wanted not in self._tables or (generation is None and wanted == 0):
                self._read_tables(generation)
                wanted = self._newest if generation is None else generation
            return self._tables[wanted]

    def put_tables(self, tables: Tables, *, lines: int) -> None:
        """Store tables that were fitted when the collection had so many lines."""
        packed = crc.closed(lines.to_bytes(_LENGTH_BYTES, "little") + tables.pack())
        with self.lock:
            self._logs.put_tables(self.name, self.uid, tables.generation, packed)
            self._read_tables(None)

    def basis(self, tables: Tables) -> Basis:
        """Return what blocks are coded by: the shapes that are known, and these tables."""
        with self.lock:
            end = self._ends[tables.generation]
            return Basis(self._packed_shapes, self._last_shapes, tables.generation, end)

    def swap(
        self,
        old: Sequence[tuple[Segment, bytes]],
        new: Sequence[tuple[Segment, bytes, bytes]],
        tables: Tables,
    ) -> bool:
        """Replace segments by others of the same lines; return whether they were unchanged.

        Args:
            old: segments, and the bitmap of deleted lines of each.
            new: segments, their data and bitmaps.
            tables: that the new ones were coded with.

        Raises:
            LedgerUnavailable: the ledger lacks what they were coded by.
        """
        done = self._logs.swap(self.name, self.uid, old, new, basis=self.basis(tables))
        if done is None:
            raise self._went_back()
        return done

    def check(self) -> None:
        """Check that the ledger has the shapes and the tables that are known.

        Raises:
            LedgerUnavailable: it lacks some, as one does that went back.
        """
        with self.lock:
            self._read_shapes()
            rows = self._logs.tables(self.uid)
            if any(_end_of(rows.get(n, b"")) != end for n, end in self._ends.items() if n):
                raise self._went_back()

    @property
    def fitted(self) -> tuple[int, int]:
        """The newest generation, and how many lines the collection had when it was fitted."""
        with self.lock:
            self.tables()
            return self._newest, self._fitted_lines

    def labels(self, stream: int) -> dict[str, str]:
        """Return the labels of a stream.

        Raises:
            RecordCorrupt: they are not known any more.
        """
        with self.lock:
            self._know(stream)
            return self._streams[stream]

    def holds_records(self, stream: int) -> bool:
        """Whether the lines of a stream are records (:mod:`verso_core.jobs.logs.records`).

        Raises:
            RecordCorrupt: its labels are not known any more.
        """
        with self.lock:
            self._know(stream)
            return stream in self._of_records

    def source(self, stream: int) -> Source:
        """Return what the lines of a stream have in common.

        Raises:
            RecordCorrupt: its labels are not known any more.
        """
        with self.lock:
            self._know(stream)
            return Source(self._streams[stream], stream in self._of_records)

    def streams(self) -> list[int]:
        """Return the number of every stream that has lines."""
        with self.lock:
            return sorted(self._by_stream)

    def segments(self, stream: int) -> list[Segment]:
        """Return the segments of a stream, in order."""
        return self._by_stream.get(stream, [])

    def view(self) -> View:
        """Return which statements and values occur in which segments."""
        with self.lock:
            version = self.state.written, self.state.removed, self.state.newest
            segments = self.every_segment()
        return self._index.view(segments, version=version)

    def entries(self, view: View, statements: Statements) -> StatementEntries:
        """Return the entries of a view by statement; those of the same two are kept."""
        kept = self._entries
        if kept is not None and kept[0] is view and kept[1] is statements:
            return kept[2]
        made = StatementEntries.of(view.shapes, statements.of_shape, len(statements.texts))
        if not statements.of_question:
            self._entries = view, statements, made
        return made

    def bitmaps(self) -> Mapping[tuple[int, int], bytes]:
        """Return the bitmaps of deleted lines, by stream and first number of a segment."""
        with self.lock:
            removed = self.state.removed
            if self._bitmaps[0] != removed:
                places = [(one.stream, one.first) for one in self.every_segment()]
                # Two counters, so that damage of one brings no deleted line back.
                there = self.state.deleted or self.state.bitmaps
                rows = self._logs.gone(self.uid, places if there else [])
                held = {place: row for place, row in zip(places, rows, strict=False) if row}
                self._bitmaps = removed, held
            return self._bitmaps[1]

    def every_segment(self) -> list[Segment]:
        """Return all segments, stream by stream, in order."""
        with self.lock:
            return [one for stream in sorted(self._by_stream) for one in self._by_stream[stream]]

    def overlapping(self, stream: int, first: int, end: int) -> list[Segment]:
        """Return the segments that hold lines of a range, in order."""
        known = self.segments(stream)
        at = bisect_right(known, first, key=lambda one: one.first)
        found = []
        for one in known[max(0, at - 1) :]:
            if one.first >= end:
                break
            if one.end > first:
                found.append(one)
        return found

    def _know(self, stream: int) -> None:
        """Read the labels of all streams if those of one are not known.

        Raises:
            RecordCorrupt: they are not known any more.
        """
        if stream not in self._streams:
            rows = self._logs.streams(self.uid)
            self._streams = {number: public(labels) for number, labels in rows.items()}
            self._of_records = {number for number, labels in rows.items() if is_marked(labels)}
        if stream not in self._streams:
            raise RecordCorrupt(f"the labels of stream {stream} are damaged")

    def _list_segments(self, members: Sequence[bytes], *, whole: bool) -> None:
        by_stream: dict[int, list[Segment]] = defaultdict(list)
        if not whole:
            by_stream |= self._by_stream
        new: dict[int, list[Segment]] = defaultdict(list)
        for member in members:
            one = Segment.unpack(member)
            new[one.stream].append(one)
        for stream, segments in new.items():
            known, rows = by_stream[stream], {one.first: one for one in segments}
            if known and min(rows) <= known[-1].first:
                rows = {one.first: one for one in known} | rows
                known = []
            by_stream[stream] = [*known, *(rows[first] for first in sorted(rows))]
        self._by_stream = dict(by_stream)

    def _read_shapes(self) -> None:
        known = self._packed_shapes
        rows = self._logs.rows(self.uid, "shapes", first=max(0, known - 1))
        if known and [_end_of(row) for row in rows[:1]] != [self._last_shapes]:
            raise self._went_back()
        for packed in rows[1 if known else 0 :]:
            try:
                self.shapes.extend(self.shapes.unpack(crc.opened(packed)))
            except (ArtifactInvalid, PatchCorrupt, ValueError) as exc:
                raise RecordCorrupt("the shapes of a log collection are damaged") from exc
            self._packed_shapes += 1
            self._last_shapes = _end_of(packed)

    def _went_back(self) -> LedgerUnavailable:
        """Have everything read again; return the error of what is done meanwhile."""
        self.lost = True
        return LedgerUnavailable("the ledger lacks what it had of a log collection; ask again")

    def _read_statements(self, state: LogState) -> None:
        rows = self._logs.rows(state.vectors, "statements", first=self._read_vectors)
        size = _HASH_BYTES + quarters.size_bytes(self._dim)
        for row in map(_intact, rows):
            if row is not None and len(row) == size:  # else the template is encoded again
                self._vectors[row[:_HASH_BYTES]] = row[_HASH_BYTES:]
        self._read_vectors += len(rows)

    def _read_tables(self, generation: int | None) -> None:
        rows = self._logs.tables(self.uid)
        stored = {n: kept for n, row in rows.items() if (kept := _intact(row)) is not None}
        if stored:
            self._newest = max(stored)
            self._fitted_lines = int.from_bytes(stored[self._newest][:_LENGTH_BYTES], "little")
        wanted = self._newest if generation is None else generation
        if wanted == 0 or wanted in self._tables:
            return
        if wanted not in stored:
            fault = "are damaged" if wanted in rows else "are not there"
            raise RecordCorrupt(f"the tables of generation {wanted} {fault}")
        self._read_shapes()  # they may have been fitted to shapes that came since
        if len(self._tables) > _TABLES_KEPT:
            self._tables = {n: kept for n, kept in self._tables.items() if n in (0, self._newest)}
        try:
            self._tables[wanted] = Tables.unpack(stored[wanted][_LENGTH_BYTES:], self.shapes)
        except ArtifactInvalid as exc:
            raise RecordCorrupt(f"the tables of generation {wanted} are damaged") from exc
        self._ends[wanted] = _end_of(rows[wanted])

    def _group(self) -> Statements:
        templates = self._templates.found()
        numbers: dict[str, int] = {}
        of_shape = [numbers.setdefault(text, len(numbers)) for text in templates]
        texts = list(numbers)
        vectors = np.zeros((len(texts), self._dim), np.float32)
        rows = enumerate(self._vectors.get(digest(text)) for text in texts)
        known = [(n, kept) for n, kept in rows if kept]
        if known:
            vectors[[n for n, _ in known]] = quarters.unpack([row for _, row in known], self._dim)
        own_texts = self._templates.own_texts()
        return Statements(texts, np.array(of_shape, np.int64), vectors, own_texts)

    def _missing(self) -> list[str]:
        count, texts = self._without_vector
        templates = self._templates.found()
        found = texts if count == len(templates) else dict.fromkeys(templates)
        missing = [text for text in found if digest(text) not in self._vectors]
        self._without_vector = len(templates), missing
        return missing


class LogStore:
    """The log collections of a worker, each read once and kept until its ledger has it no more.

    Attributes:
        ledger: the ledger's lines.
        cold: where blocks of old segments are.
        readers: threads that decode blocks for callers who wait.
        writers: threads that code and verify blocks.
    """

    def __init__(self, logs: Logs, cold: ColdStorage) -> None:
        self.ledger = logs
        self.cold = ColdSegments(cold)
        threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
        self.readers = ThreadPoolExecutor(threads, thread_name_prefix="log-read")
        self.writers = ThreadPoolExecutor(threads, thread_name_prefix="log-write")
        self._lock = threading.Lock()
        self._known: dict[str, LogCollection] = {}

    def open(self, name: str, *, dim: int) -> LogCollection:
        """Return a collection, by its own name, as it is now.

        Raises:
            CollectionUnknown: there is none of this name.
        """
        state = self.ledger.state(name)
        known = self._opened(name, state, dim)
        try:
            known.refresh(state)
        except LedgerUnavailable:
            if not known.lost:
                raise
            known = self._opened(name, state, dim)
            known.refresh(state)
        return known

    def _opened(self, name: str, state: LogState, dim: int) -> LogCollection:
        with self._lock:
            known = self._known.get(name)
            if known is None or known.uid != state.uid or known.lost:
                there = {uid.partition(".")[0] for uid in self.ledger.uids()}
                self._known = {one: log for one, log in self._known.items() if log.uid in there}
                known = self._known[name] = LogCollection(self.ledger, name, state.uid, dim=dim)
            return known

    def forget(self, name: str) -> None:
        """Have a collection read again, by its own name: the ledger lacks what is known of it."""
        with self._lock:
            self._known.pop(name, None)

    def read(self, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return segments by stream and first number, wherever their blocks are; None: it is gone.

        Raises:
            ObjectsUnavailable: one is in cold storage, which did not answer.
        """
        return self.cold.whole(uid, self.ledger.read(uid, places))


def _intact(row: bytes) -> bytes | None:
    """Return a value as it was written; None if it is not known any more."""
    try:
        return crc.opened(row)
    except PatchCorrupt:
        return None


def _end_of(row: bytes) -> bytes:
    """Return what tells a value from another in its place: its CRC."""
    return row[-crc.CRC_BYTES :]


def digest(template: str) -> bytes:
    """Return the hash that a template's vector is known by."""
    return hashlib.blake2b(template.encode(), digest_size=_HASH_BYTES).digest()
