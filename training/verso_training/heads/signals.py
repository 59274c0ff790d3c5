"""How sure a classifier is, measured in several ways; larger is surer.

The signals are those of ``verso_core.heads``, which states their formulas; here they are fitted
and computed for training, calibration and reports. Serving computes them again from the same
files and shares no code with this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import SignalName

Floats = NDArray[np.float32]
Signals = Mapping[SignalName, Floats]
_SHRINKAGE = 0.1
"""Share of the mean variance that is mixed into a covariance: rare classes span few directions."""
_REFERENCES = 4000
"""Reference vectors kept at most: 1.5 MB at 384 dimensions."""


@dataclass(frozen=True)
class Fitted:
    """Statistics of the training features (``signals.npz``).

    Attributes:
        class_means: Shape: (C, F), float32; zeros for a label without rows.
        mean: Of all features. Shape: (F,).
        precision: Inverse of the covariance within classes. Shape: (F, F).
        background_precision: Inverse of the covariance of all. Shape: (F, F).
        references: Unit features times 127. Shape: (N, F), int8.
        k: Which neighbour's cosine is the signal.
    """

    class_means: Floats
    mean: Floats
    precision: Floats
    background_precision: Floats
    references: NDArray[np.int8]
    k: int

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """As ``signals.npz`` holds them: float16 where three digits are enough."""
        return {
            "class_means": self.class_means.astype(np.float32),
            "mean": self.mean.astype(np.float32),
            "precision": self.precision.astype(np.float32),
            "background_precision": self.background_precision.astype(np.float32),
            "references": self.references,
            "k": np.array(self.k, np.int64),
        }


def fit(features: Floats, targets: NDArray[np.int64], *, classes: int, seed: int = 0) -> Fitted:
    """Fit the statistics on training features. Shape: (N, F) and (N,)."""
    means = np.zeros((classes, features.shape[1]), np.float32)
    for label in np.unique(targets):
        means[label] = features[targets == label].mean(0)
    rng = np.random.default_rng(seed)
    kept = np.sort(rng.permutation(len(features))[:_REFERENCES])
    unit = _unit(features[kept])
    return Fitted(
        class_means=means,
        mean=features.mean(0),
        precision=_precision(features - means[targets]),
        background_precision=_precision(features - features.mean(0)),
        references=np.clip(np.rint(unit * 127.0), -127, 127).astype(np.int8),
        k=10 if len(kept) >= 100 else 1,
    )


def measure(
    logits: Floats, features: Floats, *, temperature: float, fitted: Fitted | None
) -> dict[SignalName, Floats]:
    """The signals of each row.

    Args:
        logits: Shape: (N, C).
        features: Shape: (N, F).
        temperature: Of the calibrated softmax.
        fitted: None leaves out what needs statistics.
    """
    found = {
        SignalName.SOFTMAX: softmax(logits).max(-1),
        SignalName.CALIBRATED: softmax(logits / temperature).max(-1),
        SignalName.ENERGY: _logsumexp(logits),
    }
    if fitted is not None:
        found[SignalName.MAHALANOBIS] = _mahalanobis(features, fitted)
        found[SignalName.KNN] = _neighbours(features, fitted)
    return found


def softmax(logits: Floats) -> Floats:
    """Shape: (N, C) to (N, C)."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)  # type: ignore[no-any-return]


def _logsumexp(logits: Floats) -> Floats:
    top = logits.max(-1, keepdims=True)
    return (top + np.log(np.exp(logits - top).sum(-1, keepdims=True)))[:, 0]  # type: ignore[no-any-return]


def _precision(centred: Floats) -> Floats:
    covariance = centred.T.astype(np.float64) @ centred / len(centred)
    scale = np.trace(covariance) / len(covariance)
    shrunk = (1.0 - _SHRINKAGE) * covariance + _SHRINKAGE * scale * np.eye(len(covariance))
    return np.linalg.inv(shrunk).astype(np.float32)


def _mahalanobis(features: Floats, fitted: Fitted) -> Floats:
    known = np.abs(fitted.class_means).sum(-1) > 0
    means = fitted.class_means[known]
    # (f - m)' P (f - m) = f'Pf - 2 f'Pm + m'Pm, for all classes at once.
    inside = np.einsum("nf,fg,ng->n", features, fitted.precision, features, optimize=True)
    cross = features @ fitted.precision @ means.T
    own = np.einsum("cf,fg,cg->c", means, fitted.precision, means, optimize=True)
    nearest = (inside[:, None] - 2.0 * cross + own[None]).min(-1)
    away = features - fitted.mean
    whole = np.einsum("nf,fg,ng->n", away, fitted.background_precision, away, optimize=True)
    return (whole - nearest).astype(np.float32)  # type: ignore[no-any-return]


def _neighbours(features: Floats, fitted: Fitted) -> Floats:
    references = fitted.references.astype(np.float32)
    references /= np.linalg.norm(references, axis=-1, keepdims=True).clip(1e-9)
    k = min(fitted.k, len(references))
    unit = _unit(features)
    found = np.empty(len(features), np.float32)
    for start in range(0, len(features), 512):
        cosines = unit[start : start + 512] @ references.T
        found[start : start + 512] = np.partition(cosines, -k, axis=-1)[:, -k]
    return found


def _unit(rows: Floats) -> Floats:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True).clip(1e-9)  # type: ignore[no-any-return]
