"""The time of every line, found once for a stream.

`find_format` looks at a stream's first lines for a pattern that most of them follow in the same
field; `read` then takes the time of each line of a payload from there. A fraction behind the
seconds and a zone behind the time are read wherever they stand.

| directive | |
|---|---|
| `%Y` `%y` | year of four digits, or of two (2000 to 2099) |
| `%m` `%b` | month as a number, or as a name of three letters in English |
| `%d` | day, with or without a zero or a blank before it |
| `%a` | day of the week of three letters in English, not looked at |
| `%H` `%M` `%S` | hour, minute, second |
| `%f` | fraction of a second, 1 to 9 digits |
| `%z` | `Z`, `+0200` or `+02:00` |
| `%s` | seconds since 1970 of 9 or 10 digits; or ms, us or ns of 13, 16 or 19 |
| `%%` | a percent sign |

All other bytes stand for themselves. A date without marks may have the letter of a level before it,
as klog and glog write it: `%m%d %H:%M:%S` reads `I0301 12:00:00.5`. A pattern that begins with a
quote is that of a key of JSON, which may stand anywhere: what is before its first place in the line
is not looked at. (Releases before find nothing by it, for they pass over quotes.)
"""

# Compiled with what it imports: bf6decfc995269a8

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.dates import DAY_S, MONTH_NAMES, date_of, days_of, digit_at, is_date, name_at
from verso_codecs.logs.parsing import Lines

MISSING = -(1 << 63)
"""The time of lines before the first that has one."""

_DIRECTIVES = b"YymbdaHMSfzs"
_YEAR, _YEAR_2, _MONTH, _NAME, _DAY, _WEEKDAY, _HOUR, _MINUTE, _SECOND, _FRACTION, _ZONE, _EPOCH = (
    -1 - number for number in range(12)
)
_SINCE_1970 = "%s"
_LEVELLED = "%m%d %H:%M:%S"
_LEVEL = re.compile(rb"(?<![A-Za-z0-9])[IWEFD]\d{4} \d\d:\d\d:\d\d")
_INNER_KEYS = tuple(f'"{name}":' for name in ("time", "ts", "timestamp", "@timestamp"))
_KEYS = (  # of a time in lines of keys and values, and of JSON
    *("ts=", "t=", "time=", 'time="'),
    *(f'{{"{name}":"' for name in ("ts", "time", "timestamp", "@timestamp")),
)
_PATTERNS = (
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d-%H.%M.%S",
    "%Y/%m/%d %H:%M:%S",
    "%b %d %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
    "%d/%b/%Y:%H:%M:%S",
    "%y/%m/%d %H:%M:%S",
    "%m-%d %H:%M:%S",
    "%m.%d %H:%M:%S",
    "%Y%m%d-%H:%M:%S",
    "%y%m%d %H%M%S",
    _LEVELLED,
    "%Y%m%d %H:%M:%S",
    _SINCE_1970,
    *(f"{key}%Y-%m-%dT%H:%M:%S" for key in _KEYS),
    *(f'{key}"%Y-%m-%dT%H:%M:%S' for key in _INNER_KEYS),
    *(f"{key}%s" for key in _INNER_KEYS),
)
_SURE = (
    "%b %d %H:%M:%S",
    *(pattern for pattern in _PATTERNS if "%Y" in pattern and pattern[0] != '"'),
)
_MAX_FIELD = 8
_SAMPLE = 200
_SECOND_NS = 1_000_000_000
_NO_YEAR, _LEAP_YEAR = -1, 2000
_LEAP_GAP = 8  # years from a 29th of February to the next, over 1900 or 2100
_LAST_YEAR, _LAST_S, _LAST_NS = 2262, 9_223_372_036, 854_775_807  # of int64, in ns since 1970
_HALF_YEAR_NS = 183 * DAY_S * _SECOND_NS
_EARLIEST, _LATEST = 100_000_000, 9_000_000_000  # seconds since 1970
_TEN_DIGITS_NS = 1_000_000_000 * _SECOND_NS  # 2001
_EPOCH_SPAN_NS = 3653 * DAY_S * _SECOND_NS
_BLANK, _COLON, _PERCENT, _QUOTE = 32, 58, 37, 34
_LEVELS = np.zeros(256, np.bool_)
_LEVELS[list(b"IWEFD")] = True


