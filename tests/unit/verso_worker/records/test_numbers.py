"""Numbers that engines give back as they were, and those that they may have changed."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from verso_worker.records.numbers import kept_number, neighbours

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@given(NUMBERS)
def test_a_kept_number_is_kept_as_it_is_and_not_above(value: float) -> None:
    kept = kept_number(value)
    assert kept_number(kept) == kept <= value
    assert value - kept <= 64 * math.ulp(value)


@given(NUMBERS, NUMBERS)
def test_kept_numbers_have_the_order_of_the_numbers(one: float, other: float) -> None:
    assert kept_number(min(one, other)) <= kept_number(max(one, other))


@given(st.integers(-(10**15), 10**15), st.integers(0, 15))
def test_numbers_of_fifteen_digits_are_kept_as_they_are(digits: int, places: int) -> None:
    value = digits / 10**places
    assert kept_number(value) == value


def test_what_was_given_is_among_the_neighbours_of_what_came_back() -> None:
    given = {"d": "a", "m": {"x": 0.1, "host": "h", "n": 3}, "t": 1767230771.3500001}
    back = {"d": "a", "m": {"x": math.nextafter(0.1, 1), "host": "h", "n": 3}, "t": 1767230771.35}
    assert given in list(neighbours(back))
    assert list(neighbours({"d": "a", "m": {}})) == [{"d": "a", "m": {}}]
