"""Collections deleted by workers that end in the midst of it, and made again by others.

Real ledger, real vector engine, real (tiny) model, real dispatcher. What a worker that ends between
the two stores has done is the ledger's own step, taken here under the slice's own number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.integration.verso_worker.worker_parts import TEXTS, Bench, make_pipeline
from tests.wire import Item, cut

from verso_core.errors import CollectionExists, CollectionUnknown, RequestInvalid
from verso_core.jobs import IndexKind, Kind, Precision, Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_ledger import Ledger, NewJob, Policy
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.rules.collections import Collections
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports.models import Model
from verso_worker.stores.edge.client import EdgeVectors


class Made(Bench):
    """A bench whose collections come and go."""

    def __init__(self, ledger: Ledger, pipeline: Pipeline, vectors: EdgeVectors) -> None:
        super().__init__(ledger, pipeline, vectors)
        self.pipeline = pipeline

    def delete_and_end(self) -> str:
        """Have a worker end after the ledger's part of a deletion; returns the job it leaves."""
        own = self.ledger.documents.collections()["default"].name
        slices = list(cut(Kind.COLLECTION_DELETE, {"name": "default"}, [Item({})]))
        job = NewJob(Kind.COLLECTION_DELETE, Queue.BULK, slices)
        job_id = self.ledger.jobs.accept(job).job_id
        [lease] = self.ledger.leases.claim(Queue.BULK, owner="one that ends")
        self.ledger.documents.collection_delete(own, by=lease.seq)
        self.ledger.leases.release(lease)
        return job_id

    def delete(self) -> Status:
        return self.do(Kind.COLLECTION_DELETE, {"name": "default"}, [Item({})])[0]


@pytest.fixture
def made(model_store: ArtifactStore, vectors: EdgeVectors, valkey_url: str) -> Iterator[Made]:
    with closing(Ledger(connect(valkey_url), policy=Policy(gc_delay_ms=0))) as ledger:
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=4)
        pipeline.create_collection(CollectionParams(name="default"))
        made = Made(ledger, pipeline, vectors)
        assert made.ingest(TEXTS) is Status.SUCCEEDED
        yield made


def test_a_collection_whose_points_are_lost_lacks_some(made: Made) -> None:
    made.pipeline.create_collection(CollectionParams(name="empty"))
    assert made.pipeline.lacking() == []
    [point] = made.vectors.page("default", UUID(int=0), limit=1)
    made.vectors.remove("default", [point[0]])
    assert made.pipeline.lacking() == ["default"]
    made.vectors.note_scrubbed("default", chunks=made.ledger.documents.holdings("default").chunks)
    assert made.pipeline.lacking() == []  # it cannot be put again
    made.vectors.drop("default")
    assert made.pipeline.lacking() == ["default"]
    assert made.delete() is Status.SUCCEEDED
    assert made.pipeline.lacking() == []


def test_vectors_of_a_collection_that_moves_meanwhile_stay(made: Made) -> None:
    """Its own name goes along: the ledger that has it by then has these vectors."""
    collections = made.pipeline._management.collections
    [seen] = made.ledger.documents.collections().values()
    for name in ("collections", "uids"):
        made.ledger.documents._redis.rename(key(name), f"{key(name)}.there")
    assert not collections._mended(seen)
    assert made.vectors.names() == ["default"]
    for name in ("collections", "uids"):
        made.ledger.documents._redis.rename(f"{key(name)}.there", key(name))
    assert made.read(*TEXTS) == list(TEXTS.values())


def test_a_deletion_that_lost_its_worker_is_finished_and_succeeds(made: Made) -> None:
    job = made.delete_and_end()
    assert made.vectors.names() == ["default"]
    made.dispatcher.run_queue(Queue.BULK)
    assert made.ledger.jobs.get(job).status is Status.SUCCEEDED
    made.dispatcher.run_queue(Queue.SCRUB)
    assert made.vectors.names() == []
    assert made.ledger.maintenance.backlog().to_collect == 0
    assert made.delete() is Status.FAILED  # there is none any more


def test_a_deletion_that_comes_again_spares_what_was_made_since(made: Made) -> None:
    job = made.delete_and_end()
    found = made.pipeline.create_collection(
        CollectionParams(name="default", precision=Precision.INT8)
    )
    assert (found.name, found.precision) == ("default", "int8")
    assert made.ingest(TEXTS) is Status.SUCCEEDED  # the lost deletion is done before it
    assert made.ledger.jobs.get(job).status is Status.SUCCEEDED
    made.vectors.drop("default")  # as would one that was held up after the ledger's part
    made.dispatcher.run_queue(Queue.SCRUB)
    assert made.read(*TEXTS) == list(TEXTS.values())
    assert made.vectors.names() == [made.ledger.documents.collections()["default"].name]