@dataclass(frozen=True)
class TimeFormat:
    """Where the time stands in the lines of a stream.

    pattern: how it is written, see the module
    field: how many runs of blanks are before it
    """

    pattern: str
    field: int = 0

    def __post_init__(self) -> None:
        """Check the pattern.

        Raises:
            ValueError: when a directive is unknown, or the pattern names no day or no second.
        """
        if not 0 <= self.field <= 64:
            raise ValueError(f"expected a field of 0 to 64, got {self.field}")
        steps = set(self._program.tolist())
        dated = (_MONTH in steps or _NAME in steps) and {_DAY, _HOUR, _MINUTE} <= steps
        if not (dated or _EPOCH in steps):
            raise ValueError(f"expected month, day, hour and minute, or %s, got {self.pattern!r}")

    @cached_property
    def _program(self) -> State:
        """Bytes that must stand there, and below 0 directives."""
        steps, pattern, at = [], self.pattern.encode(), 0
        while at < len(pattern):
            byte = pattern[at]
            at += 1
            if byte == _PERCENT:
                letter = pattern[at : at + 1]
                at += 1
                if letter == b"%":
                    steps.append(_PERCENT)
                elif letter and letter in _DIRECTIVES:
                    steps.append(-1 - _DIRECTIVES.index(letter))
                else:
                    raise ValueError(f"unknown directive %{letter.decode(errors='replace')}")
            else:
                steps.append(byte)
        return np.array(steps, np.int64)

    @property
    def has_year(self) -> bool:
        """Whether one line tells its time."""
        return bool({_YEAR, _YEAR_2, _EPOCH} & set(self._program.tolist()))

    @property
    def program(self) -> State:
        """What the kernel follows."""
        return self._program


@inlined
def _run(data: Bytes, begin: Int, end: Int, most: Int) -> Int:
    """Return how many digits stand at `begin`, at most `most`."""
    count: Int = np.int64(0)
    while count < most and begin + count < end and digit_at(data, begin + count) >= 0:
        count += 1
    return count


@inlined
def _value(data: Bytes, begin: Int, count: Int) -> Int:
    value: Int = np.int64(0)
    for index in range(count):
        value = value * 10 + digit_at(data, begin + index)
    return value


@inlined
def _fraction_ns(data: Bytes, begin: Int, count: Int) -> Int:
    """Return a fraction of `count` digits in ns; digits after the ninth are not looked at."""
    value = _value(data, begin, min(count, 9))
    for _ in range(9 - min(count, 9)):
        value *= 10
    return value


