"""A ledger that comes back older than it was: noticed, read-only, used again only on purpose.

Real Valkey, put back from an earlier copy of its append-only file, or from nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_worker.worker_parts import Bench, make_pipeline
from tests.wire import Item, cut

from verso_core.errors import LedgerBehind
from verso_core.jobs import Kind, Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.record import bucket_of
from verso_keeper.scrubber import Scrubber
from verso_ledger import Ledger, NewJob, ScrubStage
from verso_ledger.connection import connect
from verso_ledger.epoch import Epoch, EpochState
from verso_worker.jobs.ledger_watch import HighWaterMark, describe, follows
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.stores.edge.client import EdgeVectors


class Machine:
    """A server, a worker's dispatcher on it, and the worker's mark."""

    def __init__(
        self, server: ValkeyServer, model_store: ArtifactStore, vectors: EdgeVectors, folder: Path
    ) -> None:
        self.server = server
        self.ledger = Ledger(connect(server.url))
        self.guard = Epoch.from_url(server.url)
        self.folder = folder
        self.mark = HighWaterMark(folder, self.guard)
        self.pipeline = make_pipeline(model_store, vectors, self.ledger, buckets=16)
        self.bench = Bench(self.ledger, self.pipeline, vectors)

    def close(self) -> None:
        self.ledger.close()
        self.guard.close()

    def keep(self, copy: Path) -> None:
        """Copy what the server has on disk, between two runs of it."""
        self.server.stop()
        shutil.copytree(self.server.folder / "appendonlydir", copy)
        self.server.start()

    def put_back(self, copy: Path | None) -> None:
        """Let the server start from a copy, or from nothing."""
        self.server.stop()
        shutil.rmtree(self.server.folder / "appendonlydir")
        if copy is not None:
            shutil.copytree(copy, self.server.folder / "appendonlydir")
        self.server.start()


@pytest.fixture
def machine(
    valkey_server: Callable[..., ValkeyServer],
    model_store: ArtifactStore,
    vectors: EdgeVectors,
    tmp_path: Path,
) -> Iterator[Machine]:
    with closing(Machine(valkey_server(), model_store, vectors, tmp_path / "data")) as machine:
        machine.pipeline.create_collection(CollectionParams(name="default"))
        assert machine.mark.check()
        yield machine


def write(kind: Kind) -> NewJob:
    items = [Item({"id": "late"}, b"a text that comes too late")]
    slices = list(cut(kind, {"collection": "default", "name": "x"}, items))
    return NewJob(kind=kind, queue=Queue.BULK, slices=slices)


WRITES = [
    Kind.INGEST, Kind.DELETE, Kind.COLLECTION_CREATE, Kind.COLLECTION_DELETE, Kind.MIGRATE,
    Kind.SCRUB,
]  # fmt: skip


def test_an_old_copy_of_the_ledger_is_read_but_not_written(
    machine: Machine, tmp_path: Path
) -> None:
    machine.bench.ingest({"old": b"stored before the copy"})
    assert machine.bench.ingest({"old": b"stored before the copy, again"}) is Status.SUCCEEDED
    waiting = machine.ledger.jobs.accept(write(Kind.INGEST))
    machine.keep(tmp_path / "copy")
    machine.bench.dispatcher.run_queue(Queue.BULK)
    machine.bench.ingest({"new": b"acknowledged after the copy"})
    assert machine.mark.check()
    points = machine.bench.vectors.count("default")

    machine.put_back(tmp_path / "copy")
    assert not machine.mark.check()
    stop = machine.guard.read_only()
    assert stop is not None
    assert stop.seq > machine.guard.current().seq
    for kind in WRITES:
        with pytest.raises(LedgerBehind):
            machine.ledger.jobs.accept(write(kind))
    with pytest.raises(LedgerBehind):
        machine.ledger.documents.collection_delete("default")
    with pytest.raises(LedgerBehind):
        machine.pipeline.create_collection(CollectionParams(name="another"))
    # Reads go on; what still waited to be written waits; nothing that a text rests on goes away.
    assert machine.bench.read("old", "new") == [
        b"stored before the copy, again",
        "document_unknown",
    ]
    machine.bench.dispatcher.run_queue(Queue.BULK)
    assert not machine.ledger.jobs.get(waiting.job_id).status.terminal
    for token, _ in machine.ledger._redis.zscan_iter("verso:gc"):
        machine.ledger._redis.zadd("verso:gc", {token: 0})
    assert machine.ledger.maintenance.gc_take() == []
    assert machine.ledger.maintenance.drop_due() == 0
    assert machine.bench.vectors.count("default") >= points
    assert machine.ledger.maintenance.backlog().read_only


def test_a_read_only_ledger_that_is_accepted_continues_and_repeats_no_number(
    machine: Machine, tmp_path: Path
) -> None:
    machine.keep(tmp_path / "copy")
    machine.bench.ingest({"new": b"acknowledged after the copy"})
    assert machine.mark.check()
    lost = machine.guard.current().seq
    machine.put_back(tmp_path / "copy")
    assert not machine.mark.check()
    assert describe(machine.guard, accept=False).startswith("read-only")
    assert describe(machine.guard, accept=True).startswith("continues in a new epoch")
    assert not machine.guard.accept_as_is()
    assert machine.mark.check()
    assert machine.guard.read_only() is None
    assert machine.guard.current().seq > lost
    assert machine.bench.ingest({"new": b"written again"}) is Status.SUCCEEDED
    assert machine.bench.read("new") == [b"written again"]


def test_the_newer_ledger_put_back_in_its_place_takes_writes_again(
    machine: Machine, tmp_path: Path
) -> None:
    machine.keep(tmp_path / "old")
    machine.bench.ingest({"new": b"acknowledged after the copy"})
    assert machine.mark.check()
    machine.keep(tmp_path / "newest")
    machine.put_back(tmp_path / "old")
    assert not machine.mark.check()
    machine.put_back(tmp_path / "newest")
    assert machine.mark.check()
    assert machine.bench.read("new") == [b"acknowledged after the copy"]
    assert machine.bench.ingest({"newer": b"x"}) is Status.SUCCEEDED


def test_an_empty_ledger_in_the_place_of_a_full_one_is_read_only(machine: Machine) -> None:
    """It would give all numbers out again, and every vector would look like nobody's."""
    machine.bench.ingest({"a": b"a text"})
    assert machine.mark.check()
    machine.put_back(None)
    assert not machine.mark.check()
    with pytest.raises(LedgerBehind):
        machine.pipeline.create_collection(CollectionParams(name="default"))
    assert machine.guard.accept_as_is()
    assert machine.mark.check()
    machine.pipeline.create_collection(CollectionParams(name="default"))


