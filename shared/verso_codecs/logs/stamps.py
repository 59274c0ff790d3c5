"""Timestamps inside lines: one number for date, time of day and fraction, and exactly back.

A timestamp is seconds since 1970 (without a year: as if in 2000) times a power of ten, plus its
fraction; how it was written is part of the shape, in `STAMP_BYTES` printable bytes:

    form, three separators, separator of the fraction, digits of the fraction

| form | written as |
|---|---|
| `Y` | `2005-06-03 15:42:50`; separators of date, between, of time |
| `y` | `17/06/09 20:10:40`; separator of the date |
| `M` | `03-17 16:13:38`; separator of the date |
| `S` | `Jun 14 15:16:02`; fill of the day, blank or 0 |
| `D` | `Sun Dec 04 04:51:08 2005`; fill of the day |
| `A` | `10/Oct/2000:13:55:36` |
| `H` | `081109 204005`, at the start of a line only |

Only what is written again byte for byte is taken for a timestamp.
"""

import numpy as np

from verso_codecs.coder import Bytes, Int, State, inlined
from verso_codecs.logs.dates import (
    DAY_S,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    date_of,
    days_of,
    digit_at,
    is_date,
    name_at,
    two_at,
)

STAMP_BYTES = 6
"""Bytes of a shape that say how a timestamp is written."""

FORMS = b"YyMSDAH"

MAX_FRACTION = 9
"""Most digits of a fraction that are part of the number."""

LENGTH, VALUE, FORM, FIRST, SECOND, THIRD, POINT, FRACTION = range(8)
STAMP_SIZE = 8
"""Columns of what `match_stamp` found: bytes of the line, the number, and the bytes of the shape
(the last as a number)."""

_FORM_Y, _FORM_YEAR2, _FORM_MONTH, _FORM_SYSLOG, _FORM_DATE, _FORM_APACHE, _FORM_H = FORMS
_BLANK, _COLON, _DOT, _SLASH, _ZERO = 32, 58, 46, 47, 48
_DATE_MARKS = np.zeros(256, np.bool_)
_DATE_MARKS[list(b"-/.")] = True
_BETWEEN_MARKS = np.zeros(256, np.bool_)
_BETWEEN_MARKS[list(b" T_-:")] = True
_TIME_MARKS = np.zeros(256, np.bool_)
_TIME_MARKS[list(b":.")] = True
_LATEST_YEAR = 2105
_LEAP_YEAR = 2000  # has every day that a date without a year may name


@inlined
def power_of_ten(exponent: Int) -> Int:
    """Return 10 to the power of 0..18."""
    power: Int = np.int64(1)
    for _ in range(exponent):
        power *= 10
    return power


@inlined
def _clock_at(data: Bytes, at: Int, end: Int, mark: Int) -> Int:
    """Return the second of the day of `HH:MM:SS`, or -1."""
    if at + 8 > end or data[at + 2] != mark or data[at + 5] != mark:
        return np.int64(-1)
    hour, minute, second = two_at(data, at), two_at(data, at + 3), two_at(data, at + 6)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return np.int64(-1)
    return hour * 3600 + minute * 60 + second


@inlined
def _fill(
    found: State, form: Int, first: Int, second: Int, third: Int, days: Int, clock: Int, length: Int
) -> None:
    found[FORM], found[FIRST], found[SECOND], found[THIRD] = form, first, second, third
    found[VALUE] = days * DAY_S + clock
    found[LENGTH] = length


