"""From the records of a request to their acceptance, the same for every protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import Request

from verso_core.errors import (
    CollectionUnknown,
    Forbidden,
    KindUnsupported,
    QueueFull,
    VersoError,
)
from verso_core.jobs import Collection, CollectionKind
from verso_gateway.access import caller_of, collection_of, made_of
from verso_gateway.bodies import limits, reading
from verso_gateway.context import context_of
from verso_gateway.feed.batch import batch_of
from verso_gateway.feed.records import Decoded, LogRecord
from verso_gateway.feed.service import Feed
from verso_gateway.partitions.writing import taking
from verso_gateway.protocols import Protocol


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of the records of a request.

    Attributes:
        rejected: why a record was not accepted, by its position.
        repeated: positions of those that were accepted before.
    """

    rejected: dict[int, VersoError]
    repeated: frozenset[int]

    @property
    def first_reason(self) -> str:
        """Return why the first rejected record was; empty if none was."""
        return next((error.detail for error in self.rejected.values()), "")


def feed_of(request: Request) -> Feed:
    """Return the feed of the application that serves a request."""
    return context_of(request).feed


async def read(
    request: Request,
    protocol: Protocol,
    decode: Callable[[bytes], Sequence[Decoded]],
    *,
    inflated_bytes: Callable[[bytes], int] | None = None,
) -> Sequence[Decoded]:
    """Return the records of a request's body, which is decoded off the loop if it is large.

    Args:
        request: the request.
        protocol: by which it came.
        decode: reads the body.
        inflated_bytes: returns the size that ``decode`` inflates a body to, if it does.

    Raises:
        RequestInvalid: the body cannot be read as the protocol's.
        BodyTooLarge: it is larger than it may be.
        QueueFull: too many request bytes are in memory at once.
    """
    body = await request.body()
    context_of(request).metrics.feed.received(protocol, len(body))
    size = len(body)
    if inflated_bytes is not None:
        size = inflated_bytes(body)
        if size <= context_of(request).settings.feed_limit_bytes:  # else it is refused
            limits.hold(request, size)
    return await reading.off_loop(size, partial(decode, body))


async def accept(
    request: Request, decoded: Sequence[Decoded], protocol: Protocol, *, hold_s: float
) -> Taken:
    """Take the records of a request in; when this returns they are on disk.

    Args:
        request: the request, for its caller.
        decoded: the records, and why there is none at a position.
        protocol: by which they came.
        hold_s: how long the request may be held for room, seconds.

    Raises:
        QueueFull: there was no room in time; nothing was accepted.
        Unavailable: the ledger does not answer, or no worker has room on its disk.
    """
    context = context_of(request)
    await context.room.check()
    end_s = time.monotonic() + hold_s
    rejected = {n: one for n, one in enumerate(decoded) if not isinstance(one, LogRecord)}
    records = [(n, one) for n, one in enumerate(decoded) if isinstance(one, LogRecord)]
    found: dict[str, Collection] = {}
    faults: dict[str, VersoError] = {}
    for source in {record.source for _, record in records}:
        try:
            found[source] = await _collection(request, source, until_s=end_s)
        except (CollectionUnknown, Forbidden, KindUnsupported) as error:
            faults[source] = error
    rejected |= {n: faults[record.source] for n, record in records if record.source in faults}
    collections = _taking(found)
    made = {name: made_of(request, name) for name in collections.values()}
    repeated: frozenset[int] = frozenset()
    if len(rejected) < len(decoded):
        size = sum(len(record.text) for _, record in records)
        make = partial(
            batch_of,
            records,
            collections,
            arrived_ns=time.time_ns(),
            made=made,
            by_content=feed_of(request).by_content,
        )
        batch = await reading.off_loop(size, make)
        left_s = max(0.0, end_s - time.monotonic())
        acceptance = feed_of(request).acceptance
        accepted = await acceptance.accept(request.state.tenant, batch, hold_s=left_s)
        repeated = accepted.repeated
        rejected |= accepted.refused
    new = len(decoded) - len(rejected) - len(repeated)
    context.metrics.feed.records(
        protocol, accepted=new, repeated=len(repeated), rejected=len(rejected)
    )
    return Taken(dict(sorted(rejected.items())), repeated)


@contextmanager
def counted(request: Request, protocol: Protocol) -> Iterator[None]:
    """Count a request of an agent by how it ends."""
    status = "failed"
    try:
        yield
        status = "accepted"
    except QueueFull:
        status = "refused"
        raise
    except VersoError as error:
        status = "failed" if error.retryable else "rejected"
        raise
    finally:
        context_of(request).metrics.feed.request(protocol, status)


def _taking(found: Mapping[str, Collection]) -> dict[str, str]:
    """Return the name of what takes the lines of each source.

    Of a collection with partitions by time that is one partition for all, as identities are looked
    for in each; a rollover may have been noted between two looks.

    Raises:
        CollectionBusy: a partition is missing, and the next one is being made.
    """
    newest = {one.name: one for one in found.values()}
    return {source: taking(newest[one.name]) for source, one in found.items()}


async def _collection(request: Request, source: str, *, until_s: float) -> Collection:
    """Return the collection that the rules name; it is made if it is missing.

    Raises:
        CollectionUnknown: no rule fits, or the collection is another caller's.
        Forbidden: the caller's key may not make it.
        KindUnsupported: it is no log collection.
        NotReady: it was not made in time.
    """
    name = feed_of(request).routing.collection(source)
    if name is None:
        raise CollectionUnknown(f"no rule of VERSO_FEED_ROUTES fits {source[:64]!a}")
    try:
        found = await collection_of(request, name, partitioned=True)
    except CollectionUnknown:
        known = {one.name for one in await context_of(request).collections.list()}
        if name in known:
            raise
        found = await _made(request, name, until_s=until_s)
    if found.kind is not CollectionKind.LOGS:
        raise KindUnsupported(f"expected a collection of kind logs, got {name!a}: of documents")
    return found


async def _made(request: Request, name: str, *, until_s: float) -> Collection:
    """Make a log collection that rules name; requests that come meanwhile wait for the same job."""
    caller, context = caller_of(request), context_of(request)
    if caller.key is not None and caller.key.collections is not None and not caller.key.lists(name):
        raise Forbidden(f"expected a collection that the key's list names, got {name!r}")
    await context.feed.maker.make(
        name,
        owner=caller.owner,
        tenant=caller.tenant,
        wait_s=max(0.0, until_s - time.monotonic()),
    )
    context.collections.forget(name)
    return await collection_of(request, name, partitioned=True)