def test_a_deletion_deletes_no_collection_that_was_made_after_it_was_asked_for(made: Made) -> None:
    slices = list(cut(Kind.COLLECTION_DELETE, {"name": "default"}, [Item({})]))
    late = made.ledger.jobs.accept(NewJob(Kind.COLLECTION_DELETE, Queue.SCRUB, slices))
    assert made.delete() is Status.SUCCEEDED
    made.pipeline.create_collection(CollectionParams(name="default"))
    made.ingest(TEXTS)
    made.dispatcher.run_queue(Queue.SCRUB)
    ended = made.ledger.jobs.get(late.job_id)
    assert ended.status is Status.FAILED
    assert ended.error is not None
    assert ended.error["code"] == CollectionUnknown.code
    assert made.read(*TEXTS) == list(TEXTS.values())


STALE = [
    (Kind.RECONSTRUCT, {"collection": "default"}, Item({"id": next(iter(TEXTS))})),
    (Kind.INGEST, {"collection": "default"}, Item({"id": next(iter(TEXTS))}, b"another")),
    (Kind.STATS, {"name": "default"}, Item({})),
    (Kind.COLLECTION_CHANGE, {"name": "default", "retention_days": 1.0}, Item({})),
    (Kind.MIGRATE, {"collection": "default", "step": "begin"}, Item({"artifact": "current"})),
    (Kind.MIGRATE, {"collection": "default", "step": "remove"}, Item({})),
    (Kind.FIT, {"collection": "default"}, Item({})),
]


@pytest.mark.parametrize(("kind", "params", "item"), STALE)
def test_what_was_asked_of_a_collection_is_not_done_in_one_made_since(
    made: Made, kind: Kind, params: dict[str, Any], item: Item
) -> None:
    """The new one may be another tenant's."""
    slices = list(cut(kind, params, [item]))
    late = made.ledger.jobs.accept(NewJob(kind, Queue.SCRUB, slices))
    assert made.delete() is Status.SUCCEEDED
    made.pipeline.create_collection(CollectionParams(name="default"))
    made.ingest(TEXTS)
    made.dispatcher.run_queue(Queue.SCRUB)
    error = made.ledger.jobs.get(late.job_id).error
    assert error is not None
    assert error["code"] == CollectionUnknown.code
    assert made.ledger.documents.collections()["default"].retention_days is None
    assert made.read(*TEXTS) == list(TEXTS.values())


class OddModels:
    """The models of a pipeline, as if their vectors had one number more."""

    def __init__(self, models: ArtifactStore) -> None:
        self._models = models

    def named(self, name: str | None) -> Model:
        model = self._models.named(name)
        return replace(model, dim=model.dim + 1)


def test_an_odd_dimension_has_no_place_for_pairs_of_codes(
    made: Made, model_store: ArtifactStore, vectors: EdgeVectors
) -> None:
    odd = Collections(cast(Any, OddModels(model_store)), vectors, made.ledger.documents, buckets=4)
    assert odd.create(CollectionParams(name="odd")).precision is Precision.INT8
    with pytest.raises(RequestInvalid, match="even dimension for precision int4"):
        odd.create(CollectionParams(name="asked", precision=Precision.INT4))
    assert made.pipeline.create_collection(CollectionParams(name="even")).precision == "int4"


def test_settings_that_differ_are_named_as_a_request_names_them(made: Made) -> None:
    made.pipeline.create_collection(CollectionParams(name="plain"))
    asked = CollectionParams(name="plain", indexes={"host": IndexKind.KEYWORD})
    with pytest.raises(CollectionExists, match=r'indexes \{\}, not \{"host": "keyword"\}'):
        made.pipeline.create_collection(asked)
    with pytest.raises(CollectionExists, match='precision "int4", not "int8"'):
        made.pipeline.create_collection(CollectionParams(name="plain", precision=Precision.INT8))


def test_a_name_that_another_owner_has_is_taken(made: Made) -> None:
    hers = CollectionParams(name="hers", owner="ann")
    assert made.pipeline.create_collection(hers).owner == "ann"
    assert made.pipeline.create_collection(hers).owner == "ann"
    for owner in (None, "bob"):
        with pytest.raises(CollectionExists, match="another caller's"):
            made.pipeline.create_collection(CollectionParams(name="hers", owner=owner))
