"""Times that senders write, as Unix nanoseconds: exact, however many digits they have."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from verso_core.jobs.logs.records import EARLIEST_NS, LATEST_NS

_SECOND_NS = 1_000_000_000
_DATE = re.compile(
    r"(?P<whole>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9})\d*)?"
    r"\s?(?P<zone>Z|z|[+-]\d\d:?\d\d)?"
)
_NUMBER = re.compile(r"\d{1,19}(?:\.\d{1,30})?")
# A number below the first bound is of seconds, below the second of milliseconds, and so on: the
# bounds are the years 5138 in one unit and 1973 in the next.
_UNITS = ((10**11, _SECOND_NS), (10**14, 1_000_000), (10**17, 1000))


def in_range(time_ns: int) -> int | None:
    """Return a time that a record may have; None for another."""
    return time_ns if EARLIEST_NS <= time_ns <= LATEST_NS else None


def nanoseconds(value: object, *, offset_s: int = 0) -> int | None:
    """Read a time: RFC 3339 and its like, or a number since 1970 in s, ms, us or ns.

    Args:
        value: a JSON value.
        offset_s: zone of a time without one, seconds east of UTC.

    Returns:
        Unix nanoseconds; None if it is no time, or out of range.
    """
    match value:
        case bool():
            return None
        case int():
            return in_range(value * _unit(value))
        case float():
            return _of_number(repr(value))
        case str():
            text = value.strip()
            return _of_date(text, offset_s) if "-" in text else _of_number(text)
    return None


def _of_date(text: str, offset_s: int) -> int | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    seconds = _seconds(found["whole"])
    if seconds is None:
        return None
    zone = found["zone"]
    if zone is not None:
        offset_s = 0
        if zone not in "Zz":
            minutes = int(zone[1:3]) * 60 + int(zone[-2:])
            offset_s = -60 * minutes if zone[0] == "-" else 60 * minutes
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    return in_range((seconds - offset_s) * _SECOND_NS + fraction)


@lru_cache(maxsize=1024)
def _seconds(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _of_number(text: str) -> int | None:
    try:
        # a float of JSON may be written with an exponent
        number = Decimal(text) if _NUMBER.fullmatch(text) or "e" in text else None
    except InvalidOperation:
        return None
    if number is None or not number.is_finite() or not 0 <= number <= LATEST_NS:
        return None
    return in_range(int(number * _unit(int(number))))


def _unit(number: int) -> int:
    return next((unit for bound, unit in _UNITS if number < bound), 1)
