"""Filters of Haystack as filters of Verso (:func:`haystack.utils.filters.document_matches_filter`).

What Haystack decides from a document's value, which a filter does not know, is refused or differs:
a list in metadata matches if one of its values does, and what is no number or date has no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from haystack.dataclasses import Document
from haystack.errors import FilterError
from pydantic import ValidationError

from verso_client import Filter
from verso_haystack.dates import SHADOW, date_of, naive

_ORDERS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_BRANCHES = {"AND": "and", "OR": "or", "NOT": "and"}
_OWN = frozenset(field.name for field in fields(Document)) - {"meta"}


def filter_of(filters: Mapping[str, Any] | None) -> Filter | None:
    """Return a filter; None for none.

    Raises:
        FilterError: it is none of Haystack, is too large, or compares what cannot be compared here.
    """
    try:
        return _condition(filters) if filters else None
    except ValidationError as exc:
        raise FilterError(f"expected a filter that Verso has: {exc}") from exc


def _condition(condition: Mapping[str, Any]) -> Filter:
    if "field" in condition:
        return _comparison(condition)
    operator = _given(condition, "operator")
    if operator not in _BRANCHES:
        raise FilterError(f"expected one of {', '.join(_BRANCHES)}, got {operator!r}")
    joined = _joined(
        _BRANCHES[operator], [_condition(one) for one in _given(condition, "conditions")]
    )
    return ~joined if operator == "NOT" else joined


def _given(condition: Mapping[str, Any], key: str) -> Any:
    if key not in condition:
        raise FilterError(f"expected a key {key!r} in {dict(condition)!r}")
    return condition[key]


def _comparison(condition: Mapping[str, Any]) -> Filter:
    name, operator = _given(condition, "field"), _given(condition, "operator")
    value = _given(condition, "value")
    path = _path(name)
    match operator:
        case "==":
            return _equal(path, value)
        case "!=":
            return ~_equal(path, value)
        case "in" | "not in":
            if not isinstance(value, list):
                raise FilterError(f"expected a list with {operator!r}, got {type(value).__name__}")
            found = _any_of(path, value)
            return found if operator == "in" else ~found
        case ">" | ">=" | "<" | "<=":
            return _ordered(path, _ORDERS[operator], value)
    raise FilterError(f"expected ==, !=, in, not in, >, >=, < or <=, got {operator!r}")


def _path(name: str) -> str:
    """Return the path of a field below the metadata; that of the id is ``""``."""
    if name.startswith("meta."):
        return name.removeprefix("meta.")
    if name == "id":
        return ""
    if name in _OWN:
        raise FilterError(f"expected id or a field of meta, got {name!r}")
    return name


def _leaf(path: str, **test: Any) -> Filter:
    field = f"metadata.{path}" if path else "id"
    return Filter.model_validate({"field": field, **test})


def _joined(branch: str, parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else Filter.model_validate({branch: parts})


def _equal(path: str, value: Any) -> Filter:
    return _any_of(path, [value])


def _any_of(path: str, values: list[Any]) -> Filter:
    """Return one leaf, and one for each date: a filter may have more values than leaves."""
    plain: list[Any] = []
    dated: list[Filter] = []
    for value in values:
        if isinstance(value, list | dict):
            raise FilterError("expected a single value: lists are compared with 'in'")
        date = date_of(value)
        if date is not None and path:
            dated.append(_dated(path, "eq", date))
        if isinstance(value, bool | int | float) and value in (0, 1):  # in Python True == 1
            plain += [bool(value), int(value)]
        elif not isinstance(value, datetime):
            plain.append(value)
    return _joined("or", ([_leaf(path, **{"in": plain})] if plain or not dated else []) + dated)


def _ordered(path: str, test: str, value: Any) -> Filter:
    if value is None:
        return _joined("or", [])  # None is neither more nor less: no document
    date = date_of(value)
    if date is not None:
        return _dated(path, test, date)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FilterError(f"expected a number or an ISO 8601 date with {test}, got {value!r}")
    return _leaf(path, **{test: value})


def _dated(path: str, test: str, date: datetime) -> Filter:
    clock, moment = f"{SHADOW}.{path}.naive", f"{SHADOW}.{path}.aware"
    by_clock = _leaf(clock, **{test: naive(date)})
    if date.tzinfo is None:
        return by_clock
    only_clock = _joined("and", [_leaf(moment, exists=False), by_clock])
    return _joined("or", [_leaf(moment, **{test: date.timestamp()}), only_clock])
