"""Classification from stored vectors, every confidence signal, and the word-count baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from studies.quality import baselines, sets
from studies.quality.sets import LabelledSet
from verso_core import manifest
from verso_core.heads import SignalName
from verso_training.heads import confidence, signals, vectors
from verso_training.heads.confidence import Outputs
from verso_training.heads.modules import VectorClassifier
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.vectors import Part

Floats = NDArray[np.float32]
_L = TypeVar("_L")


@dataclass(frozen=True)
class Bench:
    """Where the data, the artifact and the cache are."""

    data: Path
    artifact: Path
    work: Path
    full: bool = False
    """Whether studies train as long as the papers do, for a GPU, not for minutes of a core."""

    def length(self, short: _L, *, full: _L) -> _L:
        """Return one of two lengths of a training."""
        return full if self.full else short

    def stored(self, group: LabelledSet, split: RowSplit) -> Floats:
        """The vectors of one split of a set."""
        return sets.stored_vectors(
            [str(row.text) for row in group.of(split)],
            artifact=self.artifact,
            cache=self.work / "vectors" / f"{group.name}-{split}",
            scale=manifest.load(self.artifact).manifest.space.int8_scale,
        )

    def decoded(self, group: LabelledSet, split: RowSplit) -> dict[SignalName, Floats]:
        """The decoder's signals of one split of a set, computed once."""
        path = self.work / "signals" / f"{group.name}-{split}.npz"
        if path.exists():
            with np.load(path) as found:
                return {SignalName(name): found[name] for name in found.files}
        texts = [str(row.text) for row in group.of(split)]
        made = signals.decoder_signals(texts, self.stored(group, split), artifact=self.artifact)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **{str(name): values for name, values in made.items()})  # type: ignore[arg-type]
        return made


