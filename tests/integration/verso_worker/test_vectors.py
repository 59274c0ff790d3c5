"""What every vector store promises, asked of each: the shard process, local mode, a server."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from verso_core.errors import (
    CollectionExists,
    CollectionUnknown,
    IdInvalid,
    MetadataInvalid,
    VectorInvalid,
)
from verso_core.jobs import Filter, Precision
from verso_worker.child import Child
from verso_worker.points import Point, Terms
from verso_worker.ports import Vectors
from verso_worker.space import Space, Stored, Vector
from verso_worker.terms import Bm25
from verso_worker.vectors import EdgeVectors, shard_child
from verso_worker.vectors_qdrant import QdrantVectors

DIM = 384
SCALE = 500.0
PRECISIONS = pytest.mark.parametrize("precision", list(Precision), ids=lambda p: p.value)


class Edge:
    """The embedded engine in its own process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: Child | None = None
        self.vectors: Vectors
        self.open()

    def open(self) -> None:
        socket = self._folder / "shard.sock"
        self._child = shard_child(self._folder / "vectors", socket_path=socket)
        self._child.start()
        self.vectors = EdgeVectors(socket)

    def close(self) -> None:
        assert isinstance(self.vectors, EdgeVectors)
        assert self._child is not None
        self.vectors.close()
        self._child.stop()


class Local:
    """The client library's local mode in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.vectors: Vectors
        self.open()

    def open(self) -> None:
        self.vectors = QdrantVectors.local(self._folder / "qdrant")

    def close(self) -> None:
        assert isinstance(self.vectors, QdrantVectors)
        self.vectors.close()


class Server:
    """A Qdrant server; each test has its own prefix and leaves nothing behind."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"verso-test-{uuid4().hex}-"
        self.vectors: Vectors
        self.open()

    def open(self) -> None:
        self.vectors = QdrantVectors.server(self._url, prefix=self._prefix)

    def close(self) -> None:
        assert isinstance(self.vectors, QdrantVectors)
        self.vectors.close()

    def clear(self) -> None:
        assert isinstance(self.vectors, QdrantVectors)
        for name in self.vectors.names():
            self.vectors.drop(name)


Store = Edge | Local | Server


def make_store(kind: str, folder: Path) -> Store:
    if kind == "edge":
        return Edge(folder)
    if kind == "local":
        return Local(folder)
    url = os.environ.get("QDRANT_URL")
    if url is None:
        pytest.skip("no QDRANT_URL")
    return Server(url)


