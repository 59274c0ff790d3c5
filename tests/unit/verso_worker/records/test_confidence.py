"""Signals against their formulas, computed another way, and what is decided from them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from verso_core.errors import HeadInvalid, RequestInvalid
from verso_core.heads import Calibration, Judged, Scope, Signal, SignalName, Source, Stack
from verso_worker.records import confidence
from verso_worker.records.confidence import Statistics

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(6, 3)).astype(np.float32)
FEATURES = RNG.normal(size=(6, 4)).astype(np.float32)


def arrays(**changes: Any) -> dict[str, Any]:
    square = RNG.normal(size=(4, 4))
    return {
        "class_means": np.vstack([RNG.normal(size=(2, 4)), np.zeros((1, 4))]),
        "mean": RNG.normal(size=4),
        "precision": square @ square.T,
        "background_precision": np.eye(4),
        "references": (RNG.normal(size=(9, 4)) * 40).astype(np.int8),
        "k": np.array(2),
    } | changes


def packed(content: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **content)
    return file.getvalue()


def measure(calibration: Calibration, statistics: Statistics | None = None) -> confidence.Signals:
    return confidence.measure(
        LOGITS, FEATURES, calibration=calibration, statistics=statistics, extra={}
    )


def test_softmax_and_energy_are_what_their_formulas_say() -> None:
    signals = measure(Calibration(temperature=2.0))
    exp = np.exp(LOGITS.astype(np.float64))
    hot = np.exp(LOGITS.astype(np.float64) / 2)
    np.testing.assert_allclose(
        signals[SignalName.SOFTMAX], (exp / exp.sum(1)[:, None]).max(1), 1e-5
    )
    np.testing.assert_allclose(
        signals[SignalName.CALIBRATED], (hot / hot.sum(1)[:, None]).max(1), 1e-5
    )
    np.testing.assert_allclose(signals[SignalName.ENERGY], np.log(exp.sum(1)), rtol=1e-4, atol=1e-6)


def test_distances_are_relative_and_leave_out_labels_without_rows() -> None:
    content = arrays()
    signals = measure(Calibration(), Statistics.read(packed(content)))
    units = content["references"] / np.linalg.norm(
        content["references"].astype(np.float64), axis=1, keepdims=True
    )
    for row, feature in enumerate(FEATURES.astype(np.float64)):
        away = feature - content["mean"]
        own = [
            (feature - mean) @ content["precision"] @ (feature - mean)
            for mean in content["class_means"][:2]
        ]
        assert signals[SignalName.MAHALANOBIS][row] == pytest.approx(
            away @ away - min(own), rel=1e-4, abs=1e-4
        )
        cosines = np.sort(units @ feature / np.linalg.norm(feature))
        assert signals[SignalName.KNN][row] == pytest.approx(cosines[-2], abs=1e-5)


def test_a_stack_is_a_logistic_regression_on_other_signals() -> None:
    weights = {SignalName.SOFTMAX: 2.0, SignalName.ENERGY: -1.0}
    signals = measure(Calibration(stack=Stack(bias=0.5, weights=weights)))
    score = 0.5 + 2 * signals[SignalName.SOFTMAX] - signals[SignalName.ENERGY]
    np.testing.assert_allclose(signals[SignalName.STACK], 1 / (1 + np.exp(-score)), rtol=1e-5)


def test_a_stack_on_a_signal_that_is_missing_is_missing() -> None:
    stack = Stack(bias=0.0, weights={SignalName.BITS_SAVED: 1.0})
    calibration = Calibration(stack=stack, accept_by=SignalName.STACK, conformal={"0.1": 0.5})
    assert confidence.needs_decoder(calibration, all_signals=False)
    signals = measure(calibration)
    assert SignalName.STACK not in signals
    assert not confidence.accepted(signals, calibration, error_rate=0.1).any()
    np.testing.assert_array_equal(
        confidence.probability(signals, calibration), signals[SignalName.CALIBRATED]
    )


def test_confidence_is_the_fitted_probability_of_the_signal_accepted_by() -> None:
    calibration = Calibration(
        accept_by=SignalName.ENERGY, signals={SignalName.ENERGY: Signal(scale=-2.0, offset=1.0)}
    )
    signals = measure(calibration)
    expected = 1 / (1 + np.exp(2 * signals[SignalName.ENERGY] - 1))
    np.testing.assert_allclose(
        confidence.probability(signals, calibration), expected, rtol=1e-4, atol=1e-6
    )


def test_the_strictest_threshold_that_keeps_the_promise_is_taken() -> None:
    calibration = Calibration(conformal={"0.05": 0.9, "0.1": 0.6, "0.2": 0.4})
    signals = measure(calibration)
    sure = signals[SignalName.CALIBRATED]
    for rate, threshold in ((0.05, 0.9), (0.07, 0.9), (0.1, 0.6), (0.5, 0.4)):
        kept = confidence.accepted(signals, calibration, error_rate=rate)
        np.testing.assert_array_equal(kept, sure >= np.float32(threshold))
    assert confidence.accepted(signals, calibration, error_rate=None).all()
    with pytest.raises(RequestInvalid, match=r"0\.05, 0\.1, 0\.2"):
        confidence.accepted(signals, calibration, error_rate=0.01)


def test_a_signal_that_could_not_be_had_accepts_nothing() -> None:
    calibration = Calibration(accept_by=SignalName.BITS_SAVED, conformal={"0.1": -9.0})
    extra = {SignalName.BITS_SAVED: np.array([np.nan, 1, 1, 1, 1, 1], np.float32)}
    signals = confidence.measure(
        LOGITS, FEATURES, calibration=calibration, statistics=None, extra=extra
    )
    kept = confidence.accepted(signals, calibration, error_rate=0.1)
    assert kept.tolist() == [False, True, True, True, True, True]


def test_a_source_accepts_by_its_own_threshold_or_nothing() -> None:
    sure = measure(Calibration())[SignalName.CALIBRATED]
    loose, strict = (Signal(scale=0.0, offset=offset) for offset in (3.0, -3.0))
    calibration = Calibration(
        conformal={"0.1": 0.0, "0.2": 0.0},
        signals={SignalName.CALIBRATED: loose},
        sources={
            "a": Source(signal=strict, conformal={"0.1": float(np.median(sure))}),
            "b": Source(signal=loose),
        },
    )
    sources = ["a", "a", "b", "b", "c", "c"]
    signals = measure(calibration)
    kept = confidence.accepted(signals, calibration, error_rate=0.2, sources=sources)
    assert kept[:2].tolist() == (sure[:2] >= np.float32(np.median(sure))).tolist()
    assert kept[2:].tolist() == [False, False, True, True]
    probability = confidence.probability(signals, calibration, sources=sources)
    assert (probability < 0.5).tolist() == [True, True, False, False, False, False]


def test_a_row_that_is_unsure_of_its_source_is_withheld() -> None:
    labels = ("a/x", "a/y", "b/x")
    probabilities = confidence.softmax(LOGITS)
    in_a = LOGITS.argmax(1) < 2
    sources = ["a" if one else "b" for one in in_a]
    certain = confidence.source_probability(probabilities, labels, sources)
    own = np.where(in_a, probabilities[:, :2].sum(1), probabilities[:, 2])
    np.testing.assert_allclose(certain, own, rtol=1e-6)
    limit = float(np.median(certain[in_a]))
    calibration = Calibration(conformal={"0.1": 0.0}, source_limits={"a": limit})
    signals = measure(calibration)
    kept = confidence.accepted(
        signals, calibration, error_rate=0.1, sources=sources, source_probability=certain
    )
    np.testing.assert_array_equal(kept, ~in_a | (certain >= np.float32(limit)))
    assert 0 < kept[in_a].sum() < in_a.sum()
    assert confidence.accepted(signals, calibration, error_rate=None, sources=sources).all()
    # without the probability of the source, no label of one with a limit
    kept = confidence.accepted(signals, calibration, error_rate=0.1, sources=sources)
    np.testing.assert_array_equal(kept, ~in_a)


def test_labels_that_people_checked_leave_the_limits_of_sources() -> None:
    calibration = Calibration(
        signals={SignalName.CALIBRATED: Signal(scale=0.0, offset=6.0)},
        conformal={"0.2": 0.0},
        source_limits={"a": 0.9},
    )
    after = confidence.learned(calibration, judged(200, wrong=0, source="a"))
    assert after.sources.keys() == {"a"}
    assert after.source_limits == calibration.source_limits


def test_a_row_below_the_threshold_of_scope_is_out_of_it() -> None:
    stack = Stack(bias=0.0, weights={SignalName.MARGIN: 1.0})
    calibration = Calibration(
        scope=Scope(stack=stack, least=0.5), signals={}, conformal={"0.1": 0.0}
    )
    signals = confidence.measure(
        LOGITS, FEATURES, calibration=calibration, statistics=None, extra={}, outside=2
    )
    inside = np.log(np.exp(LOGITS[:, :2].astype(np.float64)).sum(1))
    np.testing.assert_allclose(signals[SignalName.INSIDE], inside, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(signals[SignalName.MARGIN], inside - LOGITS[:, 2], atol=1e-5)
    outside = confidence.out_of_scope(signals, calibration)
    np.testing.assert_array_equal(outside, inside < LOGITS[:, 2])
    assert 0 < outside.sum() < len(outside)
    within = signals[SignalName.SCOPE]
    kept = confidence.accepted(signals, calibration, error_rate=0.1)
    np.testing.assert_array_equal(kept, ~outside | (within <= 0.1))
    sure = confidence.probability(signals, calibration)
    np.testing.assert_allclose(sure[outside], 1 - within[outside], rtol=1e-5)


def test_a_batch_further_from_the_training_rows_than_usual_is_shifted() -> None:
    calibration = Calibration(usual=tuple(np.linspace(0.5, 1.0, 21).tolist()))

    def score(values: list[float]) -> float:
        found = confidence.shift({SignalName.KNN: np.array(values, np.float32)}, calibration)
        assert found is not None
        return found

    assert score([0.75]) == pytest.approx(0.5)
    assert score([0.2, 0.5]) == 1.0
    assert score([1.0]) == 0.0
    usual = np.linspace(0.5, 1.0, 400).tolist()
    assert not confidence.is_shifted(score(usual), len(usual))
    assert confidence.is_shifted(score([one - 0.15 for one in usual]), len(usual))
    assert not confidence.is_shifted(score([0.5]), 1)  # one text alone tells little
    assert confidence.shift({}, calibration) is None
    assert confidence.shift({SignalName.KNN: np.ones(1, np.float32)}, Calibration()) is None


def judged(count: int, *, wrong: int, source: str = "", top: float = 1.0) -> list[Judged]:
    """Rows with values that fall evenly; the wrong ones have the least."""
    values = np.linspace(top, top / 2, count).tolist()
    return [Judged(source, value, n < count - wrong) for n, value in enumerate(values)]


def test_judged_labels_move_the_confidence_and_the_thresholds() -> None:
    calibration = Calibration(
        signals={SignalName.CALIBRATED: Signal(scale=0.0, offset=6.0)},
        conformal={"0.05": 0.0, "0.2": 0.0},
    )
    rows = judged(200, wrong=100)
    learned = confidence.learned(calibration, rows)
    signals = {SignalName.CALIBRATED: np.array([one.value for one in rows], np.float32)}
    sure = confidence.probability(signals, learned, sources=[""] * len(rows))
    assert sure.mean() == pytest.approx(0.5, abs=0.01)
    for rate, least in learned.sources[""].conformal.items():
        taken = [one for one in rows if one.value >= least]
        assert len(taken) >= 100
        assert sum(not one.right for one in taken) <= float(rate) * len(taken)
    assert confidence.learned(calibration, rows[:10]) == calibration


def test_a_threshold_that_judged_labels_contradict_is_dropped_for_its_source() -> None:
    signal = Signal(scale=0.0, offset=6.0)
    own = Source(signal=signal, conformal={"0.01": 0.0, "0.2": 0.0})
    calibration = Calibration(
        signals={SignalName.CALIBRATED: signal},
        conformal={"0.01": 0.0, "0.2": 0.0},
        sources={"a": own, "b": own},
    )
    learned = confidence.learned(calibration, judged(40, wrong=4, source="a"))
    assert learned.sources["b"] == own
    assert "0.01" not in learned.sources["a"].conformal
    assert learned.sources["a"].conformal["0.2"] == pytest.approx(0.5)
    assert learned.conformal == calibration.conformal
    good = confidence.learned(calibration, judged(40, wrong=0, source="a"))
    assert good.sources["a"].conformal["0.01"] == 0.0  # too few to tell: the head's own stays


@pytest.mark.parametrize(
    "content",
    [
        {"mean": np.zeros(4)},
        arrays(precision=np.eye(3)),
        arrays(references=np.zeros((0, 4), np.int8)),
        arrays(k=np.zeros(2)),
    ],
    ids=["lacking", "precision", "references", "k"],
)
def test_statistics_that_do_not_fit_are_refused(content: dict[str, Any]) -> None:
    with pytest.raises(HeadInvalid, match=r"signals\.npz"):
        Statistics.read(packed(content))


def test_what_is_no_archive_is_refused() -> None:
    with pytest.raises(HeadInvalid, match=r"signals\.npz"):
        Statistics.read(b"PK no archive")


def test_the_margin_of_an_answer_becomes_a_probability_where_that_was_fitted() -> None:
    assert confidence.answer_probability(3.0, Calibration(null_threshold=1.0)) is None
    fitted = {SignalName.CALIBRATED: Signal(scale=0.5, offset=-1.0)}
    calibration = Calibration(null_threshold=1.0, signals=fitted)
    assert confidence.answer_probability(2.0, calibration) == pytest.approx(0.5)
    assert confidence.answer_probability(4.0, calibration) == pytest.approx(0.7311, abs=1e-4)
