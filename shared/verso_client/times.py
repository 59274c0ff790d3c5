"""Times as people write them on a command line.

15m  1h  2d  1w  1h30m      so long ago; of a time to come: from now
now  today  yesterday       today and yesterday start at midnight, UTC
2026-11-22  2026-11-22T20:15:00Z  2026-11-22 20:15:00+01:00
                            RFC 3339, or ISO 8601 without an offset: UTC
1795262400                  Unix seconds, of 9 digits or more
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from verso_core.errors import RequestInvalid

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(?:\d{1,9}[smhdw])+", re.ASCII)
_PART = re.compile(r"(\d+)([smhdw])", re.ASCII)
_UNIX = re.compile(r"\d{9,12}(?:\.\d{1,9})?", re.ASCII)
_TIME_LIMIT_S = 253_402_300_800.0
"""The year 10000, where RFC 3339 ends."""


def unix_seconds(text: str, *, now: datetime | None = None, ahead: bool = False) -> float:
    """Return the time that a text names, Unix seconds.

    Args:
        text: one of the forms above; upper and lower case are the same.
        now: what the text counts from; by default the present time.
        ahead: whether spans count from then on, as of a time to come.

    Raises:
        RequestInvalid: the text has none of the forms, or its time is out of range.
    """
    word = text.strip()
    present = datetime.now(UTC) if now is None else now.astimezone(UTC)
    time_s = _parsed(word, present, ahead=ahead)
    if time_s is None:
        raise RequestInvalid(
            f"expected a time such as {'12h, 90d' if ahead else '15m, 2d, yesterday'} or "
            f"2026-11-22T20:15:00Z, got {text!a}"
        )
    if not abs(time_s) < _TIME_LIMIT_S:
        raise RequestInvalid(f"expected a time before the year 10000, got {text!a}")
    return time_s


def _parsed(word: str, now: datetime, *, ahead: bool) -> float | None:
    lower = word.lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match lower:
        case "now":
            return now.timestamp()
        case "today":
            return midnight.timestamp()
        case "yesterday":
            return (midnight - timedelta(days=1)).timestamp()
    if _SPAN.fullmatch(lower):
        span_s = sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(lower))
        return now.timestamp() + (span_s if ahead else -span_s)
    if _UNIX.fullmatch(lower):
        return float(lower)
    try:
        parsed = datetime.fromisoformat(word.upper())
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