@dataclass(frozen=True)
class Scored:
    """A classifier on the test rows of a set.

    Attributes:
        probabilities: Shape: (N, C).
        targets: -1 where no label fits. Shape: (N,).
    """

    name: str
    probabilities: Floats
    targets: NDArray[np.int64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each first label is right."""
        return self.probabilities.argmax(-1) == self.targets  # type: ignore[no-any-return]

    def accuracy(self) -> float:
        """In percent."""
        return 100 * float(self.right.mean())

    def macro_f1(self) -> float:
        """In percent."""
        return 100 * confidence.macro_f1(self.probabilities.argmax(-1), self.targets)

    def at_80(self) -> float:
        """Accuracy of the surest 80 % by the largest probability, in percent."""
        return 100 * signals.accuracy_at(self.probabilities.max(-1), self.right, 0.8)


@dataclass(frozen=True)
class LogReport:
    """One log set: classifiers side by side, and the signals of ours."""

    name: str
    shift: str
    rows: int
    scored: tuple[Scored, ...]
    seeds: tuple[float, ...]
    signals: confidence.Report
    claim: tuple[tuple[str, float, float], ...]


def log_report(bench: Bench, group: LabelledSet, *, seeds: Sequence[int] = (0, 1, 2)) -> LogReport:
    """Train on the training rows, choose on validation, measure on the shifted test rows."""
    labels = tuple(sorted({row.label for row in group.of(RowSplit.TRAIN)}))
    part = {s: _part(bench, group, s, labels) for s in RowSplit}
    config, model = _chosen(part, classes=len(labels), seed=seeds[0])
    fitted = signals.fit(
        vectors.outputs(model, part[RowSplit.TRAIN].vectors)[1],
        part[RowSplit.TRAIN].targets,
        classes=len(labels),
    )
    held_out, test = (
        Outputs(*vectors.outputs(model, part[s].vectors), part[s].targets, bench.decoded(group, s))
        for s in (RowSplit.VALIDATION, RowSplit.TEST)
    )
    calibration = confidence.calibrate(held_out, fitted)
    texts = {s: [str(row.text) for row in group.of(s)] for s in RowSplit}
    words = baselines.tfidf(
        texts[RowSplit.TRAIN],
        [row.label for row in group.of(RowSplit.TRAIN)],
        others=[texts[RowSplit.TEST]],
    )[0].aligned(labels)
    ours = signals.softmax(test.logits / calibration.temperature)
    both = np.sqrt(np.maximum(ours, 1e-9) * np.maximum(words, 1e-9))
    both /= both.sum(-1, keepdims=True)
    others = [
        _f1_of(_fit(config, part, classes=len(labels), seed=seed), part[RowSplit.TEST])
        for seed in seeds[1:]
    ]
    scored = (
        Scored("TF-IDF + logistic regression", words, test.targets),
        Scored("head on the stored vector", ours, test.targets),
        Scored("both, geometric mean", both.astype(np.float32), test.targets),
    )
    return LogReport(
        group.name,
        group.shift,
        len(test.targets),
        scored,
        (scored[1].macro_f1(), *others),
        confidence.report(test, calibration, fitted),
        _claim(test),
    )


def _claim(test: Outputs) -> tuple[tuple[str, float, float], ...]:
    """Return the share of right answers that each threshold accepts.

    Returns:
        Name, coverage and accuracy, in percent: softmax at 0.9, self-generation at 0.8 (table 7),
        and each signal at the other's coverage.
    """
    softmax = signals.softmax(test.logits).max(-1)
    recovered = test.extra[SignalName.SELF_GENERATION]
    found = []
    for name, values, least, other in (
        ("softmax ≥ 0.9", softmax, 0.9, recovered),
        ("self-generation ≥ 0.8", recovered, 0.8, softmax),
    ):
        taken = values >= least
        coverage = float(taken.mean())
        right = float(test.right[taken].mean()) if taken.any() else float("nan")
        same = signals.accuracy_at(other, test.right, coverage) if taken.any() else float("nan")
        found.append((name, 100 * coverage, 100 * right))
        rival = "self-generation" if other is recovered else "softmax"
        found.append((f"{rival}, as many", 100 * coverage, 100 * same))
    return tuple(found)


def chosen(bench: Bench, group: LabelledSet, *, seed: int = 0) -> VectorClassifier:
    """Train on the training rows what is best on the validation rows."""
    labels = tuple(sorted({row.label for row in group.of(RowSplit.TRAIN)}))
    part = {s: _part(bench, group, s, labels) for s in (RowSplit.TRAIN, RowSplit.VALIDATION)}
    return _chosen(part, classes=len(labels), seed=seed)[1]


def _part(bench: Bench, group: LabelledSet, split: RowSplit, labels: tuple[str, ...]) -> Part:
    number = {label: i for i, label in enumerate(labels)}
    targets = np.array([number.get(row.label, -1) for row in group.of(split)], np.int64)
    return Part(bench.stored(group, split), targets)


def _known(part: Part) -> Part:
    rows = part.targets >= 0
    return Part(part.vectors[rows], part.targets[rows])


def _fit(
    config: ClassifyConfig, part: dict[RowSplit, Part], *, classes: int, seed: int
) -> VectorClassifier:
    return vectors.fit(
        config,
        train=_known(part[RowSplit.TRAIN]),
        validation=_known(part[RowSplit.VALIDATION]),
        classes=classes,
        seed=seed,
        on_progress=lambda _: None,
        should_stop=lambda: False,
    )


def _f1_of(model: VectorClassifier, part: Part) -> float:
    logits, _ = vectors.outputs(model, part.vectors)
    return 100 * confidence.macro_f1(logits.argmax(-1), part.targets)


def _chosen(
    part: dict[RowSplit, Part], *, classes: int, seed: int
) -> tuple[ClassifyConfig, VectorClassifier]:
    """The layers and class weights with the best macro-F1 on the validation rows."""
    tried = []
    for weights in (ClassWeights.SQRT, ClassWeights.BALANCED):
        for hidden in (0, 256):
            config = dataclasses.replace(ClassifyConfig(), class_weights=weights, hidden=hidden)
            model = _fit(config, part, classes=classes, seed=seed)
            tried.append((_f1_of(model, part[RowSplit.VALIDATION]), config, model))
    _, config, model = max(tried, key=lambda row: row[0])
    return config, model
