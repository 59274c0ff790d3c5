"""Filters of LlamaIndex as filters of Verso (``build_metadata_filter_fn`` of its simple store).

``contains``, ``any`` and ``all`` ask for values of a list, not for parts of a text; what is no
number has no order; a list in metadata is equal to each of its values.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from verso_client import Filter

_ORDERS = {
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
}


def filter_of(filters: MetadataFilters | None) -> Filter | None:
    """Return a filter; None for none.

    Raises:
        ValueError: an operator cannot be translated, or does not take its value.
    """
    if filters is None or not filters.filters:
        return None
    parts = [
        filter_of(one) or _joined("and", []) if isinstance(one, MetadataFilters) else _leaf(one)
        for one in filters.filters
    ]
    match filters.condition:
        case FilterCondition.OR:
            return _joined("or", parts)
        case FilterCondition.NOT:
            return ~_joined("or", parts)
    return _joined("and", parts)


def _leaf(one: MetadataFilter) -> Filter:
    field, value = f"metadata.{one.key}", one.value
    match one.operator:
        case FilterOperator.EQ:
            return _equal(field, value)
        case FilterOperator.NE:
            return ~_equal(field, value)
        case FilterOperator.IN | FilterOperator.ANY:
            return _any_of(field, value)
        case FilterOperator.NIN:
            return ~_any_of(field, value)
        case FilterOperator.ALL:
            return _joined("and", [_has(field), *(_equal(field, each) for each in _list(value))])
        case FilterOperator.CONTAINS:
            return _equal(field, value)
        case FilterOperator.IS_EMPTY:
            return _joined("or", [~_has(field), _equal(field, "")])
        case FilterOperator.GT | FilterOperator.GTE | FilterOperator.LT | FilterOperator.LTE:
            if not isinstance(value, int | float):
                raise ValueError(f"expected a number with {one.operator.value}, got {value!r}")
            return Filter.model_validate({"field": field, _ORDERS[one.operator]: value})
    raise ValueError(f"expected another operator than {one.operator.value}: no filter of Verso")


def _has(field: str) -> Filter:
    return Filter(field=field, exists=True)


def _equal(field: str, value: Any) -> Filter:
    return _any_of(field, [value])


def _any_of(field: str, values: Any) -> Filter:
    """Return one leaf: a filter may have more values than leaves."""
    return Filter.one_of(field, [one for value in _list(values) for one in _equals(value)])


def _equals(value: Any) -> list[Any]:
    if isinstance(value, list):
        raise ValueError("expected a single value: lists are compared with in, any or all")
    if value is None:  # nothing is equal to it, not even a key that is missing
        return []
    if isinstance(value, int | float) and value in (0, 1):  # in Python True == 1
        return [bool(value), int(value)]
    return [value]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {type(value).__name__}")
    return value


def _joined(branch: str, parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else Filter.model_validate({branch: parts})
