"""Is a question out of scope? Every signal of a head on stored vectors, the decoder's too.

In scope are the test questions of CLINC150's 150 intents, and those of BANKING77; out of scope are
for both the 1,000 test questions of CLINC150 that are none of its intents. Heads and statistics are
fitted on training rows in scope alone, and nothing is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from studies.quality import sets
from studies.quality.classification import Bench
from studies.quality.sets import LabelledSet
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.result import StudyResult
from verso_core.heads import SignalName
from verso_training.heads import signals, vectors
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.signals import Interval
from verso_training.heads.vectors import Part

STUDY = "outside"
_TITLES = {"intent_clinc150": "CLINC150", "intent_banking77": "BANKING77"}
_LATER = (
    SignalName.CALIBRATED, SignalName.STACK, SignalName.INSIDE, SignalName.MARGIN, SignalName.SCOPE
)  # fmt: skip
"""Signals that need more than a head that knows the labels in scope."""
_USED = tuple(name for name in SignalName if name not in _LATER)
Floats = NDArray[np.float32]
Signals = Mapping[SignalName, Floats]


def run(bench: Bench) -> StudyResult:
    """Fit a head for each set and measure its signals."""
    clinc = sets.clinc(bench.data)
    strange = np.array([row.label == sets.OUT_OF_SCOPE for row in clinc.of(RowSplit.TEST)])
    vectors_of = {clinc.name: bench.stored(clinc, RowSplit.TEST)}
    decoded = {clinc.name: bench.decoded(clinc, RowSplit.TEST)}
    figures: dict[str, float] = {}
    for group in (clinc, sets.banking(bench.data)):
        if group is not clinc:
            vectors_of[group.name] = bench.stored(group, RowSplit.TEST)
            decoded[group.name] = bench.decoded(group, RowSplit.TEST)
        own = ~strange if group is clinc else np.ones(len(vectors_of[group.name]), bool)
        rows = np.concatenate([vectors_of[group.name][own], vectors_of[clinc.name][strange]])
        found = dict(_measured(bench, group, rows))
        found |= {
            name: np.concatenate([values[own], decoded[clinc.name][name][strange]])
            for name, values in decoded[group.name].items()
        }
        inside = np.arange(len(rows)) < own.sum()
        for name in _USED:
            for figure, interval in told(found[name], inside).items():
                figures |= {
                    f"{group.name}/{name}/{figure}": interval.value,
                    f"{group.name}/{name}/{figure}/low": interval.low,
                    f"{group.name}/{name}/{figure}/high": interval.high,
                }
    return StudyResult(STUDY, figures, {})


def _measured(bench: Bench, group: LabelledSet, rows: Floats) -> Signals:
    """The signals of logits and features of a head that knows the labels in scope."""
    known = sorted({row.label for row in group.rows} - {sets.OUT_OF_SCOPE})
    number = {label: i for i, label in enumerate(known)}
    part = {}
    for split in (RowSplit.TRAIN, RowSplit.VALIDATION):
        labels = [row.label for row in group.of(split)]
        kept = np.array([label in number for label in labels])
        targets = np.array([number[label] for label in labels if label in number], np.int64)
        part[split] = Part(bench.stored(group, split)[kept], targets)
    config = replace(ClassifyConfig(), l2=(1e-3,), class_weights=ClassWeights.NONE)
    model = vectors.fit(
        config,
        train=part[RowSplit.TRAIN],
        validation=part[RowSplit.VALIDATION],
        classes=len(known),
        seed=0,
        on_progress=lambda _: None,
        should_stop=lambda: False,
    )
    train = part[RowSplit.TRAIN]
    fitted = signals.fit(
        vectors.outputs(model, train.vectors)[1], train.targets, classes=len(known)
    )
    return signals.measure(*vectors.outputs(model, rows), temperature=1.0, fitted=fitted)


def told(values: Floats, inside: NDArray[np.bool_]) -> dict[str, Interval]:
    """AUROC and FPR95 with their intervals, in percent."""

    def measured(index: NDArray[np.int64], *, by_auroc: bool) -> float:
        kept = inside[index]
        if kept.all() or not kept.any():
            return float("nan")
        measure = signals.auroc if by_auroc else signals.fpr95
        return 100 * measure(values[index][kept], values[index][~kept])

    count = len(values)
    return {
        "auroc": signals.bootstrap(lambda index: measured(index, by_auroc=True), count),
        "fpr95": signals.bootstrap(lambda index: measured(index, by_auroc=False), count),
    }


def section(found: Mapping[str, StudyResult]) -> str:
    """The table; empty where the study was not done."""
    if (part := found.get(STUDY)) is None:
        return ""
    f = part.figures
    titles = " | ".join(
        f"{title} {figure}" for title in _TITLES.values() for figure in ("AUROC", "FPR95")
    )
    lines = [
        "### Out of scope, by every signal",
        "",
        wrapped(
            "A head on stored vectors that knows the labels in scope alone; test questions in "
            "scope against the 1,000 test questions of CLINC150 that are out of it. Brackets are "
            "95 % bootstrap intervals. The published signal, self-generation, is the share of "
            "tokens "
            "that the decoder gives back; bits are its code length of a text's first 127 tokens."
        ),
        "",
        f"| signal | {titles} |",
        "|---|" + "---:|" * 2 * len(_TITLES),
    ]
    for name in _USED:
        cells = []
        for group in _TITLES:
            for figure in ("auroc", "fpr95"):
                value, low, high = (
                    f[f"{group}/{name}/{figure}{end}"] for end in ("", "/low", "/high")
                )
                cells.append(f"{value:.1f} [{low:.1f}, {high:.1f}]")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
