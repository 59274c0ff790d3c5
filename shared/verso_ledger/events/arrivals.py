"""Lines of log collections in the order in which they were accepted.

The step that accepts slices of lines lists them too. A line's **number** is its place among all
lines that its collection ever accepted, from 1 on. The ledger lists the newest slices, and holds
the bytes of a slice until it is verified and for the retention of raw texts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

from redis.asyncio import Redis

from verso_core.errors import CollectionBusy, CollectionUnknown
from verso_ledger.codec import scalars
from verso_ledger.connection import translated
from verso_ledger.events.job_events import JobEvents, JobWaiter
from verso_ledger.keys import key

_PAGE = 1000


class Arrival(NamedTuple):
    """A slice of lines: the number of its first line, how many there are, and its id."""

    first: int
    lines: int
    slice_id: str

    @property
    def end(self) -> int:
        """Return the number behind its last line."""
        return self.first + self.lines


class Arrivals:
    """Reads which lines were accepted, as the gateway does for live tails."""

    def __init__(self, client: Redis, events: JobEvents) -> None:
        self._redis = client
        self._events = events

    async def uid(self, collection: str) -> str:
        """Return the uid of a collection's lines, which a migration does not change.

        Raises:
            CollectionBusy: it has moved to another ledger.
            CollectionUnknown: there is no such collection.
        """
        with translated():
            own = await cast("Any", self._redis.hget(key("aliases"), collection)) or collection
            uid = await cast("Any", self._redis.hget(key("uids"), own))
            shut = await cast("Any", self._redis.hget(key("shut"), f"n:{collection}"))
        if scalars.has_moved(shut):
            raise CollectionBusy("the collection has just moved to another ledger")
        if uid is None:
            raise CollectionUnknown(f"no collection {collection!a}")
        return scalars.text(uid).partition(".")[0]

    def waiter(self, uid: str) -> AbstractContextManager[JobWaiter]:
        """Yield a waiter that is set when lines of a collection are accepted."""
        return self._events.waiter(f"lines:{uid}")

    @property
    def poll_s(self) -> float:
        """How long a waiter may sleep before it looks for lines, seconds."""
        return self._events.poll_s

    async def next_number(self, uid: str) -> int:
        """Return the number that the next line of a collection will have."""
        with translated():
            rows = await self._redis.xrevrange(key("arrivals", uid), count=1)
        return _arrival(rows[0]).end if rows else 1

    async def oldest_kept(self, uid: str) -> int:
        """Return the number of the oldest line whose slice the ledger holds."""

        async def kept(names: list[str]) -> list[bool]:
            with translated():
                async with self._redis.pipeline(transaction=False) as pipe:
                    for name in names:
                        pipe.exists(key("payload", name))
                    return [bool(found) for found in await pipe.execute()]

        return await self._oldest(uid, kept)

    async def oldest_unstored(self, uid: str) -> int:
        """Return the number of the oldest line that no worker has stored yet.

        Slices that failed too often are not waited for.
        """

        async def waits(names: list[str]) -> list[bool]:
            with translated():
                async with self._redis.pipeline(transaction=False) as pipe:
                    pipe.zmscore(key("pending"), names)
                    pipe.zmscore(key("dead"), names)
                    pending, dead = await pipe.execute()
            rows = zip(pending, dead, strict=True)
            return [one is not None and died is None for one, died in rows]

        return await self._oldest(uid, waits)

    async def _oldest(self, uid: str, holds: Callable[[list[str]], Awaitable[list[bool]]]) -> int:
        """Return the number of the oldest line of a slice for which a test holds, or the next."""
        after = "-"
        while True:
            with translated():
                rows = await self._redis.xrange(key("arrivals", uid), min=after, count=_PAGE)
            listed = [_arrival(row) for row in rows or ()]
            if not listed:
                return await self.next_number(uid)
            fitting = await holds([one.slice_id for one in listed])
            for one, fits in zip(listed, fitting, strict=True):
                if fits:
                    return one.first
            after = f"({listed[-1].first}-0"

    async def page(self, uid: str, number: int, *, count: int = 64) -> list[Arrival]:
        """Return slices in order, from that of the line of a number on."""
        name, place = key("arrivals", uid), f"{number}-0"
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.xrevrange(name, max=place, count=1)
                pipe.xrange(name, min=f"({place}", count=count)
                holding, later = await pipe.execute()
        first = [one for one in map(_arrival, holding) if one.end > number]
        return first + [_arrival(row) for row in cast("Sequence[Any]", later)]

    async def payload(self, slice_id: str) -> bytes | None:
        """Return the payload of a slice; None once the ledger has dropped it."""
        with translated():
            found = await cast("Any", self._redis.get(key("payload", slice_id)))
        return cast("bytes | None", found)


def _arrival(row: Any) -> Arrival:
    place, fields = row
    return Arrival(
        int(scalars.text(place).partition("-")[0]),
        int(fields[b"lines"]),
        scalars.text(fields[b"slice"]),
    )
