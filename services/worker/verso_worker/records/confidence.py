"""The confidence of a classifier, by the signals that ``verso_core.heads`` defines.

1. Signals are computed from logits, features and, where asked for, the decoder.
2. The signal that the head accepts by becomes a probability of being right.
3. Where the caller bounds the error rate, a label below the head's threshold for that rate is
   withheld. Among what is accepted of texts like those it was calibrated on, at most that
   share is wrong (learn-then-test, Angelopoulos et al. 2021; how: ``heads.calibration``).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import HeadInvalid, RequestInvalid
from verso_core.heads import Calibration, SignalName

Floats = NDArray[np.float32]
Signals = dict[SignalName, Floats]

FROM_DECODER = (
    SignalName.SELF_GENERATION,
    SignalName.BITS_GIVEN_VECTOR,
    SignalName.BITS_SAVED,
)
"""Signals that need the text and its vector, and a run of the decoder."""

_ARRAYS = ("class_means", "mean", "precision", "background_precision", "references", "k")


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """The arrays of ``signals.npz``, widened; class means of labels without rows are left out."""

    class_means: Floats
    mean: Floats
    precision: Floats
    background_precision: Floats
    references: Floats
    k: int

    @classmethod
    def read(cls, data: bytes) -> Statistics:
        """Read the file.

        Raises:
            HeadInvalid: an array is missing or has another shape.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                found = {name: archive[name] for name in _ARRAYS}
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as exc:
            raise HeadInvalid(f"signals.npz: expected {', '.join(_ARRAYS)}") from exc
        means = found["class_means"].astype(np.float32)
        width = means.shape[-1]
        shapes = {"mean": (width,), "precision": (width, width), "k": ()}
        shapes["background_precision"] = (width, width)
        for name, shape in shapes.items():
            if found[name].shape != shape:
                raise HeadInvalid(f"signals.npz: {name}: expected {shape}, got {found[name].shape}")
        references = found["references"].astype(np.float32)
        if references.ndim != 2 or references.shape[1] != width or len(references) == 0:
            raise HeadInvalid(f"signals.npz: references: got {references.shape}")
        return cls(
            class_means=means[np.abs(means).sum(axis=1) > 0],
            mean=found["mean"].astype(np.float32),
            precision=found["precision"].astype(np.float32),
            background_precision=found["background_precision"].astype(np.float32),
            references=_unit(references),
            k=min(max(1, int(found["k"])), len(references)),
        )


def needs_decoder(calibration: Calibration, *, all_signals: bool) -> bool:
    """Whether an answer needs signals of the decoder: to accept by, or to be shown."""
    wanted = set(calibration.signals) if all_signals else set()
    wanted.add(calibration.accept_by)
    if SignalName.STACK in wanted and calibration.stack is not None:
        wanted |= set(calibration.stack.weights)
    return not wanted.isdisjoint(FROM_DECODER)


def measure(
    logits: Floats,
    features: Floats,
    *,
    calibration: Calibration,
    statistics: Statistics | None,
    extra: Mapping[SignalName, Floats],
) -> Signals:
    """Compute the signals of some rows.

    Args:
        logits: Shape: (n, C).
        features: Shape: (n, F).
        calibration: the head's.
        statistics: of the head's training features; without them some signals are missing.
        extra: signals of the decoder, NaN for one that could not be computed. Shape of each: (n,).
    """
    signals: Signals = {
        SignalName.SOFTMAX: softmax(logits).max(axis=1),
        SignalName.CALIBRATED: softmax(logits / calibration.temperature).max(axis=1),
        SignalName.ENERGY: _logsumexp(logits),
        **extra,
    }
    if statistics is not None and features.shape[1] == len(statistics.mean):
        signals[SignalName.MAHALANOBIS] = _mahalanobis(features, statistics)
        cosines = _unit(features) @ statistics.references.T
        signals[SignalName.KNN] = np.partition(cosines, -statistics.k, axis=1)[:, -statistics.k]
    stack = calibration.stack
    if stack is not None and stack.weights.keys() <= signals.keys():
        score = np.full(len(logits), stack.bias, np.float32)
        for name, weight in stack.weights.items():
            score += np.float32(weight) * signals[name]
        signals[SignalName.STACK] = _sigmoid(score)
    return signals


def probability(signals: Signals, calibration: Calibration) -> Floats:
    """Return the probability of being right; the calibrated softmax if no signal was fitted."""
    name = calibration.accept_by
    fitted = calibration.signals.get(name)
    if name not in signals or fitted is None:
        return signals[SignalName.CALIBRATED]
    found = _sigmoid(np.float32(fitted.scale) * signals[name] + np.float32(fitted.offset))
    return np.where(np.isnan(found), signals[SignalName.CALIBRATED], found)


def accepted(
    signals: Signals, calibration: Calibration, *, error_rate: float | None
) -> NDArray[np.bool_]:
    """Return which labels to accept so that at most ``error_rate`` of the accepted are wrong.

    A row whose signal could not be computed is not accepted.

    Raises:
        RequestInvalid: the head has no threshold for an error rate as low as this.
    """
    rows = len(signals[SignalName.SOFTMAX])
    if error_rate is None:
        return np.ones(rows, np.bool_)
    rates = {float(rate): threshold for rate, threshold in calibration.conformal.items()}
    usable = [rate for rate in rates if rate <= error_rate + 1e-12]
    if not usable:
        there = ", ".join(sorted(calibration.conformal)) or "none"
        raise RequestInvalid(f"expected accept_error >= one of the head's ({there})")
    values = signals.get(calibration.accept_by)
    if values is None:
        return np.zeros(rows, np.bool_)
    found: NDArray[np.bool_] = values >= np.float32(rates[max(usable)])
    return found


def softmax(logits: Floats) -> Floats:
    """Return probabilities. Shape: (n, C), in and out."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Floats = (shifted / shifted.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


def _logsumexp(logits: Floats) -> Floats:
    top = logits.max(axis=1)
    found: Floats = (top + np.log(np.exp(logits - top[:, None]).sum(axis=1))).astype(np.float32)
    return found


def _mahalanobis(features: Floats, statistics: Statistics) -> Floats:
    away = features - statistics.mean
    background = np.einsum("nf,fg,ng->n", away, statistics.background_precision, away)
    nearest = np.full(len(features), np.inf)
    for mean in statistics.class_means:
        apart = features - mean
        nearest = np.minimum(nearest, np.einsum("nf,nf->n", apart @ statistics.precision, apart))
    found: Floats = (background - nearest).astype(np.float32)
    return found


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Floats = (rows / np.maximum(lengths, 1e-9)).astype(np.float32)
    return found


def _sigmoid(values: Floats) -> Floats:
    found: Floats = (0.5 * (1.0 + np.tanh(0.5 * values))).astype(np.float32)
    return found