def test_a_restored_backup_is_a_new_epoch_and_not_behind(machine: Machine, tmp_path: Path) -> None:
    machine.keep(tmp_path / "copy")
    machine.bench.ingest({"new": b"acknowledged after the copy"})
    assert machine.mark.check()
    machine.put_back(tmp_path / "copy")
    machine.guard.start_new()
    assert machine.mark.check()
    assert machine.guard.read_only() is None


def test_the_mark_advances_by_itself_and_a_broken_one_is_replaced(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.bench.ingest({"a": b"a text"})
    assert machine.mark.check()
    life = machine.guard.current()
    assert reached(machine) == EpochState(life.epoch, "", life.seq)
    (machine.folder / "ledger-mark.json").write_text("{")
    assert machine.mark.read() is None
    assert "mark unreadable" in caplog.text
    assert machine.mark.check()
    assert reached(machine) == EpochState(life.epoch, "", life.seq)


def test_a_mark_that_cannot_be_read_is_not_written_over(machine: Machine) -> None:
    assert machine.mark.check()
    mark = machine.folder / "ledger-mark.json"
    mark.unlink()
    mark.mkdir()  # root may read any file, but no folder as one
    with pytest.raises(IsADirectoryError):
        machine.mark.check()
    assert mark.is_dir()


def reached(machine: Machine) -> EpochState | None:
    marked = machine.mark.read()
    return None if marked is None else marked.state


class Run:
    """A worker's run as far as its mark goes, at a time of its own."""

    def __init__(self, machine: Machine) -> None:
        self.now = 1e9
        self.told: list[int] = []
        self.mark = HighWaterMark(
            machine.folder, machine.guard, on_unclean_end=self.told.append, clock=lambda: self.now
        )


def test_an_unclean_end_is_told_with_the_number_of_an_hour_before(machine: Machine) -> None:
    (machine.folder / "ledger-mark.json").unlink()
    seqs = []
    first = Run(machine)
    for minute in range(0, 150, 10):
        first.now = 1e9 + 60 * minute
        machine.bench.ingest({"a": b"%d" % minute})
        assert first.mark.check()
        seqs.append(machine.guard.current().seq)
    assert first.told == []
    second = Run(machine)
    assert second.mark.check()
    assert second.mark.check()
    assert second.told == [seqs[8]]  # of 80 minutes; the end was at 140
    second.mark.stop()
    third = Run(machine)
    assert third.mark.check()
    assert third.told == []


def test_after_an_unclean_start_what_was_written_last_is_read_first(machine: Machine) -> None:
    machine.bench.ingest({f"old{n}": b"an old text %d" % n for n in range(30)})
    machine.bench.dispatcher.run_queue(Queue.SCRUB)
    since = machine.guard.current().seq
    machine.bench.ingest({"new": b"a text of the last hour", "newer": b"another"})
    machine.bench.dispatcher.run_queue(Queue.SCRUB)
    client = machine.ledger._redis
    uid = cast("bytes", client.hget("verso:uids", "default")).decode()
    name = f"verso:docs:{uid}:{bucket_of('new', buckets=16)}"
    entry = cast("bytes", client.hget(name, "new"))
    client.hset(name, "new", entry[:-9] + bytes([entry[-9] ^ 1]) + entry[-8:])

    scrubber = Scrubber(machine.ledger, share=1.0, every_s=1000.0, pass_s=1000.0)
    scrubber.step()
    assert machine.ledger.scrub.state().running
    machine.ledger.scrub.request_recent(since)
    assert machine.ledger.scrub.state().stage is ScrubStage.RECENT
    machine.ledger.jobs.accept(write(Kind.INGEST))  # a pass would wait for quiet; this does not
    for _ in range(20):
        scrubber.step()
        machine.bench.dispatcher.run_queue(Queue.SCRUB)
        if machine.ledger.scrub.state().recent is None:
            break
    state = machine.ledger.scrub.state()
    assert state.recent is None
    assert state.running
    assert (state.collection, state.bucket, state.counts["documents"]) == ("", 0, 0)
    assert [one.document for one in state.damaged] == ["new"]
    machine.bench.dispatcher.run_queue(Queue.BULK)
    machine.bench.dispatcher.run_queue(Queue.SCRUB)
    for _ in range(20):
        scrubber.step()
        machine.bench.dispatcher.run_queue(Queue.SCRUB)
    state = machine.ledger.scrub.state()
    assert not state.running
    assert state.counts["documents"] == 33


@pytest.mark.parametrize(
    ("now", "known", "may"),
    [
        (EpochState("a", "", 5), EpochState("a", "", 5), True),
        (EpochState("a", "", 6), EpochState("a", "", 5), True),
        (EpochState("a", "", 4), EpochState("a", "", 5), False),
        (EpochState("b", "a", 1), EpochState("a", "", 5), True),
        (EpochState("b", "", 9), EpochState("a", "", 5), False),
        (EpochState("c", "b", 9), EpochState("a", "", 5), False),
    ],
)
def test_which_state_may_follow_which(now: EpochState, known: EpochState, may: bool) -> None:
    assert follows(now, known) is may
