"""Classify texts and stored records, with a calibrated confidence.

A head that reads vectors classifies stored records from their vectors alone: nothing is decoded.

The **portion** of the request, or else of the head, says which chunks of a text are classified: the
first, the last, or all of them, whose logits are averaged. A text is cut as it would be stored, so
that it gets the labels of its stored document. A record that the request names is classified alone.
Without a portion a text is read from its start up to the encoder's limit. The labels of a document
of several records are then those of their mean logits, or for a head that reads tokens those of its
start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import (
    DocumentUnknown,
    RecordCorrupt,
    SpaceMismatch,
    VersoError,
)
from verso_core.heads import Portion, Reads, SignalName, Task
from verso_core.jobs import Collection, Failed, Result, Slice
from verso_core.jobs.heads import (
    Classification,
    Classified,
    ClassifyItem,
    ClassifyParams,
    Label,
)
from verso_core.record import Entry, point_ids
from verso_worker.records import confidence
from verso_worker.records.outputs import Timings
from verso_worker.records.space import Space, Vector
from verso_worker.rules.ports import Heads, Model, ServedHead, Vectors
from verso_worker.rules.reader import Chunk, Reader

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Subject:
    """Something to classify.

    index: the index of its item.
    vectors: of its records, or of its parts. Shape: (records, D); None until they are needed.
    parts: the texts that are read; None until they are needed.
    records: its stored chunks; empty for a text.
    """

    index: int
    parts: tuple[bytes, ...] | None = None
    vectors: Vector | None = None
    records: tuple[Chunk, ...] = ()

    @property
    def text(self) -> bytes:
        """Return the first of its parts."""
        return self.parts[0] if self.parts else b""


Faults = dict[int, VersoError]
"""Why items failed, by their index."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Runs classifiers."""

    vectors: Vectors
    reader: Reader
    heads: Heads

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
        narrowed: dict[Portion | None, list[_Subject]] = {}
        for head in served:
            portion = asked.chunk or head.head.chunk
            if portion not in narrowed:
                narrowed[portion] = [_narrowed(head, one, portion) for one in subjects]
            sound = [one for one in narrowed[portion] if one.index not in faults]
            ready = self._prepared(head, sound, collection, asked, faults, timings)
            with timings.phase("infer"):
                found = _classified(head, ready, asked) if ready else []
            for subject, one in zip(ready, found, strict=True):
                labels[subject.index].append(one)
            if ready and (rival := self.heads.rival(head)) is not None:
                with timings.phase("infer"):
                    self._compare(head, rival, ready, found)
        results = {index: _result(item, labels, faults, index) for index, item in items.items()}
        labelled: list[Classified | Failed] = work.answered(results)
        return Result(labelled)

    def _compare(
        self,
        canary: ServedHead,
        rival: ServedHead,
        subjects: Sequence[_Subject],
        found: Sequence[Classification],
    ) -> None:
        """Count how often a canary and the stable version agree on the best label.

        An error of the stable version is logged only.
        """
        try:
            logits, _ = _outputs(rival, subjects)
        except VersoError as error:
            _log.warning("head %s is not compared: %s", rival.head.name, error.detail)
            return
        best = [rival.head.labels[at] for at in logits.argmax(axis=1)]
        agreed = sum(one.scores[0].label == label for one, label in zip(found, best, strict=True))
        self.heads.compared(canary, agreed=agreed, differed=len(best) - agreed)

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
        by_vector = head.head.reads is Reads.VECTOR
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
                encoded = head.model.recorder.engine.encode([one for own in parts for one in own])
            ends = np.cumsum([len(own) for own in parts]).tolist()
            for subject, own, end in zip(bare, parts, ends, strict=True):
                subject.vectors = encoded.vectors[end - len(own) : end]
        if (not by_vector or decoder) and collection is not None:
            with timings.phase("restore"):
                whole = (asked.chunk or head.head.chunk) is None
                ready = self._with_texts(ready, collection, faults, whole=whole)
        return ready

    def _with_vectors(
        self, subjects: Sequence[_Subject], collection: Collection, faults: Faults
    ) -> list[_Subject]:
        points = {
            subject.index: [
                point_ids(collection.name, chunk.document, chunk.entry)[chunk.index]
                for chunk in subject.records
            ]
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


def _narrowed(head: ServedHead, subject: _Subject, portion: Portion | None) -> _Subject:
    """Return a subject with the chunks that the portion selects."""
    if portion is None:
        return _Subject(subject.index, parts=subject.parts, records=subject.records)
    if subject.records:
        return _Subject(subject.index, records=tuple(portion.chosen(subject.records)))
    chunks = head.model.cutter.cut(subject.text)
    return _Subject(subject.index, parts=tuple(portion.chosen(chunks)))


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
    signals = confidence.measure(
        logits, features, calibration=calibration, statistics=head.statistics, extra=extra
    )
    sure = confidence.probability(signals, calibration)
    kept = confidence.accepted(signals, calibration, error_rate=asked.accept_error)
    probabilities = confidence.softmax(logits / calibration.temperature)
    found = []
    for row in range(len(subjects)):
        order = np.argsort(-probabilities[row], kind="stable")[: asked.top_k].tolist()
        best = head.head.labels[order[0]]
        extras: dict[str, Any] = {}
        if head.head.none_label is not None:
            extras["out_of_scope"] = best == head.head.none_label
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
