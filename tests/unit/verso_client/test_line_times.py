"""Times are found in the lines of logs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_client.cli.line_times import LineTimes
from verso_core.errors import RequestInvalid

UNTIL = datetime(2026, 3, 1, 12, tzinfo=UTC)


def times(*lines: bytes, how: str = "auto") -> list[float | None]:
    found = LineTimes(how, until=lambda: UNTIL)
    return [found.of(line) for line in lines]


def seconds(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2026-02-03T04:05:06Z up", seconds(2026, 2, 3, 4, 5, 6)),
        (b"2026-02-03 04:05:06,250 INFO up", seconds(2026, 2, 3, 4, 5, 6, 250_000)),
        (b"<34>1 2026-02-03T04:05:06.5+01:00 a b", seconds(2026, 2, 3, 3, 5, 6, 500_000)),
        (b"[2026/02/03 04:05:06 -0230] up", seconds(2026, 2, 3, 6, 35, 6)),
        (b"Feb  3 04:05:06 a kernel: up", seconds(2026, 2, 3, 4, 5, 6)),
        (b"<4>Dec 31 04:05:06 a kernel: up", seconds(2025, 12, 31, 4, 5, 6)),
        (b"Feb 29 04:05:06 a kernel: up", seconds(2024, 2, 29, 4, 5, 6)),
        (b'1.2.3.4 - - [03/Feb/2026:04:05:06 +0000] "GET /"', seconds(2026, 2, 3, 4, 5, 6)),
        (b"1795262400.25 up", 1795262400.25),
        (b"[1795262400250] up", 1795262400.25),
    ],
)
def test_a_time_is_found_in_each_format(line: bytes, expected: float) -> None:
    assert times(line) == [expected]


@pytest.mark.parametrize(
    "line", [b"", b"no time", b"\xff\xfe", b"2026-13-45 99:99:99", b"id 1795262400", b"12345678901"]
)
def test_a_line_without_a_time_has_none(line: bytes) -> None:
    assert times(line) == [None]


def test_the_format_is_chosen_once_and_a_line_without_a_time_has_the_last_one() -> None:
    found = times(
        b"starting",
        b"Feb  3 04:05:06 a: due at 2026-09-09 09:09:09",
        b"  at main.c:3",
        b"2026-09-09 09:09:09 of another format",
        b"Feb  3 04:05:07 a: done",
    )
    first, second = seconds(2026, 2, 3, 4, 5, 6), seconds(2026, 2, 3, 4, 5, 7)
    assert found == [None, first, first, first, second]


@pytest.mark.parametrize("how", ["auto", "%b %d %H:%M:%S"])
def test_a_line_of_a_pipe_that_was_opened_long_ago_has_the_year_of_its_arrival(how: str) -> None:
    now = datetime(2025, 11, 22, tzinfo=UTC)
    found = LineTimes(how, until=lambda: now)
    assert found.of(b"Nov 21 20:15:00 a: up") == seconds(2025, 11, 21, 20, 15)
    now = datetime(2026, 2, 3, 12, tzinfo=UTC)
    assert found.of(b"Feb 03 04:05:06 a: up") == seconds(2026, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("how", "line", "expected"),
    [
        ("%d.%m.%Y %H:%M:%S", b"at 03.02.2026 04:05:06 up", seconds(2026, 2, 3, 4, 5, 6)),
        ("%y%m%d %H%M%S", b"260203 040506 148 INFO", seconds(2026, 2, 3, 4, 5, 6)),
        ("%m-%d %H:%M:%S.%f", b"02-29 04:05:06.250  1 I", seconds(2024, 2, 29, 4, 5, 6, 250000)),
        ("iso", b"Feb  3 04:05:06 2026-02-03 04:05:07", seconds(2026, 2, 3, 4, 5, 7)),
    ],
)  # fmt: skip
def test_a_format_can_be_named_or_be_a_pattern(how: str, line: bytes, expected: float) -> None:
    assert times(line, how=how) == [expected]


@pytest.mark.parametrize("how", ["rfc", "%Q", "%H:%"])
def test_an_unknown_format_is_an_error(how: str) -> None:
    with pytest.raises(RequestInvalid, match="expected"):
        times(b"x", how=how)


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_no_line_is_an_error(lines: list[bytes]) -> None:
    assert len(times(*lines)) == len(lines)
