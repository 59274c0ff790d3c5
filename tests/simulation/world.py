"""Gateways, workers and keepers that drive a ledger and its model side by side.

Each of them is a generator that yields one command after another, and whose turn it is is drawn
by a seed. So any two steps of two drivers can follow each other. A command's answer may be lost:
then the same command is sent once more later, or its driver is dead and what it held is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from tests.simulation.check import difference
from tests.simulation.drivers import Command, Driver, Gateway, Keeper, Worker
from tests.simulation.model import Model
from tests.simulation.server import START_MS, Call, Mutation, Recorder, Server

from verso_core.errors import VersoError
from verso_ledger.models import IdentityKnown, Policy

POLICY = Policy(
    max_errors=3,
    backoff_ms=(0, 200, 800, 3000),
    max_delay_ms=1000,
    keep_s=4,
    dead_keep_s=6,
    gc_delay_ms=300,
    turn_cost=200,
    heavy_cost=300,
    heavy_bulk_cost=400,
    lane_looked_at=3,
    max_reads=5,
    position_s=3,
    mature=4,
)
"""Numbers so small that every limit is met all the time."""
_MOST_DRIVERS = 48
_TICKS_MS = (1, 1, 20, 50, 100, 200)
_JUMPS_MS = (500, 2_000, 9_000)


class Wrong(AssertionError):
    """Raised when the ledger differs from its model; ``step`` is the first that shows it."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"step {step}: {what}")
        self.step = step
        self.what = what


@dataclass
class _Lost:
    """A command whose answer its driver did not get, and which is sent once more."""

    driver: Driver
    command: Command
    sent: list[Call]


class World:
    """One run.

    Args:
        server: empty.
        seed: of everything that is drawn.
        every: steps between two comparisons of the whole state; replies are always compared.
        mutation: changes the steps' texts, for a test of the simulation.
    """

    def __init__(
        self, server: Server, seed: int, *, every: int = 200, mutation: Mutation | None = None
    ) -> None:
        server.client.flushall()
        server.client.script_flush()
        server.set_ms(START_MS)
        self._server = server
        self.every = every
        self.dice = random.Random(seed)
        self.model = Model(POLICY, START_MS)
        self.recorder = Recorder(server.client, POLICY, mutation)
        self.done = 0
        self.log: list[str] = []
        self._drivers: list[Driver] = []
        self._lost: list[_Lost] = []
        self._gateway = Gateway(self.recorder, self.model, self.dice)
        self._keeper = Keeper(self.recorder, self.model, self.dice)
        self._workers = [Worker(self.recorder, self.model, self.dice, f"w{n}") for n in range(3)]
        self._make(self._gateway.create_collections())

    def run(self, steps: int) -> None:
        """Make so many steps.

        Raises:
            Wrong: a reply or the state differs from the model.
        """
        until = self.done + steps
        while self.done < until:
            self.step()
        self._compare()

    def step(self) -> None:
        """Let one driver send one command."""
        self._tick()
        command = None
        while command is None:
            if self._lost and self.dice.random() < 0.05:
                lost = self._lost.pop(self.dice.randrange(len(self._lost)))
                self._send(lost.driver, lost.command, again=lost.sent)
                return
            driver = self._next_driver()
            command = self._resume(driver, None)
            if command is not None:
                self._send(driver, command)

    def _tick(self) -> None:
        drawn = self.dice.random()
        if drawn > 0.06:
            return
        now = self.model.now + self.dice.choice(_JUMPS_MS if drawn < 0.001 else _TICKS_MS)
        self._server.set_ms(now)
        self.model.set_time(now)

    def _next_driver(self) -> Driver:
        if len(self._drivers) < _MOST_DRIVERS and self.dice.random() < 0.4:
            self._drivers.append(self._new_driver())
        if not self._drivers:
            return self._next_driver()
        return self._drivers[self.dice.randrange(len(self._drivers))]

    def _new_driver(self) -> Driver:
        kinds: list[tuple[Callable[[], Driver], float]] = [
            *self._gateway.activities(),
            *self._keeper.activities(),
            (self.dice.choice(self._workers).claim, 6.0),
            (self.dice.choice(self._workers).to_cold, 0.8),
        ]
        chosen = self.dice.choices([make for make, _ in kinds], [weight for _, weight in kinds])
        return chosen[0]()

    def _resume(self, driver: Driver, reply: Any) -> Command | None:
        """Return the next command of a driver; None where it pauses, or has ended."""
        try:
            return driver.send(reply)
        except StopIteration as end:
            self._drivers.remove(driver)
            self._drivers += end.value or ()
            return None

    def _send(self, driver: Driver, command: Command, *, again: list[Call] | None = None) -> None:
        reply = self._make(command, again=again)
        fate = self.dice.random()
        if fate < 0.04 and again is None:
            self._drivers.remove(driver)
            if fate < 0.03:
                self._lost.append(_Lost(driver, command, self.recorder.sent))
            return
        if again is not None:
            self._drivers.append(driver)
        command.learn(reply)

    def _make(self, command: Command, *, again: list[Call] | None = None) -> Any:
        """Make a command in the ledger and in the model."""
        self.done += 1
        try:
            reply = self.recorder.make(command.call, again=again or ())
        except (VersoError, IdentityKnown) as error:
            reply = error
        except redis.ResponseError as error:
            raise Wrong(self.done, f"{command.name} failed: {error}") from error
        expected = command.expect(self.recorder.sent)
        found = command.read(reply)
        self.log.append(f"{self.done} {self.model.now - START_MS} {command.name}: {found}")
        if len(self.log) > 4000:
            del self.log[:2000]
        if found != expected:
            what = f"{command.name} was answered with {found!r}, expected {expected!r}"
            raise Wrong(self.done, what)
        if self.done % self.every == 0:
            self._compare()
        return reply

    def _compare(self) -> None:
        found = difference(self._server.client, self.model)
        if found is not None:
            raise Wrong(self.done, found)
