"""Signals of confidence, and figures of how well they separate right from wrong answers.

A classifier answers and gives a confidence; a caller accepts the answers above a threshold. With
N answers, of which the n most confident are accepted and e(n) of those are wrong:

    coverage        c = n / N
    risk            e(n) / n                               risk-coverage curve (El-Yaniv 2010)
    AURC            mean over n of e(n) / n                (Geifman et al. 2019, eq. 3)
    AUGRC           mean over n of e(n) / N                (Traub et al. 2024, eq. 7)
    accuracy at c   1 - e(cN) / cN

and for two kinds of texts, such as in and out of scope: the area under the ROC curve, and the
share of the second kind that is accepted where 95 % of the first are (FPR95, Hendrycks & Gimpel
2017). Intervals are percentiles of a bootstrap over the texts.

How sure a classifier is, measured in several ways; larger is surer.

The signals are those of ``verso_core.heads``, which states their formulas; here they are fitted
and computed for training, calibration and reports. Serving computes them again from the same
files and shares no code with this.

The decoder's signals of a text given its vector are the share of tokens that the decoder recovers,
as a confidence of the classification, and bits. For a text x with tokens t_1..t_n and the
stored vector v, teacher-forced:

    self_generation    = 1/n sum_i [ argmax p(. | t_<i, v) = t_i ]
    bits_given_vector  = - sum_i -log2 p(t_i | t_<i, v) / bytes(x)
    bits_saved         = ( sum_i -log2 p(t_i | t_<i, 0) ) / bytes(x) + bits_given_vector

bytes(x) are those of the tokens read: the first 127, which is one record. The bits are the
decoder's own code length. A worker counts the coder's payload, which is whole bytes, a little
more, and much more for a text unlike the training texts; a head that will be served
is calibrated on that (``coder``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_codecs import ranks
from verso_codecs.ranks import RankTables
from verso_core import manifest
from verso_core.heads import SignalName
from verso_core.manifest import Codec
from verso_training.artifact.graphs import DecoderGraph, Pass

Floats = NDArray[np.float32]
Scores = NDArray[np.floating]
Flags = NDArray[np.bool_]
Figure = Callable[[Scores, Flags], float]
"""A function of confidences and whether each answer is right."""


def augrc(confidence: Scores, right: Flags) -> float:
    """Return the area under the generalised risk-coverage curve; 0 is best, half the error rate is
    chance."""
    return float(_wrong_accepted(confidence, right).mean() / len(right))


def accuracy_at(confidence: Scores, right: Flags, coverage: float) -> float:
    """Return the share of right answers among the ``coverage`` most confident."""
    count = max(1, round(coverage * len(right)))
    return float(1.0 - _wrong_accepted(confidence, right)[count - 1] / count)


def auroc(positive: Scores, negative: Scores) -> float:
    """Return the chance that a positive's value exceeds a negative's, ties half (Mann & Whitney
    1947)."""
    values = np.concatenate([positive, negative])
    p, n = len(positive), len(negative)
    return float((mean_ranks(values)[:p].sum() - p * (p + 1) / 2.0) / (p * n))


def mean_ranks(values: Scores) -> NDArray[np.float64]:
    """Return the rank of each value from 1, ties at their mean rank. Shape: (N,)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return ranks


def fpr95(positive: Scores, negative: Scores) -> float:
    """Return the share of negatives at or above the value that 95 % of the positives reach."""
    threshold = np.sort(positive)[::-1][int(np.ceil(0.95 * len(positive))) - 1]
    return float((negative >= threshold).mean())


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap(
    measure: Callable[[NDArray[np.int64]], float], count: int, *, rounds: int = 500, seed: int = 0
) -> Interval:
    """Return a figure with its interval.

    Args:
        measure: Returns the figure for these rows, or NaN if undefined.
        count: Of rows; ``measure`` is called with resampled row numbers.
        rounds: Of resampling.
        seed: For the resampling.
    """
    rng = np.random.default_rng(seed)
    drawn = [measure(rng.integers(0, count, count)) for _ in range(rounds)]
    known = [value for value in drawn if not np.isnan(value)] or [float("nan")]
    low, high = np.percentile(known, [2.5, 97.5])
    return Interval(measure(np.arange(count)), float(low), float(high))


def drawn(groups: NDArray[np.int64], *, rounds: int, seed: int = 0) -> NDArray[np.float64]:
    """Return how often each group is drawn: once in the first row, then at random.

    Rows of one group, such as the questions of one text, are right or wrong together; they are
    drawn together (cluster bootstrap, Davison and Hinkley 1997, section 3.8).

    Args:
        groups: Numbers from 0 on. Shape: (N,).
        rounds: Of drawing as many groups as there are.
        seed: For the drawing.

    Returns:
        Shape: (rounds + 1, groups).
    """
    count = int(groups.max()) + 1
    chosen = np.random.default_rng(seed).integers(0, count, (rounds, count))
    times = [np.bincount(one, minlength=count) for one in chosen]
    return np.stack([np.ones(count), *times]).astype(np.float64)


