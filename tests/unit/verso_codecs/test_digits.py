"""Digits that came before are expected again, and so is the date that a number of seconds is."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs import digits
from verso_codecs.digits import RING


def push(state: digits.Digits, text: str) -> None:
    for digit in text:
        digits.push_digit(state, int(digit))


def expected(state: digits.Digits) -> int | None:
    found = digits.expected_digit(state)
    return int(found & 15) - 1 if found else None


def test_nothing_is_expected_at_first() -> None:
    state = digits.new_digits()
    push(state, "123")
    assert expected(state) is None


def test_what_followed_four_digits_is_expected_again() -> None:
    state = digits.new_digits()
    push(state, "20050603" + "2005")
    for digit in "0603":
        assert expected(state) == int(digit)
        push(state, digit)


def test_a_wrong_digit_does_not_end_the_expectation() -> None:
    state = digits.new_digits()
    push(state, "2005060315" + "2005" + "9")
    assert expected(state) == 6


def test_digits_of_another_record_are_forgotten() -> None:
    state = digits.new_digits()
    push(state, "20050603")
    digits.forget_digits(state)
    push(state, "2005")
    assert expected(state) is None


@given(seconds=st.integers(500_000_000, 3_999_999_999))
def test_the_calendar_is_the_calendar(seconds: int) -> None:
    state = digits.new_digits()
    digits.push_clock(state, seconds)
    date = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S")
    assert state.ring[: len(date)].tolist() == [int(digit) for digit in date]
    assert state.state[0] == len(date)


def test_the_date_of_a_number_of_seconds_is_expected() -> None:
    """Its first four digits find it, and what follows them is expected to follow."""
    state = digits.new_digits()
    digits.push_clock(state, 1_117_838_570)
    push(state, "2005")
    for digit in "0603224250":
        assert expected(state) == int(digit)
        push(state, digit)


@pytest.mark.parametrize("seconds", [-(10**15), 0, 499_999_999, 4_000_000_000, 10**15])
def test_a_number_that_is_no_likely_time_gives_no_date(seconds: int) -> None:
    state = digits.new_digits()
    digits.push_clock(state, seconds)
    assert state.state[0] == 0


@given(text=st.text(alphabet="0123456789", max_size=3 * RING))
def test_the_ring_may_turn(text: str) -> None:
    state = digits.new_digits()
    push(state, text)
    found = expected(state)
    assert found is None or 0 <= found <= 9
