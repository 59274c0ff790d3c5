"""Find what a job classifies, and load what heads read of it: vectors, terms and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import numpy as np

from verso_core.errors import DocumentUnknown, RecordCorrupt, SpaceMismatch, VersoError
from verso_core.heads import Portion, Reads
from verso_core.jobs import Collection, Precision, SearchMode
from verso_core.jobs.heads.classify import ClassifyItem, ClassifyParams
from verso_core.record import Entry, point_ids
from verso_worker.records import confidence
from verso_worker.records.outputs import Timings
from verso_worker.records.points import Terms
from verso_worker.records.space import Space, Vector
from verso_worker.rules.ports.models import Model, ServedHead
from verso_worker.rules.ports.stores import Lexicon, Vectors
from verso_worker.rules.reader import Chunk, Reader

T = TypeVar("T")

Faults = dict[int, VersoError]
"""Why items failed, by their index."""


@dataclass(slots=True)
class Subject:
    """Something to classify.

    index: the index of its item.
    vectors: of its records, or of its parts. Shape: (records, D); None until they are needed.
    parts: the texts that are read; None until they are needed.
    records: its stored chunks; empty for a text.
    terms: of its records or parts, for a head that reads them.
    """

    index: int
    parts: tuple[bytes, ...] | None = None
    vectors: Vector | None = None
    records: tuple[Chunk, ...] = ()
    terms: Sequence[Terms] = ()

    @property
    def text(self) -> bytes:
        """Return the first of its parts."""
        return self.parts[0] if self.parts else b""


@dataclass(frozen=True, slots=True)
class SubjectReader:
    """Reads the subjects of a job from the stores, or encodes them."""

    vectors: Vectors
    reader: Reader
    lexicon: Lexicon

    def find(
        self,
        items: Mapping[int, ClassifyItem],
        collection: Collection | None,
        faults: Faults,
    ) -> list[Subject]:
        """Return the subjects of the items; a document that does not exist is a fault."""
        if collection is None:
            return [Subject(index, parts=(item.text or b"",)) for index, item in items.items()]
        live = self.reader.live(collection, [item.id for item in items.values()])
        subjects = []
        for index, item in items.items():
            document, chunk = item.id, item.chunk
            entry = live.get(document)
            if isinstance(entry, VersoError):
                faults[index] = entry
            elif entry is None or not _has(entry, chunk):
                where = document if chunk is None else f"{document}#{chunk}"
                faults[index] = DocumentUnknown(f"no document or record {where!r}")
            else:
                chunks = range(len(entry.records)) if chunk is None else (chunk,)
                records = tuple(Chunk(document, entry, n) for n in chunks)
                subjects.append(Subject(index, records=records))
        return subjects

    def load(
        self,
        head: ServedHead,
        subjects: Sequence[Subject],
        collection: Collection | None,
        asked: ClassifyParams,
        faults: Faults,
        timings: Timings,
    ) -> list[Subject]:
        """Load what the head reads; return the subjects that have it, the others are faults."""
        decoder = confidence.needs_decoder(head.head.calibration, all_signals=asked.signals)
        by_vector = head.head.reads in (Reads.VECTOR, Reads.DOCUMENT)
        ready = list(subjects)
        if (by_vector or decoder) and collection is not None:
            if collection.space != head.head.space:
                raise SpaceMismatch(
                    f"head {head.head.name} reads space {head.head.space}, the vectors of "
                    f"the collection are of {collection.space}"
                )
            with timings.phase("store"):
                ready = self._with_vectors(ready, collection, faults)
        elif by_vector or decoder:
            bare = [subject for subject in ready if subject.vectors is None]
            parts = [subject.parts or () for subject in bare]
            with timings.phase("infer"):
                vectors = _encoded(head.model, [one for own in parts for one in own])
            ends = np.cumsum([len(own) for own in parts]).tolist()
            for subject, own, end in zip(bare, parts, ends, strict=True):
                subject.vectors = vectors[end - len(own) : end]
        if (not by_vector or decoder) and collection is not None:
            with timings.phase("restore"):
                whole = (asked.chunk or head.head.chunk) is None
                ready = self._with_texts(ready, collection, faults, whole=whole)
        if head.head.terms:
            with timings.phase("store" if collection is not None else "infer"):
                ready = self._with_terms(ready, collection, faults)
        return ready

    def _with_vectors(
        self, subjects: Sequence[Subject], collection: Collection, faults: Faults
    ) -> list[Subject]:
        points = {
            subject.index: _points(collection, subject)
            for subject in subjects
            if subject.vectors is None
        }
        wanted = [point for own in points.values() for point in own]
        stored = self.vectors.get(collection.name, wanted) if wanted else {}
        space = Space.of(collection)
        ready = []
        for subject in subjects:
            if subject.index in points:
                wanted_own = points[subject.index]
                own = [stored[point] for point in wanted_own if point in stored]
                if len(own) < len(wanted_own):
                    faults[subject.index] = RecordCorrupt("a vector of it is not stored")
                    continue
                subject.vectors = space.widen(np.stack(own))
            ready.append(subject)
        return ready

    def _with_terms(
        self, subjects: Sequence[Subject], collection: Collection | None, faults: Faults
    ) -> list[Subject]:
        ready = list(subjects)
        if collection is not None and collection.search is SearchMode.HYBRID:
            points = {subject.index: _points(collection, subject) for subject in ready}
            chunks = {
                point: chunk
                for subject in ready
                for point, chunk in zip(points[subject.index], subject.records, strict=True)
            }
            terms = self.reader.terms(collection, chunks, self.lexicon)
            sound = []
            for subject in ready:
                own = [terms[point] for point in points[subject.index]]
                fault = next((one for one in own if isinstance(one, VersoError)), None)
                if fault is not None:
                    faults[subject.index] = fault
                    continue
                subject.terms = [one for one in own if isinstance(one, Terms)]
                sound.append(subject)
            return sound
        if collection is not None:
            ready = self._with_texts(ready, collection, faults, whole=False)
        parts = [part for subject in ready for part in subject.parts or ()]
        found = iter(self.lexicon.documents(parts))
        for subject in ready:
            subject.terms = [next(found) for _ in subject.parts or ()]
        return ready

    def _with_texts(
        self, subjects: Sequence[Subject], collection: Collection, faults: Faults, *, whole: bool
    ) -> list[Subject]:
        bare = [subject for subject in subjects if subject.parts is None]
        chunks = [chunk for subject in bare for chunk in subject.records]
        texts = iter(self.reader.chunks(collection, chunks))
        for subject in bare:
            parts = [next(texts) for _ in subject.records]
            fault = next((part for part in parts if isinstance(part, VersoError)), None)
            if fault is not None:
                faults[subject.index] = fault
                continue
            sound = [part for part in parts if isinstance(part, bytes)]
            subject.parts = (b"".join(sound),) if whole else tuple(sound)
        return [subject for subject in subjects if subject.parts is not None]


def narrowed(head: ServedHead, subject: Subject, portion: Portion | None) -> Subject:
    """Return a subject with the chunks that the head reads of it, if the portion selects them."""
    most = head.head.max_chunks
    if portion is None and most is None:
        if head.head.reads is not Reads.VECTOR:
            return Subject(subject.index, parts=subject.parts, records=subject.records)
        # a vector holds the beginning of a text: what a collection stores as the first chunk
        parts = None if subject.parts is None else (head.model.cutter.first(subject.text),)
        return Subject(subject.index, parts=parts, records=subject.records[:1])
    if subject.records:
        return Subject(subject.index, records=tuple(read_chunks(subject.records, portion, most)))
    chunks = head.model.cutter.cut(subject.text)
    return Subject(subject.index, parts=tuple(read_chunks(chunks, portion, most)))


def read_chunks(chunks: Sequence[T], portion: Portion | None, most: int | None) -> Sequence[T]:
    """Return the chunks that a portion selects; of too many the first and the last half."""
    chosen = chunks if portion is None else portion.chosen(chunks)
    if most is None or len(chosen) <= most:
        return chosen
    return [*chosen[: most - most // 2], *chosen[len(chosen) - most // 2 :]]


def _encoded(model: Model, texts: Sequence[bytes]) -> Vector:
    """Return vectors of texts, rounded as an int8 collection keeps them. Shape: (texts, D).

    Heads are trained and calibrated on such vectors. Not rounded, one text in 80 had another label
    than its stored document (docs/research/heads.md).
    """
    if not texts:  # another head has read them already
        return np.zeros((0, model.dim), np.float32)
    space = Space(Precision.INT8, model.dim, model.int8_scale)
    return space.widen(space.round(model.recorder.engine.encode(texts).vectors))


def _points(collection: Collection, subject: Subject) -> list[UUID]:
    """Return the points of a subject's records."""
    return [
        point_ids(collection.name, chunk.document, chunk.entry)[chunk.index]
        for chunk in subject.records
    ]


def _has(entry: Entry, chunk: int | None) -> bool:
    """Whether a document has the record, or any record if none is named."""
    return bool(entry.records) if chunk is None else chunk < len(entry.records)