def ratios(
    above: NDArray[np.floating],
    below: NDArray[np.floating],
    groups: NDArray[np.int64],
    times: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the sum of one row's value over that of another, for each draw of ``drawn``.

    Args:
        above: Shape: (N,).
        below: Shape: (N,).
        groups: As given to ``drawn``. Shape: (N,).
        times: What it returned.

    Returns:
        Shape: (rounds + 1,); NaN where nothing is below.
    """
    sums = [np.bincount(groups, weights=one, minlength=times.shape[1]) for one in (above, below)]
    with np.errstate(invalid="ignore"):
        return np.asarray((times @ sums[0]) / (times @ sums[1]), np.float64)


def middle(values: NDArray[np.float64]) -> Interval:
    """Return the first value with the middle 95 % of the others that are known."""
    known = values[1:][~np.isnan(values[1:])]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
    return Interval(float(values[0]), float(low), float(high))


def _wrong_accepted(confidence: Scores, right: Flags) -> Scores:
    """Return the expected wrong answers among the n most confident, ties broken at random."""
    order = np.argsort(-confidence, kind="stable")
    wrong = (~right[order]).astype(np.float64)
    _, group = np.unique(-confidence[order], return_inverse=True)
    means = np.bincount(group, wrong) / np.bincount(group)
    return np.cumsum(means[group])


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
        mean: Of all features. Shape: (F,), float32.
        precision: Inverse of the covariance within classes. Shape: (F, F).
        background_precision: Inverse of the covariance of all. Shape: (F, F).
        references: Unit features times 127. Shape: (N, F), int8.
        k: The neighbour whose cosine is the signal.
    """

    class_means: Floats
    mean: Floats
    precision: Floats
    background_precision: Floats
    references: NDArray[np.int8]
    k: int

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of ``signals.npz``."""
        return {name: np.asarray(value) for name, value in vars(self).items()}


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
    logits: Floats,
    features: Floats,
    *,
    temperature: float,
    fitted: Fitted | None,
    outside: int | None = None,
) -> dict[SignalName, Floats]:
    """Return the signals of each row.

    Args:
        logits: Shape: (N, C).
        features: Shape: (N, F).
        temperature: Of the calibrated softmax.
        fitted: None omits signals that need statistics.
        outside: Number of the label that means "out of scope", if there is one.
    """
    found = {
        SignalName.SOFTMAX: softmax(logits).max(-1),
        SignalName.CALIBRATED: softmax(logits / temperature).max(-1),
        SignalName.ENERGY: _logsumexp(logits),
    }
    if outside is not None:
        inside = _logsumexp(np.delete(logits, outside, axis=-1))
        found[SignalName.INSIDE] = inside
        found[SignalName.MARGIN] = inside - logits[:, outside]
    if fitted is not None:
        found[SignalName.MAHALANOBIS] = _mahalanobis(features, fitted)
        found[SignalName.KNN] = _neighbours(features, fitted)
    return found


def softmax(logits: Floats) -> Floats:
    """Shape: (N, C) to (N, C)."""
    shifted: Floats = np.exp(logits - logits.max(-1, keepdims=True))
    total: Floats = shifted.sum(-1, keepdims=True)
    scaled: Floats = shifted / total
    return scaled


def _logsumexp(logits: Floats) -> Floats:
    top: Floats = logits.max(-1, keepdims=True)
    total: Floats = np.exp(logits - top).sum(-1, keepdims=True)
    return (top + np.log(total))[:, 0]


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


def decoder_signals(
    texts: Sequence[str],
    vectors: Floats,
    *,
    artifact: Path,
    threads: int = 1,
    coder: bool = False,
) -> dict[SignalName, Floats]:
    """Return the three signals of each text. Shape: (N,) each.

    Args:
        texts: Read up to the length of one record.
        vectors: As stored. Shape: (N, D).
        artifact: The artifact whose decoder is run.
        threads: For its graphs.
        coder: Whether bits are those of the coder's payload, as served, or the decoder's own.
    """
    codec = manifest.load(artifact).manifest.codec
    tables = RankTables.load(artifact / "ranks.npz")
    bits_of = partial(_payload_bits, about=codec, tables=tables) if coder else _code_length
    graph = DecoderGraph(artifact, codec, threads=threads)
    records = [graph.tokens(text)[: codec.max_tokens - 1] for text in texts]
    sizes = [max(1, len(graph.tokenizer.decode(ids).encode())) for ids in records]
    found = {name: np.zeros(len(texts), np.float32) for name in _NAMES}
    for index, seen in graph.passes(records, vectors):
        right = seen.logits.argmax(-1) == seen.targets
        found[SignalName.SELF_GENERATION][index] = right.mean()
        found[SignalName.BITS_GIVEN_VECTOR][index] = -bits_of(seen) / sizes[index]
    for index, seen in graph.passes(records, np.zeros_like(vectors)):
        saved = bits_of(seen) / sizes[index] + found[SignalName.BITS_GIVEN_VECTOR][index]
        found[SignalName.BITS_SAVED][index] = saved
    return found


_NAMES = (SignalName.SELF_GENERATION, SignalName.BITS_GIVEN_VECTOR, SignalName.BITS_SAVED)


def _code_length(seen: Pass) -> float:
    """- sum_i log2 p(t_i | t_<i, v)."""
    logits = seen.logits.astype(np.float64)
    positions = np.arange(len(seen.targets))
    top = logits.max(-1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
    bits = (total - logits[positions, seen.targets]) / np.log(2.0)
    return float(bits.sum())


def _payload_bits(seen: Pass, *, about: Codec, tables: RankTables) -> float:
    event = ranks.events(seen.logits, seen.confidence, targets=seen.targets, epsilon=about.epsilon)
    coded = ranks.encode_events(event, tables, confidence_epsilon=about.confidence_epsilon)
    return 8.0 * len(coded)
