"""Log collections roll over while lines arrive and keepers die: no line is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_keeper.rolling import (
    DAY_S,
    NAME,
    SPAN_S,
    Crashed,
    World,
    made,
)
from tests.wire import Item, cut

from verso_core.errors import CollectionBusy
from verso_core.jobs import Kind, Queue
from verso_core.jobs.collections import MAX_TIME_PARTITIONS, Stage, TimePart
from verso_core.jobs.moves import Move, MoveStage
from verso_keeper.retention import Retention
from verso_keeper.rollover import SEEN_S, settings_of
from verso_ledger import NewJob
from verso_ledger.epoch import EpochState
from verso_ledger.keys import key


@pytest.fixture
def world(valkey_server: Callable[..., ValkeyServer], request: Any) -> Iterator[World]:
    servers = {"home": valkey_server(), "b": valkey_server()}
    found = World.of(servers, seed=getattr(request, "param", 0))
    yield found
    found.close()


@pytest.mark.parametrize("world", range(6), indirect=True)
def test_keepers_that_end_anywhere_lose_and_double_nothing(world: World) -> None:
    keepers = [world.keeper(), world.keeper()]
    with world.fragile():
        for _ in range(500):
            match world.draw.randrange(6):
                case 0 | 1:
                    world.ending.left = None
                    world.write()
                case 2 | 3:
                    world.ending.left = None
                    world.work()
                case 4:
                    world.now += world.draw.choice((1.0, 10.0, SPAN_S))
                case _:
                    number = world.draw.randrange(2)
                    world.ending.left = world.draw.choice((None, None, 0, 1))
                    world.ending.late = world.draw.random() < 0.5
                    try:
                        keepers[number].step()
                    except Crashed:
                        keepers[number] = world.keeper()
    world.settle()
    assert len(world.state.parts) > 3
    assert sum(world.held().values(), Counter()) == world.accepted
    assert set(world.accepted.values()) == {1}
    on = {name: len(one.documents.collections()) for name, one in world.ledgers.items()}
    assert max(on.values()) - min(on.values()) <= 1


@pytest.mark.parametrize("world", range(4), indirect=True)
def test_retention_drops_whole_partitions_and_no_line_that_is_kept(world: World) -> None:
    days = 5 * SPAN_S / DAY_S
    for ledger in world.ledgers.values():
        for collection in ledger.documents.collections().values():
            ledger.documents.collection_change(
                collection.name, lambda one: one.model_copy(update={"retention_days": days})
            )
    times: dict[bytes, float] = {}
    keeper = world.keeper()
    for _ in range(600):
        match world.draw.randrange(5):
            case 0 | 1:
                world.write()
            case 2:
                world.settle()
                for line in world.accepted:
                    times.setdefault(line, world.now)
            case 3:
                world.now += world.draw.choice((1.0, 10.0, SPAN_S / 2))
            case _:
                keeper.step()
    world.settle()
    for line in world.accepted:
        times.setdefault(line, world.now)
    kept = world.held()
    assert min(kept) > 0, "nothing was dropped"
    there = sum(kept.values(), Counter())
    assert there <= world.accepted
    cutoff = world.now - 5 * SPAN_S
    assert {line for line, at in times.items() if at >= cutoff} <= set(there)
    numbers = [one.number for one in world.state.parts if one.stage is Stage.LIVE]
    assert numbers == sorted(numbers)
    for ledger in world.ledgers.values():
        assert Retention(ledger, every_s=10.0, clock=lambda: world.now).step() == 0


def test_a_partition_with_open_work_or_a_dead_letter_is_not_dropped(world: World) -> None:
    keeper = world.keeper()
    world.write()
    world.now += SPAN_S
    for _ in range(4):
        keeper.step()
        for lease in world.ledgers["b"].leases.claim(Queue.INTERACTIVE, owner="w"):
            world.execute(world.ledgers["b"], lease)
    assert world.state.writing == 1
    for _ in range(3):
        keeper.step()
    assert world.state.parts[0].last is None
    [lease] = world.home.leases.claim(Queue.BULK, owner="w")
    world.home.leases.fail(lease, ValueError("a fault of the worker"))
    assert world.home.maintenance.backlog().dead == 1
    for _ in range(3):
        keeper.step()
    assert world.state.parts[0].last is None
    world.home.jobs.replay(lease.job_id)
    world.settle()
    keeper.step()
    assert world.state.parts[0].last == pytest.approx(world.now, abs=1.0)
    assert sum(world.held().values(), Counter()) == world.accepted


def test_a_rolled_partition_refuses_lines_and_takes_deletions(world: World) -> None:
    own = f"{NAME}.0"
    uid = world.home.logs.state(own).uid
    place = world.home.logs.reserve(own, {"host": "a"}, 1)
    assert not world.home.partitions.roll(own, uid + "9")
    assert world.home.partitions.roll(own, uid)
    assert world.home.partitions.roll(own, uid)
    with pytest.raises(CollectionBusy):
        world.home.logs.reserve(own, {"host": "a"}, 1)
    params = {"collection": own, "uid": place.uid, "stream": place.stream}
    [spec] = cut(Kind.INGEST_LINES, params, [Item({"first": 0, "count": 1}, b"x")])
    with pytest.raises(CollectionBusy):
        world.home.jobs.accept(NewJob(Kind.INGEST_LINES, Queue.BULK, [spec], collection=own))
    [spec] = cut(Kind.DELETE, {"collection": own}, [Item({"id": "0:0"})])
    world.home.jobs.accept(NewJob(Kind.DELETE, Queue.BULK, [spec], collection=own))


def test_damage_of_one_collection_keeps_no_other_from_rolling_over(world: World) -> None:
    keeper = world.keeper()
    client = world.home.moves.scripts.client
    other = world.state.model_copy(update={"parts": (world.state.parts[0],)})
    world.home.documents.collection_put(made("zz.0", {}))
    world.home.logs.reserve("zz.0", {}, 1)
    world.write()
    world.now += SPAN_S
    world.steps(keeper, 4)
    uid = world.home.logs.state(f"{NAME}.0").uid
    client.zadd(key("segments", uid), {b"damaged": 9e6})
    part = world.state.parts[0].model_copy(update={"last": None})
    damaged = world.state.model_copy(update={"parts": (part, *world.state.parts[1:])})
    assert world.home.partitions.step(NAME, world.state, damaged)
    client.hset(key("partitioned"), "zz", other.model_dump_json())
    world.steps(keeper, 6)
    assert world.home.partitions.all()["zz"].writing == 1
    assert world.state.parts[0].last is None


def test_an_empty_partition_does_not_roll_over(world: World) -> None:
    keeper = world.keeper()
    for _ in range(3):
        world.now += 10 * SPAN_S
        assert keeper.step() == 0
        assert len(world.state.parts) == 1
    world.write()
    world.now += SPAN_S / 2
    assert keeper.step() == 0, "it is as old as its first line, about"


def test_a_clock_that_was_ahead_does_not_stop_the_rollover_once_it_is_right(world: World) -> None:
    keeper = world.keeper()

    def run() -> None:
        for _ in range(12):
            keeper.step()
            world.settle()
            world.now += SPAN_S / 4

    world.write()
    world.settle()
    world.now += 30 * DAY_S
    run()
    writing = world.state.writing
    assert writing >= 1
    world.now -= 30 * DAY_S
    world.notes = {}
    for _ in range(5):  # some are sent again
        world.write()
    world.settle()
    run()
    assert world.state.writing > writing


def test_a_partition_that_only_its_ledger_knows_to_have_rolled_is_followed(world: World) -> None:
    """As after a backup that copied the home ledger first."""
    world.write()
    world.home.partitions.roll(f"{NAME}.0", world.home.logs.state(f"{NAME}.0").uid)
    keeper = world.keeper()
    for _ in range(6):
        keeper.step()
        world.settle()
    assert (world.state.writing, world.state.numbers) == (1, (0, 1))
    world.write()
    world.settle()
    assert sum(world.held().values(), Counter()) == world.accepted


def test_a_partition_that_the_home_ledger_does_not_know_yet_stays_where_it_is(world: World) -> None:
    """As after a backup that copied the home ledger first: no second one of its name is made."""
    world.home.documents.collection_put(made(f"{NAME}.1", {}))
    world.write()
    world.now += SPAN_S
    world.steps(world.keeper(), 6)
    assert world.state.writing == 1
    assert world.home.partitions.placed(f"{NAME}.1") == "home"
    assert world.where(f"{NAME}.1") is world.home


def test_a_partition_that_waits_is_made_again_if_its_ledger_lacks_it(world: World) -> None:
    """As after a restore of a ledger from a copy that is older than the home ledger's."""
    keeper = world.keeper()
    world.write()
    world.now += SPAN_S
    while len(world.state.numbers) < 2:
        world.steps(keeper, 1)
    world.lose("b")
    keeper.step()
    assert world.stands() == ((0,), (), 0)
    world.steps(keeper, 6)
    assert world.stands() == ((0, 1), (), 1)
    for _ in range(4):
        world.write()
    world.settle()
    assert sum(world.held().values(), Counter()) == world.accepted


