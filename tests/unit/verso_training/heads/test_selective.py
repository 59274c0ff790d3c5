"""Figures of a confidence, against counting and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from verso_training.heads import signals

RNG = np.random.default_rng(3)


def test_the_worked_example_by_hand() -> None:
    confidence = np.array([0.9, 0.8, 0.7, 0.6])
    right = np.array([True, False, True, False])
    accepted = [signals.accuracy_at(confidence, right, c) for c in (0.25, 0.5, 0.75, 1.0)]
    assert accepted == pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])
    assert signals.augrc(confidence, right) == pytest.approx((0 + 1 + 1 + 2) / 16)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30))
def test_the_order_of_equal_confidences_decides_nothing(rows: list[tuple[int, bool]]) -> None:
    confidence = np.array([float(c) for c, _ in rows])
    right = np.array([r for _, r in rows])
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    one = signals.augrc(confidence, right)
    assert signals.augrc(confidence[order], right[order]) == pytest.approx(one)


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
)
def test_auroc_is_scikit_learns(positive: list[int], negative: list[int]) -> None:
    p, n = np.array(positive, float), np.array(negative, float)
    expected = roc_auc_score([1] * len(p) + [0] * len(n), np.concatenate([p, n]))
    assert signals.auroc(p, n) == pytest.approx(expected)


def test_fpr95_counts_what_passes_with_95_percent_of_the_positives() -> None:
    positive = np.arange(100.0)
    negative = np.array([4.0, 4.5, 5.0, 6.0])
    # 95 of the positives are 5 or more.
    assert signals.fpr95(positive, negative) == 0.5


def test_the_interval_holds_the_figure_and_narrows_with_more_rows() -> None:
    values = RNG.random(2000) < 0.8
    few = signals.bootstrap(lambda i: float(values[:100][i].mean()), 100)
    many = signals.bootstrap(lambda i: float(values[i].mean()), 2000)
    assert few.low <= few.value <= few.high
    assert many.high - many.low < few.high - few.low
