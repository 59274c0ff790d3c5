"""Times of lines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verso_codecs.logs.parsing import split
from verso_codecs.logs.times import MISSING, TimeFormat, find_format, read
from verso_core.jobs.logs.records import EARLIEST_NS, LATEST_NS, LineRecord, write_line

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def ns(*parts: int, fraction: int = 0) -> int:
    """Return a moment in ns."""
    moment = datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]
    return int(moment.timestamp()) * 10**9 + fraction


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        (b"2024-02-29T07:08:09Z x", ns(2024, 2, 29, 7, 8, 9)),
        (b"2024-02-29T07:08:09.25+02:00 x", ns(2024, 2, 29, 5, 8, 9, fraction=250_000_000)),
        (b"2015-10-18 18:01:48,978 INFO", ns(2015, 10, 18, 18, 1, 48, fraction=978_000_000)),
        (b"[2015-10-18 18:01:48] INFO", ns(2015, 10, 18, 18, 1, 48)),
        (b"<34>Oct 11 22:14:15 host su: x", ns(2026, 10, 11, 22, 14, 15)),
        (b"<34>1 2003-10-11T22:14:15.003Z host", ns(2003, 10, 11, 22, 14, 15, fraction=3_000_000)),
        (b"Jul  7 08:09:10 combo x", ns(2026, 7, 7, 8, 9, 10)),
        (b"Dec 31 08:09:10 combo x", ns(2025, 12, 31, 8, 9, 10)),
        (b"[Sun Dec 04 04:51:08 2005] [notice] x", ns(2005, 12, 4, 4, 51, 8)),
        (b'10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET', ns(2000, 10, 10, 20, 55, 36)),
        (b"17/06/09 20:10:40 INFO", ns(2017, 6, 9, 20, 10, 40)),
        (b"03-17 16:13:38.811  1702", ns(2026, 3, 17, 16, 13, 38, fraction=811_000_000)),
        (b"[10.30 16:49:06] chrome.exe", ns(2026, 10, 30, 16, 49, 6)),
        (b"081109 204005 35 INFO", ns(2008, 11, 9, 20, 40, 5)),
        (b"I0301 12:00:00.123456   7 a.go:1] x", ns(2026, 3, 1, 12, fraction=123_456_000)),
        (b"E20250301 12:00:00.5 7 a.cc:1] x", ns(2025, 3, 1, 12, fraction=500_000_000)),
        (b"20171223-22:15:29:633|Step", ns(2017, 12, 23, 22, 15, 29, fraction=633_000_000)),
        (b"- 1117838976 2005.06.03 R02", 1117838976 * 10**9),
        (b"x y z 1117838976123 w", 1117838976123 * 10**6),
        (b"ts=2024-01-01T00:00:00.5Z level=info msg=x", ns(2024, 1, 1, fraction=500_000_000)),
        (b'level=info time="2024-01-01T00:00:00+01:00" msg=x', ns(2023, 12, 31, 23)),
        (b'{"time":"2024-01-01T00:00:00Z","level":"info"}', ns(2024, 1, 1)),
        (b'{"@timestamp":"2024-01-01T00:00:00Z","level":"info"}', ns(2024, 1, 1)),
        (
            b'{"level":"info","msg":"a b","ts":"2024-01-01T00:00:00.5Z"}',
            ns(2024, 1, 1, fraction=5 * 10**8),
        ),
        (b'{"log":"\\"time\\":7 x","time":"2024-01-01T00:00:00+01:00"}', ns(2023, 12, 31, 23)),
        (b'{"level":30,"time":1704067200123,"pid":7}', ns(2024, 1, 1, fraction=123_000_000)),
        (
            b'{"short_message":"a b c","timestamp":1704067200.25,"level":6}',
            ns(2024, 1, 1, fraction=25 * 10**7),
        ),
    ],
)
def test_times_are_found_where_they_stand(line: bytes, moment: int) -> None:
    lines = split(line + b"\n" + line)
    form = find_format(lines)
    assert form is not None
    assert read(lines, form, now_ns=int(NOW.timestamp() * 10**9)).tolist() == [moment] * 2


@example(EARLIEST_NS)
@example(LATEST_NS)
@given(st.integers(EARLIEST_NS, LATEST_NS))
def test_the_time_of_a_record_is_that_of_its_line(time_ns: int) -> None:
    lines = split(write_line(LineRecord(b"disk full"), time_ns))
    form = find_format(lines)
    assert form is not None
    assert read(lines, form, now_ns=0).tolist() == [time_ns]


def test_a_custom_pattern_is_followed() -> None:
    form = TimeFormat("%d.%m.%Y %H-%M-%S.%f%z", 2)
    lines = split(b"a b 07.03.2024 10-11-12.5+0130 c")
    moment = ns(2024, 3, 7, 8, 41, 12, fraction=500_000_000)
    assert read(lines, form, now_ns=0).tolist() == [moment]


def test_of_a_pattern_that_is_known_one_line_is_enough() -> None:
    lines = split(b"a trace\n  at x\n  at y\n[07.03.2024 10:11:12] c\n  at z 1795262400\n")
    assert find_format(lines) is None
    form = find_format(lines, ["%d.%m.%Y %H:%M:%S"])
    assert form == TimeFormat("%d.%m.%Y %H:%M:%S", 0)
    assert read(lines, form, now_ns=0).tolist()[2:] == [MISSING] + [ns(2024, 3, 7, 10, 11, 12)] * 2
    assert find_format(lines, ["%d/%b/%Y:%H:%M:%S"]) is None


@pytest.mark.parametrize("pattern", ["%Q", "%H:%M", "%Y-%m-%d", "%", ""])
def test_a_pattern_that_names_no_moment_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"expected month|unknown directive"):
        TimeFormat(pattern)


def test_lines_without_a_time_have_that_of_the_line_before() -> None:
    lines = split(b"begin\n2024-01-01 00:00:00 a\n  at b\n2024-01-01 00:00:01 c")
    first = ns(2024, 1, 1)
    times = read(lines, TimeFormat("%Y-%m-%d %H:%M:%S"), now_ns=0)
    assert times.tolist() == [MISSING, first, first, first + 10**9]


def test_years_that_are_not_written_follow_the_line_before() -> None:
    lines = split(b"Dec 31 23:59:59 a\nJan  1 00:00:00 b\nFeb 29 10:00:00 c")
    times = read(lines, TimeFormat("%b %d %H:%M:%S"), now_ns=0, previous_ns=ns(2023, 12, 30))
    assert times.tolist() == [ns(2023, 12, 31, 23, 59, 59), ns(2024, 1, 1), ns(2024, 2, 29, 10)]


def test_a_first_time_without_a_year_may_be_a_day_after_the_arrival() -> None:
    """In the first hours of a year, east of where the lines arrive, or by a clock that is ahead."""
    lines = split(b"Jan  1 01:30:00 a\nDec 31 23:00:00 b")
    form = TimeFormat("%b %d %H:%M:%S")
    found = read(lines, form, now_ns=ns(2025, 12, 31, 23, 30), offset_s=7200)
    assert found.tolist() == [ns(2025, 12, 31, 23, 30), ns(2025, 12, 31, 21)]
    assert read(lines, form, now_ns=ns(2025, 12, 30))[0] == ns(2025, 1, 1, 1, 30)


def test_29_february_is_in_a_year_that_has_one() -> None:
    lines = split(b"Feb 29 10:00:00 a\nFeb 29 10:00:01 b")
    form = find_format(lines)
    assert form == TimeFormat("%b %d %H:%M:%S")
    first = ns(2024, 2, 29, 10)
    assert read(lines, form, now_ns=ns(2025, 1, 20)).tolist() == [first, first + 10**9]
    assert read(lines, form, now_ns=0, previous_ns=ns(2023, 12, 31))[0] == first
    far = ns(2025, 3, 1)
    assert read(lines, form, now_ns=0, previous_ns=far).tolist() == [far, far]


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (b"2262-04-11T23:47:16.854775807Z", True),
        (b"2262-04-11T23:47:16.854775808Z", False),
        (b"2262-04-11T23:47:17Z", False),
        (b"2262-04-12T01:47:16+02:00", True),
        (b"2262-12-31T00:00:00Z", False),
        (b"2263-01-01T00:00:00Z", False),
        (b"2200-01-01T00:00:00Z", True),
    ],
)
def test_times_are_read_up_to_the_last_that_fits(text: bytes, *, there: bool) -> None:
    [found] = read(split(text), TimeFormat("%Y-%m-%dT%H:%M:%S"), now_ns=0).tolist()
    assert (found != MISSING) == there
    if there:
        at = datetime.fromisoformat(text.decode()[:19] + text.decode()[19:].lstrip(".0123456789"))
        assert 0 <= found - int(at.timestamp()) * 10**9 < 10**9


@pytest.mark.parametrize(
    ("pattern", "has"),
    [("%b %d %H:%M:%S", False), ("%m-%d %H:%M:%S", False), ("%y%m%d %H%M%S", True), ("%s", True)],
)
def test_a_pattern_says_whether_one_line_tells_its_time(pattern: str, *, has: bool) -> None:
    assert TimeFormat(pattern).has_year == has


def test_times_without_a_zone_are_in_the_zone_of_the_stream() -> None:
    lines = split(b"2024-01-01 00:00:00 a\n2024-01-01 00:00:00Z b")
    times = read(lines, TimeFormat("%Y-%m-%d %H:%M:%S"), now_ns=0, offset_s=3600)
    assert times.tolist() == [ns(2023, 12, 31, 23), ns(2024, 1, 1)]


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b"2026-03-01 08:00:00,123 ERROR x", TimeFormat("%Y-%m-%d %H:%M:%S")),
        (b"[2026-03-01T08:00:00Z] ERROR x", TimeFormat("%Y-%m-%dT%H:%M:%S")),
        (b"Mar  1 08:00:00 host app: x", TimeFormat("%b %d %H:%M:%S")),
        (b"since 2026-03-01 08:00:00 it failed", None),
        (b"03-01 08:00:00 x", None),
        (b"1795262400 x", None),
    ],
)
def test_of_a_time_at_the_start_of_a_line_one_is_enough(
    head: bytes, form: TimeFormat | None
) -> None:
    """The other lines are those of its stack trace."""
    lines = split(b"\tat java.base/X.y(Z.java:7)\n" + head + b"\n" + b"\tat a.B.c(D.java:8)\n" * 30)
    assert find_format(lines) == form


@pytest.mark.parametrize(
    ("numbers", "there"),
    [
        ([1117838976, 1117838977, 1117999999], True),
        ([1117838976, 1417838976], True),
        ([1117838976, 1617838976], False),  # sixteen years apart
        ([482915736, 482915737], False),  # nine digits
        ([1795262400, 1795262401], False),  # after they came
        ([4100200300, 1117838976], False),
    ],
)
def test_numbers_are_times_only_where_they_can_be(numbers: list[int], *, there: bool) -> None:
    """Else they are orders, accounts and sizes, and lines would be past their retention at once."""
    lines = split(b"".join(b"order %d was shipped\n" % number for number in numbers))
    form = TimeFormat("%s", 1) if there else None
    assert find_format(lines, arrived_ns=1_790_000_000 * 10**9) == form
    assert find_format(lines, ["%s"], arrived_ns=1_790_000_000 * 10**9) == TimeFormat("%s", 1)


def test_the_key_of_a_time_may_stand_anywhere_in_a_line() -> None:
    rows = [b'{"n":%d,"msg":"%s","ts":%d}' % (n, b"x " * n, 1704067200 + n) for n in range(30)]
    rows[5] = b'{"n":5,"msg":"no time"}'
    lines = split(b"\n".join([*rows, b""]))
    form = find_format(lines)
    assert form == TimeFormat('"ts":%s')
    found = read(lines, form, now_ns=int(NOW.timestamp() * 10**9)).tolist()
    assert found == [ns(2024, 1, 1, 0, 0, 4 if n == 5 else n) for n in range(30)]


@given(st.lists(st.sampled_from(['"ts"', '"ts":', '"', "7", "1704067200", ",", "ts"]), max_size=9))
def test_a_key_is_looked_for_as_in_bytes(parts: list[str]) -> None:
    row = "".join(parts).encode()
    found = read(split(row + b"\n"), TimeFormat('"ts":%s'), now_ns=0).tolist()
    behind = row.lstrip(b'"').partition(b'"ts":')[2]
    digits = behind[: len(behind) - len(behind.lstrip(b"0123456789"))]
    assert (found != [MISSING]) == (len(digits) == 10)


def test_levels_before_a_date_differ_from_line_to_line() -> None:
    rows = [b"%c0301 12:00:%02d.000001 7 a.go:1] x" % (b"IWEFD"[n % 5], n) for n in range(20)]
    rows.insert(7, b"  goroutine 7 [running]")
    lines = split(b"\n".join([*rows, b""]))
    form = find_format(lines)
    assert form == TimeFormat("%m%d %H:%M:%S")
    found = read(lines, form, now_ns=int(NOW.timestamp() * 10**9)).tolist()
    seconds = [*range(7), 6, *range(7, 20)]
    assert found == [ns(2026, 3, 1, 12, 0, one, fraction=1000) for one in seconds]


@pytest.mark.parametrize("row", [b"I1399 12:00:00 x", b"X0301 12:00:00 x", b"II0301 12:00:00 x"])
def test_other_letters_and_numbers_are_no_date(row: bytes) -> None:
    assert find_format(split(row + b"\n")) is None


@pytest.mark.parametrize("row", [b"1001 12:30:00 x", b"user 1001 12:30:00 x", b"112 12:30:00 x"])
def test_a_number_before_a_time_of_day_is_no_date(row: bytes) -> None:
    assert find_format(split(b"\n".join([row] * 20))) is None


def test_durations_behind_a_key_are_no_times() -> None:
    arrived_ns = int(NOW.timestamp()) * 10**9
    rows = [b'{"sleep":"x","time":1%09d}' % (n * 1_000_003) for n in range(20)]
    assert find_format(split(b"\n".join(rows)), arrived_ns=arrived_ns) is None
    late = [b'{"level":30,"time":%d}' % (1_790_000_000 + n) for n in range(20)]
    form = find_format(split(b"\n".join(late)), arrived_ns=arrived_ns)
    assert form == TimeFormat('"time":%s')


def test_lines_without_times_have_no_format() -> None:
    assert find_format(split(b"a\nb\n")) is None
    assert find_format(split(b"")) is None
