"""Texts kept in memory: read again without the stores, and never shown once they are not stored.

Real ledger, real vector engine, real (tiny) model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, counts, make_pipeline
from tests.wire import Item

from verso_core.errors import DocumentUnknown
from verso_core.jobs import Kind, Status
from verso_core.jobs.collections import CollectionParams
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records.cache import Cache
from verso_worker.records.points import Point
from verso_worker.stores.edge.client import EdgeVectors

TEXT = b"Jan 12 10:00:01 host sshd[4242]: Failed password for root"
OTHER = b"Jan 12 10:00:02 host sshd[4243]: Failed password for admin"


class Told:
    hits = misses = size = 0

    def __call__(self, hits: int, misses: int, size: int) -> None:
        self.hits, self.misses, self.size = self.hits + hits, self.misses + misses, size


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def stores(
    model_store: ArtifactStore, vectors: EdgeVectors, valkey_url: str, told: Told
) -> Iterator[Stores]:
    with closing(Ledger(connect(valkey_url))) as ledger:
        cache: Cache[bytes] = Cache(1 << 20, on_lookup=told)
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS, cache=cache)
        pipeline.create_collection(CollectionParams(name="default"))
        yield Stores(ledger, pipeline, vectors)


def test_a_text_that_was_read_is_read_again_from_memory(stores: Stores, told: Told) -> None:
    stores.fill({"a": TEXT, "b": OTHER})
    assert (told.hits, told.misses) == (0, 0)  # a verify judges the stores
    assert stores.read("a") == [TEXT]
    assert (told.hits, told.misses) == (0, 1)
    assert stores.read("a", "b") == [TEXT, OTHER]
    assert (told.hits, told.misses) == (1, 2)


def test_a_replaced_or_deleted_document_is_never_shown_from_memory(stores: Stores) -> None:
    stores.fill({"a": TEXT})
    assert stores.read("a") == [TEXT]
    stores.fill({"a": b"written again"})
    assert stores.read("a") == [b"written again"]
    stores.fill({"a": TEXT})
    assert stores.read("a") == [TEXT]
    deleted = stores.do(Kind.DELETE, {"collection": "default"}, [Item({"id": "a"})])[0]
    assert deleted is Status.SUCCEEDED
    assert stores.read("a") == [DocumentUnknown.code]


def test_damage_under_a_text_in_memory_is_found_by_the_scrub(stores: Stores, told: Told) -> None:
    stores.fill({"a": TEXT, "b": OTHER})
    assert stores.read("a") == [TEXT]
    [point], [other] = stores.points("a"), stores.points("b")
    wrong = stores.vectors.get("default", [other])[other]
    payload = stores.vectors.payloads("default", [point])[point]
    stores.vectors.put("default", [Point(point, wrong, payload)])
    assert stores.read("a") == [TEXT]
    asked = (told.hits, told.misses)
    found = stores.scrub()
    assert counts(found)[0] == 1
    assert (told.hits, told.misses) == asked
