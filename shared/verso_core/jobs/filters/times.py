"""Times that a request names: Unix seconds, or RFC 3339 with an offset."""

from __future__ import annotations

from datetime import datetime

MOMENT_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]}
"""Of a time that a request names: Unix seconds, or RFC 3339 with an offset."""


def seconds(value: object) -> float:
    """Return a time in a request as Unix seconds.

    Raises:
        ValueError: it is neither a number nor RFC 3339 with an offset.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise ValueError("expected Unix seconds, or RFC 3339 with an offset, as a time")
    return parsed.timestamp()
