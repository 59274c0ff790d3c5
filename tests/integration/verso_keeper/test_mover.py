"""Moves of collections between two real ledgers: nothing is lost or doubled, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_keeper.move_runs import (
    begin,
    end_at_every_step,
    move_by_two_keepers,
    run_to_end,
    two_servers,
)
from tests.integration.verso_keeper.moving import (
    LABELS,
    NAME,
    Crashed,
    World,
    entry_of,
)
from tests.wire import Item, cut

from verso_core.errors import CollectionBusy, CollectionUnknown, LedgerUnavailable
from verso_core.jobs import CollectionKind, Kind, Queue, TextPolicy
from verso_core.jobs.moves import Move, MoveReason, MoveStage
from verso_core.record import Entry
from verso_keeper.retention import Retention
from verso_ledger import AsyncLedger, Commit, DocumentWrite, Ledger, NewJob
from verso_ledger.codec.scalars import Arg
from verso_ledger.collections import copying
from verso_ledger.collections.copying import CollectionCopy
from verso_ledger.collections.moves import Moves
from verso_ledger.collections.paging import CopiedKey, CopyRefused, PagedCopy
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_ledger.ledgers.index import LedgerIndex
from verso_ledger.models import IdentityKnown, Moved

NOT_BEFORE = ("objects", "object_job")
KINDS = [CollectionKind.DOCUMENTS, CollectionKind.LOGS]


@pytest.fixture(scope="module")
def servers(valkey_binary: str) -> Iterator[dict[str, ValkeyServer]]:
    with two_servers(valkey_binary) as made:
        yield made


@pytest.fixture
def world(servers: dict[str, ValkeyServer]) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def build(seed: int = 1, **options: object) -> World:
        made.append(World.of(servers, seed=seed, **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_collection_moves_there_and_back_while_it_is_written(
    world: Callable[..., World], kind: CollectionKind
) -> None:
    here = world(kind=kind)
    here.act(60)
    for source, target in (("home", "b"), ("b", "home"), ("home", "b")):
        begin(here, source, target)
        moved = run_to_end(here, source)
        assert moved.stage is MoveStage.DONE
        assert here.holder().name == target
        here.check()
        while here.keys_of(source):
            here.ledgers[source].maintenance.drop_due()
        here.act(20)
    here.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_keeper_may_end_at_every_step(world: Callable[..., World], kind: CollectionKind) -> None:
    """Another one takes the move on, and the first one's late steps change nothing."""

    def build(at: int) -> World:
        here = world(seed=at, kind=kind, policy=TextPolicy.BOTH)
        here.act(25)
        return here

    end_at_every_step(build)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_two_keepers_at_once_and_crashes_at_random_lose_nothing(
    world: Callable[..., World], kind: CollectionKind, seed: int
) -> None:
    here = world(seed=seed, kind=kind)
    here.act(40)

    def delete_a_line() -> None:
        if kind is CollectionKind.LOGS and here.draw.random() < 0.3:
            try:
                here.delete_line()
            except CollectionBusy:
                here.refused += 1

    move_by_two_keepers(here, fill=lambda: None, between=delete_a_line, rounds=300)


