"""Runs of a move over two real servers, for collections with and without cold storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tests.conftest import ValkeyServer, server_folder
from tests.integration.verso_keeper.moving import NAME, Crashed, World, crashing

from verso_core.jobs.moves import Move, MoveStage

_READS = ("move_units", "move_digests")


@contextmanager
def two_servers(valkey_binary: str) -> Iterator[dict[str, ValkeyServer]]:
    """Run the servers of the ledgers ``home`` and ``b``."""
    flags = {"appendfsync": "everysec"}  # many steps, and no server is killed
    with ExitStack() as stack:
        made = {}
        for name in ("home", "b"):
            folder = stack.enter_context(server_folder())
            made[name] = ValkeyServer(valkey_binary, folder, flags)
            stack.callback(made[name].kill)
        yield made


def run_to_end(world: World, source: str, *, rounds: int = 400, acts: int = 2) -> Move:
    """Let one keeper after another take the moves of a ledger on, until they have ended."""
    mover = world.mover(source, **({} if acts else {"sleep": lambda _: world.work()}))
    for _ in range(rounds):
        moves = world.ledgers[source].moves.all()
        if not moves or not moves[NAME].running:
            return moves[NAME]
        mover.step()
        world.act(acts) if acts else world.work()
        world.now += 1.0
    raise AssertionError(moves)


def begin(world: World, source: str, target: str) -> None:
    """Start the move of the world's collection."""
    own = world.ledgers[source].documents.collections()[NAME].name
    world.ledgers[source].moves.begin(NAME, own, target)


def end_at_every_step(build: Callable[[int], World]) -> None:
    """End a keeper after each step of a move, each time in a new world; another one takes over.

    It ends before the first step, too. What ends before a later one leaves what it leaves that ends
    after the change before: steps that only read are no places of their own.

    Args:
        build: returns the world of a seed, with something stored.
    """
    at, ended = 0, False
    while not ended:
        here = build(at)
        begin(here, "home", "b")
        with crashing(here, max(at, 1), before=at == 0, reads=_READS) as seen:
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
        at += 1
    assert at > 20


def move_by_two_keepers(
    here: World, *, fill: Callable[[], None], between: Callable[[], None], rounds: int
) -> None:
    """Move a collection there, back and there by two keepers that end at random.

    Each thinks that the other has died.

    Args:
        fill: stores something before each move.
        between: what else happens after each of a keeper's turns.
        rounds: turns at most until a move has ended.
    """
    source, target = "home", "b"
    for _ in range(3):
        fill()
        begin(here, source, target)
        movers = [here.mover(source), here.mover(source)]
        for _ in range(rounds):
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
            between()
            here.now += here.draw.choice((1.0, 2.0, 40.0))
        assert here.ledgers[source].moves.all()[NAME].stage is MoveStage.DONE
        here.check()
        source, target = target, source
