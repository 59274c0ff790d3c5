"""Classify texts and stored records, with a confidence that means something.

A head that reads vectors classifies stored records from their vectors alone: nothing is decoded.

The **portion** of a request, else of the head, says which chunks of a text speak for it: the first,
the last, or all by the mean of their logits. A text is cut as it would be stored, so that it is
classified as its stored document is; a record that is named speaks for itself. Where neither says,
a text is read from its beginning as far as the encoder sees, and a document of several records has
the mean of their logits, or before a head that reads tokens its own beginning.
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
    error_body,
)
from verso_core.heads import Portion, Reads, SignalName, Task
from verso_core.jobs import Collection, Item, Result, Slice
from verso_core.record import Entry, point_ids
from verso_worker.records import confidence
from verso_worker.records.neural import Vector
from verso_worker.records.outputs import Timings
from verso_worker.records.space import Space
from verso_worker.rules.decoder_signals import probe
from verso_worker.rules.head_ports import Heads, ServedHead
from verso_worker.rules.items import is_accepted
from verso_worker.rules.ports import Vectors
from verso_worker.rules.reader import Chunk, Reader

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Subject:
    """Something to classify.

    vectors: of its records, or of its parts. Shape: (records, D); None until one is needed.
    parts: the bytes that are read, a text each; None until they are needed.
    records: the chunks it is stored as; empty for a text.
    """

    row: int
    parts: tuple[bytes, ...] | None = None
    vectors: Vector | None = None
    records: tuple[Chunk, ...] = ()

    @property
    def text(self) -> bytes:
        """Return the first of its parts."""
        return self.parts[0] if self.parts else b""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of the heads."""

    top_k: int
    signals: bool
    error_rate: float | None
    portion: Portion | None

    def portion_of(self, head: ServedHead) -> Portion | None:
        """Return which chunks a head reads."""
        return self.portion or head.head.chunk


@dataclass(frozen=True, slots=True)
class Classify:
    """Runs classifiers."""

    vectors: Vectors
    reader: Reader
    heads: Heads

    def run(
        self, work: Slice, collection: Collection | None, *, job: str | None, timings: Timings
    ) -> Result:
        """Classify the items of a slice with every head that it names.

        Args:
            work: the slice; its items are texts, or name documents and records.
            collection: where those are; None for texts.
            job: chooses the channel of each head; None for what is stable.
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
            portion=None if (named := work.params.get("chunk")) is None else Portion(named),
        )
        served = [self.heads.get(name, task=Task.CLASSIFY, job=job) for name in names]
        result = Result([{} for _ in work.items])
        rows = [row for row, item in enumerate(work.items) if is_accepted(item, result.items, row)]
        with timings.phase("store"):
            subjects = self._subjects(work.items, rows, collection, result)
        for row in (subject.row for subject in subjects):
            header = work.items[row].header
            about = {key: header[key] for key in ("id", "chunk") if key in header}
            result.items[row] = {"ok": True, "heads": []} | about
        narrowed: dict[Portion | None, list[_Subject]] = {}
        for head in served:
            portion = wanted.portion_of(head)
            if portion not in narrowed:
                narrowed[portion] = [_narrowed(head, one, portion) for one in subjects]
            sound = [one for one in narrowed[portion] if result.items[one.row]["ok"]]
            ready = self._prepared(head, sound, collection, result, wanted, timings)
            with timings.phase("infer"):
                found = _classified(head, ready, wanted) if ready else []
            for subject, one in zip(ready, found, strict=True):
                result.items[subject.row]["heads"].append(one)
            if ready and (rival := self.heads.rival(head)) is not None:
                with timings.phase("infer"):
                    self._compare(head, rival, ready, found)
        return result

    def _compare(
        self,
        canary: ServedHead,
        rival: ServedHead,
        subjects: Sequence[_Subject],
        found: Sequence[Mapping[str, Any]],
    ) -> None:
        """Count where a canary's best label is that of the stable version; faults only log."""
        try:
            logits, _ = _outputs(rival, subjects)
        except VersoError as error:
            _log.warning("head %s is not compared: %s", rival.head.name, error.detail)
            return
        best = [rival.head.labels[at] for at in logits.argmax(axis=1)]
        agreed = sum(
            one["scores"][0]["label"] == label for one, label in zip(found, best, strict=True)
        )
        self.heads.compared(canary, agreed=agreed, differed=len(best) - agreed)

    def _subjects(
        self,
        items: Sequence[Item],
        rows: Sequence[int],
        collection: Collection | None,
        result: Result,
    ) -> list[_Subject]:
        """Find what the items name; an error stands in the place of one that is not there."""
        if collection is None:
            return [_Subject(row, parts=(items[row].blob or b"",)) for row in rows]
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
        """Return the subjects that have what the head reads; the others have their error now."""
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
            parts = [subject.parts or () for subject in bare]
            with timings.phase("infer"):
                encoded = head.model.recorder.engine.encode([one for own in parts for one in own])
            ends = np.cumsum([len(own) for own in parts]).tolist()
            for subject, own, end in zip(bare, parts, ends, strict=True):
                subject.vectors = encoded.vectors[end - len(own) : end]
        if (not by_vector or decoder) and collection is not None:
            with timings.phase("restore"):
                whole = wanted.portion_of(head) is None
                ready = self._with_texts(ready, collection, result, whole=whole)
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
        self, subjects: Sequence[_Subject], collection: Collection, result: Result, *, whole: bool
    ) -> list[_Subject]:
        bare = [subject for subject in subjects if subject.parts is None]
        chunks = [chunk for subject in bare for chunk in subject.records]
        texts = iter(self.reader.chunks(collection, chunks))
        for subject in bare:
            parts = [next(texts) for _ in subject.records]
            fault = next((part for part in parts if isinstance(part, VersoError)), None)
            if fault is not None:
                _fail(result, subject.row, fault)
                continue
            sound = [part for part in parts if isinstance(part, bytes)]
            subject.parts = (b"".join(sound),) if whole else tuple(sound)
        return [subject for subject in subjects if subject.parts is not None]


def _narrowed(head: ServedHead, subject: _Subject, portion: Portion | None) -> _Subject:
    """Return a subject with the chunks that speak for it, and a text cut into them."""
    if portion is None:
        return _Subject(subject.row, parts=subject.parts, records=subject.records)
    if subject.records:
        return _Subject(subject.row, records=tuple(portion.chosen(subject.records)))
    chunks = head.model.cutter.cut(subject.text)
    return _Subject(subject.row, parts=tuple(portion.chosen(chunks)))


def _classified(
    head: ServedHead, subjects: Sequence[_Subject], wanted: Wanted
) -> list[dict[str, Any]]:
    """Run one head and say what follows for each subject."""
    calibration = head.head.calibration
    logits, features = _outputs(head, subjects)
    extra: dict[SignalName, NDArray[np.float32]] = {}
    if confidence.needs_decoder(calibration, all_signals=wanted.signals):
        texts = [subject.text for subject in subjects]
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
    # The mean over the chunks that speak for a subject; most have one.
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
    """Whether a document has the record; a document of none has nothing to classify."""
    return bool(entry.records) if chunk is None else int(str(chunk)) < len(entry.records)


def _fail(result: Result, row: int, error: VersoError) -> None:
    about = {key: result.items[row][key] for key in ("id", "chunk") if key in result.items[row]}
    result.items[row] = {"ok": False, "error": error_body(error)} | about
