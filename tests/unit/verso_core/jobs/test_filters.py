"""Filters: their forms, their bounds, and what they hold for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError
from tests.filters import filters

from verso_core.jobs import Filter
from verso_core.jobs.filters.bounds import oversize
from verso_core.jobs.filters.compiled import compiled, matches


def read(where: Any) -> Filter:
    return Filter.model_validate_json(json.dumps(where), strict=True)


def holds(where: Any, metadata: Any = None, *, time: float | None = None, id: str = "doc") -> bool:  # noqa: A002
    return matches(read(where), metadata=metadata or {}, time=time, id=id)


@given(where=filters())
def test_a_filter_is_written_as_it_was_read(where: dict[str, Any]) -> None:
    given = read(where)
    assert read(given.model_dump(mode="json")) == given
    assert compiled(read(given.model_dump(mode="json"))) == compiled(given)


def test_null_is_written_only_where_it_was_given() -> None:
    assert read({"field": "a", "ne": "x"}).model_dump() == {"field": "a", "ne": "x"}
    assert read({"field": "a", "eq": None}).model_dump() == {"field": "a", "eq": None}


def test_filters_are_joined_by_operators() -> None:
    host, level = Filter(field="host", eq="a"), Filter(field="level", prefix="warn")
    assert (host & ~level | Filter.one_of("code", [1, None])).model_dump() == {
        "or": [
            {"and": [{"field": "host", "eq": "a"}, {"not": {"field": "level", "prefix": "warn"}}]},
            {"field": "code", "in": [1, None]},
        ]
    }


METADATA = {
    "host": "a",
    "code": 1,
    "share": 0.5,
    "ok": True,
    "tags": ["x", "y", None],
    "none": None,
    "empty": [],
    "k8s": {"pod": {"name": "p-1"}, "up": False},
    "a.b": "dotted",
    "big": 2**60,
    "time": "noon",
    "numbers": [0, 10],
}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, True),
        ({"field": "host", "eq": "a"}, True),
        ({"field": "host", "eq": "A"}, False),
        ({"field": "code", "eq": 1.0}, True),
        ({"field": "code", "eq": "1"}, False),
        ({"field": "code", "eq": True}, False),
        ({"field": "ok", "eq": True}, True),
        ({"field": "ok", "eq": 1}, False),
        ({"field": "tags", "eq": "y"}, True),
        ({"field": "tags", "ne": "y"}, False),
        ({"field": "tags", "ne": "z"}, True),
        ({"field": "absent", "ne": "z"}, True),
        ({"field": "absent", "eq": None}, True),
        ({"field": "none", "eq": None}, True),
        ({"field": "empty", "exists": False}, True),
        ({"field": "tags", "exists": True}, True),
        ({"field": "tags", "eq": None}, False),
        ({"field": "k8s", "exists": True}, False),
        ({"field": "k8s.pod.name", "eq": "p-1"}, True),
        ({"field": "k8s.up", "in": [False, "p"]}, True),
        ({"field": "a.b", "prefix": "dot"}, True),
        ({"field": "a.b", "prefix": "Dot"}, False),
        ({"field": "host", "in": []}, False),
        ({"field": "absent", "in": [None]}, True),
        ({"field": "share", "gt": 0, "lte": 0.5}, True),
        ({"field": "share", "lt": 0.5}, False),
        ({"field": "numbers", "gt": 1, "lt": 9}, True),  # each holds for some number
        ({"field": "host", "gt": 0}, False),
        ({"field": "ok", "gte": 0}, False),
        ({"field": "big", "eq": 2**60}, True),
        ({"field": "big", "eq": 2**60 + 1}, False),
        ({"field": "big", "eq": float(2**60)}, False),
        ({"field": "big", "gt": 0}, False),
        ({"field": "time", "gte": 10}, True),
        ({"field": "time", "gte": "1970-01-01T00:00:10+00:00", "lt": 11}, True),
        ({"field": "time", "in": [10, 11]}, True),
        ({"field": "metadata.time", "eq": "noon"}, True),
        ({"field": "id", "prefix": "do"}, True),
        ({"field": "id", "in": ["doc", "x"]}, True),
        ({"not": {"field": "id", "eq": "doc"}}, False),
        ({"and": []}, True),
        ({"or": []}, False),
        ({"or": [{"field": "host", "eq": "b"}, {"field": "code", "eq": 1}]}, True),
        ({"metadata": {"host": ["b", "a"], "code": 1}, "time_gte": 10, "time_lt": 11}, True),
        ({"metadata": {"host": []}}, False),
        ({"metadata": {"time": "noon"}, "time_lt": None}, True),
    ],
)
def test_what_a_filter_holds_for(where: Any, expected: bool) -> None:
    assert holds(where, METADATA, time=10.0) is expected
    assert holds({"not": where}, METADATA, time=10.0) is not expected


def test_a_document_without_a_time_is_in_no_range_of_it() -> None:
    assert not holds({"field": "time", "gte": 0})
    assert holds({"field": "time", "exists": False})
    assert holds({"field": "time", "ne": 5})


@pytest.mark.parametrize(
    "where",
    [
        {"and": [{"field": "a"}]},
        {"and": None},
        {"and": [], "field": "a"},
        {"and": [], "or": []},
        {"eq": 1},
        {"field": "a", "gt": "x"},
        {"field": "a", "gt": True},
        {"field": "a", "gt": None},
        {"field": "a", "in": None},
        {"field": "a", "eq": [1]},
        {"field": "a", "like": "x"},
        {"field": "a", "eq": 1, "time_lt": 3},
        {"field": "a", "prefix": ""},
        {"field": "", "eq": 1},
        {"field": "id", "gt": 1},
        {"field": "id", "eq": 1},
        {"field": "time", "gt": "noon"},
        {"field": "time", "gt": "2026-01-01T00:00:00"},
        {"field": "time", "prefix": "1"},
        {"field": "time", "eq": True},
        {"host": "a"},
    ],
)
def test_what_is_no_filter_is_refused(where: Any) -> None:
    with pytest.raises(ValidationError):
        read(where)


def deep(levels: int) -> Any:
    return {"not": deep(levels - 1)} if levels else {"field": "a", "eq": 1}


@pytest.mark.parametrize(
    ("where", "place"),
    [
        (deep(7), None),
        (deep(8), "/not" * 8),
        ({"or": [{"field": "a", "eq": 1}] * 32}, None),
        ({"or": [{"field": "a", "eq": 1}] * 33}, "/or"),
        ({"or": [{"and": [{"field": "a", "eq": 1}] * 20}] * 2}, "/or/0/and/7"),
        ({"and": [{"field": "a", "in": [0] * 256}]}, None),
        ({"and": [{"field": "a", "in": [0] * 257}]}, "/and/0/in"),
        ({"field": "a", "in": [n + 0.5 for n in range(9)]}, "/in"),
        ({"metadata": {"a/b": list(range(400_000))}}, "/metadata/a~1b"),
        ({"metadata": {str(n): n for n in range(33)}}, "/metadata"),
        ("no filter", None),
    ],
)
def test_a_filter_of_a_request_is_bounded(where: Any, place: str | None) -> None:
    found = oversize(where)
    assert (None if found is None else found[0]) == place
