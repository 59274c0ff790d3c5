"""Classify texts and stored records, with a calibrated confidence.

A head that reads vectors classifies stored records from their vectors alone: nothing is decoded.

A head that reads documents is given the vectors of all chunks, and the words' terms where it reads
them: as a hybrid collection stores them, or else of the restored texts.

The **portion** of the request, or else of the head, says which chunks of a text are classified: the
first, the last, or all of them, whose logits are averaged. A text is cut, and its vectors are
rounded, as an int8 collection would store it, so that it gets the labels of its stored document. A
record that the request names is classified alone. Without a portion a head that reads documents
reads all chunks; for other heads a text, and a stored document likewise, is read from its start up
to the encoder's limit.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import (
    DocumentUnknown,
    RecordCorrupt,
    RequestInvalid,
    SpaceMismatch,
    VersoError,
)
from verso_core.heads import Head, Judged, Portion, Reads, SignalName, Task, source_of
from verso_core.jobs import Collection, Failed, Kind, Precision, Result, SearchMode, Slice
from verso_core.jobs.heads.classify import (
    Classification,
    Classified,
    ClassifyItem,
    ClassifyParams,
    Label,
)
from verso_core.jobs.heads.feedback import FeedbackItem, FeedbackParams, FeedbackTaken
from verso_core.record import Entry, point_ids
from verso_core.registry import Channel
from verso_worker.records import confidence
from verso_worker.records.outputs import Document, Timings
from verso_worker.records.points import NO_TERMS, Terms
from verso_worker.records.space import Space, Vector
from verso_worker.rules.ports.models import FeedbackRows, Heads, Model, ServedHead
from verso_worker.rules.ports.stores import Lexicon, Vectors
from verso_worker.rules.reader import Chunk, Reader

T = TypeVar("T")
_FRESH_S = 5.0
"""How long other workers' feedback may wait until it counts."""
_ALL_LABELS = 1 << 30
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Subject:
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


Faults = dict[int, VersoError]
"""Why items failed, by their index."""


class Learned:
    """The calibrations of heads, corrected by the labels that people have checked.

    Args:
        feedback: the labels.
    """

    def __init__(self, feedback: FeedbackRows) -> None:
        self._feedback = feedback
        self._known: dict[tuple[str, str], tuple[float, Head]] = {}

    def head(self, head: Head) -> Head:
        """Return a head as it is calibrated now; read again after ``_FRESH_S``."""
        key, now = (head.name, head.version), time.monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < _FRESH_S:
            return known[1]
        rows = self._feedback.rows(*key)
        found = head
        if len(rows) >= confidence.FEWEST_JUDGED:
            calibration = confidence.learned(head.calibration, rows)
            found = head.model_copy(update={"calibration": calibration})
        self._known[key] = now, found
        return found

    def add(self, head: str, version: str, rows: Mapping[bytes, Judged]) -> None:
        """Store labels that people have checked; they count from now on."""
        if rows:
            self._feedback.add(head, version, rows)
            self._known.pop((head, version), None)


