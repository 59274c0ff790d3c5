"""Run a head on what a job classifies, and name its labels with a calibrated confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Reads, SignalName, source_of
from verso_core.jobs.heads.classify import Classification, ClassifyParams, Label
from verso_worker.records import confidence
from verso_worker.records.outputs import Document
from verso_worker.records.space import Vector
from verso_worker.rules.classification.decoder_signals import decoder_signals
from verso_worker.rules.classification.subjects import Subject
from verso_worker.rules.ports.models import ServedHead


def labelled(
    head: ServedHead, subjects: Sequence[Subject], asked: ClassifyParams
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
    kept = confidence.accepted(
        signals,
        calibration,
        error_rate=asked.accept_error,
        sources=sources,
        source_probability=confidence.source_probability(probabilities, labels, sources),
    )
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
    head: ServedHead, subjects: Sequence[Subject]
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


def _first(subject: Subject) -> Vector:
    assert subject.vectors is not None  # _prepared has set them
    vector: Vector = subject.vectors[0]
    return vector


def _values(signals: confidence.Signals, row: int) -> dict[str, float | None]:
    values = {name.value: float(values[row]) for name, values in signals.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}
