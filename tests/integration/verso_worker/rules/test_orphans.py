"""Points that nobody names go, in the third pass; points that somebody may still name stay.

Real ledger, real vector engine, real (tiny) model.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.integration.verso_worker.worker_parts import Stores, counts
from tests.wire import Item, cut

from verso_core.jobs import Kind, Queue, read_slice
from verso_ledger import Commit, DocumentWrite, Move, NewJob
from verso_ledger.epoch import EpochState
from verso_worker.records.points import Point


def a_pass(stores: Stores, *, aged: bool = True, unread: bool = False) -> dict[str, Any]:
    """Do a whole pass over ``default``; the one before it was two hours ago if ``aged``."""
    started = stores.ledger.scrub.move(stores.ledger.scrub.state().turn, Move(begin=True))
    assert started
    if aged and stores.redis.hget("verso:scrub", "prior"):
        stores.redis.hset("verso:scrub", "prior", round((time.time() - 7200) * 1000))
    found = stores.scrub()
    end = Move(end=True, add={"unread": 1} if unread else {"orphans": found["orphans"]})
    assert stores.ledger.scrub.move(stores.ledger.scrub.state().turn, end)
    return found


def leave(stores: Stores, document: str = "nobody") -> UUID:
    """Put a point as an attempt does that dies before its commit."""
    [row] = stores.vectors.get("default", stores.points("a")).values()
    point = uuid4()
    stores.vectors.put("default", [Point(point, row, {"d": document, "n": 0})])
    return point


def there(stores: Stores, point: UUID) -> bool:
    return bool(stores.vectors.get("default", [point]))


@pytest.fixture
def filled(stores: Stores) -> Stores:
    stores.fill({"a": b"open failed", "b": b"its neighbour"})
    return stores


@pytest.mark.parametrize("document", ["nobody", "a"], ids=["of no document", "of another write"])
def test_an_orphan_goes_in_the_third_pass_and_is_counted(filled: Stores, document: str) -> None:
    point = leave(filled, document)
    assert [a_pass(filled)["orphans"] for _ in range(2)] == [0, 0]
    assert there(filled, point)
    assert filled.ledger.maintenance.backlog().orphans == 1
    found = a_pass(filled)
    assert (counts(found), found["orphans"]) == ((2, 0, 0), 1)
    assert not there(filled, point)
    assert filled.vectors.count("default") == 2
    assert filled.ledger.maintenance.backlog().orphans == 0
    assert filled.ledger.maintenance.backlog().totals["scrub:orphans"] == 1
    assert filled.read("a", "b") == [b"open failed", b"its neighbour"]
    assert a_pass(filled)["orphans"] == 0


def test_points_of_a_slice_that_has_not_ended_stay_and_are_named_at_last(filled: Stores) -> None:
    items = [Item({"id": "slow"}, b"an ingest that takes its time")]
    slices = list(cut(Kind.INGEST, {"collection": "default"}, items))
    filled.ledger.jobs.accept(NewJob(kind=Kind.INGEST, queue=Queue.BULK, slices=slices))
    [lease] = filled.ledger.leases.claim(Queue.BULK, owner="slow", lease_s=60.0)
    outcome = filled.pipeline.run(read_slice(lease.payload), seq=lease.seq)
    for _ in range(4):
        assert a_pass(filled)["orphans"] == 0
    assert filled.vectors.count("default") == 3
    [write] = outcome.writes
    document = DocumentWrite("default", write.document, write.entry)
    committed = filled.ledger.leases.commit(
        lease, outcome.result.pack(), ok=1, errors=0, documents=[document]
    )
    assert committed is Commit.DONE
    for _ in range(3):
        assert a_pass(filled)["orphans"] == 0
    assert filled.read("slow") == [b"an ingest that takes its time"]
    assert filled.ledger.maintenance.backlog().orphans == 0


def test_a_point_stays_that_a_record_needs_and_whose_payload_names_another_document(
    filled: Stores,
) -> None:
    """The text of a neural record is in its vector: a damaged payload must not cost it."""
    [point] = filled.points("a")
    [row] = filled.vectors.get("default", [point]).values()
    filled.vectors.put("default", [Point(point, row, {"d": "other", "n": 0, "m": {"n": "?"}})])
    for _ in range(5):
        found = a_pass(filled)
        assert (found["orphans"], found["ids"]) == (0, ["a"])
    assert there(filled, point)


def test_nothing_goes_while_the_pass_before_is_young(filled: Stores) -> None:
    point = leave(filled)
    for _ in range(4):
        assert a_pass(filled, aged=False)["orphans"] == 0
    assert there(filled, point)


def test_a_pass_that_left_buckets_out_proves_nothing(filled: Stores) -> None:
    point = leave(filled)
    assert a_pass(filled)["orphans"] == 0
    assert a_pass(filled, unread=True)["orphans"] == 0
    assert [a_pass(filled)["orphans"] for _ in range(3)] == [0, 0, 1]
    assert not there(filled, point)


def test_nothing_goes_while_a_backup_is_taken_or_the_ledger_is_read_only(filled: Stores) -> None:
    point = leave(filled)
    guard = filled.ledger.epoch
    for _ in range(2):
        a_pass(filled)
    guard.freeze("backup", seconds=60)
    assert a_pass(filled)["orphans"] == 0
    guard.thaw("backup")
    life = guard.current()
    started = filled.ledger.scrub.move(filled.ledger.scrub.state().turn, Move(begin=True))
    assert started
    filled.redis.hset("verso:scrub", "prior", 1)
    guard.make_read_only(EpochState(life.epoch, "", life.seq + 9))
    sweep = filled.pipeline._management.orphans
    assert sweep.run(filled.ledger.documents.collection("default"), first=0, count=16) == 0
    assert guard.accept_as_is()
    assert sweep.run(filled.ledger.documents.collection("default"), first=0, count=16) == 1
    assert not there(filled, point)
