"""Dates in metadata, which Haystack compares and Verso keeps as strings.

Beside each string that is an ISO 8601 date its two numbers are stored, under :data:`SHADOW`, where
filters find them: ``naive`` is the reading of the clock, ``aware`` the moment, of dates with an
offset from UTC. Haystack reads a date without an offset in the zone of the other one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

SHADOW = "_dates"
"""Key of metadata that holds the numbers, in the shape of the metadata."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ].*)?", re.DOTALL)


def date_of(value: object) -> datetime | None:
    """Return a value as a date; None if it is none."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def naive(date: datetime) -> float:
    """Return what the clock says, as if it were UTC, seconds."""
    return date.replace(tzinfo=UTC).timestamp()


def with_shadow(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with the numbers of its dates.

    Raises:
        ValueError: it has a key of this module's own.
    """
    if SHADOW in meta:
        raise ValueError(f"expected metadata without the key {SHADOW!r}")
    shadow = _shadow(meta)
    return {**meta, SHADOW: shadow} if shadow else dict(meta)


def without_shadow(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as it was given."""
    return {key: value for key, value in metadata.items() if key != SHADOW}


def _shadow(meta: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in meta.items():
        if isinstance(value, Mapping):
            if inner := _shadow(value):
                found[key] = inner
        elif (date := date_of(value)) is not None:
            found[key] = {"naive": naive(date)}
            if date.tzinfo is not None:
                found[key]["aware"] = date.timestamp()
    return found
