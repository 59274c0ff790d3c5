"""Times of senders are read exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs.logs.records import LATEST_NS
from verso_gateway.feed.times import nanoseconds


@given(st.integers(0, LATEST_NS), st.integers(-14 * 60, 14 * 60))
def test_rfc_3339_with_nine_digits_and_a_zone_is_exact(time_ns: int, minutes: int) -> None:
    seconds, rest = divmod(time_ns, 10**9)
    zone = timezone(timedelta(minutes=minutes))
    text = datetime.fromtimestamp(seconds, zone).strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}%z")
    assert nanoseconds(text) == time_ns


@pytest.mark.parametrize("unit", [1, 1000, 10**6])
@given(st.integers(10**17, LATEST_NS))
def test_numbers_are_of_the_unit_that_their_size_says(unit: int, time_ns: int) -> None:
    whole = time_ns - time_ns % unit
    assert nanoseconds(whole // unit) == whole
    assert nanoseconds(str(whole // unit)) == whole


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1700000000.123456, 1_700_000_000_123_456_000),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("2026-11-23 03:46:06,5", 1_795_405_566_500_000_000),
        ("2026-11-23T03:46:06", 1_795_405_566_000_000_000),
        ("2026-11-23T05:46:06+0200", 1_795_405_566_000_000_000),
        ("0", 0),
        (None, None),
        (True, None),
        ("", None),
        ("soon", None),
        ("2026-13-01T00:00:00Z", None),
        ("1969-12-31T23:59:59Z", None),
        ("1e999", None),
        (-1, None),
        ([], None),
        (1e300, None),
        (float("inf"), None),
        (2**63, None),
    ],
)
def test_examples(value: object, expected: int | None) -> None:
    assert nanoseconds(value) == expected


def test_a_time_without_a_zone_is_in_the_zone_that_is_set() -> None:
    assert nanoseconds("2026-11-23T05:46:06", offset_s=7200) == int(
        datetime(2026, 11, 23, 3, 46, 6, tzinfo=UTC).timestamp() * 10**9
    )


@given(st.text() | st.floats() | st.integers() | st.none() | st.lists(st.integers()))
def test_any_value_is_a_time_or_none(value: object) -> None:
    found = nanoseconds(value)
    assert found is None or 0 <= found <= LATEST_NS
