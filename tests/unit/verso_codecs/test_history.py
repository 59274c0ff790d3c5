"""Counters remember how often, forget what changed, and fit one byte."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.history import COUNTS, FOLLOWING, STATE_COUNT


def after(decisions: list[int]) -> int:
    state = 0
    for bit in decisions:
        state = int(FOLLOWING[state, bit])
    return state


def test_states_fit_a_byte() -> None:
    assert FOLLOWING.shape == (STATE_COUNT, 2) == COUNTS.shape
    assert 0 < STATE_COUNT <= 256


def test_only_state_0_was_never_seen() -> None:
    assert COUNTS.sum(axis=1).min() == 0
    assert np.count_nonzero(COUNTS.sum(axis=1) == 0) == 1
    assert not COUNTS[0].any()


def test_small_counts_are_exact() -> None:
    assert COUNTS[after([0, 1, 0])].tolist() == [2, 1]
    assert COUNTS[after([1] * 12)].tolist() == [0, 12]


def test_what_changed_for_good_is_soon_believed() -> None:
    zeros, ones = COUNTS[after([0] * 30 + [1] * 3)]
    assert zeros < 6 <= ones + 4


@given(decisions=st.lists(st.integers(0, 1), min_size=1, max_size=80))
def test_the_last_bit_counts(decisions: list[int]) -> None:
    """Whatever came before, a bit never makes itself less likely."""
    before, bit = after(decisions[:-1]), decisions[-1]
    state = after(decisions)
    assert COUNTS[state, bit] >= min(COUNTS[before, bit], 5)
    assert COUNTS[state, bit] > 0
    assert COUNTS[state, 1 - bit] <= COUNTS[before, 1 - bit]