@inlined
def _match_digits(  # noqa: C901 (one form after the other)
    data: Bytes, begin: Int, end: Int, at_start: bool, found: State
) -> bool:
    """Match the forms that begin with a digit."""
    first = np.int64(data[begin + 2])
    if _DATE_MARKS[first] and begin + 14 <= end:
        high, low = two_at(data, begin), two_at(data, begin + 3)
        if high < 0 or low < 0:
            return False
        if data[begin + 5] == _BLANK:
            clock = _clock_at(data, begin + 6, end, _COLON)
            if clock < 0 or not is_date(_LEAP_YEAR, high, low):
                return False
            days = days_of(_LEAP_YEAR, high, low)
            _fill(found, _FORM_MONTH, first, _BLANK, _BLANK, days, clock, np.int64(14))
            return True
        if data[begin + 5] != first or data[begin + 8] != _BLANK:
            return False
        day, clock = two_at(data, begin + 6), _clock_at(data, begin + 9, end, _COLON)
        if clock < 0 or not is_date(2000 + high, low, day):
            return False
        days = days_of(2000 + high, low, day)
        _fill(found, _FORM_YEAR2, first, _BLANK, _BLANK, days, clock, np.int64(17))
        return True
    if at_start and data[begin + 6] == _BLANK:
        high, low, day = two_at(data, begin), two_at(data, begin + 2), two_at(data, begin + 4)
        hour, minute = two_at(data, begin + 7), two_at(data, begin + 9)
        second = two_at(data, begin + 11)
        if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
            return False
        if high < 0 or not is_date(2000 + high, low, day):
            return False
        clock = hour * 3600 + minute * 60 + second
        days = days_of(2000 + high, low, day)
        _fill(found, _FORM_H, _BLANK, _BLANK, _BLANK, days, clock, np.int64(13))
        return True
    if begin + 19 > end:
        return False
    first = np.int64(data[begin + 4])
    between, mark = np.int64(data[begin + 10]), np.int64(data[begin + 13])
    if not (_DATE_MARKS[first] and data[begin + 7] == first):
        return False
    if not (_BETWEEN_MARKS[between] and _TIME_MARKS[mark]):
        return False
    high, low = two_at(data, begin), two_at(data, begin + 2)
    month, day = two_at(data, begin + 5), two_at(data, begin + 8)
    clock = _clock_at(data, begin + 11, end, mark)
    year = high * 100 + low
    if high < 0 or low < 0 or clock < 0 or not 1970 <= year <= _LATEST_YEAR:
        return False
    if not is_date(year, month, day):
        return False
    days = days_of(year, month, day)
    _fill(found, _FORM_Y, first, between, mark, days, clock, np.int64(19))
    return True


@inlined
def _match_apache(data: Bytes, begin: Int, end: Int, found: State) -> bool:
    """Match `10/Oct/2000:13:55:36`."""
    if begin + 20 > end or data[begin + 2] != _SLASH or data[begin + 6] != _SLASH:
        return False
    day, month = two_at(data, begin), name_at(data, begin + 3, end, MONTH_NAMES) + 1
    year = two_at(data, begin + 7) * 100 + two_at(data, begin + 9)
    clock = _clock_at(data, begin + 12, end, _COLON)
    if data[begin + 11] != _COLON or clock < 0 or not 1970 <= year <= _LATEST_YEAR:
        return False
    if two_at(data, begin + 9) < 0 or not is_date(year, month, day):
        return False
    days = days_of(year, month, day)
    _fill(found, _FORM_APACHE, _BLANK, _BLANK, _BLANK, days, clock, np.int64(20))
    return True


@inlined
def _match_names(data: Bytes, begin: Int, end: Int, found: State) -> bool:
    """Match the forms that begin with the name of a month or a day of the week."""
    weekday: Int = np.int64(-1)
    at = begin
    month = name_at(data, at, end, MONTH_NAMES) + 1
    if month == 0:
        weekday = name_at(data, at, end, WEEKDAY_NAMES)
        if weekday < 0:
            return False
        at += 4
        month = name_at(data, at, end, MONTH_NAMES) + 1
        if month == 0 or data[at - 1] != _BLANK:
            return False
    if at + 15 > end or data[at + 3] != _BLANK or data[at + 6] != _BLANK:
        return False
    low = digit_at(data, at + 5)
    high = digit_at(data, at + 4)
    fill: Int = np.int64(_ZERO) if high == 0 else np.int64(_BLANK)
    if high < 0 and data[at + 4] == _BLANK:
        high = np.int64(0)
    clock = _clock_at(data, at + 7, end, _COLON)
    if high < 0 or low < 0 or clock < 0:
        return False
    day = high * 10 + low
    if weekday < 0:
        if not is_date(_LEAP_YEAR, month, day):
            return False
        days = days_of(_LEAP_YEAR, month, day)
        _fill(found, _FORM_SYSLOG, fill, _BLANK, _BLANK, days, clock, np.int64(15))
        return True
    if at + 20 > end or data[at + 15] != _BLANK:
        return False
    century, year = two_at(data, at + 16), two_at(data, at + 18)
    year += century * 100
    if century < 0 or not 1970 <= year <= _LATEST_YEAR or not is_date(year, month, day):
        return False
    days = days_of(year, month, day)
    if two_at(data, at + 18) < 0 or days % 7 != weekday:
        return False
    _fill(found, _FORM_DATE, fill, _BLANK, _BLANK, days, clock, np.int64(24))
    return True


