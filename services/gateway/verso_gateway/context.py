"""The parts that every route needs, created once when the gateway starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from verso_core.errors import (
    CollectionUnknown,
    DiskFull,
    LedgerUnavailable,
    NotReady,
    PartitionMissing,
)
from verso_core.jobs import Collection
from verso_core.jobs.collections import (
    Partitioned,
    Stage,
    collection_of_partition,
    partition_name,
)
from verso_core.result_files import ResultFiles
from verso_gateway.agents import Agents
from verso_gateway.auth import Gate
from verso_gateway.extract.pool import Extractors
from verso_gateway.feed.service import Feed
from verso_gateway.job_service import JobService
from verso_gateway.metrics import Metrics
from verso_gateway.settings import Settings
from verso_gateway.tail.stream import Tails
from verso_ledger import Ledgers
from verso_ledger.ledgers import merging
from verso_ledger.ledgers.webhooks import WebhooksOfAll

_FRESH_S = 1.0
DEFAULT = "default"
"""The collection that the first worker makes; it belongs to nobody."""


class CollectionsCache:
    """Collections by name, read from the ledgers at most once a second.

    A name that is not found is read from the ledgers at once. A collection of several partitions is
    described by one of them, but for its name; the partitions themselves are there too.
    """

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._collections: dict[str, Collection] = {}
        self._read_at = -_FRESH_S

    async def get(self, name: str) -> Collection:
        """Return a collection.

        Raises:
            CollectionUnknown: there is none of this name.
            LedgerUnavailable: the ledger that may have it does not answer.
            NotReady: no worker has made the default collection yet.
            PartitionMissing: the ledgers of its partitions have none of them any more.
        """
        if name not in self._collections or time.monotonic() - self._read_at >= _FRESH_S:
            await self.list()
        if name in self._collections:
            return self._collections[name]
        noted = self._ledgers.partitioned.get(name)
        if noted is not None and noted.stage is Stage.LIVE:
            if noted.missing and not noted.numbers:
                raise PartitionMissing(f"the ledgers of {name!a} no longer have its partitions")
            raise LedgerUnavailable("the ledger of a partition of this collection does not answer")
        await self._ledgers.check_answers(name)
        if name == DEFAULT:
            raise NotReady("the first worker has not started yet: it makes the default collection")
        raise CollectionUnknown(f"no collection {name!a}")

    def parts(self, collection: Collection) -> dict[str, Collection]:
        """Return each partition of a collection by its name; itself if it has none."""
        if collection.parted is None:
            return {collection.name: collection}
        names = (partition_name(collection.name, one) for one in collection.parted.numbers)
        return {name: self._collections[name] for name in names if name in self._collections}

    def forget(self, name: str) -> None:
        """Drop a collection from the cache."""
        self._collections = {n: c for n, c in self._collections.items() if n != name}

    async def list(self) -> list[Collection]:
        """Return all collections that users know, by name."""
        found = await self._ledgers.collections()
        self._collections = found | dict(_partitioned(found, self._ledgers.partitioned))
        self._read_at = time.monotonic()
        names = sorted(name for name in self._collections if collection_of_partition(name) is None)
        return [self._collections[name] for name in names]


def _partitioned(
    found: Mapping[str, Collection], states: Mapping[str, Partitioned]
) -> Iterator[tuple[str, Collection]]:
    """Yield the collections of several partitions that are served, each with its name."""
    for name, state in states.items():
        names = [partition_name(name, number) for number in state.numbers]
        if state.stage is Stage.LIVE and names and all(one in found for one in names):
            like = names[0] if state.rollover is None else names[-1]
            update = {"name": name, "partitions": len(names), "parted": state}
            yield name, found[like].model_copy(update=update)


class WorkersCache:
    """What each living worker serves, read from the ledgers at most once a second."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._states: list[dict[str, Any]] = []
        self._read_at = -_FRESH_S

    async def states(self, *, newest: bool = False) -> list[dict[str, Any]]:
        """Return what the workers said; none while no worker lives.

        Args:
            newest: read it now.
        """
        if newest or time.monotonic() - self._read_at >= _FRESH_S:
            self._states = list((await merging.serving(self._ledgers)).values())
            self._read_at = time.monotonic()
        return self._states


class DiskRoom:
    """Whether workers have room for what is taken in.

    Without it a request would be accepted and its job tried again until there is room.
    """

    def __init__(self, workers: WorkersCache) -> None:
        self._workers = workers

    async def check(self) -> None:
        """Check that a worker has room.

        Raises:
            DiskFull: no worker that lives has.
        """
        states = await self._workers.states()
        if states and all(state.get("disk_full") for state in states):
            raise DiskFull("expected free disk above VERSO_FREE_FLOOR_MIB at a worker, none has it")


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running gateway. ``closing`` is set when the gateway stops."""

    settings: Settings
    ledgers: Ledgers
    webhooks: WebhooksOfAll
    files: ResultFiles
    collections: CollectionsCache
    workers: WorkersCache
    room: DiskRoom
    extractors: Extractors
    job_service: JobService
    feed: Feed
    tails: Tails
    metrics: Metrics
    gate: Gate
    agents: Agents
    closing: asyncio.Event


def context_of(request: Request) -> Context:
    """Return the context of the application that serves a request."""
    context: Context = request.app.state.context
    return context
