"""The digits of a record without the bytes between them, and where they occurred before.

A line often says one thing twice in two ways: `2005.06.03` and `2005-06-03-15.42.50`, or first
the seconds since 1970 and then the date that they are. So all digits of a record form one row.
Where the last four of them occurred before, the model expects the digits that followed there, and
keeps expecting them through a few wrong ones (the hour of another time zone). After a number of 10
or 13 digits that can be seconds or milliseconds since 1970, the digits of that date are added to
the row, as if the line contained them.
"""

from typing import NamedTuple

import numpy as np

from verso_codecs.coder import Bytes, Int, State, inlined, kernel

RING = 1 << 10
"""Digits that are remembered."""

_SLOTS = 1 << 10
_COMPARED = 4
_MISSES_LIMIT = 4
_MARGIN = 8  # of remembered digits that are about to be overwritten
_HASH = 0x2F0B
_EARLIEST, _LATEST = 500_000_000, 4_000_000_000

_COUNT, _POINT, _HITS, _MISSES = range(4)


class Digits(NamedTuple):
    """A record's digits.

    state: Shape: (4,), int64: count, position of the expected digit or 0, hits, misses
    ring: Shape: (RING,), uint8, the last digits
    slots: Shape: (slots,), int64, by hash of four digits how many there were behind them
    """

    state: State
    ring: Bytes
    slots: State


@kernel
def new_digits() -> Digits:
    """Return the state at a record's start."""
    return Digits(np.zeros(4, np.int64), np.zeros(RING, np.uint8), np.zeros(_SLOTS, np.int64))


@kernel
def forget_digits(digits: Digits) -> None:
    """Reset to the state at a record's start."""
    digits.state[:] = 0
    digits.slots[:] = 0


@inlined
def _at(digits: Digits, position: Int) -> Int:
    return np.int64(digits.ring[position & (RING - 1)])


@inlined
def _add_digit(digits: Digits, digit: Int) -> Int:
    """Add a digit; return what followed the last four where they occurred before, or 0."""
    state = digits.state
    count: Int = state[_COUNT]
    digits.ring[count & (RING - 1)] = digit
    count += 1
    state[_COUNT] = count
    if count < _COMPARED:
        return 0
    last: Int = 0
    for back in range(1, _COMPARED + 1):
        last = last * 10 + _at(digits, count - back)
    slot = ((last * _HASH) >> 4) & (_SLOTS - 1)
    found: Int = digits.slots[slot]
    digits.slots[slot] = count
    if found == 0 or count - found > RING - _MARGIN:
        return 0
    for back in range(1, _COMPARED + 1):
        if _at(digits, found - back) != _at(digits, count - back):
            return 0
    return found


@kernel
def push_digit(digits: Digits, digit: Int) -> None:
    """Advance by a digit of the record."""
    state = digits.state
    point: Int = state[_POINT]
    if point > 0:
        if _at(digits, point) == digit:
            state[_HITS] = min(state[_HITS] + 1, 15)
        else:
            state[_MISSES] += 1
            state[_HITS] = 0
        point += 1
        if state[_MISSES] > _MISSES_LIMIT or point >= state[_COUNT]:
            point = 0
    found = _add_digit(digits, digit)
    if point == 0 and found > 0:
        point = found
        state[_HITS] = 1
        state[_MISSES] = 0
    state[_POINT] = point


@kernel
def expected_digit(digits: Digits) -> Int:
    """Return the expected digit plus 1 with how far to trust it, in 11 bits, or 0 for none."""
    state = digits.state
    if state[_POINT] == 0:
        return 0
    trust: Int = state[_HITS] << 4 | state[_MISSES] << 8
    return (_at(digits, state[_POINT]) + 1) | trust


@inlined
def _add_number(digits: Digits, value: Int, width: Int) -> None:
    divisor: Int = 1
    for _ in range(width - 1):
        divisor *= 10
    for _ in range(width):
        _add_digit(digits, (value // divisor) % 10)
        divisor //= 10


@kernel
def push_clock(digits: Digits, seconds: Int) -> None:
    """Add the digits of a date and time of day, if so many seconds after 1970 is likely one.

    The calendar is Hinnant 2013 ("chrono-compatible low-level date algorithms", civil_from_days).
    """
    if not _EARLIEST <= seconds < _LATEST:
        return
    days = seconds // 86400 + 719468  # since 0000-03-01
    rest = seconds % 86400
    era = days // 146097
    of_era = days - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153  # March is 0
    day = of_year - (153 * month + 2) // 5 + 1
    after = 1 if month >= 10 else 0
    _add_number(digits, year + era * 400 + after, 4)
    _add_number(digits, month - 9 if after else month + 3, 2)
    _add_number(digits, day, 2)
    _add_number(digits, rest // 3600, 2)
    _add_number(digits, rest // 60 % 60, 2)
    _add_number(digits, rest % 60, 2)
