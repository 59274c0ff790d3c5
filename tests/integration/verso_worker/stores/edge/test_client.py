"""What every vector store promises to keep, asked of each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from tests.integration.verso_worker.vector_stores import (
    DIM,
    LINES,
    PRECISIONS,
    SCALE,
    Edge,
    Store,
    bits,
    make,
    name,
    points_of,
    store,
    units,
    worded,
)

from verso_core.errors import (
    CollectionExists,
    CollectionUnknown,
    IdInvalid,
    MetadataInvalid,
    VectorInvalid,
)
from verso_core.jobs import Precision
from verso_worker.records.points import NO_TERMS, Point, Sizes, Terms
from verso_worker.records.space import Stored
from verso_worker.rules.ports.stores import Vectors
from verso_worker.stores.bm25 import Bm25

__all__ = ["name", "store"]


@PRECISIONS
def test_a_put_vector_comes_back_bit_for_bit_also_after_a_restart(
    store: Store, name: str, precision: Precision
) -> None:
    space = make(store.vectors, name, precision)
    rows = space.round(units(100))
    if precision is not Precision.INT4:  # which has no place for zeros
        rows[0] = 0
        rows[1] = -rows[0]  # float16 knows a negative zero
    rows[2] = space.round(np.eye(1, DIM, dtype=np.float32))[0]
    points = points_of(rows)
    store.vectors.put(name, points)
    for _ in range(2):
        back = store.vectors.get(name, [point.id for point in points])
        assert {i: bits(row) for i, row in back.items()} == {p.id: bits(p.stored) for p in points}
        assert store.vectors.count(name) == 100
        assert store.vectors.sizes(name).vectors == 100 * space.size_bytes
        store.close()
        store.open()


@PRECISIONS
def test_extreme_numbers_come_back_bit_for_bit(
    store: Store, name: str, precision: Precision
) -> None:
    space = make(store.vectors, name, precision)
    numbers: Stored
    if precision is Precision.INT8:
        numbers = np.resize(np.arange(-127, 128), DIM).astype(np.int8)
    elif precision is Precision.INT4:
        ends = np.concatenate([np.eye(DIM), -np.eye(DIM), np.ones((1, DIM))])
        numbers = space.round(ends.astype(np.float32)).reshape(-1)
    else:
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        numbers = every[np.isfinite(every)]
    width = space.width
    rows = np.resize(numbers, (-(-len(numbers) // width), width)).astype(space.dtype)
    points = points_of(rows)
    store.vectors.put(name, points)
    back = store.vectors.get(name, [point.id for point in points])
    assert [bits(back[point.id]) for point in points] == [bits(point.stored) for point in points]


@PRECISIONS
def test_what_was_read_back_is_stored_as_itself_again(
    store: Store, name: str, precision: Precision
) -> None:
    space = make(store.vectors, name, precision)
    first = points_of(space.round(units(20)))
    store.vectors.put(name, first)
    back = store.vectors.get(name, [point.id for point in first])
    again = [Point(uuid4(), space.round(space.widen(row[None]))[0], {}) for row in back.values()]
    store.vectors.put(name, again)
    twice = store.vectors.get(name, [point.id for point in again])
    assert sorted(map(bits, twice.values())) == sorted(map(bits, back.values()))


@PRECISIONS
def test_a_batch_with_one_bad_vector_is_refused_whole(
    store: Store, name: str, precision: Precision
) -> None:
    space = make(store.vectors, name, precision)
    rows = space.round(units(5))
    poison: list[Stored] = [np.zeros(DIM - 1, space.dtype), np.zeros(DIM, np.float32)]
    if precision is Precision.FLOAT16:
        poison += [np.full(DIM, np.nan, np.float16), np.full(DIM, np.inf, np.float16)]
    elif precision is Precision.INT4:
        poison += [np.zeros(DIM, np.uint8), np.full(DIM // 2, 0x77, np.uint8)]
    else:
        poison.append(np.full(DIM, -128, np.int8))
    for bad in poison:
        for at in (0, 4):
            batch = points_of(rows)
            batch[at] = Point(batch[at].id, bad, {})
            with pytest.raises(VectorInvalid):
                store.vectors.put(name, batch)
    assert store.vectors.count(name) == 0


def test_a_batch_with_metadata_that_would_change_is_refused_whole(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    batch = points_of(space.round(units(3)), lambda n: {"m": {"k": 2**70 if n == 2 else n}})
    with pytest.raises(MetadataInvalid):
        store.vectors.put(name, batch)
    assert store.vectors.count(name) == 0


def test_a_point_put_again_is_replaced(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    old, new = points_of(space.round(units(2)))
    store.vectors.put(name, [old])
    store.vectors.put(name, [Point(old.id, new.stored, {"d": "new", "n": 1})])
    assert store.vectors.count(name) == 1
    assert bits(store.vectors.get(name, [old.id])[old.id]) == bits(new.stored)
    assert store.vectors.payloads(name, [old.id]) == {old.id: {"d": "new", "n": 1, "m": {}}}


def test_payloads_come_back_as_they_were(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.FLOAT16)
    metadata = {
        "": "empty key",
        'quo"te': 'quo"te',
        "back\\slash": "back\\slash",
        "per%22cent": "%22",
        "dots.and[0]": "é\U0001f600\0\n",
        "big": 2**63 - 1,
        "small": -(2**63) + 1,
        "float": 0.1,
        "whole": 3.0,
        "tiny": 5e-324,
        "yes": True,
        "no": False,
    }
    payload = {"d": "doc", "n": 7, "t": 1234567890.123, "m": metadata}
    (point,) = points_of(space.round(units(1)), lambda _: payload)
    store.vectors.put(name, [point])
    back = store.vectors.payloads(name, [point.id, uuid4()])
    assert back == {point.id: payload}
    assert {k: type(v) for k, v in back[point.id]["m"].items()} == {
        k: type(v) for k, v in metadata.items()
    }


def test_removed_points_are_gone_and_unknown_ones_ignored(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    points = points_of(space.round(units(4)))
    store.vectors.put(name, points)
    store.vectors.remove(name, [points[0].id, uuid4()])
    store.vectors.remove(name, [points[0].id])
    store.vectors.remove(name, [])
    assert store.vectors.count(name) == 3
    assert points[0].id not in store.vectors.get(name, [point.id for point in points])
    hits = store.vectors.search(name, units(4)[0], limit=10, where=None)
    assert {hit.id for hit in hits} == {point.id for point in points[1:]}


def test_nothing_asked_is_nothing_given(store: Store, name: str) -> None:
    make(store.vectors, name, Precision.INT8)
    store.vectors.put(name, [])
    assert store.vectors.get(name, []) == {}
    assert store.vectors.payloads(name, []) == {}
    assert store.vectors.search(name, units(1)[0], limit=5, where=None) == []
    assert replace(store.vectors.sizes(name), disk=None) == Sizes(0, 0, 0)


def test_an_unknown_collection_is_an_error_everywhere(store: Store) -> None:
    point = Point(uuid4(), np.zeros(DIM, np.int8), {})
    calls: list[Callable[[Vectors], object]] = [
        lambda v: v.put("absent", [point]),
        lambda v: v.get("absent", [point.id]),
        lambda v: v.payloads("absent", [point.id]),
        lambda v: v.remove("absent", [point.id]),
        lambda v: v.search("absent", units(1)[0], limit=1, where=None),
        lambda v: v.count("absent"),
        lambda v: v.sizes("absent"),
    ]
    for call in calls:
        with pytest.raises(CollectionUnknown, match="absent"):
            call(store.vectors)


def test_a_collection_can_be_made_twice_but_not_otherwise(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    points = points_of(space.round(units(1)))
    store.vectors.put(name, points)
    make(store.vectors, name, Precision.INT8)
    assert store.vectors.count(name) == 1
    others: list[dict[str, Any]] = [
        {"dim": DIM, "precision": Precision.FLOAT16, "int8_scale": SCALE},
        {"dim": DIM + 1, "precision": Precision.INT8, "int8_scale": SCALE},
        {"dim": DIM, "precision": Precision.INT8, "int8_scale": SCALE + 1},
    ]
    for other in others:
        with pytest.raises(CollectionExists, match=name):
            store.vectors.create(name, **other)


def test_a_dropped_collection_starts_empty_when_made_again(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    store.vectors.put(name, points_of(space.round(units(3))))
    store.vectors.drop(name)
    store.vectors.drop(name)
    with pytest.raises(CollectionUnknown):
        store.vectors.count(name)
    make(store.vectors, name, Precision.FLOAT16)
    assert store.vectors.count(name) == 0


@pytest.mark.parametrize("bad", ["", "..", "a/b", "UPPER", ".hidden", "lock\0", "a" * 65])
def test_a_collection_name_that_is_no_folder_is_refused(store: Store, bad: str) -> None:
    with pytest.raises(IdInvalid):
        store.vectors.create(bad, dim=DIM, precision=Precision.INT8, int8_scale=SCALE)


def test_many_threads_may_put_and_search_at_once(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    rows = space.round(units(120))
    batches = [points_of(rows[start : start + 10]) for start in range(0, 120, 10)]

    def work(batch: list[Point]) -> None:
        store.vectors.put(name, batch)
        store.vectors.search(name, units(1)[0], limit=3, where=None)
        assert len(store.vectors.get(name, [point.id for point in batch])) == 10

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, batches))
    assert store.vectors.count(name) == 120


@PRECISIONS
def test_terms_are_as_they_were_also_after_a_restart(
    store: Store, name: str, precision: Precision
) -> None:
    space, points = worded(store, name, precision)
    wanted = {point.id: point.terms for point in points}
    ids = list(wanted)
    stranger = uuid4()
    less = Terms(points[0].terms.ids[1:], points[0].terms.weights[1:])
    others = {ids[0]: less, ids[1]: points[2].terms, ids[3]: points[0].terms, ids[4]: NO_TERMS}
    for _ in range(2):
        given = {} if isinstance(store, Edge) else wanted
        assert store.vectors.terms(name, [*ids, stranger]) == given
        assert store.vectors.differing(name, wanted) == set()
        assert store.vectors.differing(name, wanted | others) == others.keys()
        assert store.vectors.differing(name, {stranger: points[0].terms}) == {stranger}
        store.close()
        store.open()
    back = store.vectors.get(name, ids)
    assert all(bits(back[point.id]) == bits(point.stored) for point in points)
    size = store.vectors.sizes(name).terms
    numbers = 8 * sum(len(p.terms.ids) for p in points)
    assert size > 0 if isinstance(store, Edge) else size == numbers
    assert store.vectors.sizes(name).vectors == len(points) * space.size_bytes


def test_a_collection_without_terms_leaves_them_out(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    (point,) = points_of(space.round(units(1)))
    store.vectors.put(name, [Point(point.id, point.stored, {}, Bm25().documents(LINES)[0])])
    assert store.vectors.terms(name, [point.id]) == {}
    assert store.vectors.differing(name, {point.id: Bm25().documents(LINES)[0]}) == set()
    assert store.vectors.sizes(name).terms == 0
    with pytest.raises(CollectionExists):
        store.vectors.create(name, dim=DIM, precision=Precision.INT8, int8_scale=SCALE, terms=True)
