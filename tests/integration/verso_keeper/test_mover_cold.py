"""Moves of collections with objects in cold storage: all is read back from the new ledger's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import ValkeyServer, server_folder
from tests.integration.verso_keeper.moving import NAME, Crashed, crashing
from tests.integration.verso_keeper.moving_cold import ColdWorld

from verso_core.jobs import CollectionKind
from verso_core.jobs.moves import Move, MoveReason, MoveStage

KINDS = [CollectionKind.DOCUMENTS, CollectionKind.LOGS]


@pytest.fixture(scope="module")
def servers(valkey_binary: str) -> Iterator[dict[str, ValkeyServer]]:
    flags = {"appendfsync": "everysec"}  # many steps, and no server is killed
    with ExitStack() as stack:
        made = {}
        for name in ("home", "b"):
            folder = stack.enter_context(server_folder())
            made[name] = ValkeyServer(valkey_binary, folder, flags)
            stack.callback(made[name].kill)
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


def run_to_end(world: ColdWorld, source: str, *, rounds: int = 400) -> Move:
    """Let one keeper after another take the move on, until it has ended."""
    for _ in range(rounds):
        move = world.ledgers[source].moves.all()[NAME]
        if not move.running:
            return move
        world.mover(source).step()
        world.act(2)
        world.now += 1.0
    raise AssertionError(move)


def begin(world: ColdWorld, source: str, target: str) -> None:
    world.ledgers[source].moves.begin(NAME, NAME, target)


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
@pytest.mark.parametrize("before", [True, False])
def test_a_keeper_may_end_at_every_step(
    world: Callable[..., ColdWorld], kind: CollectionKind, *, before: bool
) -> None:
    at, ended = 0, False
    while not ended:
        at += 1
        here = world(kind, seed=at)
        filled(here)
        begin(here, "home", "b")
        with crashing(here, at, before=before) as seen:
            try:
                run_to_end(here, "home")
                ended = len(seen) < at
            except Crashed:
                pass
        here.act(5)
        here.now += 60.0
        assert run_to_end(here, "home").stage is MoveStage.DONE
        here.check()
        here.close()
    assert at > 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_two_keepers_at_once_and_crashes_at_random_lose_nothing(
    world: Callable[..., ColdWorld], kind: CollectionKind, seed: int
) -> None:
    here = world(kind, seed=seed)
    source, target = "home", "b"
    for _ in range(3):
        filled(here)
        begin(here, source, target)
        movers = [here.mover(source), here.mover(source)]
        for _ in range(400):
            if not here.ledgers[source].moves.all()[NAME].running:
                break
            which = here.draw.randrange(2)
            at = here.draw.choice((1000, here.draw.randrange(1, 40)))
            with crashing(here, at, before=here.draw.random() < 0.5):
                try:
                    movers[which].step()
                except Crashed:
                    movers[which] = here.mover(source)
            here.act(3)
            here.now += here.draw.choice((1.0, 2.0, 40.0))
        assert here.ledgers[source].moves.all()[NAME].stage is MoveStage.DONE
        here.check()
        source, target = target, source


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