@inlined
def _zone_at(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Return the length of a zone and its seconds east of UTC; length 0 if there is none."""
    if at < end and (data[at] == 90 or data[at] == 122):
        return np.int64(1), np.int64(0)
    first = at + 1 if at < end and data[at] == _BLANK else at
    if first + 5 > end or (data[first] != 43 and data[first] != 45):
        return np.int64(0), np.int64(0)
    colon = 1 if data[first + 3] == _COLON else 0
    if _run(data, first + 1, end, np.int64(2)) < 2:
        return np.int64(0), np.int64(0)
    if _run(data, first + 3 + colon, end, np.int64(2)) < 2:
        return np.int64(0), np.int64(0)
    seconds = _value(data, first + 1, np.int64(2)) * 3600
    seconds += _value(data, first + 3 + colon, np.int64(2)) * 60
    return first + 5 + colon - at, -seconds if data[first] == 45 else seconds


@inlined
def _field_begin(data: Bytes, begin: Int, end: Int, field: Int) -> Int:
    """Return where a field begins, behind brackets, quotes and the priority of a syslog line."""
    at: Int = begin
    for _ in range(field):
        while at < end and data[at] != _BLANK:
            at += 1
        while at < end and data[at] == _BLANK:
            at += 1
    while at < end and (data[at] == 91 or data[at] == 40 or data[at] == 34):
        at += 1
    if at < end and data[at] == 60:
        count = _run(data, at + 1, end, np.int64(3))
        if at + 1 + count < end and data[at + 1 + count] == 62:
            at += 2 + count
    return at


@inlined
def _behind_level(data: Bytes, begin: Int, end: Int, program: State) -> Int:
    """Return where a date without marks begins, behind the letter of a level if there is one."""
    first = program[0]
    unmarked = program.size > 1 and program[1] < 0 and first in (_MONTH, _YEAR)
    if unmarked and begin + 1 < end and _LEVELS[data[begin]] and digit_at(data, begin + 1) >= 0:
        return begin + 1
    return begin


@inlined
def _epoch_ns(data: Bytes, at: Int, count: Int) -> Int:
    """Return the moment that digits write, or MISSING."""
    unit: Int = np.int64(0)
    if count == 9 or count == 10:
        unit = np.int64(_SECOND_NS)
    elif count == 13:
        unit = np.int64(1_000_000)
    elif count == 16:
        unit = np.int64(1000)
    elif count == 19:
        unit = np.int64(1)
    if unit == 0 or (count == 19 and data[at] > 56):
        return np.int64(MISSING)
    value = _value(data, at, count)
    if not _EARLIEST <= value // (_SECOND_NS // unit) < _LATEST:
        return np.int64(MISSING)
    return value * unit


@inlined
def _set_number(data: Bytes, at: Int, count: Int, step: Int, parts: State) -> bool:
    """Write the number of `count` digits into the part of a directive; False if it is none."""
    if step == _EPOCH:
        parts[6] = _epoch_ns(data, at, count)
        return bool(parts[6] != MISSING)
    if step == _FRACTION:
        parts[4] = _fraction_ns(data, at, count)
        return True
    value = _value(data, at, count)
    if step == _YEAR:
        parts[0] = value
    elif step == _YEAR_2:
        parts[0] = 2000 + value
    elif step == _MONTH:
        parts[1] = value
    elif step == _DAY:
        parts[2] = value
    elif value >= (24 if step == _HOUR else 61 if step == _SECOND else 60):
        return False
    else:
        parts[3] += value * (3600 if step == _HOUR else 60 if step == _MINUTE else 1)
    return True


@inlined
def _read_behind(data: Bytes, begin: Int, end: Int, parts: State) -> bool:
    """Add the fraction and the zone that follow a time; False if it goes on with a digit."""
    at: Int = begin
    if at < end and digit_at(data, at) >= 0:
        return False
    if parts[4] == 0 and at + 1 < end and (data[at] == 46 or data[at] == 44 or data[at] == _COLON):
        count = _run(data, at + 1, end, np.int64(20))
        if count > 0:
            parts[4] = _fraction_ns(data, at + 1, count)
            at += 1 + count
    if parts[5] == MISSING:
        length, seconds = _zone_at(data, at, end)
        if length > 0:
            parts[5] = seconds
    return True


@inlined
def _key_at(data: Bytes, begin: Int, end: Int, program: State) -> Int:
    """Return where the bytes that a pattern begins with stand first; `end` if they do not."""
    length: Int = np.int64(0)
    while length < program.size and program[length] >= 0:
        length += 1
    for at in range(begin, end - length + 1):
        count: Int = np.int64(0)
        while count < length and np.int64(data[at + count]) == program[count]:
            count += 1
        if count == length:
            return np.int64(at)
    return end


@inlined
def _read_line(  # noqa: C901 (one directive after the other)
    data: Bytes, begin: Int, end: Int, program: State, parts: State
) -> bool:
    """Fill year, month, day, seconds of the day, ns, zone and epoch; False where they are not."""
    parts[:] = 0
    parts[0] = _NO_YEAR
    parts[5] = MISSING
    at: Int = begin
    if program[0] == _QUOTE:
        at = _key_at(data, begin, end, program)
    for index in range(program.size):
        step = program[index]
        if step >= 0:
            if at >= end or np.int64(data[at]) != step:
                return False
            at += 1
            continue
        if step in (_NAME, _WEEKDAY):
            if step == _NAME:
                parts[1] = name_at(data, at, end, MONTH_NAMES) + 1
            at += 3
            if at > end or (step == _NAME and parts[1] == 0):
                return False
            continue
        if step == _ZONE:
            length, seconds = _zone_at(data, at, end)
            if length == 0:
                return False
            parts[5] = seconds
            at += length
            continue
        if step == _DAY and at < end and data[at] == _BLANK:
            at += 1
        most: Int = np.int64(2)
        if step == _YEAR:
            most = np.int64(4)
        elif step in (_EPOCH, _FRACTION):
            most = np.int64(20)
        count = _run(data, at, end, most)
        if count == 0 or (step == _YEAR and count < 4):
            return False
        if not _set_number(data, at, count, step, parts):
            return False
        at += count
    return _read_behind(data, at, end, parts)


@inlined
def _moment(year: Int, parts: State, offset_s: Int) -> Int:
    """Return ns since 1970 of a date, or MISSING where there is none."""
    if not 1900 <= year <= _LAST_YEAR or not is_date(year, parts[1], parts[2]):
        return np.int64(MISSING)
    zone = offset_s if parts[5] == MISSING else parts[5]
    seconds = days_of(year, parts[1], parts[2]) * DAY_S + parts[3] - zone
    if seconds > _LAST_S or (seconds == _LAST_S and parts[4] > _LAST_NS):
        return np.int64(MISSING)
    moment: Int = seconds * _SECOND_NS + parts[4]
    return moment


@inlined
def _latest_moment(parts: State, offset_s: Int, late: Int) -> Int:
    """Return the latest moment up to `late` of a date without a year, or MISSING."""
    year, _, _ = date_of(late // _SECOND_NS // DAY_S)
    for before in range(_LEAP_GAP + 2):  # at `late` it may be the next year in a zone in the east
        time = _moment(year + 1 - before, parts, offset_s)
        if time != MISSING and time <= late:
            return time
    return np.int64(MISSING)


@inlined
def _nearest_moment(parts: State, offset_s: Int, last: Int) -> Int:
    """Return the moment of a date without a year in the year that brings it nearest to `last`."""
    year, _, _ = date_of(last // _SECOND_NS // DAY_S)
    time = _moment(year, parts, offset_s)
    if time == MISSING:  # 29 February
        for other in range(year - 1, year + 2):
            near = _moment(other, parts, offset_s)
            if near != MISSING and -_HALF_YEAR_NS <= near - last <= _HALF_YEAR_NS:
                time = near
    elif time > last + _HALF_YEAR_NS:
        time = _moment(year - 1, parts, offset_s)
    elif time < last - _HALF_YEAR_NS:
        time = _moment(year + 1, parts, offset_s)
    return time


@kernel
def _read_times(
    lines: Lines,
    program: State,
    field: Int,
    now_ns: Int,
    previous_ns: Int,
    offset_s: Int,
    times: State,
) -> Int:
    """Fill `times`; return how many lines have one."""
    parts = np.zeros(8, np.int64)
    last: Int = np.int64(previous_ns)
    found: Int = np.int64(0)
    for line in range(times.size):
        end = lines.ends[line]
        begin = _field_begin(lines.data, lines.begins[line], end, field)
        begin = _behind_level(lines.data, begin, end, program)
        time: Int = np.int64(MISSING)
        if _read_line(lines.data, begin, end, program, parts):
            if parts[6] != 0:
                time = parts[6] + parts[4]
            elif parts[0] != _NO_YEAR:
                time = _moment(parts[0], parts, offset_s)
            elif last == MISSING:
                time = _latest_moment(parts, offset_s, np.int64(now_ns + DAY_S * _SECOND_NS))
            else:
                time = _nearest_moment(parts, offset_s, last)
        if time != MISSING:
            last = time
            found += 1
        times[line] = last
    return found


def read(
    lines: Lines,
    form: TimeFormat,
    *,
    now_ns: int,
    previous_ns: int = MISSING,
    offset_s: int = 0,
) -> State:
    """Return the time of every line in ns since 1970; that of the line before where it has none.

    now_ns: a first time without a year is the latest that is at most a day after
    previous_ns: time of the line before the first; a time without a year is in the year that
        brings it nearest to the time before
    offset_s: of times without a zone, in seconds east of UTC

    Returns: Shape: (lines,), int64; MISSING before the first time of all
    """
    times = np.empty(lines.begins.size, np.int64)
    _read_times(lines, form.program, form.field, now_ns, previous_ns, offset_s, times)
    return times


def find_format(
    lines: Lines, patterns: Sequence[str] = (), *, arrived_ns: int | None = None
) -> TimeFormat | None:
    """Return the format that most of the first lines follow, or None if not half of them do.

    Of ``patterns`` that the caller knows one line is enough, and of those that hardly stand at the
    start of a line for anything else: behind it is a stack trace. Otherwise numbers are seconds
    since 1970 only where they can be: of ten digits, within ten years, and no later than a day
    after the lines' arrival. Other numbers of as many digits are identifiers; behind a key they are
    times of the last ten years, for others may be durations in ns. Month and day without a mark
    have the letter of a level before them, or are a number that stands before a time of day.
    """
    sample = Lines(lines.data, lines.begins[:_SAMPLE], lines.ends[:_SAMPLE])
    times = np.empty(sample.begins.size, np.int64)
    text = b"\n".join(map(sample.line, range(times.size)))
    tried = [one for one in patterns or _PATTERNS if _first_bytes(one) in text]
    if not patterns and len(_LEVEL.findall(text)) <= max(0, (times.size - 1) // 2):
        tried.remove(_LEVELLED)
    best, most = None, 0 if patterns else max(0, (times.size - 1) // 2)
    sure, surest = None, 0
    for field in range(_MAX_FIELD + 1):
        for pattern in tried:
            if field and pattern[0] == '"':
                continue
            form = TimeFormat(pattern, field)
            found = int(_read_times(sample, form.program, field, 0, MISSING, 0, times))
            if found > surest and field == 0 and pattern in _SURE:
                sure, surest = form, found
            if found <= most:
                continue
            if (
                patterns
                or _SINCE_1970 not in pattern
                or _is_clock(times, arrived_ns, recent=pattern != _SINCE_1970)
            ):
                best, most = form, found
    return best or sure


def _first_bytes(pattern: str) -> bytes:
    """Return the bytes that a pattern begins with, up to its first directive."""
    return pattern.partition("%")[0].encode()


def _is_clock(times: State, arrived_ns: int | None, *, recent: bool) -> bool:
    """Whether numbers that can be read as times since 1970 are likely some; ``recent``: lately."""
    there = times[times != MISSING]
    least, latest = int(there.min()), int(there.max())
    is_past = arrived_ns is None or latest <= arrived_ns + DAY_S * _SECOND_NS
    if recent and arrived_ns is not None and latest < arrived_ns - _EPOCH_SPAN_NS:
        return False
    return is_past and least >= _TEN_DIGITS_NS and latest - least <= _EPOCH_SPAN_NS