@pytest.fixture(scope="module", params=["edge", "local", "server"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """One store for the module: collections are cheap, processes are not."""
    made = make_store(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    if isinstance(made, Server):
        made.clear()
    made.close()


@pytest.fixture
def name(store: Store) -> Iterator[str]:
    chosen = f"c-{uuid4().hex}"
    yield chosen
    store.vectors.drop(chosen)


def units(count: int, *, seed: int = 0, dim: int = DIM) -> Vector:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / norms, np.float32)


def make(vectors: Vectors, name: str, precision: Precision, *, scale: float = SCALE) -> Space:
    vectors.create(name, dim=DIM, precision=precision, int8_scale=scale)
    return Space(precision, DIM, scale)


def points_of(
    rows: Stored, payload: Callable[[int], dict[str, Any]] = lambda n: {"d": f"doc{n}", "n": 0}
) -> list[Point]:
    return [Point(uuid4(), row, payload(n)) for n, row in enumerate(rows)]


def bits(row: Stored) -> tuple[str, bytes]:
    return row.dtype.name, row.tobytes()


@PRECISIONS
def test_a_put_vector_comes_back_bit_for_bit_also_after_a_restart(
    store: Store, name: str, precision: Precision
) -> None:
    space = make(store.vectors, name, precision)
    rows = space.round(units(100))
    rows[0] = 0
    rows[1] = -rows[0]  # float16 knows a negative zero
    rows[2] = space.round(np.eye(1, DIM, dtype=np.float32))[0]
    points = points_of(rows)
    store.vectors.put(name, points)
    for _ in range(2):
        back = store.vectors.get(name, [point.id for point in points])
        assert {i: bits(row) for i, row in back.items()} == {p.id: bits(p.stored) for p in points}
        assert store.vectors.count(name) == 100
        assert store.vectors.size_bytes(name) == 100 * space.size_bytes
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
    else:
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        numbers = every[np.isfinite(every)]
    rows = np.resize(numbers, (-(-len(numbers) // DIM), DIM)).astype(space.dtype)
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
    assert of_kept >= 999  # of 1,000: what the engine's search costs
    assert of_texts >= 975  # and what rounding costs, on numbers denser than those of texts


def text_like() -> tuple[Vector, Vector]:
    """Give vectors and queries whose spectrum falls as that of text embeddings does."""
    rng = np.random.default_rng(1)
    spectrum = (1 + np.arange(DIM)) ** -0.5
    rows = rng.normal(size=(500, DIM)) * spectrum
    asked = rows[:100] + 0.5 * rng.normal(size=(100, DIM)) * spectrum
    texts = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return texts.astype(np.float32), asked.astype(np.float32)


def points_payload(points: list[Point], wanted: UUID) -> dict[str, Any]:
    return dict(next(point.payload for point in points if point.id == wanted))


@PRECISIONS
def test_a_batch_with_one_bad_vector_is_refused_whole(
    store: Store, name: str, precision: Precision
) -> None:
    space = make(store.vectors, name, precision)
    rows = space.round(units(5))
    poison: list[Stored] = [np.zeros(DIM - 1, space.dtype), np.zeros(DIM, np.float32)]
    if precision is Precision.FLOAT16:
        poison += [np.full(DIM, np.nan, np.float16), np.full(DIM, np.inf, np.float16)]
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
    assert store.vectors.count(name) == store.vectors.size_bytes(name) == 0


def test_an_unknown_collection_is_an_error_everywhere(store: Store) -> None:
    point = Point(uuid4(), np.zeros(DIM, np.int8), {})
    calls: list[Callable[[Vectors], object]] = [
        lambda v: v.put("absent", [point]),
        lambda v: v.get("absent", [point.id]),
        lambda v: v.payloads("absent", [point.id]),
        lambda v: v.remove("absent", [point.id]),
        lambda v: v.search("absent", units(1)[0], limit=1, where=None),
        lambda v: v.count("absent"),
        lambda v: v.size_bytes("absent"),
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


LINES = [
    b"disk sda failed with a read error",
    b"disk sdb is healthy",
    b"the read of block 17 was retried",
    b"",
    b"user root logged in",
    b"\xff\xfe disk \x80",
]


def worded(store: Store, name: str, precision: Precision) -> tuple[Space, list[Point]]:
    """Make a collection that keeps terms, with a point for each of LINES."""
    store.vectors.create(name, dim=DIM, precision=precision, int8_scale=SCALE, terms=True)
    space = Space(precision, DIM, SCALE)
    terms = Bm25().documents(LINES)
    points = [
        Point(point.id, point.stored, point.payload, words)
        for point, words in zip(points_of(space.round(units(len(LINES)))), terms, strict=True)
    ]
    store.vectors.put(name, points)
    return space, points


def bm25(points: list[Point], query: Terms) -> dict[UUID, float]:
    """Weigh points by the book: Robertson & Zaragoza 2009, eq. 3.15 and 3.9 with 1 added."""
    kept = [dict(zip(p.terms.ids, p.terms.weights, strict=True)) for p in points]
    n = sum(bool(words) for words in kept)
    found = {}
    for point, words in zip(points, kept, strict=True):
        score = 0.0
        for term, weight in zip(query.ids, query.weights, strict=True):
            df = sum(term in other for other in kept)
            score += weight * words.get(term, 0.0) * math.log(1 + (n - df + 0.5) / (df + 0.5))
        if score:
            found[point.id] = score
    return found


@PRECISIONS
def test_terms_come_back_as_they_were_also_after_a_restart(
    store: Store, name: str, precision: Precision
) -> None:
    space, points = worded(store, name, precision)
    wanted = {point.id: point.terms for point in points}
    ids = list(wanted)
    assert store.vectors.terms(name, [*ids, uuid4()]) == wanted
    store.close()
    store.open()
    assert store.vectors.terms(name, ids) == wanted
    back = store.vectors.get(name, ids)
    assert all(bits(back[point.id]) == bits(point.stored) for point in points)
    assert store.vectors.terms_bytes(name) == 8 * sum(len(p.terms.ids) for p in points)
    assert store.vectors.size_bytes(name) == len(points) * space.size_bytes


def test_a_search_by_words_weighs_them_as_bm25_does(store: Store, name: str) -> None:
    _, points = worded(store, name, Precision.INT8)
    query = Bm25().query(b"Which disks failed to read, which disk?")
    hits = store.vectors.search(name, None, terms=query, limit=10, where=None)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(bm25(points, query), rel=1e-5)
    assert hits[0].id == points[0].id
    assert hits == sorted(hits, key=lambda hit: -hit.score)


@PRECISIONS
def test_a_hybrid_search_joins_both_scores(store: Store, name: str, precision: Precision) -> None:
    space, points = worded(store, name, precision)
    query, terms = units(1, seed=9)[0], Bm25().query(b"healthy disk")
    cosines = space.cosines(query, np.stack([point.stored for point in points]))
    weights = bm25(points, terms)
    near = (cosines - cosines.min()) / np.ptp(cosines)
    expected = {
        point.id: 0.5 * near[n] + 0.5 * weights.get(point.id, 0.0) / max(weights.values())
        for n, point in enumerate(points)
    }
    hits = store.vectors.search(name, query, terms=terms, limit=10, where=None)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
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


def test_a_collection_without_terms_leaves_them_out(store: Store, name: str) -> None:
    space = make(store.vectors, name, Precision.INT8)
    (point,) = points_of(space.round(units(1)))
    store.vectors.put(name, [Point(point.id, point.stored, {}, Bm25().documents(LINES)[0])])
    assert store.vectors.terms(name, [point.id]) == {}
    assert store.vectors.terms_bytes(name) == 0
    with pytest.raises(CollectionExists):
        store.vectors.create(name, dim=DIM, precision=Precision.INT8, int8_scale=SCALE, terms=True)
