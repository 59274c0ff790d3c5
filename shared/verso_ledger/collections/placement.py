"""Where new collections are made: kept in the home ledger.

A collection is on the ledger that has it, whatever is kept here. A placement decides where a
collection is made that no ledger has yet, so that two gateways never make one name on two ledgers;
it stays when the collection is deleted. It also says which ledger has a collection while that
ledger does not answer.

Of a collection of several partitions each partition is placed as any collection is. What is kept
here besides says that they are one: how many there are, and whether all are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from redis.asyncio import Redis

from verso_core.errors import LedgerBehind
from verso_core.jobs.collections import Partitioned
from verso_ledger.codec import scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import AsyncScripts


def noted(reply: object) -> bool:
    """Read the reply of ``partitions_note.lua``: whether the call noted a state.

    Raises:
        LedgerBehind: the ledger is read-only.
    """
    if reply == b"read_only":
        raise LedgerBehind
    return bool(reply)


class Placements:
    """Placements of collections, and which ledgers are drained.

    Every method raises LedgerUnavailable when the home ledger does not answer or refuses.
    """

    def __init__(self, client: Redis, scripts: AsyncScripts) -> None:
        self._redis = client
        self._replicas = scripts.replicas
        self._run = scripts.run

    async def of(self, collection: str) -> str | None:
        """Return the name of the ledger that a collection is placed on."""
        with translated():
            found = await cast("Any", self._redis.hget(key("placements"), collection))
        return None if found is None else scalars.text(found)

    async def place(self, collection: str, ledger: str) -> str:
        """Place a collection on a ledger, unless it is placed; return the ledger it is placed on.

        With replicas, the placement is with them when this returns.
        """
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hsetnx(key("placements"), collection, ledger)
                pipe.hget(key("placements"), collection)
                self._replicas.ask(pipe)
                replies = self._replicas.check(await pipe.execute())
        return scalars.text(replies[1])

    async def replace(self, collection: str, seen: str, ledger: str) -> str:
        """Place a collection again, if it is placed as seen; return the ledger it is placed on."""
        args: list[scalars.Arg] = [key("placements"), collection, seen, ledger]
        return scalars.text(await self._run("place_again", args))

    async def note(self, collection: str, state: Partitioned, *, new: bool = False) -> bool:
        """Note the state of a collection of partitions; return whether it was.

        Args:
            collection: its name.
            state: what it is from now on.
            new: only if nothing is noted of it.
        """
        row = state.model_dump_json()
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                write = pipe.hsetnx if new else pipe.hset
                write(key("partitioned"), collection, row)
                self._replicas.ask(pipe)
                replies = self._replicas.check(await pipe.execute())
        return bool(replies[0]) or not new

    async def step(self, collection: str, seen: Partitioned, new: Partitioned | None) -> bool:
        """Note a state, or nothing more, if it stands as seen; return whether that was done."""
        with translated():
            row = await cast("Any", self._redis.hget(key("partitioned"), collection))
        if row is None or Partitioned.model_validate_json(row) != seen:
            return False
        after = "" if new is None else new.model_dump_json()
        args: list[scalars.Arg] = [key("partitioned"), collection, row, after]
        return noted(await self._run("partitions_note", args))

    async def drained(self) -> frozenset[str]:
        """Return the names of the ledgers that get no new collection."""
        with translated():
            rows = await cast("Any", self._redis.smembers(key("draining")))
        return frozenset(map(scalars.text, cast("Iterable[bytes]", rows)))

    async def drain(self, ledger: str, *, drained: bool) -> None:
        """Place no new collection on a ledger from now on, or place them there again."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                change = pipe.sadd if drained else pipe.srem
                change(key("draining"), ledger)
                self._replicas.ask(pipe)
                self._replicas.check(await pipe.execute())
