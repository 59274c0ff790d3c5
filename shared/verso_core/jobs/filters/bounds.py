"""The bounds of a request's filter, which limit what it costs to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verso_core.jobs.filters.nodes import TIME

MAX_DEPTH = 8
"""Deepest nesting of a request's filter."""
MAX_LEAVES = 32
"""Most leaves of a request's filter."""
MAX_VALUES = 256
"""Most values in the lists of a request's filter, in all its leaves."""
MAX_FRACTIONS = 8
"""Most numbers with a fraction in its lists: stores compare each by itself, others at once."""

BRANCHES = ("and", "or", "not")


def oversize(where: object) -> tuple[str, str] | None:
    """Return where and how a filter passes the bounds of a request; None for one within them.

    For a filter that is not validated yet: its cost is limited by the bounds too.

    Returns:
        A JSON pointer to the part (RFC 6901), and what was expected.
    """
    leaves = values = fractions = 0
    waiting: list[tuple[str, int, object]] = [("", 1, where)]
    while waiting:
        place, depth, one = waiting.pop()
        if not isinstance(one, dict):
            continue  # the model says what is wrong
        if depth > MAX_DEPTH:
            return place, f"expected a filter of depth <= {MAX_DEPTH}"
        branches = [name for name in BRANCHES if name in one]
        old = one.get("metadata")
        keys = len(old) if isinstance(old, dict) else 0
        leaves += 0 if branches else max(1, keys)
        if leaves > MAX_LEAVES:
            where_keys = "/metadata" if keys > 1 else ""
            return place + where_keys, f"expected <= {MAX_LEAVES} leaves in a filter"
        for key, compared in _lists(one):
            values += len(compared)
            if values > MAX_VALUES:
                return place + key, f"expected <= {MAX_VALUES} values in a filter"
            if one.get("field") != TIME:  # it always has an index
                fractions += sum(type(v) is float and not v.is_integer() for v in compared)
            if fractions > MAX_FRACTIONS:
                return place + key, f"expected <= {MAX_FRACTIONS} fractions in lists in a filter"
        for name in branches:
            parts = one[name] if isinstance(one[name], list) else [one[name]]
            if len(parts) > MAX_LEAVES:
                return f"{place}/{name}", f"expected <= {MAX_LEAVES} leaves in a filter"
            waiting += [
                (f"{place}/{name}/{n}" if name != "not" else f"{place}/not", depth + 1, part)
                for n, part in enumerate(parts)
            ]
    return None


def _lists(one: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists that a leaf compares with, each with a JSON pointer."""
    if isinstance(one.get("in"), list):
        yield "/in", one["in"]
    old = one.get("metadata")
    for key, value in old.items() if isinstance(old, dict) else ():
        if isinstance(value, list):
            yield "/metadata/" + key.replace("~", "~0").replace("/", "~1"), value
