import numpy as np
import pytest

from studies.quality import rankings, selection
from studies.quality.pairsets import Ranking


def test_the_place_is_that_of_the_first_right_sentence() -> None:
    asked = [Ranking("who?", ("a", "b", "c"), frozenset({1, 2}))]
    scores = [np.array([0.9, 0.1, 0.5], np.float32)]
    assert selection.places(scores, asked).tolist() == [2.0]


def test_gains_are_paired_over_the_first_head() -> None:
    """A head that is one place better on every question gains the same in each draw."""
    base = np.array([2.0, 2.0, 2.0, 2.0])
    found = rankings.compared({"base": base, "other": base - 1})
    assert found["base"].gain[0].low == found["base"].gain[0].high == 0.0
    gain, first = found["other"].gain
    assert gain.value == gain.low == gain.high == pytest.approx(50.0)
    assert first.value == 100.0
    told = rankings.page({"set": found})
    assert told.count("\n") == 3
    assert "| set | `other` | 100.0 [100.0, 100.0] |" in told