@dataclass(frozen=True, slots=True)
class Classify:
    """Runs classifiers."""

    vectors: Vectors
    reader: Reader
    heads: Heads
    lexicon: Lexicon
    learned: Learned

    def run(
        self,
        work: Slice[ClassifyParams, ClassifyItem],
        collection: Collection | None,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Classified]:
        """Classify the items of a slice with every head that it names.

        Args:
            work: the slice; its items are texts, or name documents and records.
            collection: the collection of the named documents; None for texts.
            job: chooses the channel of each head; None for the stable version.
            timings: added to.

        Raises:
            HeadUnknown, HeadInvalid: a head cannot be served.
            SpaceMismatch: a head that reads vectors cannot read the collection's.
            RequestInvalid: a head has no threshold for the error rate.
        """
        asked = work.params
        served = [self.heads.get(name, task=Task.CLASSIFY, job=job) for name in asked.heads]
        items, faults = work.accepted, Faults()
        with timings.phase("store"):
            subjects = self._subjects(items, collection, faults)
        labels: dict[int, list[Classification]] = {subject.index: [] for subject in subjects}
        narrowed: dict[tuple[Any, ...], list[_Subject]] = {}
        for head in served:
            portion = asked.chunk or head.head.chunk
            read = portion, head.head.reads, head.head.max_chunks
            if read not in narrowed:
                narrowed[read] = [_narrowed(head, one, portion) for one in subjects]
            sound = [one for one in narrowed[read] if one.index not in faults]
            ready = self._prepared(head, sound, collection, asked, faults, timings)
            head = replace(head, head=self.learned.head(head.head))
            with timings.phase("infer"):
                found = _classified(head, ready, asked) if ready else []
            for subject, one in zip(ready, found, strict=True):
                labels[subject.index].append(one)
        results = {index: _result(item, labels, faults, index) for index, item in items.items()}
        labelled: list[Classified | Failed] = work.answered(results)
        return Result(labelled)

    def judge(
        self,
        work: Slice[FeedbackParams, FeedbackItem],
        collection: Collection | None,
        *,
        classify: Callable[[Slice[ClassifyParams, ClassifyItem], str | None], Result[Classified]],
    ) -> Result[FeedbackTaken]:
        """Store whether the stable version's label of each item is the one given.

        A canary is scored by the same labels.

        Args:
            work: the slice; its items are texts, or name documents and records, with their labels.
            collection: the collection of the named documents; None for texts.
            classify: classifies them with the channels of a job; for None with stable versions.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
            RequestInvalid: a label is none of the head's.
        """
        served = self.heads.get(work.params.head, task=Task.CLASSIFY, job=None).head
        accepted = list(work.accepted.items())
        for _, item in accepted:
            if item.label not in served.labels:
                raise RequestInvalid(f"head {served.name} has no label {item.label!a}")
        asked = ClassifyParams(
            heads=(work.params.head,),
            collection=work.params.collection,
            signals=True,
            top_k=_ALL_LABELS,
        )
        items = tuple(ClassifyItem(one.id, one.chunk, one.text) for _, one in accepted)
        found: dict[int, FeedbackTaken | Failed] = {}
        rows: dict[bytes, Judged] = {}
        given = Slice(Kind.CLASSIFY, asked, items)
        results = classify(given, None).items
        for (index, item), result in zip(accepted, results, strict=True):
            if isinstance(result, Failed):
                found[index] = result
                continue
            [one] = result.heads
            assert one.label is not None  # without accept_error none is withheld
            value = (one.signals or {}).get(served.calibration.accept_by)
            right = one.label == item.label
            if value is not None:
                rows[_digest(item, collection)] = Judged(source_of(one.label), value, right)
            found[index] = FeedbackTaken(
                head=one.head,
                version=one.version,
                channel=one.channel,
                id=result.id,
                chunk=result.chunk,
                label=one.label,
                right=right,
            )
        self.learned.add(served.name, served.version, rows)
        judged = [item for _, item in accepted]
        self._score_canary(served.name, judged, results, partial(classify, given))
        taken: list[FeedbackTaken | Failed] = work.answered(found)
        return Result(taken)

    def _score_canary(
        self,
        name: str,
        accepted: Sequence[FeedbackItem],
        stable: Sequence[Classified | Failed],
        classify: Callable[[str | None], Result[Classified]],
    ) -> None:
        """Note how well a head's canary and its stable version foresaw the labels, if it has one.

        An error of the canary is logged only: the caller's labels are on the stable version.
        """
        if self.heads.canary(name, Channel.CANARY) is None:
            return
        try:
            canary = classify(Channel.CANARY).items
        except VersoError as error:
            _log.warning("canary of head %s is not scored: %s", name, error.detail)
            return
        scores = [
            (_brier(one, item.label), _brier(other, item.label))
            for one, other, item in zip(canary, stable, accepted, strict=True)
            if not isinstance(one, Failed) and not isinstance(other, Failed)
        ]
        self.heads.judged(name, scores)

    def _subjects(
        self,
        items: Mapping[int, ClassifyItem],
        collection: Collection | None,
        faults: Faults,
    ) -> list[_Subject]:
        """Return the subjects of the items; a document that does not exist is a fault."""
        if collection is None:
            return [_Subject(index, parts=(item.text or b"",)) for index, item in items.items()]
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
                subjects.append(_Subject(index, records=records))
        return subjects

    def _prepared(
        self,
        head: ServedHead,
        subjects: Sequence[_Subject],
        collection: Collection | None,
        asked: ClassifyParams,
        faults: Faults,
        timings: Timings,
    ) -> list[_Subject]:
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
        self, subjects: Sequence[_Subject], collection: Collection, faults: Faults
    ) -> list[_Subject]:
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
        self, subjects: Sequence[_Subject], collection: Collection | None, faults: Faults
    ) -> list[_Subject]:
        ready = list(subjects)
        if collection is not None and collection.search is SearchMode.HYBRID:
            points = {subject.index: _points(collection, subject) for subject in ready}
            wanted = [point for own in points.values() for point in own]
            stored = self.vectors.terms(collection.name, wanted) if wanted else {}
            for subject in ready:
                own = [stored.get(point, NO_TERMS) for point in points[subject.index]]
                subject.terms = own
            return ready
        if collection is not None:
            ready = self._with_texts(ready, collection, faults, whole=False)
        parts = [part for subject in ready for part in subject.parts or ()]
        found = iter(self.lexicon.documents(parts))
        for subject in ready:
            subject.terms = [next(found) for _ in subject.parts or ()]
        return ready

    def _with_texts(
        self, subjects: Sequence[_Subject], collection: Collection, faults: Faults, *, whole: bool
    ) -> list[_Subject]:
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


