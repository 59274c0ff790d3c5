"""Messages of syslog on their way to the ledger."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from verso_core.errors import (
    BodyTooLarge,
    CollectionUnknown,
    KindUnsupported,
    Unavailable,
    VersoError,
)
from verso_core.jobs import Collection, CollectionKind
from verso_gateway.auth import TENANT_DEFAULT
from verso_gateway.context import CollectionsCache, DiskRoom
from verso_gateway.feed import syslog
from verso_gateway.feed.acceptance import Acceptance
from verso_gateway.feed.batch import batch_of
from verso_gateway.feed.making import CollectionMaker
from verso_gateway.feed.records import Decoded, LogRecord
from verso_gateway.feed.routing import Routing
from verso_gateway.metrics import Metrics
from verso_gateway.partitions.writing import taking
from verso_gateway.protocols import Protocol

_log = logging.getLogger(__name__)
_HOLD_S = 10.0
_AGAIN_S = 0.5
Messages = Sequence[bytes | VersoError]


class Intake:
    """Takes messages in, however long it takes until there is room.

    Args:
        acceptance: takes their records in.
        collections: that there are.
        room: whether workers have room.
        maker: makes collections that rules name.
        routing: the rules.
        metrics: counts records.
        tenant: whose they are.
        offset_s: zone of times that say none, seconds east of UTC.
        by_content: whether messages have an identity made of all that they say.
    """

    def __init__(
        self,
        acceptance: Acceptance,
        *,
        collections: CollectionsCache,
        room: DiskRoom,
        maker: CollectionMaker,
        routing: Routing,
        metrics: Metrics,
        tenant: str,
        offset_s: int,
        by_content: bool = False,
    ) -> None:
        self._acceptance = acceptance
        self._collections = collections
        self._room = room
        self._maker = maker
        self._routing = routing
        self._metrics = metrics
        self._tenant = tenant
        self._owner = None if tenant == TENANT_DEFAULT else tenant
        self._offset_s = offset_s
        self._by_content = by_content

    async def take(self, messages: Messages) -> None:
        """Take messages in; when this returns they are on disk, or they cannot be accepted."""
        now, arrived_ns = datetime.now(UTC), time.time_ns()
        parse = partial(syslog.parse, now=now, offset_s=self._offset_s)
        by_name: dict[str, list[LogRecord]] = {}
        for one in messages:
            record = self._whole(one, parse(one)) if isinstance(one, bytes) else one
            if isinstance(record, LogRecord):
                name = self._routing.collection(record.source)
                if name is not None:
                    by_name.setdefault(name, []).append(record)
        # each collection by itself: what refuses one, or is away, costs no other and doubles none
        taken = await asyncio.gather(
            *(self._take(name, records, arrived_ns) for name, records in by_name.items())
        )
        accepted, repeated = (sum(one[n] for one in taken) for n in range(2))
        self._metrics.feed.records(
            Protocol.SYSLOG,
            accepted=accepted,
            repeated=repeated,
            rejected=len(messages) - accepted - repeated,
        )

    async def _take(
        self, name: str, records: Sequence[LogRecord], arrived_ns: int
    ) -> tuple[int, int]:
        """Take the records of a collection in; return how many are new, and how many repeats."""
        sources = {record.source for record in records}
        while True:
            try:
                await self._room.check()
                found = await self._collection(name)
                parts = self._collections.parts(found)
                batch = batch_of(
                    enumerate(records),
                    dict.fromkeys(sources, taking(found)),
                    arrived_ns=arrived_ns,
                    made={own: part.made for own, part in parts.items()},
                    by_content=self._by_content,
                )
                accepted = await self._acceptance.accept(self._tenant, batch, hold_s=_HOLD_S)
            except Unavailable as error:
                _log.warning("syslog waits", extra={"count": len(records), "code": error.code})
                await asyncio.sleep(_AGAIN_S)
            except VersoError as error:
                if isinstance(error, BodyTooLarge) and len(records) > 1:
                    half = len(records) // 2
                    first = await self._take(name, records[:half], arrived_ns)
                    second = await self._take(name, records[half:], arrived_ns)
                    return first[0] + second[0], first[1] + second[1]
                _log.error("syslog rejected", extra={"count": len(records), "code": error.code})
                return 0, 0
            else:
                repeated = len(accepted.repeated)
                return len(records) - repeated - len(accepted.refused), repeated

    def _whole(self, message: bytes, decoded: Decoded) -> Decoded:
        """Return a record whose text is the whole message, if its rule says so."""
        if isinstance(decoded, LogRecord) and self._routing.keeps_whole(decoded.source):
            return replace(decoded, text=message, attributes=b"")
        return decoded

    async def _collection(self, name: str) -> Collection:
        """Return the collection that a rule names, which is made if it is missing."""
        try:
            found = await self._collections.get(name)
        except CollectionUnknown:
            await self._maker.make(name, owner=self._owner, tenant=self._tenant, wait_s=_HOLD_S)
            self._collections.forget(name)
            found = await self._collections.get(name)
        if found.kind is not CollectionKind.LOGS:
            raise KindUnsupported(f"expected a collection of kind logs, got {name!a}: of documents")
        if found.owner not in (None, self._owner):
            raise CollectionUnknown(f"no collection {name!a}")
        return found
