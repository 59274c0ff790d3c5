"""The power goes within a rollover while lines come in: each accepted line is there, once.

Two ledgers as processes on a disk that loses what was not synced (:class:`SyncedFiles`), with the
gateway, the worker and the keeper of :mod:`tests.integration.verso_keeper.rolling` at work at once.
At a call by which a keeper changes a ledger the power of one ledger or of both goes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.chaos.disks import SyncedFiles
from tests.chaos.test_store_cuts import disk_in_memory
from tests.conftest import ValkeyServer
from tests.integration.verso_keeper.rolling import SPAN_S, Ending, World

from verso_core.errors import Unavailable
from verso_standalone.valkey import drop_unwritten

CUTS = int(os.environ.get("ROLLOVER_CUTS", "8"))
SEED = int(os.environ.get("ROLLOVER_CUTS_SEED", "5"))
_LEASE_S = 0.05
_MOST_CALLS = 6
"""Calls of a keeper that change a ledger, in a rollover."""
_MOST_S = 0.003
"""From such a call to the cut."""
_PATIENCE_S = 120.0


class Cutting(Ending):
    """Cuts the power at a call of the keeper, which runs in the thread that made this."""

    def __init__(self, cut: Callable[[], None]) -> None:
        super().__init__()
        self._cut = cut
        self._thread = threading.get_ident()

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that counts, and cuts the power when its turn has come."""

        def called(*args: Any, **named: Any) -> Any:
            if threading.get_ident() == self._thread:
                if self.left == 0:
                    self._cut()
                if self.left is not None:
                    self.left -= 1
            return call(*args, **named)

        return called


class Power:
    """Cuts the power of ledgers at one moment, and lets them start again on what they synced."""

    def __init__(self, servers: dict[str, ValkeyServer], disk: SyncedFiles, dice: Random) -> None:
        self._servers = servers
        self._disk = disk
        self._dice = dice
        self._cut: threading.Thread | None = None
        self.gone = threading.Event()

    def cut(self) -> None:
        """Cut the power of some of them within milliseconds; return at once."""
        names = self._dice.choice([["home"], ["b"], ["home", "b"]])
        after_s = self._dice.uniform(0.0, _MOST_S)

        def run() -> None:
            time.sleep(after_s)
            for name in names:
                self._servers[name].pause()
            for name in names:
                self._servers[name].kill()
            self.gone.set()

        self._cut = threading.Thread(target=run)
        self._cut.start()

    def back(self) -> None:
        """Start all again: those that still run end now, as the disk is one."""
        assert self._cut is not None
        self._cut.join()
        for one in self._servers.values():
            one.kill()
        self._disk.lose(self._dice)
        for one in self._servers.values():
            drop_unwritten(one.folder)
            one.start()
        self.gone.clear()


@contextlib.contextmanager
def at_work(world: World, power: Power) -> Iterator[None]:
    """Let a gateway write and a worker work until their ledgers do not answer."""

    def repeat(work: Callable[[], None]) -> None:
        with contextlib.suppress(Unavailable):
            while not power.gone.is_set():
                work()

    threads = [threading.Thread(target=repeat, args=(one,)) for one in (world.write, world.work)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        for one in threads:
            one.join()


def roll_and_cut(world: World, power: Power, ending: Cutting, dice: Random) -> None:
    """Let a keeper roll over while lines come in, and cut the power at one of its calls."""
    keeper, until = world.keeper(), time.monotonic() + _PATIENCE_S
    ending.left = dice.randrange(_MOST_CALLS)
    with at_work(world, power), contextlib.suppress(Unavailable):
        while not power.gone.is_set():
            assert time.monotonic() < until, "no rollover came so far"
            world.now += SPAN_S
            keeper.step()
    ending.left = None


def check(world: World) -> None:
    """Let workers do all that was accepted, and look for each line."""
    time.sleep(2 * _LEASE_S)
    for ledger in world.ledgers.values():
        ledger.maintenance.reap()
    world.settle()
    held = sum(world.held().values(), Counter())
    assert set(held.values()) <= {1}, "a line is there twice"
    assert world.accepted <= held, "an accepted line is lost"
    assert held.keys() <= {line for lines in world.sent.values() for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * CUTS)
def test_a_power_cut_within_a_rollover_loses_and_doubles_no_line(valkey_binary: str) -> None:
    dice = Random(SEED)
    with disk_in_memory() as disk:
        servers = {}
        for name in ("home", "b"):
            folder: Path = disk.data / name
            folder.mkdir(parents=True)
            servers[name] = ValkeyServer(valkey_binary, folder, {}, environment=disk.settings)
        power = Power(servers, disk, dice)
        ending = Cutting(power.cut)
        world = World.of(servers, seed=SEED)
        world.lease_s, world.ending = _LEASE_S, ending
        try:
            with world.fragile():
                for _ in range(CUTS):
                    roll_and_cut(world, power, ending, dice)
                    power.back()
                    check(world)
            assert len(world.state.parts) > 2
            assert len(world.accepted) > CUTS
        finally:
            world.close()
            for one in servers.values():
                one.kill()