def _encoded(model: Model, texts: Sequence[bytes]) -> Vector:
    """Return vectors of texts, rounded as an int8 collection keeps them. Shape: (texts, D).

    Heads are trained and calibrated on such vectors. Not rounded, one text in 80 had another label
    than its stored document (docs/research/heads.md).
    """
    if not texts:  # another head has read them already
        return np.zeros((0, model.dim), np.float32)
    space = Space(Precision.INT8, model.dim, model.int8_scale)
    return space.widen(space.round(model.recorder.engine.encode(texts).vectors))


def _brier(item: Classified, label: str) -> float:
    [one] = item.heads
    return confidence.brier({score.label: score.score for score in one.scores}, label)


def _digest(item: FeedbackItem, collection: Collection | None) -> bytes:
    """Return what a labelled item is known by: it counts once."""
    where = "" if collection is None else f"{collection.name}\0{item.id}\0{item.chunk}"
    return hashlib.sha256(where.encode() + b"\0" + (item.text or b"")).digest()[:16]


def _points(collection: Collection, subject: _Subject) -> list[UUID]:
    """Return the points of a subject's records."""
    return [
        point_ids(collection.name, chunk.document, chunk.entry)[chunk.index]
        for chunk in subject.records
    ]


def _narrowed(head: ServedHead, subject: _Subject, portion: Portion | None) -> _Subject:
    """Return a subject with the chunks that the head reads of it, if the portion selects them."""
    most = head.head.max_chunks
    if portion is None and most is None:
        # a vector holds the beginning of a text, so of a stored document it is the first one
        beginning = head.head.reads is Reads.VECTOR
        records = subject.records[:1] if beginning else subject.records
        return _Subject(subject.index, parts=subject.parts, records=records)
    if subject.records:
        return _Subject(subject.index, records=tuple(read_chunks(subject.records, portion, most)))
    chunks = head.model.cutter.cut(subject.text)
    return _Subject(subject.index, parts=tuple(read_chunks(chunks, portion, most)))


