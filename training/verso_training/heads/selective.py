"""How good a confidence is: what is right among what it accepts.

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Flags = NDArray[np.bool_]
Figure = Callable[[Floats, Flags], float]
"""Of confidences and whether each answer is right."""


def risk_coverage(confidence: Floats, right: Flags) -> tuple[Floats, Floats]:
    """Coverage and risk after each accepted answer, the surest first.

    Answers of equal confidence are accepted together: each gets the mean risk of its group, so
    that the order of the input decides nothing.

    Returns:
        Coverage in (0, 1] and risk in [0, 1]. Shape: twice (N,).
    """
    wrong = _wrong_accepted(confidence, right)
    count = np.arange(1, len(right) + 1)
    return count / len(right), wrong / count


def aurc(confidence: Floats, right: Flags) -> float:
    """Area under the risk-coverage curve; 0 is best."""
    return float(risk_coverage(confidence, right)[1].mean())


def augrc(confidence: Floats, right: Flags) -> float:
    """Area under the generalised risk-coverage curve; 0 is best, half the error rate is chance."""
    return float(_wrong_accepted(confidence, right).mean() / len(right))


def accuracy_at(confidence: Floats, right: Flags, coverage: float) -> float:
    """Share of right answers among the ``coverage`` most confident."""
    count = max(1, round(coverage * len(right)))
    return float(1.0 - _wrong_accepted(confidence, right)[count - 1] / count)


def auroc(positive: Floats, negative: Floats) -> float:
    """Chance that a positive's value exceeds a negative's, ties half (Mann & Whitney 1947)."""
    values = np.concatenate([positive, negative])
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    p, n = len(positive), len(negative)
    return float((ranks[:p].sum() - p * (p + 1) / 2.0) / (p * n))


def fpr95(positive: Floats, negative: Floats) -> float:
    """Share of negatives at or above the value that 95 % of the positives reach."""
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
    """A figure and its interval.

    Args:
        measure: Gives the figure for these rows; NaN where they do not have one.
        count: Of rows; ``measure`` is called with resampled row numbers.
        rounds: Of resampling.
        seed: For the resampling.
    """
    rng = np.random.default_rng(seed)
    drawn = [measure(rng.integers(0, count, count)) for _ in range(rounds)]
    known = [value for value in drawn if not np.isnan(value)] or [float("nan")]
    low, high = np.percentile(known, [2.5, 97.5])
    return Interval(measure(np.arange(count)), float(low), float(high))


def _wrong_accepted(confidence: Floats, right: Flags) -> Floats:
    """Expected wrong answers among the n most confident, ties broken at random."""
    order = np.argsort(-confidence, kind="stable")
    wrong = (~right[order]).astype(np.float64)
    _, group = np.unique(-confidence[order], return_inverse=True)
    means = np.bincount(group, wrong) / np.bincount(group)
    return np.cumsum(means[group])
