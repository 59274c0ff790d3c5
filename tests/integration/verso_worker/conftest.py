"""A worker's parts that stay for the session, and stores that are empty at each test's start.

To start an engine and a shard takes longer than most files' tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_worker.worker_parts import ARTIFACT, BUCKETS, Stores, make_pipeline

from verso_core.jobs import SearchMode, TextPolicy
from verso_core.jobs.collections import CollectionParams
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.stores.edge.client import EdgeVectors, shard_child


@pytest.fixture(scope="session")
def model_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArtifactStore]:
    """A model store with the tiny artifact."""
    folder = tmp_path_factory.mktemp("model_store")
    with closing(
        ArtifactStore(folder / "artifacts", folder, threads=1, device="cpu")
    ) as model_store:
        model_store.open(ARTIFACT)
        yield model_store


@pytest.fixture(scope="session")
def _vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeVectors]:
    folder = tmp_path_factory.mktemp("vectors")
    child = shard_child(folder / "kept", socket_path=folder / "v.sock", floor_mib=1)
    child.start()
    with closing(EdgeVectors(folder / "v.sock")) as vectors:
        yield vectors
    child.stop()


def emptied(vectors: EdgeVectors) -> EdgeVectors:
    """Drop all collections of a vector store."""
    for name in vectors.names():
        vectors.drop(name)
    return vectors


@pytest.fixture
def vectors(_vectors: EdgeVectors) -> EdgeVectors:
    """A vector store with nothing in it."""
    return emptied(_vectors)


@pytest.fixture
def stores(model_store: ArtifactStore, vectors: EdgeVectors, valkey_url: str) -> Iterator[Stores]:
    """A dispatcher with a collection of each kind."""
    with closing(Ledger(connect(valkey_url))) as ledger:
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        pipeline.create_collection(CollectionParams(name="default"))
        pipeline.create_collection(CollectionParams(name="both", text_policy=TextPolicy.BOTH))
        pipeline.create_collection(CollectionParams(name="words", search=SearchMode.HYBRID))
        yield Stores(ledger, pipeline, vectors)


@pytest.fixture(scope="module")
def kept_stores(
    model_store: ArtifactStore, _vectors: EdgeVectors, _shared_valkey: ValkeyServer
) -> Iterator[Stores]:
    """A dispatcher without a collection, for a file whose tests all ask the same stores."""
    with closing(Ledger(connect(_shared_valkey.url))) as ledger:
        ledger._redis.flushall()
        pipeline = make_pipeline(model_store, emptied(_vectors), ledger, buckets=BUCKETS)
        yield Stores(ledger, pipeline, _vectors)