@inlined
def match_stamp(data: Bytes, begin: Int, end: Int, at_start: bool, found: State) -> bool:
    """Whether a timestamp begins at `begin`; fill `found`, Shape: (STAMP_SIZE,)."""
    if begin + 13 > end:
        return False
    if digit_at(data, begin) >= 0:
        if not (
            _match_digits(data, begin, end, at_start, found)
            or _match_apache(data, begin, end, found)
        ):
            return False
    elif not _match_names(data, begin, end, found):
        return False
    at = begin + found[LENGTH]
    found[POINT] = _BLANK
    found[FRACTION] = 0
    if at < end and digit_at(data, at) >= 0:
        return False
    if at + 1 < end and (data[at] == _DOT or data[at] == 44 or data[at] == _COLON):
        count: Int = np.int64(0)
        value: Int = np.int64(0)
        while at + 1 + count < end and digit_at(data, at + 1 + count) >= 0:
            if count < MAX_FRACTION:
                value = value * 10 + digit_at(data, at + 1 + count)
            count += 1
        if 1 <= count <= MAX_FRACTION:
            found[POINT] = np.int64(data[at])
            found[FRACTION] = count
            found[VALUE] = found[VALUE] * power_of_ten(count) + value
            found[LENGTH] += count + 1
    return True


@inlined
def _put_two(out: Bytes, at: Int, value: Int) -> None:
    out[at] = 48 + value // 10
    out[at + 1] = 48 + value % 10


@inlined
def _put_clock(out: Bytes, at: Int, clock: Int, mark: Int) -> Int:
    _put_two(out, at, clock // 3600)
    out[at + 2] = mark
    _put_two(out, at + 3, clock // 60 % 60)
    out[at + 5] = mark
    _put_two(out, at + 6, clock % 60)
    return at + 8


@inlined
def _put_name(out: Bytes, at: Int, names: Bytes, number: Int) -> Int:
    for offset in range(3):
        out[at + offset] = names[3 * number + offset]
    return at + 3


@inlined
def _put_year(out: Bytes, at: Int, year: Int) -> Int:
    _put_two(out, at, year // 100)
    _put_two(out, at + 2, year % 100)
    return at + 4


@inlined
def _put_date(
    out: Bytes, at: Int, form: Int, first: Int, year: Int, month: Int, day: Int, days: Int
) -> Int:
    """Write all before the time of day."""
    if form in (_FORM_SYSLOG, _FORM_DATE):
        if form == _FORM_DATE:
            at = _put_name(out, at, WEEKDAY_NAMES, days % 7)
            out[at] = _BLANK
            at += 1
        at = _put_name(out, at, MONTH_NAMES, month - 1)
        out[at] = _BLANK
        _put_two(out, at + 1, day)
        if day < 10:
            out[at + 1] = first
        return at + 3
    if form == _FORM_APACHE:
        _put_two(out, at, day)
        out[at + 2] = _SLASH
        _put_name(out, at + 3, MONTH_NAMES, month - 1)
        out[at + 6] = _SLASH
        return _put_year(out, at + 7, year)
    if form == _FORM_Y:
        at = _put_year(out, at, year)
    elif form != _FORM_MONTH:
        _put_two(out, at, year % 100)
        at += 2
    if form in (_FORM_Y, _FORM_YEAR2):
        out[at] = first
        at += 1
    _put_two(out, at, month)
    at += 2
    if form != _FORM_H:
        out[at] = first
        at += 1
    _put_two(out, at, day)
    return at + 2


MAX_STAMP_BYTES = 40
"""Most bytes that `put_stamp` writes."""


@inlined
def put_stamp(out: Bytes, at: Int, row: Bytes, begin: Int, value: Int) -> Int:
    """Write a timestamp into `out` at `at`; return where it ends, or -1 if it cannot be.

    row, begin: the bytes of the shape that say how, see STAMP_BYTES
    """
    form, first, second = np.int64(row[begin]), np.int64(row[begin + 1]), np.int64(row[begin + 2])
    third, point = np.int64(row[begin + 3]), np.int64(row[begin + 4])
    digits = np.int64(row[begin + 5]) - 48
    if digits < 0 or digits > MAX_FRACTION or value < 0 or at + MAX_STAMP_BYTES > out.size:
        return np.int64(-1)
    unit = power_of_ten(digits)
    seconds = value // unit
    days, clock = seconds // DAY_S, seconds % DAY_S
    if seconds >= 1 << 33:
        return np.int64(-1)
    year, month, day = date_of(days)
    at = _put_date(out, at, form, first, year, month, day, days)
    if form == _FORM_H:
        out[at] = _BLANK
        _put_two(out, at + 1, clock // 3600)
        _put_two(out, at + 3, clock // 60 % 60)
        _put_two(out, at + 5, clock % 60)
        at += 7
    else:
        out[at] = second if form == _FORM_Y else _COLON if form == _FORM_APACHE else _BLANK
        at = _put_clock(out, at + 1, clock, third if form == _FORM_Y else np.int64(_COLON))
    if form == _FORM_DATE:
        out[at] = _BLANK
        at = _put_year(out, at + 1, year)
    if digits:
        out[at] = point
        rest = value % unit
        for place in range(digits - 1, -1, -1):
            out[at + 1 + place] = 48 + rest % 10
            rest //= 10
        at += 1 + digits
    return at