def test_a_partition_that_its_ledger_has_lost_is_missing_until_it_has_it_again(
    world: World,
) -> None:
    keeper = world.keeper()
    world.write()
    world.now += SPAN_S
    world.steps(keeper, 6)
    while not world.held()[1]:
        world.write()
        world.settle()
    lost = world.held()[1]
    copy = world.lose("b")
    world.ledgers["b"].epoch.make_read_only(EpochState("0123", "", 5))
    world.steps(keeper, 3)
    assert world.stands() == ((0, 1), (), 1), "an operator decides about the ledger first"
    world.restore("b", copy)

    world.lose("b")
    keeper.step()
    assert world.stands() == ((0,), (1,), 1)
    world.restore("b", copy)
    keeper.step()
    assert world.stands() == ((0, 1), (), 1)
    assert sum(world.held().values(), Counter()) == world.accepted

    world.lose("b")
    world.accepted -= lost
    world.steps(keeper, 6)
    assert world.stands() == ((0, 2), (1,), 2)
    for _ in range(4):
        world.write()
    world.settle()
    assert sum(world.held().values(), Counter()) == world.accepted
    assert world.held()[2]


def test_moves_of_a_dropped_partition_are_forgotten(world: World) -> None:
    name, (home, other) = f"{NAME}.0", world.ledgers.values()
    home.documents.collection_change(
        name, lambda old: old.model_copy(update={"retention_days": 1.0})
    )
    moved = Move(
        collection=name, own=name, uid="1", buckets=64, texts=False, lines=True, source="b",
        target="home", stage=MoveStage.DONE, started=world.now, ended=world.now,
    )  # fmt: skip
    here, there = home.moves.scripts.client, other.moves.scripts.client
    there.hset(key("moves"), name, moved.model_dump_json())
    there.hset(key("shut"), mapping={f"n:{name}": "gone home", f"o:{name}": "gone home"})
    here.hset(key("came"), name, "[]")
    keeper = world.keeper()
    world.write()
    world.settle()
    world.now += SPAN_S
    world.steps(keeper, 6)
    world.now += 2 * DAY_S
    for _ in range(4):
        world.steps(keeper, 2)
        world.now += SEEN_S
    assert world.where(name) is None
    assert not any(one.exists(*map(key, ("moves", "shut", "came"))) for one in (here, there))


