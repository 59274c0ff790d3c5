"""Intents with an out-of-scope label: accuracy in scope, and detection of scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from studies.quality import sets
from studies.quality.classification import Bench
from verso_core.heads import SignalName
from verso_training.heads import signals, vectors
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.vectors import Part


@dataclass(frozen=True)
class IntentReport:
    """CLINC150 with its out-of-scope rows, in percent.

    Attributes:
        accuracy: Of the 150 intents, over rows in scope.
        scope: AUROC and FPR95 of each signal, in scope against out of scope.
    """

    accuracy: float
    scope: Mapping[SignalName, tuple[float, float]]


def intent_report(bench: Bench, *, seed: int = 0) -> IntentReport:
    """Train on the stored vectors of the training rows, measure on the test rows.

    The out-of-scope label is trained on its 100 rows; accuracy and signals look at the 150
    intents only, so that rows unlike those 100 are judged too.
    """
    group = sets.clinc(bench.data)
    labels = tuple(sorted({row.label for row in group.rows}))
    number = {label: i for i, label in enumerate(labels)}
    outside = number[sets.OUT_OF_SCOPE]
    part = {
        split: Part(
            bench.stored(group, split),
            np.array([number[row.label] for row in group.of(split)], np.int64),
        )
        for split in RowSplit
    }
    config = replace(ClassifyConfig(), l2=(1e-3,), class_weights=ClassWeights.NONE)
    model = vectors.fit(
        config,
        train=part[RowSplit.TRAIN],
        validation=part[RowSplit.VALIDATION],
        classes=len(labels),
        seed=seed,
        on_progress=lambda _: None,
        should_stop=lambda: False,
    )
    train, test = part[RowSplit.TRAIN], part[RowSplit.TEST]
    fitted = signals.fit(
        vectors.outputs(model, train.vectors)[1], train.targets, classes=len(labels)
    )
    logits, features = vectors.outputs(model, test.vectors)
    logits = np.delete(logits, outside, axis=-1)
    kept = [i for i in range(len(labels)) if i != outside]
    inside = test.targets != outside
    right = np.array(kept)[logits.argmax(-1)] == test.targets
    found = signals.measure(logits, features, temperature=1.0, fitted=fitted)
    found |= bench.decoded(group, RowSplit.TEST)
    found.pop(SignalName.CALIBRATED)
    return IntentReport(
        100 * float(right[inside].mean()),
        {
            name: (
                100 * signals.auroc(values[inside], values[~inside]),
                100 * signals.fpr95(values[inside], values[~inside]),
            )
            for name, values in found.items()
        },
    )
