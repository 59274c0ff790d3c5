"""What every vector store promises to find, asked of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from tests.integration.verso_worker.vector_stores import (
    DIM,
    LINES,
    PRECISIONS,
    SCALE,
    Store,
    bm25,
    make,
    name,
    points_of,
    store,
    units,
    worded,
)

from verso_core.errors import VectorInvalid
from verso_core.jobs import Filter, Precision
from verso_worker.records.points import Point
from verso_worker.records.space import Space, Vector
from verso_worker.stores.bm25 import Bm25

__all__ = ["name", "store"]


@PRECISIONS
def test_search_finds_the_ten_nearest(store: Store, name: str, precision: Precision) -> None:
    texts, queries = text_like()
    space = make(store.vectors, name, precision, scale=127 / float(np.abs(texts).max()))
    points = points_of(space.round(texts))
    store.vectors.put(name, points)
    kept = space.widen(space.round(texts))
    of_texts = of_kept = 0
    for query in queries:
        unit = space.unit(query)
        hits = store.vectors.search(name, query, limit=10, where=None)
        found = {hit.id for hit in hits}
        of_texts += len({points[n].id for n in np.argsort(-(texts @ unit))[:10]} & found)
        of_kept += len({points[n].id for n in np.argsort(-(kept @ unit))[:10]} & found)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert hits[0].score == pytest.approx(float((kept @ unit).max()), abs=1e-5)
        assert hits[0].payload == {**points_payload(points, hits[0].id), "m": {}}
    assert of_kept >= 499  # of 500: what the engine's search costs
    least = 475 if precision is Precision.INT4 else 488
    assert of_texts >= least  # and what rounding costs, on numbers denser than those of texts


@PRECISIONS
def test_neighbours_are_the_nearest_points_of_each(
    store: Store, name: str, precision: Precision
) -> None:
    texts, _ = text_like()
    space = make(store.vectors, name, precision, scale=127 / float(np.abs(texts).max()))
    stored = space.round(texts)
    points = points_of(stored)
    store.vectors.put(name, points)
    found = store.vectors.neighbours(name, stored[:50], limit=10)
    kept = space.widen(stored)
    scores = kept[:50] @ kept.T  # float16 ranks by it, int8 by the distance of its codes
    if precision is Precision.INT8:
        scores = 2 * scores - (kept**2).sum(axis=1)
    nearest = np.argsort(-scores, axis=1)[:, :10]
    right = 0
    for row, (near, wanted) in enumerate(zip(found, nearest.tolist(), strict=True)):
        assert near[0] == points[row].id
        right += len({points[n].id for n in wanted} & set(near))
    assert right >= 498  # of 500: sums in another order may swap the last two
    assert len(store.vectors.neighbours(name, stored[:1], limit=600)[0]) == 500
    with pytest.raises(VectorInvalid):
        store.vectors.neighbours(name, stored[:, :7], limit=10)


def text_like() -> tuple[Vector, Vector]:
    """Return vectors and queries whose spectrum falls as that of text embeddings does."""
    rng = np.random.default_rng(1)
    spectrum = (1 + np.arange(DIM)) ** -0.5
    rows = rng.normal(size=(500, DIM)) * spectrum
    asked = rows[:50] + 0.5 * rng.normal(size=(50, DIM)) * spectrum
    texts = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return texts.astype(np.float32), asked.astype(np.float32)


def points_payload(points: list[Point], wanted: UUID) -> dict[str, Any]:
    return dict(next(point.payload for point in points if point.id == wanted))


FILTERS: list[tuple[Filter, set[int]]] = [
    (Filter(), {0, 1, 2, 3, 4, 5, 6}),
    (Filter(metadata={"level": "error"}), {1, 3}),
    (Filter(metadata={"level": ["error", "info"]}), {0, 1, 3}),
    (Filter(metadata={"level": []}), set()),
    (Filter(metadata={"code": 1}), {0, 1}),
    (Filter(metadata={"code": 1.0}), {0, 1}),
    (Filter(metadata={"code": True}), {2}),
    (Filter(metadata={"code": "1"}), {3}),
    (Filter(metadata={"code": [1, "1", False]}), {0, 1, 3, 4}),
    (Filter(metadata={"code": 2**60}), {5}),
    (Filter(metadata={'odd "key".\\': "x"}), {6}),
    (Filter(metadata={"absent": "x"}), set()),
    (Filter(metadata={"level": "error", "code": 1}), {1}),
    (Filter(time_gte=12.0), {2, 3, 4, 5}),
    (Filter(time_lt=12.0), {0, 1}),
    (Filter(time_gte=11.0, time_lt=13.0), {1, 2}),
    (Filter(metadata={"level": "error"}, time_gte=12.5), {3}),
]


@pytest.fixture(scope="module")
def filtered(store: Store) -> Iterator[tuple[str, list[Point]]]:
    space = make(store.vectors, "filtered", Precision.INT8)
    metadata: list[dict[str, Any]] = [
        {"level": "info", "code": 1},
        {"level": "error", "code": 1.0},
        {"level": "errors", "code": True},
        {"level": "error", "code": "1"},
        {"level": "Error", "code": False},
        {"code": 2**60},
        {'odd "key".\\': "x", "code": 2**60 + 1},
    ]
    points = points_of(
        space.round(units(7)),
        lambda n: {"d": str(n), "n": 0, "m": metadata[n], **({"t": 10.0 + n} if n < 6 else {})},
    )
    store.vectors.put("filtered", points)
    yield "filtered", points
    store.vectors.drop("filtered")


@pytest.mark.parametrize(("where", "expected"), FILTERS, ids=lambda value: str(value)[:60])
def test_a_search_gives_only_what_passes_the_filter(
    store: Store, filtered: tuple[str, list[Point]], where: Filter, expected: set[int]
) -> None:
    name, points = filtered
    hits = store.vectors.search(name, units(1, seed=9)[0], limit=10, where=where)
    assert {hit.payload["d"] for hit in hits} == {str(n) for n in expected}
    assert {hit.id for hit in hits} == {points[n].id for n in expected}


@pytest.mark.parametrize("query", [np.zeros(DIM), np.full(DIM, np.nan), np.ones(DIM + 1)])
def test_a_query_without_direction_is_refused(store: Store, name: str, query: Vector) -> None:
    make(store.vectors, name, Precision.INT8)
    with pytest.raises(VectorInvalid):
        store.vectors.search(name, query.astype(np.float32), limit=1, where=None)


def test_the_length_of_a_query_changes_nothing(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    points = points_of(space.round(units(50)))
    store.vectors.put(name, points)
    query = units(1, seed=5)[0]
    once = store.vectors.search(name, query, limit=10, where=None)
    more = store.vectors.search(name, query * np.float32(1000), limit=10, where=None)
    assert [hit.id for hit in once] == [hit.id for hit in more]
    assert [hit.score for hit in once] == pytest.approx([hit.score for hit in more], abs=1e-6)


def test_a_search_by_words_weighs_them_as_bm25_does(store: Store, name: str) -> None:
    _, points = worded(store, name, Precision.INT8)
    query = Bm25().query(b"Which disks failed to read, which disk?")
    hits = store.vectors.search(name, None, terms=query, limit=10, where=None)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(
        bm25(store, points, query), abs=1e-4
    )
    assert hits[0].id == points[0].id
    assert hits == sorted(hits, key=lambda hit: -hit.score)


@PRECISIONS
def test_a_hybrid_search_joins_both_scores(store: Store, name: str, precision: Precision) -> None:
    space, points = worded(store, name, precision)
    query, terms = units(1, seed=9)[0], Bm25().query(b"healthy disk")
    cosines = space.cosines(query, np.stack([point.stored for point in points]))
    weights = bm25(store, points, terms)
    near = (cosines - cosines.min()) / np.ptp(cosines)
    expected = {
        point.id: 0.5 * near[n] + 0.5 * weights.get(point.id, 0.0) / max(weights.values())
        for n, point in enumerate(points)
    }
    hits = store.vectors.search(name, query, terms=terms, limit=10, where=None)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-4)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    parts = {hit.id: (hit.cosine, hit.weight) for hit in hits}
    for n, point in enumerate(points):
        wanted = (cosines[n], weights.get(point.id, 0.0))
        assert parts[point.id] == pytest.approx(wanted, abs=1e-4)
    some = store.vectors.search(name, query, terms=terms, limit=2, where=None)
    assert some == hits[:2]


def test_words_are_filtered_like_vectors(store: Store, name: str) -> None:
    store.vectors.create(name, dim=DIM, precision=Precision.INT8, int8_scale=SCALE, terms=True)
    space = Space(Precision.INT8, DIM, SCALE)
    points = [
        Point(point.id, point.stored, {"d": f"{n}", "n": 0, "m": {"host": n}}, words)
        for n, (point, words) in enumerate(
            zip(points_of(space.round(units(6))), Bm25().documents(LINES), strict=True)
        )
    ]
    store.vectors.put(name, points)
    where, terms = Filter(metadata={"host": [1, 4]}), Bm25().query(b"disk")
    by_words = store.vectors.search(name, None, terms=terms, limit=9, where=where)
    assert [hit.id for hit in by_words] == [points[1].id]
    both = store.vectors.search(name, units(1)[0], terms=terms, limit=9, where=where)
    assert {hit.id for hit in both} == {points[1].id, points[4].id}


def test_a_query_without_words_is_answered_by_its_vector(store: Store, name: str) -> None:
    worded(store, name, Precision.INT8)
    query, terms = units(1, seed=9)[0], Bm25().query(b"the of and")
    assert not terms
    assert store.vectors.search(name, None, terms=terms, limit=9, where=None) == []
    both = store.vectors.search(name, query, terms=terms, limit=9, where=None)
    dense = store.vectors.search(name, query, limit=9, where=None)
    assert [hit.id for hit in both] == [hit.id for hit in dense]