def read_chunks(chunks: Sequence[T], portion: Portion | None, most: int | None) -> Sequence[T]:
    """Return the chunks that a portion selects; of too many the first and the last half."""
    chosen = chunks if portion is None else portion.chosen(chunks)
    if most is None or len(chosen) <= most:
        return chosen
    return [*chosen[: most - most // 2], *chosen[len(chosen) - most // 2 :]]


def _classified(
    head: ServedHead, subjects: Sequence[_Subject], asked: ClassifyParams
) -> list[Classification]:
    """Run one head and return its labels for each subject."""
    calibration = head.head.calibration
    logits, features = _outputs(head, subjects)
    extra: dict[SignalName, NDArray[np.float32]] = {}
    if confidence.needs_decoder(calibration, all_signals=asked.signals):
        texts = [subject.text for subject in subjects]
        vectors = np.stack([_first(subject) for subject in subjects])
        extra = decoder_signals(head.model, texts, vectors)
    labels, none = head.head.labels, head.head.none_label
    signals = confidence.measure(
        logits,
        features,
        calibration=calibration,
        statistics=head.statistics,
        extra=extra,
        outside=None if none is None else labels.index(none),
    )
    probabilities = confidence.softmax(logits / calibration.temperature)
    orders = np.argsort(-probabilities, axis=1, kind="stable")[:, : asked.top_k].tolist()
    sources = [source_of(labels[order[0]]) for order in orders]
    sure = confidence.probability(signals, calibration, sources=sources)
    kept = confidence.accepted(signals, calibration, error_rate=asked.accept_error, sources=sources)
    outside = confidence.out_of_scope(signals, calibration)
    shift = confidence.shift(signals, calibration)
    found = []
    for row, order in enumerate(orders):
        best = none if none is not None and outside[row] else labels[order[0]]
        extras: dict[str, Any] = {}
        if none is not None:
            extras["out_of_scope"] = best == none
        if shift is not None:
            extras["shifted"] = confidence.is_shifted(shift, len(subjects))
        if asked.signals:
            extras["signals"] = _values(signals, row)
        found.append(
            Classification(
                **head.about,
                label=best if kept[row] else None,
                abstained=not bool(kept[row]),
                confidence=float(sure[row]),
                scores=tuple(
                    Label(label=head.head.labels[at], score=float(probabilities[row, at]))
                    for at in order
                ),
                **extras,
            )
        )
    return found


def _outputs(
    head: ServedHead, subjects: Sequence[_Subject]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return logits and features, one row a subject. Shapes: (n, C) and (n, F)."""
    if head.head.reads is Reads.DOCUMENT:
        given = [
            Document.of(subject.vectors, subject.terms)
            for subject in subjects
            if subject.vectors is not None
        ]
        found = head.run(
            lambda engine, name, v: engine.classify_documents(name, v, documents=given)
        )
        return found.logits, found.logits if found.features is None else found.features
    if head.head.reads is Reads.TOKENS:
        counts = [len(subject.parts or ()) for subject in subjects]
        texts = [part for subject in subjects for part in subject.parts or ()]
        found = head.run(lambda engine, name, v: engine.classify_texts(name, v, texts=texts))
        features = found.logits if found.features is None else found.features
    else:
        own = [subject.vectors for subject in subjects if subject.vectors is not None]
        counts = [len(rows) for rows in own]
        vectors = np.concatenate(own)
        found = head.run(lambda engine, name, v: engine.classify_vectors(name, v, vectors=vectors))
        features = vectors if found.features is None else found.features
    starts = np.cumsum([0, *counts[:-1]])
    sizes = np.array(counts, np.float32)[:, None]
    # The mean over the chunks of each subject; most subjects have one.
    logits, features = (
        (np.add.reduceat(rows, starts, axis=0) / sizes).astype(np.float32)
        for rows in (found.logits, features)
    )
    return logits, features


def _first(subject: _Subject) -> Vector:
    assert subject.vectors is not None  # _prepared has set them
    vector: Vector = subject.vectors[0]
    return vector


def _values(signals: confidence.Signals, row: int) -> dict[str, float | None]:
    values = {name.value: float(values[row]) for name, values in signals.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def _has(entry: Entry, chunk: int | None) -> bool:
    """Whether a document has the record, or any record if none is named."""
    return bool(entry.records) if chunk is None else chunk < len(entry.records)


def _result(
    item: ClassifyItem,
    labels: Mapping[int, Sequence[Classification]],
    faults: Faults,
    index: int,
) -> Classified | Failed:
    named: dict[str, Any] = {"id": item.id} if item.id else {}
    if item.chunk is not None:
        named["chunk"] = item.chunk
    if index in faults:  # the error of an item whose document does not exist has no id
        return Failed.of(faults[index], **(named if index in labels else {}))
    return Classified(**named, heads=tuple(labels[index]))


def decoder_signals(
    model: Model, texts: Sequence[bytes], vectors: Vector
) -> dict[SignalName, NDArray[np.float32]]:
    """Compute the decoder's signals of ``verso_core.heads``; NaN for one that cannot be computed.

    They say how typical a text is of its vector. Of each text the first chunk is used, cut into the
    decoder's segments, all of them with the text's one vector, as in the stored patch.

    Args:
        model: the artifact whose decoder is run.
        texts: any bytes.
        vectors: of the texts, as stored or as encoded. Shape: (texts, D).
    """
    firsts = [(model.cutter.cut(text) or [b""])[0] for text in texts]
    pieces = [model.recorder.segmenter.segments(first) if first else [] for first in firsts]
    sizes = [len(own) for own in pieces]
    flat = [piece for own in pieces for piece in own]
    rows = np.repeat(vectors, sizes, axis=0)
    engine = model.recorder.engine
    probed = model.heads.probe(flat, rows) if flat else []
    given = engine.code(flat, rows) if flat else []
    bare = engine.code(flat, np.zeros_like(rows)) if flat else []
    right, tokens, with_vector, without = (np.zeros(len(texts), np.float64) for _ in range(4))
    owners = np.repeat(np.arange(len(texts)), sizes).tolist()
    for owner, (hits, count), one, other in zip(owners, probed, given, bare, strict=True):
        whole = one is not None and other is not None and count > 0
        right[owner] += hits
        tokens[owner] += count if whole else np.nan
        with_vector[owner] += 8 * len(one or b"")
        without[owner] += 8 * len(other or b"")
    lengths = np.array([len(first) or np.nan for first in firsts])
    tokens[tokens == 0] = np.nan
    known = np.where(np.isnan(tokens), np.nan, 1.0)
    return {
        SignalName.SELF_GENERATION: (right / tokens).astype(np.float32),
        SignalName.BITS_GIVEN_VECTOR: (-with_vector / lengths * known).astype(np.float32),
        SignalName.BITS_SAVED: ((without - with_vector) / lengths * known).astype(np.float32),
    }
