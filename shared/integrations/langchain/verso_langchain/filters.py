"""Filters of LangChain as filters of Verso.

LangChain's stores share a form of MongoDB's: ``{"host": "a", "n": {"$gte": 3}}``, joined by
``$and``, ``$or`` and ``$not``. Self-querying retrievers write a structured query, which
:class:`VersoTranslator` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.structured_query import (
    Comparator,
    Comparison,
    Operation,
    Operator,
    StructuredQuery,
    Visitor,
)

from verso_client import Filter

_Leaf = Callable[[str, Any], Filter]


def _operator(name: str) -> _Leaf:
    return lambda field, value: Filter.model_validate({"field": field, name: value})


def _none_of(field: str, values: Any) -> Filter:
    return ~Filter.one_of(field, values)


_LEAVES: dict[str, _Leaf] = {
    **{f"${name}": _operator(name) for name in ("eq", "ne", "gt", "gte", "lt", "lte", "exists")},
    "$in": Filter.one_of,
    "$nin": _none_of,
}
_COMPARATORS = {
    **{one: f"${one.value}" for one in Comparator if f"${one.value}" in _LEAVES},
    Comparator.CONTAIN: "$eq",  # some value of a list equals it
}


def filter_of(where: Filter | Mapping[str, Any] | None) -> Filter | None:
    """Return a filter; one of Verso as it is.

    Raises:
        ValueError: an operator is not known, or does not take its value.
    """
    if where is None or isinstance(where, Filter):
        return where
    parts = [part for key, value in where.items() for part in _parts(key, value)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else _joined("and", parts)


def _parts(key: str, value: Any) -> list[Filter]:
    if key in ("$and", "$or"):
        return [_joined(key[1:], [_whole(part) for part in value])]
    if key == "$not":
        return [~_whole(value)]
    if key.startswith("$"):
        raise ValueError(f"expected $and, $or or $not, got {key}")
    asked = value if _is_operators(value) else {"$eq": value}
    return [_leaf(key, name, wanted) for name, wanted in asked.items()]


def _is_operators(value: Any) -> bool:
    return isinstance(value, Mapping) and any(str(name).startswith("$") for name in value)


def _whole(where: Any) -> Filter:
    found = filter_of(where)
    return _joined("and", []) if found is None else found


def _leaf(key: str, name: str, value: Any) -> Filter:
    if name == "$not":
        return ~_whole({key: value})
    if name not in _LEAVES:
        raise ValueError(f"expected one of {', '.join(_LEAVES)}, got {name}")
    # A document's own fields, such as time, have no prefix.
    return _LEAVES[name](f"metadata.{key}", value)


def _joined(branch: str, parts: list[Filter]) -> Filter:
    return Filter.model_validate({branch: parts})


class VersoTranslator(Visitor):
    """Translates structured queries, for ``SelfQueryRetriever``."""

    allowed_comparators = tuple(_COMPARATORS)
    allowed_operators = tuple(Operator)

    def visit_operation(self, operation: Operation) -> Filter:
        """Return the filter of an operation."""
        parts = [part.accept(self) for part in operation.arguments]
        if operation.operator is Operator.NOT:
            return ~_joined("and", parts)
        return _joined(operation.operator.value, parts)

    def visit_comparison(self, comparison: Comparison) -> Filter:
        """Return the filter of a comparison."""
        return _leaf(comparison.attribute, _COMPARATORS[comparison.comparator], comparison.value)

    def visit_structured_query(
        self, structured_query: StructuredQuery
    ) -> tuple[str, dict[str, Any]]:
        """Return the query, and the arguments of a search."""
        where = structured_query.filter
        return structured_query.query, {} if where is None else {"filter": where.accept(self)}
