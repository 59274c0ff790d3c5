"""Moves of collections with objects in cold storage: all is read back from the new ledger's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import ValkeyServer, server_folder
from tests.integration.verso_keeper.move_runs import (
    begin,
    end_at_every_step,
    move_by_two_keepers,
    run_to_end,
    two_servers,
)
from tests.integration.verso_keeper.moving import NAME
from tests.integration.verso_keeper.moving_cold import ColdWorld

from verso_core.jobs import CollectionKind
from verso_core.jobs.moves import MoveReason, MoveStage

KINDS = [CollectionKind.DOCUMENTS, CollectionKind.LOGS]


@pytest.fixture(scope="module")
def servers(valkey_binary: str) -> Iterator[dict[str, ValkeyServer]]:
    with two_servers(valkey_binary) as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as made:
        yield made


@pytest.fixture
def world(servers: dict[str, ValkeyServer], folder: Path) -> Iterator[Callable[..., ColdWorld]]:
    made: list[ColdWorld] = []

    def build(kind: CollectionKind, seed: int = 1) -> ColdWorld:
        objects = folder / f"{len(made)}"
        made.append(ColdWorld.cooling(servers, objects, seed=seed, kind=kind))
        return made[-1]

    yield build
    for one in made:
        one.close()


def filled(world: ColdWorld) -> None:
    """Store something, and put most of it into cold storage."""
    before = world.moved
    while world.moved == before:
        world.act(20)
        world.settle()
        for _ in range(6):
            world.cool()
    world.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_collection_moves_there_and_back_and_its_objects_with_it(
    world: Callable[..., ColdWorld], kind: CollectionKind
) -> None:
    here = world(kind)
    for source, target in (("home", "b"), ("b", "home"), ("home", "b")):
        filled(here)
        begin(here, source, target)
        assert run_to_end(here, source).stage is MoveStage.DONE
        assert here.holder().name == target
        here.check()
        while here.keys_of(source):
            here.ledgers[source].maintenance.drop_due()
        for _ in range(3):
            here.sweep()
        assert here.objects(source) == set()
        assert here.objects(target)
        here.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_keeper_may_end_at_every_step(
    world: Callable[..., ColdWorld], kind: CollectionKind
) -> None:
    """Another one takes the move on, and the first one's late steps change nothing."""

    def build(at: int) -> ColdWorld:
        here = world(kind, seed=at)
        filled(here)
        return here

    end_at_every_step(build)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_two_keepers_at_once_and_crashes_at_random_lose_nothing(
    world: Callable[..., ColdWorld], kind: CollectionKind, seed: int
) -> None:
    here = world(kind, seed=seed)
    move_by_two_keepers(here, fill=lambda: filled(here), between=lambda: None, rounds=400)


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_waits_while_the_object_store_is_away(
    world: Callable[..., ColdWorld], kind: CollectionKind
) -> None:
    here = world(kind)
    filled(here)
    begin(here, "home", "b")
    here.away = True
    mover = here.mover("home")
    for _ in range(5):
        mover.step()
        here.settle()
        here.now += 60.0
    move = here.ledgers["home"].moves.all()[NAME]
    assert (move.stage, move.reason) == (MoveStage.COPY, MoveReason.COLD_STORAGE)
    moved = here.moved
    here.cool()
    assert here.moved == moved  # nothing goes to cold storage while the collection moves
    here.ledgers["home"]._redis.delete(f"verso:counts:{move.uid}")  # as after damage
    for _ in range(2):
        mover.step()
        here.settle()
        here.now += 60.0
    assert here.ledgers["home"].moves.all()[NAME].reason is MoveReason.COLD_STORAGE
    here.away = False
    here.now += 60.0
    assert run_to_end(here, "home").stage is MoveStage.DONE
    here.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_is_lost_is_made_again_with_its_objects(
    world: Callable[..., ColdWorld], kind: CollectionKind
) -> None:
    """The other ledger was put back to a state before the copy, between the two steps."""
    here = world(kind)
    filled(here)
    begin(here, "home", "b")
    target = here.ledgers["b"].moves
    publish = target.publish

    def lose(*args: object) -> str:
        target.scripts.client.flushdb()
        for _ in range(3):
            here.sweep()
        assert here.objects("b") == set()
        target.publish = publish  # type: ignore[method-assign]
        return publish(*args)  # type: ignore[arg-type]

    target.publish = lose  # type: ignore[method-assign,assignment]
    assert run_to_end(here, "home").stage is MoveStage.DONE
    assert target.publish is publish
    here.check()


def test_what_was_copied_for_a_move_that_is_cancelled_is_swept(
    world: Callable[..., ColdWorld],
) -> None:
    here = world(CollectionKind.DOCUMENTS)
    filled(here)
    home = here.ledgers["home"]
    begin(here, "home", "b")
    mover = here.mover("home", sleep=lambda _: None, fence_s=0.2)
    while not here.objects("b"):
        mover.step()
        here.settle()
        here.now += 60.0
    for _ in range(3):
        here.sweep()
    assert here.objects("b")  # of a copy that may be published
    home.jobs.accept(here.job(b"still open", "d1"))  # keeps it from being so
    here.texts["d1"] = b"still open"
    move = home.moves.all()[NAME]
    assert home.moves.step(move, move.model_copy(update={"stage": MoveStage.CANCELLED}), "open")
    here.now += 60.0
    mover.step()
    for _ in range(3):
        here.sweep()
    assert here.objects("b") == set()
    here.check()
    filled(here)
