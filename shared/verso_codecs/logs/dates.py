"""The calendar, for kernels: days since 1970-01-01 of a date and back.

After Hinnant 2013, "chrono-compatible low-level date algorithms": days_from_civil and
civil_from_days.
"""

import numpy as np

from verso_codecs.coder import Bytes, Int, inlined

DAY_S = 86400

_ERA_DAYS = 146097  # of 400 years
_EPOCH_DAYS = 719468  # from 0000-03-01 to 1970-01-01
_MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_WEEKDAYS = b"ThuFriSatSunMonTueWed"  # 1970-01-01 was a Thursday
MONTH_NAMES = np.frombuffer(bytearray(_MONTHS), np.uint8)
WEEKDAY_NAMES = np.frombuffer(bytearray(_WEEKDAYS), np.uint8)
_LENGTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


@inlined
def days_of(year: Int, month: Int, day: Int) -> Int:
    """Return the days from 1970-01-01 to a date. Month 1..12, day 1..31."""
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


@inlined
def date_of(days: Int) -> tuple[Int, Int, Int]:
    """Return year, month and day of a number of days since 1970-01-01."""
    shifted = days + _EPOCH_DAYS
    era = shifted // _ERA_DAYS
    of_era = shifted - era * _ERA_DAYS
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153  # March is 0
    day = of_year - (153 * month + 2) // 5 + 1
    after = 1 if month >= 10 else 0
    return year + era * 400 + after, (month - 9 if after else month + 3), day


@inlined
def is_date(year: Int, month: Int, day: Int) -> bool:
    """Whether there is such a day."""
    if month < 1 or month > 12 or day < 1:
        return False
    if month == 2 and day == 29:
        return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return bool(day <= _LENGTHS[month - 1])


@inlined
def name_at(data: Bytes, begin: Int, end: Int, names: Bytes) -> Int:
    """Return which of the three-letter names stands at `begin`, from 0, or -1."""
    if begin + 3 > end:
        return np.int64(-1)
    for number in range(names.size // 3):
        if (
            data[begin] == names[3 * number]
            and data[begin + 1] == names[3 * number + 1]
            and data[begin + 2] == names[3 * number + 2]
        ):
            return np.int64(number)
    return np.int64(-1)


@inlined
def digit_at(data: Bytes, at: Int) -> Int:
    """Return the value of an ASCII digit, or -1."""
    value = np.int64(data[at]) - 48
    return value if 0 <= value <= 9 else np.int64(-1)


@inlined
def two_at(data: Bytes, at: Int) -> Int:
    """Return the value of two ASCII digits, or -1."""
    high, low = digit_at(data, at), digit_at(data, at + 1)
    return high * 10 + low if high >= 0 and low >= 0 else np.int64(-1)
