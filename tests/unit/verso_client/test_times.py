"""Times as people write them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_client.times import unix_seconds
from verso_core.errors import RequestInvalid

NOW = datetime(2026, 11, 22, 20, 15, tzinfo=UTC)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("15m", NOW - timedelta(minutes=15)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("2D", NOW - timedelta(days=2)),
        ("1w", NOW - timedelta(days=7)),
        ("today", datetime(2026, 11, 22, tzinfo=UTC)),
        (" Yesterday ", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T10:00", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21t10:00:00z", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21 10:00:00+01:00", datetime(2026, 11, 21, 9, tzinfo=UTC)),
        ("1795262400", datetime.fromtimestamp(1795262400, UTC)),
    ],
)
def test_a_time_is_read_in_each_form(text: str, expected: datetime) -> None:
    assert unix_seconds(text, now=NOW) == expected.timestamp()


@given(st.datetimes(timezones=ZONES, min_value=datetime(1000, 1, 1)))  # noqa: DTZ001
def test_every_rfc_3339_time_is_read_back(time: datetime) -> None:
    assert unix_seconds(time.isoformat(), now=NOW) == time.timestamp()
    assert unix_seconds(time.isoformat(" "), now=NOW) == time.timestamp()


@given(st.integers(0, 10**5), st.sampled_from("smhdw"))
def test_a_span_is_so_long_before_now_and_spans_add_up(count: int, unit: str) -> None:
    span_s = NOW.timestamp() - unix_seconds(f"{count}{unit}", now=NOW)
    assert span_s == count * {"s": 1, "m": 60, "h": 3600, "d": DAY_S, "w": 7 * DAY_S}[unit]
    both = unix_seconds(f"{count}{unit}1h", now=NOW)
    assert NOW.timestamp() - both == span_s + 3600
    assert unix_seconds(f"{count}{unit}", now=NOW, ahead=True) - NOW.timestamp() == span_s


@given(st.text(max_size=30))
def test_anything_else_is_the_one_error(text: str) -> None:
    with contextlib.suppress(RequestInvalid):
        assert abs(unix_seconds(text, now=NOW)) < 253_402_300_800


@pytest.mark.parametrize("text", ["", "tomorrow", "5", "h", "-2d", "2026", "25:00", "999999999w"])
def test_a_word_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid, match="expected a time"):
        unix_seconds(text, now=NOW)
