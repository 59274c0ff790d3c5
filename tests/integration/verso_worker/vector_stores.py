"""Every kind of vector store, opened for tests: the shard process, a Qdrant server and a cluster.

With QDRANT_URL set, server and cluster are the real one that it names; else stand-ins.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from qdrant_client import QdrantClient
from tests.support import word_index
from tests.support.qdrant_cluster import Cluster
from tests.support.qdrant_stand_in import handler

from verso_core.jobs import Precision
from verso_core.supervise import Process
from verso_worker.records.points import Point, Terms
from verso_worker.records.space import Space, Stored, Vector
from verso_worker.rules.ports.stores import Vectors
from verso_worker.settings import Replication
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors, shard_child
from verso_worker.stores.qdrant.store import QdrantVectors

DIM = 384
SCALE = 500.0
THREE_NODES = Replication(factor=3, write_consistency=2, read_consistency="quorum")
PRECISIONS = pytest.mark.parametrize("precision", list(Precision), ids=lambda p: p.value)

LINES = [
    b"disk sda failed with a read error",
    b"disk sdb is healthy",
    b"the read of block 17 was retried",
    b"",
    b"user root logged in",
    b"\xff\xfe disk \x80",
]


class Edge:
    """The embedded engine in its own process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: Process | None = None
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


class Server:
    """A Qdrant server; each test has its own prefix and leaves nothing behind."""

    def __init__(self, url: str, replication: Replication | None = None) -> None:
        self._url = url
        self._replication = replication or Replication()
        self._prefix = f"verso-test-{uuid4().hex}-"
        self.vectors: Vectors
        self.open()

    def open(self) -> None:
        self.vectors = QdrantVectors.server(
            self._url, prefix=self._prefix, replication=self._replication
        )

    def close(self) -> None:
        assert isinstance(self.vectors, QdrantVectors)
        self.vectors.close()

    def clear(self) -> None:
        assert isinstance(self.vectors, QdrantVectors)
        for name in self.vectors.names():
            self.vectors.drop(name)


Store = Edge | Server


def make_store(kind: str, folder: Path) -> Store:
    if kind == "edge":
        return Edge(folder)
    real = os.environ.get("QDRANT_URL")
    if kind == "cluster":
        return Server(real or _cluster_stand_in(), THREE_NODES)
    return Server(real or _stand_in())


@functools.cache
def _cluster_stand_in() -> str:
    """Start the stand-in for a cluster once a process, and return the address of a node."""
    return Cluster(3).url()


@functools.cache
def _stand_in() -> str:
    """Start the stand-in for a Qdrant server once a process, and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(QdrantClient(":memory:")))
    threading.Thread(target=server.serve_forever, name="qdrant stand-in", daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module", params=["edge", "server", "cluster"])
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


def bm25(store: Store, points: list[Point], query: Terms) -> dict[UUID, float]:
    """Weigh points by the book: Robertson & Zaragoza 2009, eq. 3.15 and 3.9 with 1 added.

    The embedded store has another k and b than a server.
    """
    if isinstance(store, Edge):
        return word_index.weights([{point.id: point.terms for point in points}], query)[0]
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
