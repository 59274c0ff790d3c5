"""Signals that separate texts in scope from others: those of readers, and sums of two.

The energy, Mahalanobis and neighbour signals (``heads.signals``) look at the labels in scope only;
"label" is how unlikely a reader holds the label "out of scope" itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import SignalName
from verso_training.heads import signals
from verso_training.heads.rows import RowSplit

MEASURED = (RowSplit.VALIDATION, RowSplit.TEST)
_USED = (SignalName.SOFTMAX, SignalName.ENERGY, SignalName.MAHALANOBIS, SignalName.KNN)
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Given:
    """The outputs of a classifier for the rows of each split.

    Attributes:
        logits: Shape: (N, C).
        features: Shape: (N, F).
    """

    logits: dict[RowSplit, Floats]
    features: dict[RowSplit, Floats]


def measured(
    given: Given, targets: NDArray[np.int64], *, classes: int, outside: int
) -> dict[str, Floats]:
    """The signals of the rows that are not trained on, by ``SIGNAL_SPLIT``.

    Args:
        given: Of all splits.
        targets: Labels of the training rows. Shape: (N,).
        classes: How many labels there are, the one out of scope among them.
        outside: Its number.
    """
    fitted = signals.fit(given.features[RowSplit.TRAIN], targets, classes=classes)
    told: dict[str, Floats] = {}
    for split in MEASURED:
        logits = np.delete(given.logits[split], outside, axis=-1)
        found = signals.measure(logits, given.features[split], temperature=1.0, fitted=fitted)
        told |= {f"{name}_{split}": found[name] for name in _USED}
        told[f"label_{split}"] = -log_softmax(given.logits[split])[:, outside]
    return told


def log_softmax(logits: Floats) -> Floats:
    """Shape: (N, C) to (N, C)."""
    shifted: Floats = logits - logits.max(-1, keepdims=True)
    total: Floats = np.exp(shifted).sum(-1, keepdims=True)
    return shifted - np.log(total)
