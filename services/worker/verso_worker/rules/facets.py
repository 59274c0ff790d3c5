"""How often documents have each value of a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from verso_core.jobs.documents import Facet, FacetValue
from verso_core.jobs.filters.nodes import path_of
from verso_core.texts import Scalar, values_of


class FieldValues:
    """Counts the values of one field."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._key = path_of(field) or field
        self._counts: Counter[tuple[str, Scalar]] = Counter()
        self._missing = 0

    def add(self, values: Mapping[str, Iterable[Scalar]], *, times: int = 1) -> None:
        """Count documents that have the same values."""
        found = {_typed(value) for value in values.get(self._key, ())}
        self._counts.update(dict.fromkeys(found, times))
        self._missing += 0 if found else times

    def described(self, limit: int) -> Facet:
        """Return the most frequent values."""
        best = sorted(self._counts.items(), key=lambda row: (-row[1], row[0]))[:limit]
        return Facet(
            field=self._field,
            values=tuple(FacetValue(value=value, documents=n) for (_, value), n in best),
            distinct=len(self._counts),
            missing=self._missing,
        )


def label_of(metadata: Mapping[str, Any], field: str) -> str | None:
    """Return a field's value, of several the first one, as a label; None if it has no value."""
    found = values_of(metadata).get(path_of(field) or field)
    if not found:
        return None
    return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])


def _typed(value: Scalar) -> tuple[str, Scalar]:
    """Return a value with its type: to Python 1 and true are one key. 1 and 1.0 are the same."""
    if isinstance(value, bool | str):
        return type(value).__name__, value
    return "number", int(value) if value == int(value) else value
