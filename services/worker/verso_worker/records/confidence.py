"""The confidence of a classifier, by the signals that ``verso_core.heads`` defines.

1. Signals are computed from logits, features and, where asked for, the decoder.
2. The signal that the head accepts by becomes a probability of being right.
3. Where the caller bounds the error rate, a label below the head's threshold for that rate is
   withheld. Among what is accepted of texts like those it was calibrated on, at most that
   share is wrong (learn-then-test, Angelopoulos et al. 2021; how: ``heads.calibration``). A head
   whose labels come from several sources has thresholds for each: a source without one for the
   rate gets no label accepted. Where the head limits the probability of the source itself, a label
   of a source below its limit is withheld too.
4. Whether a batch is unlike the calibration rows is told from how far its vectors lie from the
   training vectors (the signal ``knn``): a rank-sum test against the calibration rows' own.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import HeadInvalid, RequestInvalid
from verso_core.heads import Calibration, Judged, Signal, SignalName, Source, source_of

Floats = NDArray[np.float32]
Signals = dict[SignalName, Floats]

FROM_DECODER = (
    SignalName.SELF_GENERATION,
    SignalName.BITS_GIVEN_VECTOR,
    SignalName.BITS_SAVED,
)
"""Signals that need the text and its vector, and a run of the decoder."""

FEWEST_JUDGED = 30
"""Judged rows of a source that its calibration is corrected by."""
_DELTA = 0.1
"""Chance that a threshold does not keep its rate, as in training."""
_LEAST_SHIFT = 0.1
"""Least excess of the mean rank over 0.5 that counts as a shift."""
_DEVIATIONS = 3.0
"""Standard deviations of the mean rank that chance alone is taken to explain."""
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
    outside: int | None = None,
) -> Signals:
    """Compute the signals of some rows.

    Args:
        logits: Shape: (n, C).
        features: Shape: (n, F).
        calibration: the head's.
        statistics: of the head's training features; without them some signals are missing.
        extra: signals of the decoder, NaN for one that could not be computed. Shape of each: (n,).
        outside: number of the label that means "out of scope", if there is one.
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
    if outside is not None:
        inside = _logsumexp(np.delete(logits, outside, axis=1))
        signals[SignalName.INSIDE] = inside
        signals[SignalName.MARGIN] = inside - logits[:, outside]
    scope = calibration.scope
    for name, stack in (
        (SignalName.STACK, calibration.stack),
        (SignalName.SCOPE, None if scope is None else scope.stack),
    ):
        if stack is not None and stack.weights.keys() <= signals.keys():
            score = np.full(len(logits), stack.bias, np.float32)
            for used, weight in stack.weights.items():
                score += np.float32(weight) * signals[used]
            signals[name] = _sigmoid(score)
    return signals


def out_of_scope(signals: Signals, calibration: Calibration) -> NDArray[np.bool_]:
    """Return which rows the signal of scope says are out of it."""
    values = signals.get(SignalName.SCOPE)
    if calibration.scope is None or values is None:
        return np.zeros(len(signals[SignalName.SOFTMAX]), np.bool_)
    found: NDArray[np.bool_] = values < np.float32(calibration.scope.least)
    return found


def probability(
    signals: Signals, calibration: Calibration, *, sources: Sequence[str] = ()
) -> Floats:
    """Return the probability of being right; the calibrated softmax if no signal was fitted.

    Args:
        signals: of the rows.
        calibration: of the head.
        sources: of the rows' best labels; a source's own calibration applies where there is one.
    """
    name = calibration.accept_by
    fitted = calibration.signals.get(name)
    if name not in signals or fitted is None:
        found = signals[SignalName.CALIBRATED]
    else:
        found = _mapped(fitted, signals[name])
    for source in set(sources) & calibration.sources.keys():
        own = _mapped(calibration.sources[source].signal, signals[name])
        found = np.where(np.array([one == source for one in sources]), own, found)
    if SignalName.SCOPE in signals:
        outside = out_of_scope(signals, calibration)
        found = np.where(outside, 1.0 - signals[SignalName.SCOPE], found).astype(np.float32)
    return np.where(np.isnan(found), signals[SignalName.CALIBRATED], found)


def shift(signals: Signals, calibration: Calibration) -> float | None:
    """Return how far rows lie from the training rows, among the calibration rows, 0 to 1.

    It is the mean over the rows of the share of calibration rows that lie nearer; 0.5 is usual.
    None for a head without what it takes.
    """
    values = signals.get(SignalName.KNN)
    if values is None or len(calibration.usual) < 2 or not len(values):
        return None
    steps = np.linspace(0.0, 1.0, len(calibration.usual))
    below = np.interp(values.astype(np.float64), np.array(calibration.usual), steps)
    return float(1.0 - below.mean())


def is_shifted(score: float, rows: int) -> bool:
    """Whether a batch of so many rows is unlike the calibration rows.

    Under the hypothesis that it is like them, the mean of n ranks has the variance 1 / (12 n)
    (Wilcoxon 1945). A large batch is never exactly like them, so a least effect counts as well.
    """
    return score > 0.5 + max(_LEAST_SHIFT, _DEVIATIONS / math.sqrt(12.0 * rows))


