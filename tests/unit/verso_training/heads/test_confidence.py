"""Calibration against what is known of made-up classifiers."""

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom
from sklearn.linear_model import LogisticRegression

from verso_core.heads import SignalName
from verso_training.heads import confidence, shipping, signals
from verso_training.heads.confidence import calibration, reports

RNG = np.random.default_rng(5)


def rows(
    count: int, *, classes: int = 4, temperature: float = 2.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits whose softmax at the temperature is the true distribution, and drawn labels."""
    logits = RNG.normal(size=(count, classes)).astype(np.float32) * 4.0
    p = signals.softmax(logits / temperature)
    targets = np.array([RNG.choice(classes, p=row / row.sum()) for row in p])
    return logits, targets


def test_the_temperature_that_made_the_labels_is_found() -> None:
    logits, targets = rows(6000, temperature=2.0)
    assert confidence.fit_temperature(logits, targets) == pytest.approx(2.0, rel=0.08)


def test_a_probability_from_a_signal_is_scikit_learns() -> None:
    values = RNG.normal(size=3000)
    right = RNG.random(3000) < 1 / (1 + np.exp(-(2.0 * values + 0.5)))
    found = confidence.fit_platt(values, right)
    reference = LogisticRegression(C=1e6).fit(values[:, None], right)
    assert found.scale == pytest.approx(reference.coef_[0, 0], rel=0.1)
    assert found.offset == pytest.approx(reference.intercept_[0], abs=0.1)


def test_a_perfect_signal_keeps_finite_weights() -> None:
    values = np.linspace(-1, 1, 60)
    found = confidence.fit_platt(values, values > 0)
    assert np.isfinite([found.scale, found.offset]).all()
    assert found.scale > 0


def test_where_no_answer_was_wrong_the_confidence_still_follows_the_signal() -> None:
    """Saturated values, as a head has that makes no mistake: their spread is rounding."""
    values = np.float32(1.0) - np.float32(1e-7) * RNG.integers(0, 2, 30).astype(np.float32)
    found = confidence.fit_platt(values, np.ones(30, bool), chance=0.25)

    def sure(value: float) -> float:
        return 1.0 / (1.0 + math.exp(-(found.scale * value + found.offset)))

    assert sure(0.25) == pytest.approx(0.25)
    assert sure(1.0) == pytest.approx(31 / 32, abs=1e-4)
    assert sure(0.25) < sure(0.6) < sure(1.0)
    flat = confidence.fit_platt(values, np.ones(30, bool))
    assert flat.scale == 0.0
    assert flat.offset == pytest.approx(math.log(31))
    none = confidence.fit_platt(values, np.zeros(30, bool), chance=0.25)
    assert none.scale == 0.0
    assert none.offset == pytest.approx(-math.log(31))


def test_a_head_without_a_mistake_is_least_sure_of_even_odds() -> None:
    targets = np.arange(60) % 2
    logits = np.where(targets[:, None] == np.arange(2), 30.0, -30.0).astype(np.float32)
    model = confidence.calibrate(confidence.Outputs(logits, logits, targets), None)
    line = model.signals[model.accept_by]
    assert line.scale > 0
    assert line.scale * 0.5 + line.offset == pytest.approx(0.0)  # log odds of 1 to 1


def test_a_figure_that_there_is_none_of_is_a_dash() -> None:
    nowhere = signals.Interval(math.nan, math.nan, math.nan)
    assert shipping.percent(nowhere) == "-"
    assert shipping.percent(signals.Interval(0.931, 0.91, 0.952)) == "93.1 [91.0, 95.2]"


def test_the_binomial_tail_is_scipys() -> None:
    for errors, n, rate in ((0, 20, 0.05), (3, 100, 0.1), (40, 200, 0.2)):
        expected = binom.cdf(errors, n, rate)
        assert calibration.tail(errors, n=n, rate=rate) == pytest.approx(expected, rel=1e-9)


def test_accepted_answers_keep_the_promised_error_rate() -> None:
    """Over many draws the promise is broken in at most delta of them, with room for chance."""
    broken = 0
    for _ in range(100):
        values = RNG.random(800)
        right = RNG.random(800) < values
        threshold = confidence.thresholds(values, right, alphas=(0.1,)).get("0.1")
        # The true risk above t is 1 - E[value | value > t] = (1 - t) / 2.
        broken += threshold is not None and (1 - threshold) / 2 > 0.1
    assert broken <= 2 * confidence.DELTA * 100


def test_too_few_rows_promise_nothing() -> None:
    assert confidence.thresholds(np.ones(20), np.ones(20, bool), alphas=(0.01,)) == {}


def test_relative_mahalanobis_is_the_formula_row_by_row() -> None:
    features = RNG.normal(size=(300, 6)).astype(np.float32)
    targets = RNG.integers(0, 3, 300)
    features += targets[:, None] * 2.0
    fitted = signals.fit(features, targets, classes=4)  # the fourth label has no row
    logits = np.zeros((5, 4), np.float32)
    found = signals.measure(logits, features[:5], temperature=1.0, fitted=fitted)
    for f, value in zip(features[:5], found[SignalName.MAHALANOBIS], strict=True):
        near = min(
            (f - m) @ fitted.precision @ (f - m) for m in fitted.class_means[:3].astype(np.float64)
        )
        away = (f - fitted.mean) @ fitted.background_precision @ (f - fitted.mean)
        assert value == pytest.approx(away - near, rel=1e-3, abs=1e-3)


def test_the_nearest_neighbour_signal_is_a_cosine_to_the_kth_reference() -> None:
    features = RNG.normal(size=(400, 8)).astype(np.float32)
    fitted = signals.fit(features, np.zeros(400, np.int64), classes=2)
    probe = RNG.normal(size=(3, 8)).astype(np.float32)
    found = signals.measure(np.zeros((3, 2), np.float32), probe, temperature=1.0, fitted=fitted)
    unit = features / np.linalg.norm(features, axis=-1, keepdims=True)
    for row, value in zip(probe, found[SignalName.KNN], strict=True):
        cosines = np.sort(unit @ (row / np.linalg.norm(row)))[::-1]
        assert value == pytest.approx(cosines[fitted.k - 1], abs=0.01)


def test_the_stack_ranks_at_least_as_well_as_its_worst_part() -> None:
    logits, targets = rows(2000)
    outputs = confidence.Outputs(logits, logits, targets)
    fitted = signals.fit(logits, targets, classes=4)
    model = confidence.calibrate(outputs, fitted)
    report = confidence.report(outputs, model, fitted, rounds=20)
    aurocs = {name: found.auroc.value for name, found in report.signals.items()}
    assert aurocs[SignalName.STACK] >= min(aurocs.values())
    assert model.accept_by is SignalName.STACK
    for rate, (_, wrong) in report.accepted.items():
        assert wrong <= float(rate) + 0.03


def test_a_label_that_means_out_of_scope_has_its_own_figures() -> None:
    """Rows out of scope have flat logits but for their own label, which is not looked at."""
    logits, targets = rows(600)
    outside = np.arange(len(targets)) % 4 == 0
    targets = np.where(outside, 4, targets)
    logits = np.concatenate([10.0 * logits, np.zeros((600, 1), np.float32)], axis=-1)
    logits[outside] = [0.0, 0.0, 0.0, 0.0, 50.0]
    outputs = confidence.Outputs(logits.astype(np.float32), logits[:, :4], targets)
    model = confidence.calibrate(outputs, None)
    told = confidence.report(outputs, model, None, outside=4, rounds=20)
    # With the fifth label all of them would be sure.
    assert told.scope[SignalName.SOFTMAX].auroc.value == 1.0
    assert told.scope[SignalName.SOFTMAX].fpr95.value == 0.0
    card = shipping.classifier(told, model, labels=tuple("abcde"), notes=())
    assert "| signal, in scope against out of scope | AUROC | FPR95 |" in card
    assert confidence.report(outputs, model, None, rounds=2).scope == {}
    assert confidence.report(outputs.take(np.flatnonzero(~outside)), model, None, outside=4,
                             rounds=2).scope == {}  # fmt: skip


def test_macro_f1_is_scikit_learns() -> None:
    from sklearn.metrics import f1_score

    predicted, targets = RNG.integers(0, 5, 200), RNG.integers(1, 6, 200)
    expected = f1_score(targets, predicted, average="macro")
    assert confidence.macro_f1(predicted, targets) == pytest.approx(expected)


def test_the_most_errors_that_rows_allow_are_scipys() -> None:
    for wrong, of in ((0, 24), (1, 60), (5, 1167), (40, 41)):
        expected = beta.ppf(0.975, wrong + 1, of - wrong)
        assert reports.most_errors(wrong, of=of) == pytest.approx(expected, abs=1e-4)
        assert reports.exact(wrong, of=of).low == pytest.approx(
            beta.ppf(0.025, wrong, of - wrong + 1) if wrong else 0.0, abs=1e-4
        )
    assert reports.most_errors(3, of=3) == reports.most_errors(0, of=0) == 1.0


def test_each_share_of_a_card_has_an_interval() -> None:
    logits, targets = rows(2000, temperature=0.5)
    outputs = confidence.Outputs(logits, logits, targets)
    model = confidence.calibrate(outputs, None)
    told = confidence.report(outputs, model, None, rounds=20)
    for table in (shipping.accepted_table(told), shipping.curve_table(told)):
        cells = [cell for row in table[2:] for cell in row.strip("| ").split(" | ")[1:]]
        assert cells
        assert all(re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]|none", cell) for cell in cells)


def test_the_calibration_error_of_exact_confidence_is_that_of_chance() -> None:
    sure = RNG.uniform(0.5, 1.0, 400).astype(np.float32)
    median, most = reports.by_chance(sure, rounds=200)
    exact = reports.calibration_error(sure, RNG.random(400) < sure, rounds=50)
    off = reports.calibration_error(sure, RNG.random(400) < sure - 0.3, rounds=50)
    assert 0.0 < median < most
    assert exact.value < most < off.low
    assert off.value == pytest.approx(0.3, abs=0.08)
