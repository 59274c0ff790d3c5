"""Classify texts and stored records, with a confidence that means something.

A head that reads vectors classifies stored records from their vectors alone: nothing is decoded.
A document of several records has the mean of their logits; a head that reads tokens sees a
document's own beginning, rebuilt from what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import (
    DocumentUnknown,
    RecordCorrupt,
    SpaceMismatch,
    VersoError,
    error_body,
)
from verso_core.heads import Reads, SignalName, Task
from verso_core.jobs import Collection, Item, Result, Slice
from verso_core.record import Entry, point_ids
from verso_worker import confidence
from verso_worker.head_ports import Heads, ServedHead
from verso_worker.items import pass_on
from verso_worker.neural import Vector
from verso_worker.ports import Vectors
from verso_worker.probe import probe
from verso_worker.reader import Chunk, Reader
from verso_worker.space import Space
from verso_worker.timings import Timings


@dataclass(slots=True)
class _Subject:
    """Something to classify.

    vectors: of its records, or of the text. Shape: (records, D); None until one is needed.
    text: its bytes; None until they are needed.
    records: the chunks it is stored as; empty for a text.
    """

    row: int
    text: bytes | None = None
    vectors: Vector | None = None
    records: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of the heads."""

    top_k: int
    signals: bool
    error_rate: float | None


