"""A limit of a source withholds few of its own texts, and those of others that it is unsure of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from verso_core.heads import Calibration, Signal, SignalName
from verso_training.heads import confidence, shipping
from verso_training.heads.confidence import calibration, source_limits
from verso_worker.records import confidence as served

LABELS = ("a/x", "a/y", "b/x", "b/y")


def drawn(
    rng: np.random.Generator, count: int, *, sure: float = 6.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return logits of rows, each as sure of its source as chance has it, and the rows' labels."""
    targets = rng.integers(0, len(LABELS), count)
    logits = rng.normal(size=(count, len(LABELS))).astype(np.float32)
    own = (
        np.array([label[0] for label in LABELS])
        == np.array([LABELS[n][0] for n in targets])[:, None]
    )
    return (logits + own * rng.exponential(sure, (count, 1))).astype(np.float32), targets


def limits(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> dict[str, float]:
    return source_limits.fit(logits, targets, temperature=1.5, labels=LABELS)


def test_of_a_sources_new_texts_one_in_a_hundred_is_withheld() -> None:
    """Over many draws, for few validation rows and for many."""
    rng = np.random.default_rng(2)
    for count in (300, 1200):
        withheld, seen = 0, 0
        for _ in range(60):
            found = limits(*drawn(rng, count))
            logits, targets = drawn(rng, 500)
            sources, certain = source_limits.best_sources(logits, temperature=1.5, labels=LABELS)
            own = sources == np.array([LABELS[n][0] for n in targets])
            least = np.array([found[name] for name in sources])
            withheld, seen = withheld + int((certain < least)[own].sum()), seen + int(own.sum())
        assert 0.5 * source_limits.SHARE < withheld / seen < 1.15 * source_limits.SHARE


def test_a_limit_is_a_value_of_the_sources_own_rows() -> None:
    """Rows that are taken for it wrongly, or that have no label, move no limit."""
    logits, targets = drawn(np.random.default_rng(3), 800)
    found = limits(logits, targets)
    sources, certain = source_limits.best_sources(logits, temperature=1.5, labels=LABELS)
    for name, limit in found.items():
        own = np.sort(
            certain[
                (sources == name)
                & (np.array(LABELS)[targets] >= f"{name}/")
                & (np.array(LABELS)[targets] < f"{name}0")
            ]
        )
        assert limit == own[len(own) // 100 - (len(own) % 100 < 99)]
    unsure = np.array([[0.1, 0.0, 0.0, 0.0]], np.float32)
    for label in (2, -1):
        more = np.concatenate([logits, unsure.repeat(90, 0)]), np.append(targets, [label] * 90)
        assert limits(*more) == found


def test_few_rows_or_one_source_have_no_limit() -> None:
    logits, targets = drawn(np.random.default_rng(4), 800)
    own = np.flatnonzero((targets < 2) & (logits.argmax(-1) < 2))
    assert limits(logits[own[:98]], targets[own[:98]]) == {}
    assert limits(logits[own[:99]], targets[own[:99]]).keys() == {"a"}
    alone = source_limits.fit(logits, targets, temperature=1.0, labels=("a/1", "a/2", "a/3", "a/4"))
    assert alone == {}
    assert source_limits.fit(logits, targets, temperature=1.0, labels=()) == {}


def test_a_limit_leaves_room_for_rounding() -> None:
    """A head that is certain of all its rows withholds none that is certain but for rounding."""
    _, targets = drawn(np.random.default_rng(5), 800)
    certain = np.where(np.arange(4) == targets[:, None], 200.0, 0.0).astype(np.float32)
    assert limits(certain, targets) == pytest.approx({"a": 0.9999, "b": 0.9999})


def test_a_training_chooses_limits_and_its_card_says_them() -> None:
    rng = np.random.default_rng(6)
    logits, targets = drawn(rng, 1200)
    held_out = confidence.Outputs(logits, logits, targets)
    model = confidence.calibrate(held_out, None, labels=LABELS)
    expected = source_limits.fit(logits, targets, temperature=model.temperature, labels=LABELS)
    assert model.source_limits == expected
    assert expected.keys() == {"a", "b"}
    [_, _, said] = shipping.limits_table(model)
    assert said == ", ".join(f"`{name}` {limit:.4f}" for name, limit in expected.items()) + "."
    assert shipping.limits_table(Calibration()) == []


@given(st.integers(0, 2**32 - 1), st.floats(0.3, 3.0), st.floats(0.3, 0.999))
def test_training_and_worker_accept_the_same_rows(
    seed: int, temperature: float, limit: float
) -> None:
    """And a row of a source without a limit as before."""
    logits, _ = drawn(np.random.default_rng(seed), 40, sure=2.0)
    flat = Signal(scale=0.0, offset=0.0)
    model = Calibration(
        temperature=temperature,
        signals={SignalName.CALIBRATED: flat},
        conformal={"0.1": 0.4},
        source_limits={"b": limit},
    )
    sources, certain = source_limits.best_sources(logits, temperature=temperature, labels=LABELS)
    probabilities = served.softmax(logits / np.float32(temperature))
    names = sources.tolist()
    again = served.source_probability(probabilities, LABELS, names)
    np.testing.assert_allclose(certain, again, atol=1e-5)
    signals = served.measure(logits, logits, calibration=model, statistics=None, extra={})
    values = signals[SignalName.CALIBRATED]
    kept = calibration.taken(values, model, rate="0.1", sources=sources, certain=again)
    found = served.accepted(signals, model, error_rate=0.1, sources=names, source_probability=again)
    clear = np.abs(again - limit) > 1e-6  # a limit is rounded to float32 where it is served
    np.testing.assert_array_equal(kept[clear], found[clear])
    without = model.model_copy(update={"source_limits": {}})
    before = served.accepted(signals, without, error_rate=0.1, sources=names)
    np.testing.assert_array_equal(found, before & ((sources == "a") | (again >= np.float32(limit))))
