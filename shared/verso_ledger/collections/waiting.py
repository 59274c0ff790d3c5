"""Lines that were accepted and are not stored yet, by collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from verso_core import frame
from verso_core.jobs.job import Kind
from verso_core.jobs.logs.lines import Waiting
from verso_ledger.codec import scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key

MAX_SLICES = 4096
"""Most unfinished slices that are looked at, the oldest: of more the count is a lower bound."""
_HEAD_BYTES = 1024
"""Enough for the header of nearly every slice of lines."""


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What a slice of lines holds; ``arrived_ns`` in Unix nanoseconds."""

    collection: str
    lines: int
    arrived_ns: int


class WaitingLines:
    """Counts lines of slices that have not been committed.

    What a slice holds is read from its payload once and kept while the slice is unfinished.
    """

    def __init__(self, client: Redis) -> None:
        self._redis = client
        self._known: dict[str, _Accepted | None] = {}

    async def of(self, collection: str) -> Waiting:
        """Return how many lines of a collection wait, and how old the oldest are."""
        with translated():
            rows = await cast("Any", self._redis.zrange(key("pending"), 0, MAX_SLICES - 1))
        slices = [scalars.text(row) for row in rows]
        known = self._known | await self._read([sid for sid in slices if sid not in self._known])
        self._known = {sid: known[sid] for sid in slices if sid in known}
        found = [one for one in self._known.values() if one is not None]
        own = [one for one in found if one.collection == collection]
        if not own:
            return Waiting()
        age_s = time.time() - min(one.arrived_ns for one in own) / 1e9
        return Waiting(lines=sum(one.lines for one in own), oldest_s=round(max(0.0, age_s), 3))

    async def _read(self, slices: Sequence[str]) -> dict[str, _Accepted | None]:
        """Return what slices hold; None for one without lines."""
        heads = await self._heads(slices, _HEAD_BYTES)
        longer = {
            sid: frame.header_size(head)
            for sid, head in zip(slices, heads, strict=True)
            if frame.header_size(head) > len(head)
        }
        found = dict(zip(slices, heads, strict=True))
        if longer:
            found |= dict(
                zip(longer, await self._heads([*longer], max(longer.values())), strict=True)
            )
        return {sid: _accepted(head) for sid, head in found.items() if head}

    async def _heads(self, slices: Sequence[str], size: int) -> list[bytes]:
        if not slices:
            return []
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                for sid in slices:
                    pipe.getrange(key("payload", sid), 0, size - 1)
                return cast("list[bytes]", await pipe.execute())


def _accepted(head: bytes) -> _Accepted | None:
    header = frame.header(head)
    if header.get("kind") != Kind.INGEST_LINES:
        return None
    params = header["params"]
    lines = sum(item.get("count", 0) for item in header["items"])
    return _Accepted(params["collection"], lines, params["arrived"])
