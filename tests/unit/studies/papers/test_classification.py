"""Rows that are held out of the training's own time, and figures with their intervals."""

import numpy as np
import pytest

from studies.papers import classification
from studies.papers.classification import PARTS, held_out, told, wilson
from studies.quality.sets import LabelledSet
from verso_training.heads.rows import Row, RowSplit

PROBABILITIES = np.array([[0.95, 0.05], [0.92, 0.08], [0.4, 0.6], [0.7, 0.3]], np.float32)
TRUTH = np.array([0, 1, 1, 0])


def _set() -> LabelledSet:
    counts = {RowSplit.TRAIN: 25, RowSplit.VALIDATION: 3, RowSplit.TEST: 4}
    rows = [
        Row("a", f"{split} {n}", split=split)
        for split, count in counts.items()
        for n in range(count)
    ]
    return LabelledSet("made up", "none", "by time", tuple(rows))


def _texts(group: LabelledSet, split: RowSplit) -> list[str]:
    return [str(row.text) for row in group.of(split)]


def test_a_tenth_of_the_training_rows_trains_nothing_and_is_asked_first() -> None:
    whole, asked = _set(), held_out(_set())
    train, test = (_texts(asked, s) for s in (RowSplit.TRAIN, RowSplit.TEST))
    assert (len(train), len(test)) == (23, 2 + 4)
    assert sorted([*train, *test[:2]]) == sorted(_texts(whole, RowSplit.TRAIN))
    assert test[2:] == _texts(whole, RowSplit.TEST)
    assert asked.of(RowSplit.VALIDATION) == whole.of(RowSplit.VALIDATION)


def test_the_same_rows_are_held_out_with_a_seed() -> None:
    assert held_out(_set()) == held_out(_set())
    assert held_out(_set()) != held_out(_set(), seed=1)


def test_a_share_of_right_answers_has_wilsons_interval() -> None:
    """86.0 % of 86 by hand: (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n), z = 1.96."""
    found = wilson(100 * 74 / 86, 86)
    assert (found.value, found.low, found.high) == pytest.approx((86.05, 77.18, 91.83), abs=0.01)
    assert wilson(100.0, 3).high == pytest.approx(100.0)


def test_rows_of_high_confidence_are_compared_with_as_many_by_the_other() -> None:
    found = told(PROBABILITIES, np.array([0.9, 0.1, 0.8, 0.2], np.float32), TRUTH)
    assert (found["accuracy"], found["softmax/share"], found["softmax/right"]) == (75, 50, 50)
    assert found["softmax/other"] == 100  # the first and the third are recovered best
    assert (found["self_generation/right"], found["self_generation/other"]) == (100, 50)
    assert found["macro_f1"] == pytest.approx(100 * (0.8 + 2 / 3) / 2)
    for key in ("macro_f1", "recovered"):
        assert found[f"{key}/low"] <= found[key] <= found[f"{key}/high"]


def test_where_nothing_is_accepted_a_table_says_nothing() -> None:
    none = told(PROBABILITIES, np.zeros(4, np.float32), TRUTH)
    assert "self_generation/right" not in none
    none = {**none, "repeated": 25.0}
    figures = {f"{part}/{key}": value for key, value in none.items() for part in PARTS}
    counts, every, confident = classification.page({"one, words": figures}).split("\n\n")
    assert counts.endswith("\n| one | 4 | 25.0 | 4 | 25.0 |")
    assert "\n| one, words | 75.0 [30.1, 95.4] | 75.0 [30.1, 95.4] | 73.3 [" in every
    # Where no text is recovered, each two of the four are as good: three quarters are right.
    assert "| 50.0 | 50.0 [9.5, 90.5] | 75.0 [19.8, 97.3] |" in confident
    assert confident.endswith("| 0.0 |  |  |")