def learned(calibration: Calibration, judged: Sequence[Judged]) -> Calibration:
    """Return a calibration corrected by labels that people have checked since.

    For each source of ``FEWEST_JUDGED`` rows or more:

    1. the probability of being right moves by a constant in log odds, so that its mean over the
       rows is the share that was right;
    2. a threshold that the rows themselves guarantee (learn-then-test, as in training) replaces the
       head's; where they are too few for that, the head's stays unless they contradict it: then
       nothing of the source is accepted at that rate.
    """
    sources = dict(calibration.sources)
    whole = calibration.signals.get(calibration.accept_by)
    for name in {one.source for one in judged}:
        own = [one for one in judged if one.source == name]
        if whole is None or len(own) < FEWEST_JUDGED:
            continue
        values = np.array([one.value for one in own], np.float32)
        right = np.array([one.right for one in own], np.bool_)
        known = sources.get(name) or Source(signal=whole, conformal=calibration.conformal)
        limits = {
            rate: _limit(values, right, rate=rate, own=known.conformal.get(rate))
            for rate in calibration.conformal
        }
        sources[name] = Source(
            signal=_moved(known.signal, values, right),
            conformal={rate: limit for rate, limit in limits.items() if limit is not None},
        )
    return calibration.model_copy(update={"sources": sources})


def _moved(fitted: Signal, values: Floats, right: NDArray[np.bool_]) -> Signal:
    """Return the mapping with the offset at which its mean is the share of right rows."""
    # Laplace's rule of succession keeps the offset finite where all rows are right, or none
    share = (right.sum() + 1.0) / (len(right) + 2.0)
    odds = fitted.scale * values.astype(np.float64)
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        too_low = _sigmoid((odds + middle).astype(np.float32)).mean() < share
        low, high = (middle, high) if too_low else (low, middle)
    return Signal(scale=fitted.scale, offset=(low + high) / 2)


def _limit(
    values: Floats, right: NDArray[np.bool_], *, rate: str, own: float | None
) -> float | None:
    """Return the threshold of an error rate by judged rows, or the head's own if they allow it."""
    alpha = float(rate)
    order = np.argsort(-values, kind="stable")
    wrong = np.cumsum(~right[order])
    fewest = math.ceil(math.log(_DELTA) / math.log1p(-alpha))
    found = None
    for n in range(fewest, len(order) + 1):
        if _tail(int(wrong[n - 1]), n=n, rate=alpha) > _DELTA:
            break
        if n == len(order) or values[order[n]] < values[order[n - 1]]:
            found = float(values[order[n - 1]])
    if found is not None or own is None:
        return found
    taken = values >= own
    return own if (~right[taken]).sum() <= alpha * taken.sum() else None


def _tail(errors: int, *, n: int, rate: float) -> float:
    """P(Binomial(n, rate) <= errors), summed in logarithms."""
    terms = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        + k * math.log(rate) + (n - k) * math.log1p(-rate)
        for k in range(errors + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def answer_probability(margin: float, calibration: Calibration) -> float | None:
    """Return the probability that an answer is right; None if that was not fitted.

    Args:
        margin: its score - null score.
        calibration: of the head.
    """
    fitted = calibration.signals.get(SignalName.CALIBRATED)
    if fitted is None:
        return None
    return 0.5 * (1.0 + math.tanh(0.5 * (fitted.scale * margin + fitted.offset)))


def accepted(
    signals: Signals,
    calibration: Calibration,
    *,
    error_rate: float | None,
    sources: Sequence[str] = (),
    source_probability: Floats | None = None,
) -> NDArray[np.bool_]:
    """Return which labels to accept so that at most ``error_rate`` of the accepted are wrong.

    A row whose signal could not be computed is not accepted. A row out of scope is accepted as
    such where the probability that it is in scope is at most ``error_rate``.

    Args:
        signals: of the rows.
        calibration: of the head.
        error_rate: None accepts every row.
        sources: of the rows' best labels.
        source_probability: of these, see :func:`source_probability`; a source that the head limits
            gets no label accepted without it. Shape: (n,).

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
    limits = np.full(rows, rates[max(usable)], np.float32)
    for source in set(sources) & calibration.sources.keys():
        own = calibration.sources[source].conformal
        kept = [float(rate) for rate in own if float(rate) <= error_rate + 1e-12]
        limit = own[f"{max(kept):g}"] if kept else np.inf
        limits[[one == source for one in sources]] = limit
    found: NDArray[np.bool_] = values >= limits
    certain = np.zeros(rows, np.float32) if source_probability is None else source_probability
    for source, least in calibration.source_limits.items():
        of_source = np.array([one == source for one in sources], np.bool_)
        found[of_source] &= certain[of_source] >= np.float32(least)
    if SignalName.SCOPE in signals:
        outside = out_of_scope(signals, calibration)
        found = np.where(outside, signals[SignalName.SCOPE] <= error_rate, found)
    return found


def source_probability(
    probabilities: Floats, labels: Sequence[str], sources: Sequence[str]
) -> Floats:
    """Return how probable the source of each row's best label is: the sum over its labels.

    Args:
        probabilities: Shape: (n, C).
        labels: in the order of the columns.
        sources: of the rows' best labels.
    """
    of_label = np.array([source_of(label) for label in labels])
    found: Floats = (probabilities * (of_label == np.array(sources)[:, None])).sum(axis=1)
    return found


def _mapped(fitted: Signal, values: Floats) -> Floats:
    return _sigmoid(np.float32(fitted.scale) * values + np.float32(fitted.offset))


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


def brier(scores: Mapping[str, float], label: str) -> float:
    """Return the Brier score of probabilities by label (Brier 1950, eq. 2), in [0, 2].

    A label that the head does not have counts as one of probability 0.
    """
    missed = 0.0 if label in scores else 1.0
    return missed + sum((p - (name == label)) ** 2 for name, p in scores.items())
