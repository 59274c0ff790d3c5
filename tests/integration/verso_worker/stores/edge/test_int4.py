"""What the engine's four-bit vectors give back is what was stored, however they were stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from tests.integration.verso_worker.vector_stores import units

from verso_core.jobs import Precision
from verso_worker.records.points import NO_TERMS
from verso_worker.records.space import Settings, Space, Stored, Vector
from verso_worker.stores.edge.collection import EdgeCollection
from verso_worker.stores.edge.optimise import Runner

SEEDS = range(4)
COUNT = 600


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    yield Runner(lock)
    os.close(lock)


def stretched(seed: int, *, dim: int) -> Vector:
    """Return vectors whose numbers differ as those of texts do. Shape: (COUNT, dim)."""
    spread = np.random.default_rng(seed).permutation((1.0 + np.arange(dim)) ** -0.5)
    rows = units(COUNT, seed=seed, dim=dim) * spread
    found: Vector = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return found


def put(collection: EdgeCollection, ids: list[UUID], rows: Stored, *, batch: int) -> None:
    for at in range(0, len(ids), batch):
        own = ids[at : at + batch]
        points = collection.prepare(
            own, rows[at : at + batch], payloads=[{}] * len(own), terms=[NO_TERMS] * len(own)
        )
        collection.put(points)
        collection.flush()


def assert_stored(collection: EdgeCollection, ids: list[UUID], rows: Stored) -> None:
    found, read = collection.get(ids)
    where = {point: n for n, point in enumerate(found)}
    assert np.array_equal(read[[where[point] for point in ids]], rows)


@pytest.mark.parametrize("dim", [384, 128, 62])
@pytest.mark.parametrize("seed", SEEDS)
def test_codes_come_back_from_any_order_and_segment(
    tmp_path: Path, runner: Runner, seed: int, dim: int
) -> None:
    space = Space(Precision.INT4, dim, 1.0)
    folder = tmp_path / "c"
    EdgeCollection.create(folder, Settings(space))
    collection = EdgeCollection(folder, index_above=200)
    rows = space.round(stretched(seed, dim=dim))
    rng = np.random.default_rng(seed)
    ids = [UUID(bytes=rng.bytes(16)) for _ in range(COUNT)]
    order = rng.permutation(COUNT)
    half = COUNT // 2
    first, second = order[:half], order[half:]
    put(collection, [ids[n] for n in first], rows[first], batch=7 + 50 * seed)
    assert collection.optimise(runner)
    put(collection, [ids[n] for n in second], rows[second], batch=COUNT)
    assert_stored(collection, ids, rows)
    collection.close()
    collection = EdgeCollection(folder, index_above=200)
    assert_stored(collection, ids, rows)
    collection.remove(ids[:50])
    collection.flush()
    assert collection.optimise(runner)
    assert_stored(collection, ids[50:], rows[50:])
    _, read = collection.get(ids[50:])
    again = [UUID(bytes=rng.bytes(16)) for _ in read]
    put(collection, again, read, batch=100)
    assert_stored(collection, again, read)
    collection.close()
