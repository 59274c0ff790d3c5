"""Write lines to the partition by time that takes them, and refuse what an older one has accepted.

The lists may be a second old: a partition that has rolled over meanwhile refuses what is written to
it, and the next one takes it. What an older partition has accepted it knows for good by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from fastapi import Request

from verso_core.errors import CollectionBusy, SourceMoved
from verso_core.jobs import Collection
from verso_core.jobs.collections import partition_name
from verso_gateway.access import collection_of
from verso_gateway.context import context_of
from verso_gateway.feed.source import SourcePart
from verso_ledger import AsyncLedger, Ledgers
from verso_ledger.ledgers import rolled
from verso_ledger.models import CollectionReplaced, PartitionRolled, Policy

T = TypeVar("T")
_ROLLING_S = 10.0
_AGAIN_S = 0.1
_REMEMBERED_S = 2.0 * Policy().position_s
"""How long the ledger knows at most how far a source was accepted."""


def taking(collection: Collection) -> str:
    """Return the name of what takes lines of a collection: itself, or a partition.

    Raises:
        CollectionBusy: the partition that took them is missing, and the next one is being made.
    """
    state = collection.parted
    if state is None:
        return collection.name
    number = state.writing if state.writing in state.numbers else state.following(state.writing)
    if number is None:
        raise CollectionBusy("the next partition is being made")
    return partition_name(collection.name, number)


async def written(
    request: Request, collection: Collection, write: Callable[[AsyncLedger, str], Awaitable[T]]
) -> T:
    """Return what writing lines answers, at the ledger of the partition that takes them.

    Args:
        request: the request.
        collection: of log lines.
        write: writes them to the ledger that is given, as lines of the name that is given.

    Raises:
        CollectionBusy: the partition moves, or has rolled over, and that did not end in time.
    """
    ledgers = context_of(request).ledgers
    name, until = taking(collection), time.monotonic() + _ROLLING_S
    while True:
        try:
            return await ledgers.at(name, partial(_called, write, name))
        except PartitionRolled:
            if time.monotonic() >= until:
                raise
            name = await following(ledgers, name)
            await _seen_again(request, collection.name)
        except CollectionReplaced:  # the list was too old: the one of now may be another owner's
            if time.monotonic() >= until:
                raise
            name = taking(await _seen_again(request, collection.name))


async def _seen_again(request: Request, name: str) -> Collection:
    """Return a collection as it is now, if the caller may see it."""
    context_of(request).collections.forget(name)
    return await collection_of(request, name, partitioned=True)


async def _called(
    write: Callable[[AsyncLedger, str], Awaitable[T]], name: str, ledger: AsyncLedger
) -> T:
    return await write(ledger, name)


async def following(ledgers: Ledgers, partition: str) -> str:
    """Return the partition that takes lines after one that has rolled over, as far as is known."""
    await ledgers.collections()
    found = rolled.following(ledgers.partitioned, partition)
    if found is None:
        await asyncio.sleep(_AGAIN_S)
    return found or partition


async def _position(name: str, hashed: bytes, ledger: AsyncLedger) -> int | None:
    return await ledger.position(name, hashed)


async def check_source(
    request: Request, ledger: AsyncLedger, name: str, source: SourcePart | None
) -> None:
    """Check that partitions before one have not accepted a source farther than a request begins.

    A partition that knows the source itself checks that when it accepts.

    Raises:
        SourceMoved: one has.
        LedgerUnavailable: the ledger of one does not answer.
    """
    ledgers = context_of(request).ledgers
    if source is None:
        return
    older = ledgers.rolled_before(name, within_s=_REMEMBERED_S)
    if not older:
        return
    hashed = source.hashed(request.state.tenant)
    if await ledger.position(name, hashed) is not None:
        return
    for one in older:
        at = await ledgers.at(one, partial(_position, one, hashed))
        if at is not None and at != source.begin:
            raise SourceMoved(f"the source was accepted up to {at}", position=at)
        if at is not None:
            return
