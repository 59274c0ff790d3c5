"""Numbers with all their digits come back from every store as they were, and filters find them."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from tests.integration.verso_worker.vector_stores import Store, make, store, units

from verso_core.jobs import Filter, IndexKind, Precision
from verso_worker.records.points import Point

__all__ = ["store"]

COUNT = 200


@pytest.mark.parametrize("indexed", [False, True])
def test_a_number_comes_back_as_it_was_and_is_found(store: Store, indexed: bool) -> None:
    drawn = random.Random(3)
    name = f"numbers-{indexed}".lower()
    space = make(store.vectors, name, Precision.INT8)
    if indexed:
        store.vectors.index(name, {"x": IndexKind.NUMBER})
    [row] = space.round(units(1))
    values = [drawn.random() * 10 ** drawn.randrange(-9, 12) for _ in range(COUNT)]
    times = [1_767_230_000 + drawn.randrange(10**13) / 1e9 for _ in range(COUNT)]
    payloads = [{"d": f"d{n}", "n": 0, "m": {"x": values[n]}, "t": times[n]} for n in range(COUNT)]
    ids = [UUID(int=n + 1) for n in range(COUNT)]
    store.vectors.put(
        name, [Point(one, row, payload) for one, payload in zip(ids, payloads, strict=True)]
    )
    found = store.vectors.payloads(name, ids)
    assert [found[one] for one in ids] == payloads
    for n in range(0, COUNT, 10):
        for field, value in (("metadata.x", values[n]), ("time", times[n])):
            where = Filter.model_validate({"field": field, "eq": value})
            page = store.vectors.page(name, UUID(int=0), limit=9, where=where, first=True)
            assert f"d{n}" in [payload["d"] for _, payload in page]
    store.vectors.drop(name)