@dataclass(frozen=True, slots=True)
class Classify:
    """Runs classifiers."""

    vectors: Vectors
    reader: Reader
    heads: Heads

    def run(
        self, work: Slice, collection: Collection | None, *, job: str, timings: Timings
    ) -> Result:
        """Classify the items of a slice with every head that it names.

        Args:
            work: the slice; its items are texts, or name documents and records.
            collection: where those are; None for texts.
            job: chooses the channel of each head.
            timings: added to.

        Raises:
            HeadUnknown, HeadInvalid: a head cannot be served.
            SpaceMismatch: a head that reads vectors cannot read the collection's.
            RequestInvalid: a head has no threshold for the error rate.
        """
        names = [str(name) for name in work.params["heads"]]
        wanted = Wanted(
            top_k=int(work.params["top_k"]),
            signals=bool(work.params["signals"]),
            error_rate=work.params["accept_error"],
        )
        served = [self.heads.get(name, task=Task.CLASSIFY, job=job) for name in names]
        result = Result([{} for _ in work.items])
        rows = [row for row, item in enumerate(work.items) if pass_on(item, result.items, row)]
        with timings.phase("store"):
            subjects = self._subjects(work.items, rows, collection, result)
        for row in (subject.row for subject in subjects):
            header = work.items[row].header
            about = {key: header[key] for key in ("id", "chunk") if key in header}
            result.items[row] = {"ok": True, "heads": []} | about
        for head in served:
            subjects = self._prepared(head, subjects, collection, result, wanted, timings)
            with timings.phase("infer"):
                found = _classified(head, subjects, wanted) if subjects else []
            for subject, one in zip(subjects, found, strict=True):
                result.items[subject.row]["heads"].append(one)
        return result

    def _subjects(
        self,
        items: Sequence[Item],
        rows: Sequence[int],
        collection: Collection | None,
        result: Result,
    ) -> list[_Subject]:
        """Find what the items name; an error stands in the place of one that is not there."""
        if collection is None:
            return [_Subject(row, text=items[row].blob or b"") for row in rows]
        live = self.reader.live(collection, [items[row].header["id"] for row in rows])
        subjects = []
        for row in rows:
            document, chunk = items[row].header["id"], items[row].header.get("chunk")
            entry = live.get(document)
            if isinstance(entry, VersoError):
                _fail(result, row, entry)
            elif entry is None or not _has(entry, chunk):
                where = document if chunk is None else f"{document}#{chunk}"
                _fail(result, row, DocumentUnknown(f"no {where!r} in {collection.name}"))
            else:
                indices = range(len(entry.records)) if chunk is None else (int(chunk),)
                records = tuple(Chunk(document, entry, index) for index in indices)
                subjects.append(_Subject(row, records=records))
        return subjects

    def _prepared(
        self,
        head: ServedHead,
        subjects: Sequence[_Subject],
        collection: Collection | None,
        result: Result,
        wanted: Wanted,
        timings: Timings,
    ) -> list[_Subject]:
        """Give the subjects that have what the head reads; the others have their error now."""
        decoder = confidence.needs_decoder(head.head.calibration, all_signals=wanted.signals)
        by_vector = head.head.reads is Reads.VECTOR
        ready = list(subjects)
        if (by_vector or decoder) and collection is not None:
            if collection.space != head.head.space:
                raise SpaceMismatch(
                    f"head {head.head.name} reads space {head.head.space}, the vectors of "
                    f"{collection.name} are of {collection.space}"
                )
            with timings.phase("store"):
                ready = self._with_vectors(ready, collection, result)
        elif by_vector or decoder:
            bare = [subject for subject in ready if subject.vectors is None]
            with timings.phase("infer"):
                encoded = head.model.recorder.engine.encode([one.text or b"" for one in bare])
            for subject, vector in zip(bare, encoded.vectors, strict=True):
                subject.vectors = vector[None]
        if (not by_vector or decoder) and collection is not None:
            with timings.phase("restore"):
                ready = self._with_texts(ready, collection, result)
        return ready

    def _with_vectors(
        self, subjects: Sequence[_Subject], collection: Collection, result: Result
    ) -> list[_Subject]:
        points = {
            subject.row: [
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
            if subject.row in points:
                own = [stored[point] for point in points[subject.row] if point in stored]
                if len(own) < len(points[subject.row]):
                    _fail(result, subject.row, RecordCorrupt("a vector of it is not stored"))
                    continue
                subject.vectors = space.widen(np.stack(own))
            ready.append(subject)
        return ready

    def _with_texts(
        self, subjects: Sequence[_Subject], collection: Collection, result: Result
    ) -> list[_Subject]:
        bare = [subject for subject in subjects if subject.text is None]
        chunks = [chunk for subject in bare for chunk in subject.records]
        texts = iter(self.reader.chunks(collection, chunks))
        for subject in bare:
            parts = [next(texts) for _ in subject.records]
            fault = next((part for part in parts if isinstance(part, VersoError)), None)
            if fault is not None:
                _fail(result, subject.row, fault)
                continue
            subject.text = b"".join(part for part in parts if isinstance(part, bytes))
        return [subject for subject in subjects if subject.text is not None]


def _classified(
    head: ServedHead, subjects: Sequence[_Subject], wanted: Wanted
) -> list[dict[str, Any]]:
    """Run one head and say what follows for each subject."""
    calibration = head.head.calibration
    logits, features = _outputs(head, subjects)
    extra: dict[SignalName, NDArray[np.float32]] = {}
    if confidence.needs_decoder(calibration, all_signals=wanted.signals):
        texts = [subject.text or b"" for subject in subjects]
        vectors = np.stack([_first(subject) for subject in subjects])
        extra = probe(head.model, texts, vectors)
    signals = confidence.measure(
        logits, features, calibration=calibration, statistics=head.statistics, extra=extra
    )
    sure = confidence.probability(signals, calibration)
    kept = confidence.accepted(signals, calibration, error_rate=wanted.error_rate)
    probabilities = confidence.softmax(logits / calibration.temperature)
    found = []
    for row in range(len(subjects)):
        order = np.argsort(-probabilities[row], kind="stable")[: wanted.top_k].tolist()
        best = head.head.labels[order[0]]
        one: dict[str, Any] = head.about | {
            "label": best if kept[row] else None,
            "abstained": not bool(kept[row]),
            "confidence": float(sure[row]),
            "scores": [
                {"label": head.head.labels[at], "score": float(probabilities[row, at])}
                for at in order
            ],
        }
        if head.head.none_label is not None:
            one["out_of_scope"] = best == head.head.none_label
        if wanted.signals:
            one["signals"] = _told(signals, row)
        found.append(one)
    return found


def _outputs(
    head: ServedHead, subjects: Sequence[_Subject]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Give logits and features, one row a subject. Shapes: (n, C) and (n, F)."""
    if head.head.reads is Reads.TOKENS:
        texts = [subject.text or b"" for subject in subjects]
        found = head.run(lambda engine, name, v: engine.classify_texts(name, v, texts=texts))
        features = found.logits if found.features is None else found.features
        return found.logits, features
    own = [subject.vectors for subject in subjects if subject.vectors is not None]
    vectors = np.concatenate(own)
    found = head.run(lambda engine, name, v: engine.classify_vectors(name, v, vectors=vectors))
    features = vectors if found.features is None else found.features
    starts = np.cumsum([0, *(len(rows) for rows in own[:-1])])
    sizes = np.array([len(rows) for rows in own], np.float32)[:, None]
    # The mean over a document's records; most have one.
    logits, features = (
        (np.add.reduceat(rows, starts, axis=0) / sizes).astype(np.float32)
        for rows in (found.logits, features)
    )
    return logits, features


def _first(subject: _Subject) -> Vector:
    assert subject.vectors is not None  # _prepared saw to it
    vector: Vector = subject.vectors[0]
    return vector


def _told(signals: confidence.Signals, row: int) -> dict[str, float | None]:
    values = {name.value: float(values[row]) for name, values in signals.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def _has(entry: Entry, chunk: object) -> bool:
    """Tell whether a document has the record; a document of none has nothing to classify."""
    return bool(entry.records) if chunk is None else int(str(chunk)) < len(entry.records)


def _fail(result: Result, row: int, error: VersoError) -> None:
    about = {key: result.items[row][key] for key in ("id", "chunk") if key in result.items[row]}
    result.items[row] = {"ok": False, "error": error_body(error)} | about