def test_a_move_of_an_earlier_partition_of_a_name_keeps_no_new_one_from_being_made(
    world: World,
) -> None:
    """Its ledger was away when the earlier one was dropped, or its collection was deleted."""
    name, there = f"{NAME}.1", world.ledgers["b"].moves.scripts.client
    moved = Move(
        collection=name, own=name, uid="1", buckets=64, texts=False, lines=True, source="b",
        target="home", stage=MoveStage.DONE, started=world.now, ended=world.now,
    )  # fmt: skip
    there.hset(key("moves"), name, moved.model_dump_json())
    there.hset(key("shut"), mapping={f"n:{name}": "home", f"o:{name}": "home"})
    world.write()
    world.now += SPAN_S
    world.steps(world.keeper(), 8)
    assert world.stands() == ((0, 1), (), 1)
    assert world.where(name) is world.ledgers["b"]
    assert not there.exists(*map(key, ("moves", "shut")))


def test_an_expired_partition_that_its_ledger_has_again_is_dropped(world: World) -> None:
    for ledger in world.ledgers.values():
        for one in ledger.documents.collections().values():
            ledger.documents.collection_change(
                one.name, lambda old: old.model_copy(update={"retention_days": 1.0})
            )
    keeper = world.keeper()
    for _ in range(2):
        for _ in range(8):
            world.write()
        world.settle()
        world.now += SPAN_S
        world.steps(keeper, 6)
    assert world.where(f"{NAME}.1") is world.ledgers["b"]
    copy = world.lose("b")
    world.steps(keeper, 2)
    assert world.state.missing == (1,)
    world.now += 2 * DAY_S
    for _ in range(4):
        world.steps(keeper, 2)
        world.now += SEEN_S
    assert 1 not in world.state.every_number
    world.restore("b", copy)
    for _ in range(4):
        world.steps(keeper, 2)
        world.now += SEEN_S
    assert world.where(f"{NAME}.1") is None
    assert 1 not in world.state.every_number


