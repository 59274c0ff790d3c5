"""Finds the ledger of a collection or of a job.

1. The id of a job says its ledger (:mod:`verso_ledger.names`).
2. A collection is on the ledger that lists it. Lists are read again at most once a second by those
   who ask for them; that of a ledger that does not answer is kept as it was read last.
3. A collection that no ledger lists is made where the home ledger says that it is placed, or else
   on the ledger with the most free memory.
4. Jobs without a collection are spread over the ledgers that answer.
5. While a collection moves, its ledger refuses writes for some seconds; once it has moved, all. Who
   is refused waits until the lists say that it is served, and asks again; all who wait read them
   together (:meth:`Ledgers.while_moving`).

A ledger that did not answer is **away** until it answers a question that is asked once a second.
Only what needs that ledger waits for it. With one ledger nothing of this costs anything.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from verso_core.errors import CollectionBusy, JobUnknown, LedgerUnavailable
from verso_core.jobs import Collection, Kind
from verso_core.jobs.collections import Partitioned
from verso_core.settings import LedgerAddress
from verso_ledger.async_client import AsyncLedger
from verso_ledger.collections.moves import REMEMBERED_S, Listed
from verso_ledger.durability import Server
from verso_ledger.ledgers import rolled
from verso_ledger.ledgers.groups import JobGroup
from verso_ledger.ledgers.room import ENOUGH, LIKE, roomiest
from verso_ledger.models import NewJob, PartitionRolled
from verso_ledger.names import group_of, ledger_of

_PROBE_S = 1.0
_SERVER_S = 1.0
_AT_HOME = frozenset({Kind.TRAIN, Kind.MODELS})
"""Kinds without a collection whose parts follow the home ledger."""

_NONE = Listed({})
_MOVING_S = 10.0
"""How long a request waits for a collection that moves."""
_AGAIN_S = 0.1
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Ledgers:
    """The ledgers of a platform.

    Args:
        ledgers: the home ledger first, with names of their own.
        at_home: names of collections that are made on the home ledger.
    """

    def __init__(self, ledgers: Sequence[AsyncLedger], *, at_home: Sequence[str] = ()) -> None:
        self.home = ledgers[0]
        self._all = {one.name: one for one in ledgers}
        self._at_home = frozenset(at_home)
        self._held: dict[str, Listed] = {}
        self._where: dict[str, AsyncLedger] = {}
        self._draining: frozenset[str] = frozenset()
        self.partitioned: Mapping[str, Partitioned] = {}
        """Collections of several partitions, as the home ledger listed them last."""
        self._away: dict[str, asyncio.Task[None]] = {}
        self._turns = itertools.count()
        self._servers: dict[str, Server] = {}
        self._asked_at = -_SERVER_S
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def connect(
        cls, addresses: Sequence[LedgerAddress], *, replicas: int, at_home: Sequence[str] = ()
    ) -> Ledgers:
        """Return the ledgers at some addresses, that of the home ledger first."""
        found = [
            AsyncLedger.from_url(one.url, replicas=replicas, name=one.name) for one in addresses
        ]
        return cls(found, at_home=at_home)

    @property
    def all(self) -> list[AsyncLedger]:
        """The ledgers, the home ledger first."""
        return list(self._all.values())

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self._all) > 1

    @property
    def away(self) -> list[str]:
        """Names of the ledgers that did not answer."""
        return sorted(self._away)

    @property
    def draining(self) -> frozenset[str]:
        """Names of the ledgers that get no new collection, as read last."""
        return self._draining

    async def close(self) -> None:
        """End the subscriptions and close the connections."""
        tasks = [*self._away.values(), *([] if self._reading is None else [self._reading])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in self.all), return_exceptions=True)

    def release(self) -> None:
        """Let all callers who wait for an end return with what is known: this process stops."""
        for one in self.all:
            one.release()

    def of_job(self, job_id: str) -> AsyncLedger | JobGroup:
        """Return the ledger that has a job; the group that the job is of, if it is of one.

        Raises:
            JobUnknown: there is no ledger of a name that the id says.
        """
        group = group_of(job_id)
        if not group:
            return self.having(job_id)
        parts = [(self.having(own), own) for own in group.values()]
        return JobGroup(parts, failed=self.failed)

    def having(self, job_id: str) -> AsyncLedger:
        """Return the ledger that has this very job.

        Raises:
            JobUnknown: there is no ledger of the name that the id says.
        """
        found = self._all.get(ledger_of(job_id))
        if found is None:
            raise JobUnknown(f"no job has the id {job_id[:64]!a}")
        return found

    async def of_collection(self, name: str) -> AsyncLedger:
        """Return the ledger that has a collection, or that it would be on; never fails for none.

        Raises:
            LedgerUnavailable: the home ledger does not say where a new collection is placed.
        """
        if not self.several:
            return self.home
        if name not in self._where and not self._held:
            await self.collections()
        if (found := self._where.get(name)) is not None:
            return found
        placed = await self._ask(self.home, lambda home: home.placements.of(name))
        if placed is None or self._is_removed(placed):
            return self.home
        return self._named(placed)

    async def for_new(self, name: str) -> AsyncLedger:
        """Return the ledger that a collection is made on, or on which it is.

        Raises:
            LedgerUnavailable: the home ledger does not answer, or there is no ledger to choose.
        """
        if not self.several or name in self._at_home:
            return self.home
        await self.collections()
        if (found := self._where.get(name)) is not None:
            return found
        placed = await self._ask(self.home, lambda home: home.placements.of(name))
        if placed is None:
            chosen = await self._roomiest()
            placed = await self._ask(
                self.home, lambda home: home.placements.place(name, chosen.name)
            )
        elif self._is_removed(placed):
            placed = await self._placed_again(name, placed)
        return self._named(placed)

    def _is_removed(self, ledger: str) -> bool:
        """Whether a ledger was drained and removed, so that it has no collection.

        One that this process alone does not know of is not drained: it may have some.
        """
        return ledger not in self._all and ledger in self._draining and not self._away

    async def _placed_again(self, name: str, removed: str) -> str:
        """Place a name that no ledger has, and that was last on one that was removed."""
        chosen = await self._roomiest()
        await self._ask(chosen, lambda one: one.moves.reopen(name))
        return await self._ask(
            self.home, lambda home: home.placements.replace(name, removed, chosen.name)
        )

    async def place_apart(self, names: Sequence[str]) -> None:
        """Place the partitions of a new collection: evenly, over ledgers with enough free memory.

        Raises:
            LedgerUnavailable: the home ledger does not answer, or there is no ledger to choose.
        """
        if not self.several:
            return
        await self.collections()
        beside: Counter[str] = Counter()
        for name in names:
            beside[await self._place_beside(name, beside)] += 1

    async def _place_beside(self, name: str, beside: Mapping[str, int]) -> str:
        """Place a partition, unless it is placed; return the name of its ledger."""
        if (found := self._where.get(name)) is not None:
            return found.name
        placed = await self._ask(self.home, lambda home: home.placements.of(name))
        if placed is not None:
            return placed
        chosen = await self._roomiest(beside, like=ENOUGH)
        return await self._ask(self.home, lambda home: home.placements.place(name, chosen.name))

    async def for_job(self, job: NewJob) -> AsyncLedger:
        """Return the ledger that takes a job in: the one that its id says, if it has one.

        Raises:
            LedgerUnavailable: no ledger can.
        """
        if not self.several:
            return self.home
        if job.job_id is not None:
            return self.having(job.job_id)
        if job.kind is Kind.COLLECTION_CREATE and job.collection is not None:
            return await self.for_new(job.collection)
        if job.collection is not None:
            return await self.of_collection(job.collection)
        return self.home if job.kind in _AT_HOME else self._next(job)

    async def while_moving(
        self, ask: Callable[[], Awaitable[T]], *, names: Iterable[str] = ()
    ) -> T:
        """Return what is asked for; ask again while a collection moves to another ledger.

        Args:
            ask: is told that a collection is busy.
            names: of the collections that it concerns.

        Raises:
            CollectionBusy: it did not end in time, or a partition by time takes no more lines.
        """
        until = time.monotonic() + _MOVING_S
        while True:
            try:
                return await ask()
            except PartitionRolled:
                raise
            except CollectionBusy:
                if not self.several or time.monotonic() >= until:
                    raise
            await self.await_served(names, until=until)

    async def await_served(self, names: Iterable[str], *, until: float) -> None:
        """Wait a moment, and until no ledger lists that writes of some collections wait.

        However many wait, the lists are read ten times a second at most.

        Args:
            names: of the collections.
            until: waits so long at most, seconds of the monotonic clock.
        """
        while True:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read_again())
            await asyncio.shield(self._reading)
            if time.monotonic() >= until or not self._fenced.intersection(names):
                return

    async def _read_again(self) -> None:
        await asyncio.sleep(_AGAIN_S)
        with suppress(LedgerUnavailable):  # who asks next is told
            await self.collections()

    @property
    def _fenced(self) -> set[str]:
        """The collections whose writes wait, as read last from the ledgers that answer."""
        held = (row for name, row in self._held.items() if name not in self._away)
        return {name for listed in held for name in listed.fenced}

    async def at(self, name: str, ask: Callable[[AsyncLedger], Awaitable[T]]) -> T:
        """Return what the ledger of a collection answers, wherever the collection moves meanwhile.

        Raises:
            CollectionBusy: it moves, and that did not end in time.
        """

        async def at_its_ledger() -> T:
            return await ask(await self.of_collection(name))

        return await self.while_moving(at_its_ledger, names=[name])

    async def room(self, *, but: str) -> dict[str, int]:
        """Return the free memory of each ledger that collections of another may move to, bytes.

        Raises:
            LedgerUnavailable: there is none.
        """
        await self.collections()
        return await self._free(but=but)

    def stays_home(self, name: str) -> bool:
        """Whether a collection is always on the home ledger."""
        return name in self._at_home

    def failed(self, ledger: AsyncLedger) -> None:
        """Note that a ledger did not answer; it is asked again until it does."""
        if self.several and ledger.name not in self._away:
            _log.warning("ledger away", extra={"ledger": ledger.name})
            self._away[ledger.name] = asyncio.create_task(self._probe(ledger))

    async def each(self, ask: Callable[[AsyncLedger], Awaitable[T]]) -> dict[str, T]:
        """Return what each ledger that is not away answers, by its name, the home ledger first.

        Raises:
            LedgerUnavailable: none answers.
        """
        if not self.several:
            return {self.home.name: await ask(self.home)}
        asked = [one for one in self.all if one.name not in self._away]
        answers = await asyncio.gather(
            *(self._ask(one, ask) for one in asked), return_exceptions=True
        )
        found: dict[str, T] = {}
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, LedgerUnavailable):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[one.name] = answer
        if not found:
            raise LedgerUnavailable("no ledger answers")
        return found

    async def collections(self) -> dict[str, Collection]:
        """Return all collections of the ledgers by name, in order, and each partition as one.

        Those of a ledger that is away are as they were read last.

        Raises:
            LedgerUnavailable: no ledger answers.
        """
        if not self.several:
            listed = self._held[self.home.name] = await self.home.listed()
            self.partitioned = listed.partitioned
            return dict(listed.collections)
        self._held |= await self.each(lambda one: one.listed())
        self.partitioned = self._held.get(self.home.name, _NONE).partitioned
        with suppress(LedgerUnavailable):  # that of before holds while the home ledger is away
            if self.home.name not in self._away:
                self._draining = await self._ask(self.home, lambda home: home.placements.drained())
        merged: dict[str, Collection] = {}
        where: dict[str, AsyncLedger] = {}
        for left in (False, True):  # where one has moved from it is listed for a while
            for one in self.all:
                listed = self._held.get(one.name, _NONE)
                for name, collection in listed.collections.items():
                    if name not in merged and (name in listed.moved) is left:
                        merged[name], where[name] = collection, one
        self._where = where
        return dict(sorted(merged.items()))

    async def earlier(self, name: str) -> list[AsyncLedger]:
        """Return other ledgers that may know idempotency keys of a collection.

        They had it lately, or have a partition by time that lately took what this one takes now.

        Raises:
            LedgerUnavailable: no ledger answers.
        """
        if not self.several:
            return []
        if name not in self._where:
            await self.collections()
        if (ledger := self._where.get(name)) is None:
            return []
        names: list[str] = []
        for one in (name, *self.rolled_before(name, within_s=REMEMBERED_S)):
            if (its := self._where.get(one)) is not None:
                names += [its.name, *self._came(one, its)]
        others = dict.fromkeys(one for one in names if one != ledger.name)
        return [self._all[one] for one in others if one in self._all]

    def rolled_before(self, partition: str, *, within_s: float) -> list[str]:
        """Return the partitions by time before one that rolled lately, by the home ledger."""
        now = self._held.get(self.home.name, _NONE).now()
        return rolled.before(self.partitioned, partition, now=now, within_s=within_s)

    def _came(self, name: str, ledger: AsyncLedger) -> list[str]:
        """Return the ledgers that a collection was on lately before it came to one."""
        held = self._held[ledger.name]
        oldest, came = held.now() - REMEMBERED_S, held.came.get(name, ())
        return [one.ledger for one in came if one.left >= oldest]

    async def check_answers(self, name: str) -> None:
        """Check that a collection which no ledger lists is on none that is away.

        Raises:
            LedgerUnavailable: it may be, as it is placed there.
        """
        if self._away and (await self.of_collection(name)).name in self._away:
            raise LedgerUnavailable("the ledger of this collection does not answer")

    async def counts(self) -> dict[str, int]:
        """Return how many collections each ledger has.

        Raises:
            LedgerUnavailable: no ledger answers.
        """
        found = await self.collections()
        return {one.name: self.holds(one.name) if self.several else len(found) for one in self.all}

    def holds(self, ledger: str) -> int:
        """Return how many collections a ledger has, as read last."""
        listed = self._held.get(ledger, _NONE)
        return len(listed.collections.keys() - listed.moved)

    async def servers(self) -> dict[str, Server]:
        """Return the state of each server that answers, read at most once a second."""
        if time.monotonic() - self._asked_at >= _SERVER_S:
            self._servers = await self.each(lambda one: one.server())
            self._asked_at = time.monotonic()
        return self._servers

    async def _roomiest(
        self, beside: Mapping[str, int] | None = None, *, like: float = LIKE
    ) -> AsyncLedger:
        """Return the ledger with the most free memory of those that new collections may go to.

        Args:
            beside: partitions of the same collection by ledger, which should lie apart.
            like: ledgers with so large a part of the most free memory count as equal.

        Raises:
            LedgerUnavailable: there is none.
        """
        free = await self._free()
        holds = {name: self.holds(name) for name in free}
        return self._all[roomiest(free, holds=holds, beside=beside or {}, like=like)]

    async def _free(self, *, but: str | None = None) -> dict[str, int]:
        free = {
            name: max(0, server.memory_limit_bytes - server.memory_bytes)
            for name, server in (await self.servers()).items()
            if name not in self._draining and name != but
        }
        if not free:
            raise LedgerUnavailable("every ledger is away or draining")
        return free

    def _next(self, job: NewJob) -> AsyncLedger:
        """Return a ledger for a job without a collection; the same one for the same key.

        Raises:
            LedgerUnavailable: all are away.
        """
        shut = self._draining.union(self._away)
        open_to = [one for one in self.all if one.name not in shut]
        left = open_to or [one for one in self.all if one.name not in self._away]
        if not left:
            raise LedgerUnavailable("no ledger answers")
        if job.idempotency is None:
            return left[next(self._turns) % len(left)]
        words = f"{job.tenant}:{job.idempotency[0]}".encode()
        # rendezvous hashing: with one ledger away, only that ledger's keys go elsewhere
        return max(left, key=lambda one: hashlib.blake2b(one.name.encode() + words).digest())

    def _named(self, name: str) -> AsyncLedger:
        found = self._all.get(name)
        if found is None:
            raise LedgerUnavailable(f"expected an address of the ledger {name} in VERSO_LEDGERS")
        return found

    async def _ask(self, one: AsyncLedger, ask: Callable[[AsyncLedger], Awaitable[T]]) -> T:
        try:
            return await ask(one)
        except LedgerUnavailable:
            self.failed(one)
            raise

    async def _probe(self, ledger: AsyncLedger) -> None:
        """Ask a ledger that is away until it answers."""
        while True:
            await asyncio.sleep(_PROBE_S)
            try:
                await ledger.server()
            except LedgerUnavailable:
                continue
            _log.info("ledger answers again", extra={"ledger": ledger.name})
            self._away.pop(ledger.name, None)
            return