def test_a_move_that_is_cancelled_leaves_all_as_it_was(world: Callable[..., World]) -> None:
    here = world(buckets=600)
    here.act(40)
    home = here.ledgers["home"].moves
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: None, fence_s=0.2)
    here.ledgers["home"].jobs.accept(here.job(b"still open", "d1"))
    assert mover.step() is not None  # its slices do not end in the pause
    move = home.all()[NAME]
    assert (move.stage, move.bytes_copied > 0) == (MoveStage.COPY, True)
    assert home.step(move, move.model_copy(update={"stage": MoveStage.CANCELLED}), "open")
    here.texts["d1"] = b"still open"
    here.now += 60.0
    mover.step()
    assert home.all()[NAME].ended is not None
    while here.keys_of("b"):
        here.ledgers["b"].maintenance.drop_due()
    here.act(20)
    here.check()
    begin(here, "home", "b")
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_a_copy_that_was_left_is_replaced_by_the_next_move(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ledger was away when the move was cancelled, on which three keepers had worked."""
    here = world()
    here.act(40)
    home = here.ledgers["home"].moves
    begin(here, "home", "b")
    here.ledgers["home"].jobs.accept(here.job(b"still open", "d1"))
    for _ in range(3):
        here.mover("home", sleep=lambda _: None, fence_s=0.2).step()
        here.now += 3600.0
    move = home.all()[NAME]
    assert (move.stage, move.number) == (MoveStage.COPY, 3)
    assert home.step(move, move.model_copy(update={"stage": MoveStage.CANCELLED}), "open")
    here.texts["d1"] = b"still open"

    def away(*_: object) -> None:
        raise LedgerUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(Moves, "forget", away)
        here.mover("home").step()
    assert not home.all()[NAME].running
    assert here.keys_of("b")
    here.act(20)
    begin(here, "home", "b")
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_a_collection_that_is_deleted_is_copied_no_more(world: Callable[..., World]) -> None:
    here = world()
    here.act(40)
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: None, fence_s=0.2)
    here.ledgers["home"].jobs.accept(here.job(b"still open", "d1"))
    mover.step()
    here.ledgers["home"].documents.collection_delete(NAME)
    here.now += 60.0
    for _ in range(3):
        mover.step()
        here.now += 60.0
    assert not here.ledgers["home"].moves.all()[NAME].running
    assert not any(here.listed(one) for one in here.ledgers.values())
    for name in here.ledgers:
        while here.keys_of(name):
            here.ledgers[name].maintenance.drop_due()


def test_dead_letters_hold_a_move_up_until_they_are_replayed(world: Callable[..., World]) -> None:
    here = world()
    home = here.ledgers["home"]
    job = home.jobs.accept(here.job(b"text", "d1"))
    (lease,) = home.leases.claim(Queue.BULK, owner="w")
    home.leases.fail(lease, CollectionUnknown("a fault"))
    begin(here, "home", "b")
    mover = here.mover("home")
    mover.step()
    assert home.moves.all()[NAME].reason is MoveReason.DEAD_LETTERS
    home.jobs.replay(job.job_id)
    here.texts["d1"] = b"text"
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_writes_are_accepted_again_if_the_keeper_dies_behind_the_fence(
    world: Callable[..., World],
) -> None:
    here = world()
    home = here.ledgers["home"]
    begin(here, "home", "b")
    home.jobs.accept(here.job(b"open", "d1"))

    def die(_: float) -> None:
        raise Crashed

    with pytest.raises(Crashed):
        here.mover("home", sleep=die, fence_s=600.0).step()
    with pytest.raises(CollectionBusy):
        home.jobs.accept(here.job(b"refused", "d2"))
    read = here.job(b"", "d1", kind=Kind.RECONSTRUCT)
    home.jobs.accept(read)  # reads go on
    home.moves.scripts.client.hset("verso:shut", f"n:{NAME}", "f 1")  # the fence's time is over
    home.jobs.accept(here.job(b"taken", "d2"))
    here.texts |= {"d1": b"open", "d2": b"taken"}
    here.check()
    here.now += 1000.0
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_a_late_commit_is_refused_where_the_collection_was(world: Callable[..., World]) -> None:
    """Whatever a slice holds of the old ledger, it changes nothing there after the close."""
    here = world()
    home = here.ledgers["home"]
    home.jobs.accept(here.job(b"late", "d1"))
    (lease,) = home.leases.claim(Queue.BULK, owner="w")
    client = home.moves.scripts.client
    client.hset("verso:shut", "o:c", "gone b")
    write = DocumentWrite(NAME, "d1", entry_of(lease.seq, b"late"))
    done = home.leases.commit(lease, b"r", ok=1, errors=0, documents=[write])
    assert done is Commit.SEALED
    assert home.documents.entry(NAME, ["d1"]) == {}
    with pytest.raises(CollectionBusy):
        home.documents.collection_delete(NAME)
    with pytest.raises(CollectionBusy):
        home.documents.collection_artifact(NAME, "codec")


def test_identities_of_records_are_known_where_the_lines_are(world: Callable[..., World]) -> None:
    here = world(kind=CollectionKind.LOGS)
    while not here.identities:
        here.act(1)
    begin(here, "home", "b")
    run_to_end(here, "home")
    other = here.ledgers["b"]
    place = other.logs.reserve(NAME, LABELS, 1)
    with pytest.raises(IdentityKnown):
        other.jobs.accept(here.lines_job(place, [b"again"], here.identities[0]))


def test_a_backup_keeps_a_move_from_switching(world: Callable[..., World]) -> None:
    here = world()
    here.act(20)
    home = here.ledgers["home"]
    home.epoch.freeze("backup", seconds=60)
    begin(here, "home", "b")
    mover = here.mover("home")
    for _ in range(4):
        mover.step()
        here.now += 60.0
    assert home.moves.all()[NAME].reason is MoveReason.SOURCE
    assert here.holder() is home
    home.epoch.thaw("backup")
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_a_copy_that_is_lost_gives_the_collection_back(world: Callable[..., World]) -> None:
    """The other ledger was put back to a state before the copy, between the two steps."""
    here = world()
    here.act(20)
    begin(here, "home", "b")
    target = here.ledgers["b"].moves
    publish = target.publish

    def lose(*args: object) -> str:
        target.scripts.client.flushdb()
        target.publish = publish  # type: ignore[method-assign]
        return publish(*args)  # type: ignore[arg-type]

    target.publish = lose  # type: ignore[method-assign,assignment]
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def stored(here: World, count: int) -> None:
    """Store documents, and copy them: a slice that stays open keeps the move from going on."""
    home = here.ledgers["home"]
    for n in range(count):
        home.jobs.accept(here.job(b"text %d" % n, f"d{n}"))
        here.texts[f"d{n}"] = b"text %d" % n
    here.settle()
    begin(here, "home", "b")
    job = home.jobs.accept(here.job(b"open", "open"))
    here.mover("home", sleep=lambda _: None, fence_s=0.2).step()
    home.jobs.cancel(job.job_id)
    assert home.moves.all()[NAME].left == 0


def test_a_delete_after_the_copy_reaches_the_copy(world: Callable[..., World]) -> None:
    here = world()
    stored(here, 5)
    home = here.ledgers["home"]
    home.jobs.accept(here.job(b"", "d3", kind=Kind.DELETE))
    del here.texts["d3"]
    here.settle()
    here.now += 60.0
    run_to_end(here, "home", acts=0)
    here.check()


def test_a_repair_after_the_copy_reaches_the_copy(world: Callable[..., World]) -> None:
    here = world()
    stored(here, 5)
    home = here.ledgers["home"]
    old = home.documents.entry(NAME, ["d3"])["d3"]
    new = entry_of(Entry.unpack(old).seq, b"text 3, repaired")
    assert home.documents.repair(NAME, "d3", old=old, entry=new, text=None)
    here.now += 60.0
    run_to_end(here, "home", acts=0)
    found = here.ledgers["b"].documents.entry(NAME, ["d3"])["d3"]
    assert Entry.unpack(found).records[0].payload == b"text 3, repaired"


def test_a_keeper_that_was_followed_writes_nothing_more(world: Callable[..., World]) -> None:
    """Neither while another one copies, nor once the collection is published."""
    here = world()
    stored(here, 5)
    home, other = here.ledgers["home"].moves, here.ledgers["b"].moves
    move = home.all()[NAME]
    late = CollectionCopy(home, other, move)
    home.scripts.client.zadd("verso:marks:" + move.uid, {"d:0": 1})
    after = move.model_copy(update={"number": move.number + 1})
    assert other.take(after, seq=home.seq()) == move.target_uid
    assert other.take(move, seq=home.seq()) == "stale"
    with pytest.raises(CopyRefused):
        late.some(1)
    assert late.left() == 1
    here.now += 60.0
    run_to_end(here, "home", acts=0)
    home.scripts.client.zadd("verso:marks:" + move.uid, {"d:0": 1})
    for number in (move.number, move.number + 1, move.number + 2):
        with pytest.raises(CopyRefused):
            CollectionCopy(home, other, move.model_copy(update={"number": number})).some(1)
    here.check()


def test_a_call_that_comes_a_second_time_late_undoes_nothing(world: Callable[..., World]) -> None:
    """Its reply was lost, it was repeated, and a later one has written since."""
    here = world()
    stored(here, 5)
    home, other = here.ledgers["home"].moves, here.ledgers["b"].moves
    move = home.all()[NAME]
    client = other.scripts.client

    def restore(dumped: bytes) -> list[Arg]:
        return ["RESTORE", 4, "there", 0, dumped, "REPLACE"]

    client.set("here", "old")
    old = cast("bytes", client.dump("here"))
    client.set("here", "new")
    new = cast("bytes", client.dump("here"))
    args: list[Arg] = [move.own, move.target_uid, move.number]
    number = 1 << 40  # later than all of this process
    assert other.scripts.run("move_put", [*args, number, *restore(old)]) == b"done"
    assert other.scripts.run("move_put", [*args, number + 1, *restore(new)]) == b"done"
    assert other.scripts.run("move_put", [*args, number, *restore(old)]) == b"stale"
    assert other.scripts.run("move_put", [*args, number + 1, *restore(old)]) == b"done"
    assert client.get("there") == b"new"


def test_a_mark_is_never_the_same_again(world: Callable[..., World]) -> None:
    """A late caller does not strike off what has changed since another one did."""
    here = world()
    stored(here, 5)
    home = here.ledgers["home"]
    uid = home.moves.all()[NAME].uid
    client = home.moves.scripts.client

    def marked() -> tuple[bytes, str]:
        home.jobs.accept(here.job(b"another", "d3"))
        (lease,) = home.leases.claim(Queue.BULK, owner="w")
        write = DocumentWrite(NAME, "d3", entry_of(lease.seq, b"another"))
        home.leases.commit(lease, b"r", ok=1, errors=0, documents=[write])
        rows = client.zrange(f"verso:marks:{uid}", 0, -1, withscores=True)
        ((unit, mark),) = cast("list[tuple[bytes, float]]", rows)
        return unit, f"{mark:.0f}"

    first = marked()
    assert home.moves.scripts.run("move_unmark", ["marks", uid, *first]) == 0
    assert marked() != first
    assert home.moves.scripts.run("move_unmark", ["marks", uid, *first]) == 1


def test_marking_all_once_more_takes_back_no_mark(world: Callable[..., World]) -> None:
    """The call was repeated as its reply was late, and a unit has changed in between."""
    here = world(buckets=4)
    begin(here, "home", "b")
    home, other = here.ledgers["home"].moves, here.ledgers["b"].moves
    client = home.scripts.client
    move = home.all()[NAME]
    marks = key("marks", move.uid)
    client.zadd(marks, {"d:1": 1 << 40})
    CollectionCopy(home, other, move).mark_all()
    assert client.zcard(marks) == 4
    assert client.zscore(marks, "d:1") == 1 << 40


def test_reads_that_are_always_open_hold_no_move_up(world: Callable[..., World]) -> None:
    here = world()
    home = here.ledgers["home"]
    home.jobs.accept(here.job(b"", "d1", kind=Kind.RECONSTRUCT))
    begin(here, "home", "b")
    here.mover("home", sleep=lambda _: None, fence_s=5.0).step()
    assert home.moves.all()[NAME].stage is MoveStage.CLEAN
    here.now += 60.0
    here.mover("home").step()
    assert home.moves.all()[NAME].stage is MoveStage.CLEAN  # it still reads there
    assert run_to_end(here, "home").stage is MoveStage.DONE


def test_a_read_that_died_holds_no_move_up(world: Callable[..., World]) -> None:
    here = world()
    home = here.ledgers["home"]
    slices = list(cut(Kind.RECONSTRUCT, {"collection": NAME}, [Item({"id": "d1"})]))
    home.jobs.accept(NewJob(Kind.RECONSTRUCT, Queue.INTERACTIVE, slices, collection=NAME))
    while not home.maintenance.backlog().dead:
        for lease in home.leases.claim(Queue.INTERACTIVE, owner="w"):
            home.leases.retry(lease, CollectionBusy("busy"), delay_s=0.0)
    begin(here, "home", "b")
    assert run_to_end(here, "home", rounds=30, acts=0).stage is MoveStage.DONE


def test_a_collection_that_was_deleted_after_the_switch_does_not_come_back(
    world: Callable[..., World],
) -> None:
    here = world()
    here.act(20)
    begin(here, "home", "b")
    home, other = here.ledgers["home"], here.ledgers["b"]
    place = home.moves.place

    def die(*_: object) -> None:
        home.moves.place = place  # type: ignore[method-assign]
        raise Crashed

    home.moves.place = die  # type: ignore[method-assign,assignment]
    with pytest.raises(Crashed):
        run_to_end(here, "home")
    other.documents.collection_delete(NAME)
    here.now += 60.0
    run_to_end(here, "home", acts=0)
    assert not any(here.listed(one) for one in here.ledgers.values())


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_move_goes_on_after_a_keeper_of_an_earlier_release(
    world: Callable[..., World], *, cancelled: bool
) -> None:
    """The release before objects of cold storage were copied wrote a state without two fields."""
    here = world()
    here.act(60)
    home = here.ledgers["home"]
    redis = cast("Any", home.moves.scripts.client)
    begin(here, "home", "b")
    mover = here.mover("home")
    stages: list[MoveStage] = []
    while (move := home.moves.all()[NAME]).running:
        assert len(stages) < 400, stages
        stages.append(move.stage)
        row = json.loads(redis.hget(key("moves"), NAME))
        written = {name: value for name, value in row.items() if name not in NOT_BEFORE}
        redis.hset(key("moves"), NAME, json.dumps(written, separators=(",", ":")))
        if cancelled and len(stages) == 1:
            asyncio.run(cancel(redis, move))
            assert home.moves.all()[NAME].stage is MoveStage.CANCELLED
        mover.step()
        here.act(1)
        here.now += 1.0
    assert here.holder().name == ("home" if cancelled else "b")
    assert cancelled or {*stages} >= {MoveStage.COPY, MoveStage.CLEAN}
    here.check()


async def cancel(redis: Any, move: Move) -> None:
    """Cancel a move, as a gateway does."""
    port = redis.connection_pool.connection_kwargs["port"]
    ledger = AsyncLedger.from_url(f"redis://127.0.0.1:{port}/0")
    assert await ledger.moves.cancel(move)
    await ledger.close()


def test_a_move_to_a_ledger_that_is_gone_is_cancelled(world: Callable[..., World]) -> None:
    here = world()
    home = here.ledgers["home"]
    begin(here, "home", "gone")
    mover = here.mover("home")
    mover.step()
    move = home.moves.all()[NAME]
    assert move.reason is MoveReason.TARGET
    after = move.model_copy(update={"stage": MoveStage.CANCELLED, "due": 0.0})
    assert home.moves.step(move, after, "open")
    mover.step()
    assert not home.moves.all()[NAME].running


def test_a_ledger_that_is_away_holds_no_other_move_up(
    world: Callable[..., World], tmp_path: Path
) -> None:
    here = world()
    here.act(20)
    home = here.ledgers["home"]
    made = home.documents.collections()[NAME].model_copy(update={"name": "away"})
    home.documents.collection_put(made)
    here.ledgers["dead"] = Ledger(connect(f"unix://{tmp_path}/none", timeout_s=1.0), name="dead")
    home.moves.begin("away", "away", "dead")
    move = home.moves.all()["away"]
    assert home.moves.step(move, move.model_copy(update={"started": 1.0}))  # it is the older one
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: here.settle())
    for _ in range(2):
        here.now += 60.0
        mover.step()
    moves = home.moves.all()
    assert moves[NAME].stage is MoveStage.CLEAN
    assert (moves["away"].stage, moves["away"].reason) == (MoveStage.COPY, MoveReason.TARGET)
    assert moves["away"].due > here.now - 60.0
    del here.ledgers["dead"]


def test_nothing_is_removed_before_the_other_ledger_has_it(world: Callable[..., World]) -> None:
    """Not even if that ledger was restored from a backup that was taken before the last step."""
    here = world()
    here.act(20)
    here.settle()
    other = here.ledgers["b"].moves
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: here.settle())
    mover.step()
    (move,) = here.ledgers["home"].moves.all().values()
    assert move.stage is MoveStage.CLEAN
    client = other.scripts.client
    client.hdel("verso:uids", move.own)
    client.hdel("verso:collections", move.own)
    client.hdel("verso:arriving", move.own)
    client.hset("verso:receiving", move.own, f"{move.target_uid} {move.number} 0")
    here.now += 60.0
    mover.step()
    assert here.listed(here.ledgers["b"])
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_nothing_is_removed_while_a_backup_is_taken(world: Callable[..., World]) -> None:
    here = world()
    here.act(20)
    here.settle()
    home = here.ledgers["home"]
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: here.settle())
    mover.step()
    home.epoch.freeze("backup", seconds=60)
    here.settle()
    while home.maintenance.gc_take():
        pass
    for _ in range(3):
        here.now += 60.0
        mover.step()
    assert home.moves.all()[NAME].stage is MoveStage.CLEAN
    assert here.listed(home)
    home.epoch.thaw("backup")
    assert run_to_end(here, "home").stage is MoveStage.DONE


def test_a_collection_that_was_deleted_while_it_was_cleaned_up_does_not_come_back(
    world: Callable[..., World],
) -> None:
    here = world()
    here.act(20)
    here.settle()
    home, other = here.ledgers["home"], here.ledgers["b"]
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: here.settle())
    mover.step()
    other.moves.release(home.moves.all()[NAME])  # a keeper that ended behind it
    other.documents.collection_delete(NAME)
    here.now += 60.0
    run_to_end(here, "home", acts=0)
    assert not any(here.listed(one) for one in here.ledgers.values())


def test_a_collection_that_was_deleted_and_made_again_there_is_the_only_one(
    world: Callable[..., World],
) -> None:
    """As a keeper ended, or a backup was taken, before the old ledger was cleaned."""
    here = world()
    here.act(20)
    here.settle()
    home, other = here.ledgers["home"], here.ledgers["b"]
    made = home.documents.collections()[NAME]
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: here.settle())
    mover.step()
    here.settle()
    while home.maintenance.gc_take():
        pass
    home.epoch.freeze("backup", seconds=60)
    here.now += 60.0
    mover.step()
    other.documents.collection_delete(NAME)
    other.documents.collection_put(made, prepare=lambda _: None)
    home.epoch.thaw("backup")
    assert run_to_end(here, "home", acts=0).stage is MoveStage.DONE
    assert [one.name for one in here.ledgers.values() if here.listed(one)] == ["b"]


def test_a_late_creation_makes_no_second_collection(world: Callable[..., World]) -> None:
    """It was accepted before the collection moved, and is done after that."""
    here = world()
    home = here.ledgers["home"]
    made = home.documents.collections()[NAME]
    begin(here, "home", "b")
    assert run_to_end(here, "home").stage is MoveStage.DONE
    with pytest.raises(CollectionBusy):
        home.documents.collection_put(made)
    assert not here.listed(home)
    begin(here, "b", "home")
    assert run_to_end(here, "b").stage is MoveStage.DONE
    here.check()


def test_the_duties_of_the_old_ledger_go_on_past_a_collection_that_has_moved(
    world: Callable[..., World],
) -> None:
    here = world()
    home = here.ledgers["home"]
    kept = home.documents.collections()[NAME].model_copy(update={"retention_days": 1.0})
    for name in ("a", "d"):
        home.documents.collection_put(kept.model_copy(update={"name": name}))
    changed = home.documents.collection_change
    changed(NAME, lambda old: old.model_copy(update={"retention_days": 1.0}))
    begin(here, "home", "b")
    here.mover("home", sleep=lambda _: here.settle()).step()
    assert here.listed(home)
    index = LedgerIndex(here.ledgers)
    assert index.ledger_of_collection(NAME) is here.ledgers["b"]
    with pytest.raises(CollectionBusy):
        LedgerIndex({"home": home}).ledger_of_collection(NAME)
    assert list(home.documents.here()) == ["a", "d"]
    assert Retention(home, every_s=3600.0).step() == 2


def test_contents_are_compared_however_a_server_keeps_them(world: Callable[..., World]) -> None:
    here = world()
    scripts = here.ledgers["b"].moves.scripts
    client = scripts.client

    def of(*names: str) -> list[bytes]:
        args = [arg for name in names for arg in (name, 0, -1)]
        return cast("list[bytes]", scripts.run("move_digests", args))

    rows = [f"{n:016}" for n in range(2000)]
    client.sadd("one", *rows)
    client.sadd("two", *reversed(rows))
    first, second = of("one", "two")
    assert first == second
    client.srem("two", rows[7])
    assert of("two") != [first]
    for name, order in (("h1", range(900)), ("h2", reversed(range(900)))):
        client.hset(name, mapping={str(n): "x" * n for n in order})
    client.zadd("z1", {"a": 1, "b": 2, "c": 1})
    client.zadd("z2", {"c": 1, "b": 2, "a": 1})
    for name, parts in (("l1", ["ab", "c"]), ("l2", ["a", "bc"])):
        client.rpush(name, *parts)
        client.xadd(name.replace("l", "x"), cast("Any", dict([parts])), id="1-1")
    found = of("h1", "h2", "z1", "z2", "l1", "l2", "x1", "x2", "none")
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[4] != found[5]
    assert found[6] != found[7]
    assert found[8] == b""


def set_clock_forward(here: World, by_ms: int) -> None:
    """Let the home ledger's steps see a fence as if its server's clock were set forward."""
    client = here.ledgers["home"].moves.scripts.client
    shut = cast("dict[bytes, bytes]", client.hgetall("verso:shut"))
    for name, state in shut.items():
        stage, till = state.split()
        client.hset("verso:shut", name, b"%s %d" % (stage, int(till) - by_ms))


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_while_the_clock_is_set_forward_ends_the_fence(
    world: Callable[..., World], kind: CollectionKind
) -> None:
    """Set back again, the move does not go on as if nothing had been accepted."""
    here = world(kind=kind)
    home = here.ledgers["home"]
    begin(here, "home", "b")
    moves = home.moves

    def behind_the_fence() -> Move:
        seen = moves.all()[NAME]
        fenced = seen.model_copy(update={"stage": MoveStage.FENCE})
        assert moves.step(seen, fenced, "fence", with_=60_000)
        return fenced

    move = behind_the_fence()
    for _ in range(2):  # without a write, the fence holds through the jump
        set_clock_forward(here, 120_000)
        set_clock_forward(here, -120_000)
    assert moves.step(move, move, "close", with_=60_000)
    assert moves.step(move, move, "open")
    move = behind_the_fence()
    set_clock_forward(here, 120_000)
    here.write()
    assert here.refused == 0
    set_clock_forward(here, -120_000)
    assert not moves.step(move, move, "close", with_=60_000)
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_a_commit_while_the_clock_is_set_forward_keeps_the_collection_from_switching(
    world: Callable[..., World],
) -> None:
    here = world()
    home = here.ledgers["home"]
    home.jobs.accept(here.job(b"late", "d1"))
    here.texts["d1"] = b"late"
    (lease,) = home.leases.claim(Queue.BULK, owner="w")
    begin(here, "home", "b")
    move = home.moves.all()[NAME]
    fenced = move.model_copy(update={"stage": MoveStage.FENCE})
    assert home.moves.step(move, fenced, "fence", with_=60_000)
    assert home.moves.step(fenced, fenced, "close", with_=60_000)
    set_clock_forward(here, 120_000)
    write = DocumentWrite(NAME, "d1", entry_of(lease.seq, b"late"))
    done = home.leases.commit(lease, b"r", ok=1, errors=0, documents=[write], verify_delay_s=0)
    assert done is Commit.DONE
    set_clock_forward(here, -120_000)
    assert not home.moves.step(fenced, fenced, "switch", with_="gone b")
    here.now += 60.0
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_only_what_was_open_at_the_fence_is_waited_for(world: Callable[..., World]) -> None:
    here = world()
    home = here.ledgers["home"]
    slices = home.moves.open_slices
    first = home.jobs.accept(here.job(b"one", "d1"))
    home.jobs.accept(here.job(b"two", "d2"))
    home.jobs.accept(here.job(b"", "d1", kind=Kind.RECONSTRUCT))
    found = slices.of(NAME)
    assert (len(found.slices), found.dead) == (2, 0)
    assert len(slices.of(NAME, reads=True).slices) == 3
    assert slices.of("another").slices == frozenset()
    home.jobs.cancel(first.job_id)
    assert len(slices.of_these(found.slices).slices) == 1
    (lease,) = home.leases.claim(Queue.BULK, owner="w")
    assert len(slices.of_these(found.slices).slices) == 1
    home.leases.fail(lease, CollectionUnknown("a fault"))
    assert slices.of_these(found.slices).dead == 1
    home.jobs.replay(lease.job_id)
    home.jobs.cancel(lease.job_id)  # as the runbook says of one that nobody can process
    assert slices.of(NAME).slices == frozenset()


def test_identities_and_positions_are_copied_while_they_come(world: Callable[..., World]) -> None:
    here = world(kind=CollectionKind.LOGS)
    home, other = here.ledgers["home"], here.ledgers["b"]
    before = [b"before %9d" % n for n in range(5000)]
    uid = home.logs.state(NAME).uid
    place = home.logs.reserve(NAME, LABELS, 1)
    job = here.lines_job(place, [b"first"], before[0])
    job = replace(job, identities={NAME: before}, moved=Moved(uid, b"file", 0, 10))
    home.jobs.accept(job)
    here.lines[b"first"] += 1
    begin(here, "home", "b")

    def accept_more(_: float) -> None:
        here.settle()

    mover = here.mover("home", sleep=accept_more)
    moved_to = 10
    for n in range(40):
        state = home.moves.all()[NAME]
        if state.stage is MoveStage.CLEAN:
            break
        if n < 5:
            place = home.logs.reserve(NAME, LABELS, 1)
            late = here.lines_job(place, [b"late %d" % n], b"late %11d" % n)
            moved = Moved(uid, b"file", moved_to, moved_to + 10)
            home.jobs.accept(replace(late, moved=moved))
            here.lines[b"late %d" % n] += 1
            moved_to += 10
            before.append(b"late %11d" % n)
        mover.step()
        here.now += 60.0
    run_to_end(here, "home", acts=0)
    spans = other.moves.spans(other.logs.state(NAME).uid)
    assert {span.partition(":")[0] for span in spans} == {"identities", "positions"}
    client = other.moves.scripts.client
    to = other.logs.state(NAME).uid
    for span in spans:
        kind, _, period = span.partition(":")
        assert client.pttl(key(kind, to, period)) > 0
        if kind == "identities":
            assert client.smembers(key(kind, to, period)) == set(before)
        else:
            assert client.hgetall(key(kind, to, period)) == {b"file": b"%d" % moved_to}
    here.check()


def test_too_many_new_identities_are_copied_by_another_walk(
    world: Callable[..., World],
) -> None:
    here = world(kind=CollectionKind.LOGS)
    home, other = here.ledgers["home"], here.ledgers["b"]
    begin(here, "home", "b")
    for first in range(0, 120_000, 4000):
        place = home.logs.reserve(NAME, LABELS, 1)
        job = here.lines_job(place, [b"line %d" % first], b"")
        hashes = [b"%016d" % n for n in range(first, first + 4000)]
        home.jobs.accept(replace(job, identities={NAME: hashes}))
        here.lines[b"line %d" % first] += 1
    client = home.moves.scripts.client
    uid = home.logs.state(NAME).uid
    assert client.zrange(key("fresh", uid), 0, -1) == [b"all"]
    moved = run_to_end(here, "home", acts=0)
    assert (moved.stage, moved.walks) == (MoveStage.DONE, 2)
    to = other.logs.state(NAME).uid
    sizes = [
        client.scard(key("identities", to, span.partition(":")[2]))
        for client in [other.moves.scripts.client]
        for span in other.moves.spans(to)
    ]
    assert sum(sizes) == 120_000
    here.check()


def test_spans_of_an_earlier_version_are_found(world: Callable[..., World]) -> None:
    here = world(kind=CollectionKind.LOGS)
    home = here.ledgers["home"]
    here.act(30)
    uid = home.logs.state(NAME).uid
    client = home.moves.scripts.client
    listed = home.moves.spans(uid)
    assert listed
    client.delete(key("spans", uid))
    client.hdel(key("totals"), "spans_since")
    assert home.moves.spans(uid) == set()
    begin(here, "home", "b")
    run_to_end(here, "home", acts=0)
    other = here.ledgers["b"]
    to = other.logs.state(NAME).uid
    for span in listed:
        kind, _, period = span.partition(":")
        assert other.moves.scripts.client.exists(key(kind, to, period))


@pytest.mark.parametrize("seed", range(3))
def test_a_large_key_is_copied_in_pages_whatever_differs(
    world: Callable[..., World], seed: int
) -> None:
    here = world()
    begin(here, "home", "b")
    home, other = here.ledgers["home"].moves, here.ledgers["b"].moves
    move = home.all()[NAME]
    uid = other.take(move, seq=home.seq())
    copy = CollectionCopy(home, other, move.model_copy(update={"target_uid": uid}))
    paged = PagedCopy(home, other, copy._write)
    mine, theirs = home.scripts.client, other.scripts.client
    draw = here.draw
    draw.seed(seed)

    def fill(client: Any, size: int) -> None:
        rows = [b"%08d" % draw.randrange(9000) for _ in range(size)]
        client.hset("h", mapping={row: b"v%d" % draw.randrange(3) for row in rows})
        client.sadd("s", *rows)
        client.zadd("z", {row: draw.randrange(3) + 2.0**52 for row in rows})
        client.rpush("l", *rows)

    fill(mine, 5000)
    fill(theirs, draw.choice((1, 3000, 8000)))
    for name, kind in (("h", b"hash"), ("s", b"set"), ("z", b"zset"), ("l", b"list")):
        one = CopiedKey(name, name)
        assert paged.copy(one, kind)
        assert home.scripts.run("move_digests", [name, 0, -1]) == other.scripts.run(
            "move_digests", [name, 0, -1]
        )
        written = copy.new_bytes()
        assert written > 0
        assert paged.copy(one, kind)
        assert copy.new_bytes() == 0
    for client, name in ((mine, "none"), (theirs, "more")):
        client.hset(name, "f", "v")
    assert paged.copy(CopiedKey("none", "more"), b"hash")
    assert theirs.hgetall("more") == {b"f": b"v"}


def test_a_collection_of_large_keys_moves(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key that has members is copied in pages."""
    monkeypatch.setattr(copying, "LARGE_BYTES", 1)
    for kind in KINDS:
        here = world(kind=kind)
        here.act(60)
        for source, target in (("home", "b"), ("b", "home")):
            begin(here, source, target)
            assert run_to_end(here, source).stage is MoveStage.DONE
            here.check()
        here.close()


def test_a_batch_has_as_many_units_as_its_bytes_allow(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(buckets=8)
    here.act(60)
    here.settle()
    begin(here, "home", "b")
    home, other = here.ledgers["home"].moves, here.ledgers["b"].moves
    move = home.all()[NAME]
    uid = other.take(move, seq=home.seq())
    copy = CollectionCopy(home, other, move.model_copy(update={"target_uid": uid}))
    copy.mark_all()
    monkeypatch.setattr(copying, "_PART_BYTES", 1)
    run, held = other.scripts.run, []

    def counted(step: str, args: Any) -> Any:
        if step == "move_digests":
            buckets = [name for name in args[::3] if name.startswith(key("docs"))]
            held.append(other.scripts.client.exists(*buckets))
        return run(step, args)

    monkeypatch.setattr(other.scripts, "run", counted)
    assert copy.some(64) == 8
    assert copy.left() == 0
    assert max(held) == 1 < sum(held)


def test_a_collection_that_is_written_faster_than_it_is_copied_says_so(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(buckets=512)
    home = here.ledgers["home"].moves
    begin(here, "home", "b")
    monkeypatch.setattr(CollectionCopy, "some", lambda *_: 0)
    monkeypatch.setattr("verso_keeper.mover.SPEND_S", 0.0)
    mover = here.mover("home")
    reasons = []
    for _ in range(4):
        mover.step()
        reasons.append(home.all()[NAME].reason)
        here.now += 40.0
    assert reasons == [None, None, MoveReason.BEHIND, MoveReason.BEHIND]
    monkeypatch.undo()
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


def test_what_moves_do_is_counted(world: Callable[..., World]) -> None:
    here = world()
    home = here.ledgers["home"]
    begin(here, "home", "b")
    here.ledgers["home"].jobs.accept(here.job(b"still open", "d1"))
    here.mover("home", sleep=lambda _: None, fence_s=0.2).step()
    assert home.maintenance.backlog().totals["moves:fences:opened"] == 1
    here.texts["d1"] = b"still open"
    here.now += 60.0
    moved = run_to_end(here, "home")
    totals = home.maintenance.backlog().totals
    assert totals["moves:bytes"] == moved.bytes_copied > 0
    assert (totals["moves:fences:switched"], totals["moves:done"]) == (1, 1)
    begin(here, "b", "home")
    other = here.ledgers["b"].moves
    move = other.all()[NAME]
    assert other.step(move, move.model_copy(update={"stage": MoveStage.CANCELLED}), "open")
    here.mover("b").step()
    assert here.ledgers["b"].maintenance.backlog().totals["moves:cancelled"] == 1


def test_a_collection_that_comes_while_it_is_looked_for_is_found(
    world: Callable[..., World],
) -> None:
    """Home was asked before it came there, the other ledger after it had left."""
    here = world()
    begin(here, "home", "b")
    run_to_end(here, "home")
    begin(here, "b", "home")
    home, other = here.ledgers["home"], here.ledgers["b"]
    index = LedgerIndex(here.ledgers)
    named = home.documents.named

    def before_it_came(name: str) -> Any:
        found = named(name)
        home.documents.named = named  # type: ignore[method-assign]
        run_to_end(here, "b")
        return found

    home.documents.named = before_it_came  # type: ignore[method-assign]
    assert index.ledger_of_collection(NAME) is home
    assert not here.listed(other)
    home.documents.collection_delete(NAME)
    with pytest.raises(CollectionUnknown):
        index.ledger_of_collection(NAME)