def test_a_partition_that_another_owner_has_left_is_not_taken_over(world: World) -> None:
    left = made(f"{NAME}.1", {}).model_copy(update={"owner": "ann"})
    world.ledgers["b"].documents.collection_put(left)
    world.write()
    world.now += SPAN_S
    world.steps(world.keeper(), 8)
    assert world.stands() == ((0, 1), (), 1)
    there = world.where(f"{NAME}.1")
    assert there is not None
    assert there.documents.collections()[f"{NAME}.1"].owner is None


@pytest.mark.parametrize(
    ("first", "last"), [(99, 100), (MAX_TIME_PARTITIONS - 1, MAX_TIME_PARTITIONS - 1)]
)
def test_partitions_are_numbered_as_long_as_their_streams_have_numbers(
    world: World, first: int, last: int
) -> None:
    world.home.documents.collection_put(made(f"{NAME}.{first}", {}))
    part = TimePart(number=first, stage=Stage.LIVE, since=world.now)
    new = world.state.model_copy(update={"parts": (part,), "writing": first})
    assert world.home.partitions.step(NAME, world.state, new)
    world.write()
    world.now += SPAN_S
    world.steps(world.keeper(), 6)
    assert world.state.writing == last
    world.write()
    world.settle()
    assert sum(world.held().values(), Counter()) == world.accepted


def test_gateways_stop_to_ask_a_partition_before_it_is_deleted(world: World) -> None:
    keeper = world.keeper()
    state = world.state
    parts = (
        TimePart(number=0, stage=Stage.DELETING, since=world.now, rolled=1.0, last=1.0),
        TimePart(number=1, stage=Stage.LIVE, since=world.now),
    )
    world.home.documents.collection_put(made(f"{NAME}.1", {}))
    new = state.model_copy(update={"parts": parts, "writing": 1})
    assert world.home.partitions.step(NAME, state, new)
    assert not world.home.partitions.step(NAME, state, state)
    keeper.step()
    assert not world.home.leases.claim(Queue.INTERACTIVE, owner="w")
    world.now += SEEN_S
    world.home.epoch.freeze("backup", seconds=60)
    keeper.step()
    assert not world.home.leases.claim(Queue.INTERACTIVE, owner="w")
    world.home.epoch.thaw("backup")
    keeper.step()
    world.settle()
    keeper.step()
    assert world.state.numbers == (1,)
    assert world.where(f"{NAME}.0") is None


def test_a_new_partition_is_asked_for_in_the_space_of_the_one_before() -> None:
    like = made("logs.0", {})
    assert settings_of(like, "logs.1", owner=None).space == like.space
