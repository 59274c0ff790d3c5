"""Thresholds that benches choose on one part keep what is asked for on that part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studies.benches.heads.asking import Replies, best_cut, interval, least_threshold

ROWS = st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=30)


@given(ROWS, st.floats(0.05, 1.0))
def test_the_least_threshold_keeps_the_precision_and_gives_the_most(
    rows: list[tuple[int, bool]], precision: float
) -> None:
    values = np.array([value for value, _ in rows], np.float64)
    right = np.array([one for _, one in rows])
    kept = {cut: right[values >= cut].mean() for cut in values.tolist()}
    good = [cut for cut, share in kept.items() if share >= precision]
    assert least_threshold(values, right, precision=precision) == min(good, default=None)


@given(ROWS)
def test_no_other_cut_is_right_more_often(rows: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in rows], np.float64)
    right = np.array([one for _, one in rows])
    reached = {cut: ((values >= cut) == right).mean() for cut in values.tolist()}
    assert reached[best_cut(values, right)] == max(reached.values())


def test_rows_of_one_group_are_drawn_together() -> None:
    values = np.array([0.0, 0.0, 1.0, 1.0])
    groups = ["a", "a", "b", "b"]
    found = interval(lambda rows: float(np.bincount(rows, minlength=4)[:2].sum() % 2), groups)
    assert (found.low, found.high) == (0.0, 0.0)
    assert interval(lambda rows: float(values[rows].mean()), groups).value == 0.5


def test_a_run_that_goes_on_asks_only_for_what_it_lacks(tmp_path: Path) -> None:
    path, asked = tmp_path / "replies", list[int]()

    def ask(number: int) -> int:
        asked.append(number)
        return 2 * number

    assert Replies(path).all([1, 2], name=str, ask=ask) == [2, 4]
    assert Replies(path).all([1, 2, 3], name=str, ask=ask) == [2, 4, 6]
    assert sorted(asked) == [1, 2, 3]
