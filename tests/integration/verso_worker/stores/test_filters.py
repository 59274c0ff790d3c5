"""Every vector store passes the points that the reference says, with and without indexes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from tests import filters as drawn
from tests.integration.verso_worker.vector_stores import DIM, SCALE, Store, make, store, units

from verso_core.jobs import Filter, IndexKind, Precision
from verso_core.jobs.filters.compiled import matches
from verso_worker.records.points import Point
from verso_worker.records.space import Space
from verso_worker.stores.bm25 import Bm25

__all__ = ["store"]

COUNT = 80
FIRST = UUID(int=0)


def corpus() -> list[dict[str, Any]]:
    """Return payloads: each value alone in each key, then mixtures; some without a time."""
    rng = random.Random(7)
    alone = [{"code": value} for value in drawn.SCALARS]
    alone += [{"host": value} for value in ("a", "ab", ["a", "b"], [], None)]
    alone += [{"a": {"b": "a"}}, {"a.b": "a"}, {"a": {"b": 1}, "a.b": "b"}, {"x": {"y": {"z": 2}}}]

    def some() -> dict[str, Any]:
        values = [rng.choice(drawn.SCALARS) for _ in range(3)]
        keys = rng.sample(drawn.KEYS, 3)
        mixed: dict[str, Any] = dict(zip(keys, values, strict=True))
        mixed[rng.choice(drawn.KEYS)] = [*values[:2], None]
        return mixed

    every = [*alone, *(some() for _ in range(COUNT - len(alone)))]
    times = [None, 0.0, 1.5, 2.0, 2.0]
    return [
        {"d": f"doc{n}", "n": 0, "m": metadata} | ({} if (t := times[n % 5]) is None else {"t": t})
        for n, metadata in enumerate(every)
    ]


CORPUS = corpus()


@pytest.fixture(scope="module", params=["plain", "indexed"])
def filled(store: Store, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"filters-{request.param}"
    space = make(store.vectors, name, Precision.INT8)
    rows = space.round(units(COUNT))
    points = [Point(UUID(int=n + 1), rows[n], payload) for n, payload in enumerate(CORPUS)]
    half = COUNT // 2
    store.vectors.put(name, points[:half])
    if request.param == "indexed":
        kinds = [IndexKind.KEYWORD, IndexKind.NUMBER]
        store.vectors.index(name, {key: kinds[n % 2] for n, key in enumerate((*drawn.KEYS, "a"))})
    store.vectors.put(name, points[half:])
    second = {"d": "doc1", "n": 1, "m": CORPUS[1]["m"], "t": 0.0}
    store.vectors.put(name, [Point(UUID(int=COUNT + 1), rows[0], second)])
    yield name
    store.vectors.drop(name)


def expected(where: Filter) -> list[str]:
    return [
        row["d"]
        for row in CORPUS
        if matches(where, metadata=row["m"], time=row.get("t"), id=row["d"])
    ]


def found(store: Store, name: str, where: Filter) -> list[str]:
    page = store.vectors.page(name, FIRST, limit=2 * COUNT, where=where, first=True)
    return [payload["d"] for _, payload in page]


def test_metadata_comes_back_equal(store: Store, filled: str) -> None:
    page = store.vectors.page(filled, FIRST, limit=COUNT)
    assert [written(payload) for _, payload in page] == [written(row) for row in CORPUS]


def written(payload: dict[str, Any]) -> str:
    return json.dumps(payload, sort_keys=True)  # tells 1, 1.0 and true apart


def each_test() -> list[dict[str, Any]]:
    values = (*drawn.SCALARS, None)
    numbers = [one for one in drawn.SCALARS if type(one) in (int, float)]
    return [
        *({"field": "code", "eq": value} for value in values),
        *({"field": "code", "ne": value} for value in values),
        *({"field": "code", name: one} for name in ("gt", "gte", "lt", "lte") for one in numbers),
        *({"field": "code", "prefix": one} for one in drawn.SCALARS if one and type(one) is str),
        *({"field": field, "exists": one} for field in drawn.FIELDS for one in (True, False)),
        {"field": "code", "in": list(values)},
        {"field": "code", "in": [n + 0.5 for n in range(8)]},
        {"field": "host", "in": ["a", "zz"]},
        {"field": "a.b", "eq": "a"},
        {"field": "time", "in": [0, 2.0]},
        {"field": "time", "gt": 0, "lte": 2},
        {"field": "id", "in": ["doc3", "doc4", "x"]},
        {"field": "id", "prefix": "doc1"},
        {"and": [{"field": "code", "gte": 1}, {"not": {"field": "code", "eq": 1}}]},
        {"or": []},
        {},
    ]


def test_each_test_passes_what_the_reference_says(store: Store, filled: str) -> None:
    wrong = {}
    for where in map(Filter.model_validate, each_test()):
        if (passed := sorted(found(store, filled, where))) != sorted(expected(where)):
            wrong[str(where.model_dump())] = set(passed) ^ set(expected(where))
    assert wrong == {}


@settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(where=drawn.filters())
def test_any_filter_passes_what_the_reference_says(
    store: Store, filled: str, where: dict[str, Any]
) -> None:
    asked = Filter.model_validate(where)
    wanted = expected(asked)
    assert found(store, filled, asked) == wanted
    assert store.vectors.count(filled, where=asked, first=True) == len(wanted)
    hits = store.vectors.search(filled, units(1, seed=3)[0], limit=2 * COUNT, where=asked)
    assert {hit.payload["d"] for hit in hits} == set(wanted)


def test_points_are_counted_by_chunk_and_by_document(store: Store, filled: str) -> None:
    assert store.vectors.count(filled) == COUNT + 1
    assert store.vectors.count(filled, first=True) == COUNT
    assert store.vectors.count(filled, where=Filter(field="id", eq="doc1")) == 2


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("start", [None, 1.5])
def test_points_come_by_time(
    store: Store, filled: str, start: float | None, descending: bool
) -> None:
    where = Filter(field="code", exists=True)
    timed = [row for row in CORPUS if row["d"] in expected(where) and "t" in row]
    if start is not None:
        timed = [row for row in timed if (row["t"] <= start if descending else row["t"] >= start)]
    wanted = sorted((row["t"] for row in timed), reverse=descending)
    page = store.vectors.by_time(filled, start, descending=descending, limit=99, where=where)
    assert [payload["t"] for _, payload in page] == wanted
    assert {payload["d"] for _, payload in page} == {row["d"] for row in timed}
    some = store.vectors.by_time(filled, start, descending=descending, limit=7, where=where)
    assert [payload["t"] for _, payload in some] == wanted[:7]


def test_points_without_payload_pass_a_filter_by_id_if_they_are_named(store: Store) -> None:
    """Others of them do not, whatever the filter says of a point that has no field."""
    name, texts = "besides", [b"one disk", b"two disks", b"a disk", b"the disk", b"more disks"]
    store.vectors.create(name, dim=DIM, precision=Precision.INT8, int8_scale=SCALE, terms=True)
    rows = Space(Precision.INT8, DIM, SCALE).round(units(5))
    ids = [UUID(int=n + 1) for n in range(5)]
    payloads = [{"d": "log/1", "n": 0}, {"d": "mail", "n": 0}, {}, {}, {}]
    parts = zip(ids, rows, payloads, Bm25().documents(texts), strict=True)
    store.vectors.put(name, [Point(*part) for part in parts])
    query, words = units(1, seed=9)[0], Bm25().query(b"disk")
    for where, passing in (
        ({"field": "id", "prefix": "log/"}, {ids[0], ids[3]}),
        ({"not": {"field": "id", "prefix": "log/"}}, {ids[1], ids[3]}),
        ({"field": "id", "exists": False}, {ids[3]}),
    ):
        for vector, terms in ((query, None), (None, words), (query, words)):
            hits = store.vectors.search(
                name, vector, limit=10, where=Filter.model_validate(where), terms=terms,
                besides=[ids[3]],
            )  # fmt: skip
            assert {hit.id for hit in hits} == passing
    store.vectors.drop(name)
