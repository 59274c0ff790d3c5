"""One acceptance for the requests of a key that arrive together.

1. The first request waits ``gather_s`` for others, or until there is enough for a slice.
2. Records whose identities the ledger knows are left out.
3. Numbers are reserved for each stream; its lines become slices; one job takes them all in.
4. Every request is answered for itself: with the positions of its repeated records and of those
   whose stream cannot be written, or an error.

While the queue is full the requests are held and tried again, each until its own deadline. A job
whose acceptance may have happened, as the ledger did not answer, is tried again under its id: that
is done once. What can be written of a request is in one job, so it is accepted as a whole or not
at all; where its collections are on several ledgers, the part of each is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verso_core.errors import (
    BodyTooLarge,
    CollectionBusy,
    LedgerUnavailable,
    NotReady,
    QueueFull,
    VersoError,
)
from verso_core.jobs import Kind, Queue, SliceSpec
from verso_core.jobs.logs.lines import LINES_BYTES
from verso_gateway.feed.batch import Batch, StreamKey, StreamLines, reserve_all, slices_of
from verso_gateway.job_service import JobService
from verso_gateway.metrics import Metrics
from verso_ledger import AsyncLedger, Ledgers, NewJob
from verso_ledger.ledgers import rolled
from verso_ledger.ledgers.answers import every_answer
from verso_ledger.models import CollectionReplaced, IdentityKnown, PartitionRolled, Seen
from verso_ledger.names import new_job_id

Identity = tuple[str, bytes]
"""A collection and the hash of an identity in it."""
_JOINED_BYTES = 4 * LINES_BYTES
"""About the most bytes of lines in one job, unless a single request has more."""
_JOINED_STREAMS = 8192
"""Most streams in one job: each is a slice, and the ledger does no more while it accepts them, for
0.1 to 0.3 s; a caller of the ledger waits 1.5 s for its answer."""
_AGAIN_S = 0.1
_LATE_S = 10.0
"""How long after the last deadline of some requests a step of the ledger may end: it waits for a
connection and for an answer, and does so again if this process stood still."""
_REPLACED = "another collection was made under this name; send it again"
_ASKED = 4096
"""Identities that one step of the ledger looks at: a few milliseconds in which it does no more."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of the records of a request that are not accepted, by their positions.

    Attributes:
        repeated: they were accepted before, by their identities.
        refused: why their streams cannot be written.
    """

    repeated: frozenset[int] = frozenset()
    refused: Mapping[int, VersoError] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[Accepted]) -> Accepted:
        """Return what became of all parts of a request."""
        repeated = frozenset[int]().union(*(one.repeated for one in parts))
        return cls(repeated, {n: why for one in parts for n, why in one.refused.items()})

    def with_repeats(self, batch: Batch) -> Accepted:
        """Return this with the records of a request that repeat others of it: each as its first."""
        refused = dict(self.refused)
        refused |= {n: refused[one] for n, one in batch.repeated.items() if one in refused}
        return Accepted(self.repeated | {*batch.repeated} - refused.keys(), refused)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for its acceptance, until ``deadline_s`` of the loop's clock."""

    batch: Batch
    deadline_s: float
    arrived_s: float
    answer: asyncio.Future[Accepted]
    refused: dict[int, VersoError] = field(default_factory=dict)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, repeated: set[int]) -> None:
        """Answer with the positions of records that were accepted before."""
        if not self.answer.done():
            accepted = Accepted(frozenset(repeated), self.refused)
            self.answer.set_result(accepted.with_repeats(self.batch))

    def refuse(self, faults: Mapping[StreamKey, VersoError]) -> bool:
        """Leave streams out that cannot be written; return whether others are left.

        Where none is, or trying again may help, the request has failed.
        """
        own = {key: faults[key] for key in self.batch.streams if key in faults}
        again = [error for error in own.values() if error.retryable]
        if again or (own and len(own) == len(self.batch.streams)):
            self.fail(again[0] if again else next(iter(own.values())))
            return False
        for key, error in own.items():
            self.refused.update(dict.fromkeys(self.batch.streams[key].positions, error))
        if own:
            self.batch = self.batch.without(own)
        return True


@dataclass(slots=True)
class _Tenant:
    """The requests of one tenant that wait for a ledger."""

    ledger: AsyncLedger
    waiting: list[_Waiting] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def take(self) -> list[_Waiting]:
        """Take the requests that the next job takes in, at least one."""
        size = streams = count = 0
        for one in self.waiting:
            size += one.batch.size_bytes
            streams += len(one.batch.streams)
            if count and (size > _JOINED_BYTES or streams > _JOINED_STREAMS):
                break
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        if sum(one.batch.size_bytes for one in self.waiting) < LINES_BYTES:
            self.enough.clear()
        return taken


class Acceptance:
    """Takes the records of requests in, those that arrive together in one job.

    Args:
        ledgers: reserve numbers and know identities.
        job_service: submits the jobs.
        metrics: counts them.
        gather_s: how long the first request waits for others, seconds.
        keep_s: how long a job is kept after its end, seconds.
        identity_s: how long an identity is remembered at least, seconds.
        late_s: how long after their last deadline requests are failed, whatever is under way.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        job_service: JobService,
        *,
        metrics: Metrics,
        gather_s: float,
        keep_s: int,
        identity_s: int,
        late_s: float = _LATE_S,
    ) -> None:
        self._late_s = late_s
        self._ledgers = ledgers
        self._job_service = job_service
        self._metrics = metrics
        self._gather_s = gather_s
        self._keep_s = keep_s
        self._identity_s = identity_s
        self._tenants: dict[tuple[str, str], _Tenant] = {}

    async def accept(self, tenant: str, batch: Batch, *, hold_s: float) -> Accepted:
        """Take a request's lines in: when this returns they are on disk.

        Where its streams are more than one job takes, the lines of some may be accepted though
        those of others are not.

        Args:
            tenant: whose they are.
            batch: the lines.
            hold_s: how long to wait for room, seconds.

        Returns:
            Which of them were accepted before, and which cannot be.

        Raises:
            QueueFull: there was no room in time; nothing was accepted.
            LedgerUnavailable: the ledger did not answer in time.
            CollectionBusy: a collection moves to another ledger, or the partition that takes its
                lines has rolled over, and that did not end in time.
            VersoError: none can be: their collections are gone, or have as many streams as they
                may.
        """
        if len(batch.streams) > _JOINED_STREAMS:
            found = [
                await self.accept(tenant, part, hold_s=hold_s)
                for part in batch.split(_JOINED_STREAMS)
            ]
            return Accepted.of(found).with_repeats(batch)
        until_s = asyncio.get_running_loop().time() + hold_s
        if not self._ledgers.several:
            return await self._rolling(tenant, self._ledgers.home, batch, until_s=until_s)
        names = {key.collection for key in batch.streams}
        ledgers = {name: await self._ledgers.of_collection(name) for name in names}
        parts = batch.parted(ledgers)
        by_name = {one.name: one for one in ledgers.values()}
        answers = await every_answer(
            self._moving(tenant, by_name[name], part, until_s=until_s)
            for name, part in parts.items()
        )
        return Accepted.of(answers).with_repeats(batch)

    async def _moving(
        self, tenant: str, ledger: AsyncLedger, batch: Batch, *, until_s: float
    ) -> Accepted:
        """Take the lines of one ledger in, as :meth:`accept` does; elsewhere if they move."""
        loop = asyncio.get_running_loop()
        try:
            return await self._rolling(tenant, ledger, batch, until_s=until_s)
        except PartitionRolled:
            raise
        except CollectionBusy:
            left_s = until_s - loop.time()
            if left_s <= _AGAIN_S:
                raise
        names = {key.collection for key in batch.streams}
        await self._ledgers.await_served(names, until=time.monotonic() + left_s)
        return await self.accept(tenant, batch, hold_s=max(0.0, until_s - loop.time()))

    async def _rolling(
        self, tenant: str, ledger: AsyncLedger, batch: Batch, *, until_s: float
    ) -> Accepted:
        """Take the lines of one ledger in; where a partition has rolled over, in the next one."""
        loop = asyncio.get_running_loop()
        try:
            return await self._accept(tenant, ledger, batch, hold_s=max(0.0, until_s - loop.time()))
        except PartitionRolled:
            if until_s - loop.time() <= _AGAIN_S:
                raise
        found = await self._ledgers.collections()
        made = {name: one.made for name, one in found.items()}
        if any(key.made not in ("", made.get(key.collection, key.made)) for key in batch.streams):
            raise NotReady(_REPLACED)  # what follows is another collection's
        after: dict[str, str] = {}
        for name in {key.collection for key in batch.streams}:
            following = rolled.following(self._ledgers.partitioned, name)
            if following is not None and following in made and await ledger.has_rolled(name):
                after[name] = following
        if not after:
            await asyncio.sleep(_AGAIN_S)
        renamed = batch.renamed(after, made)
        return await self.accept(tenant, renamed, hold_s=max(0.0, until_s - loop.time()))

    async def _accept(
        self, tenant: str, ledger: AsyncLedger, batch: Batch, *, hold_s: float
    ) -> Accepted:
        """Take the lines of one ledger in, as :meth:`accept` does."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        one = _Waiting(batch, now + hold_s, now, loop.create_future())
        place = tenant, ledger.name
        held = self._tenants.setdefault(place, _Tenant(ledger))
        held.waiting.append(one)
        if sum(each.batch.size_bytes for each in held.waiting) >= LINES_BYTES:
            held.enough.set()
        if held.task is None:
            held.task = asyncio.create_task(self._drain(place, held))
        with self._metrics.feed.waiting.track_inprogress():
            try:
                async with asyncio.timeout_at(one.deadline_s):
                    return await asyncio.shield(one.answer)
            except TimeoutError:
                if one in held.waiting:  # behind requests that may be held longer
                    held.waiting.remove(one)
                    raise QueueFull("other requests wait for room", retry_after_s=1.0) from None
                return await one.answer

    async def _drain(self, place: tuple[str, str], held: _Tenant) -> None:
        """Take requests in until none waits. Whatever ends this, no request waits for it."""
        clock = asyncio.get_running_loop().time
        try:
            while held.waiting:
                left_s = held.waiting[0].arrived_s + self._gather_s - clock()
                if left_s > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left_s):
                            await held.enough.wait()
                if taken := held.take():  # else all went away meanwhile
                    await self._take_some(place[0], held.ledger, taken)
        finally:
            self._tenants.pop(place, None)
            for one in held.waiting:
                one.fail(LedgerUnavailable("this gateway takes in no more"))

    async def _take_some(self, tenant: str, ledger: AsyncLedger, taken: list[_Waiting]) -> None:
        """Take requests in with one job, and fail them if that does not end in time."""
        until_s = max(one.deadline_s for one in taken) + self._late_s
        try:
            async with asyncio.timeout_at(until_s):
                await self._take_in(tenant, ledger, taken)
        except TimeoutError:
            for one in taken:
                one.fail(LedgerUnavailable("the ledger did not answer in time"))
        except Exception as error:  # noqa: BLE001 - the callers get it, and the next go on
            for one in taken:
                one.fail(error)

    async def _take_in(self, tenant: str, ledger: AsyncLedger, taken: list[_Waiting]) -> None:
        """Take requests in with one job; those that cannot be are failed."""
        started = time.perf_counter()
        while taken:
            try:
                joined = _joined(taken, await self._known(ledger, taken))
                job, faults = await self._job(tenant, ledger, joined.streams)
                if faults:
                    taken = [one for one in taken if one.refuse(faults)]
                    continue
                if job.slices:
                    await self._submit(job, taken)
            except (IdentityKnown, CollectionReplaced):
                continue
            except (QueueFull, LedgerUnavailable) as error:
                taken = await _held(taken, error)
            except (BodyTooLarge, CollectionBusy):  # a partition that has rolled, too
                if len(taken) == 1:
                    raise
                for one in taken:
                    await self._alone(tenant, ledger, one)
                return
            else:
                for one, repeated in zip(taken, joined.repeated, strict=True):
                    one.succeed(repeated)
                self._metrics.feed.joined(len(taken), seconds=time.perf_counter() - started)
                return

    async def _alone(self, tenant: str, ledger: AsyncLedger, one: _Waiting) -> None:
        try:
            await self._take_in(tenant, ledger, [one])
        except VersoError as error:
            one.fail(error)

    async def _known(self, ledger: AsyncLedger, taken: Sequence[_Waiting]) -> frozenset[Identity]:
        """Return the identities that were accepted before."""
        asked: dict[str, dict[bytes, None]] = {}
        for one in taken:
            if one.batch.identified:
                for key, stream in one.batch.streams.items():
                    hashes = asked.setdefault(key.collection, {})
                    hashes.update(dict.fromkeys(filter(None, stream.hashes)))
        found: set[Identity] = set()
        for collection, hashes in asked.items():
            rows = list(hashes)
            for start in range(0, len(rows), _ASKED):
                part = rows[start : start + _ASKED]
                found.update(
                    (collection, part[position])
                    for position in await self._known_here(ledger, collection, part)
                )
        return frozenset(found)

    async def _known_here(
        self, ledger: AsyncLedger, collection: str, part: list[bytes]
    ) -> set[int]:
        """Return the positions of identities that a collection knows.

        Those of a partition by time are also what partitions before it know that rolled lately.
        """
        older = self._ledgers.rolled_before(collection, within_s=2.0 * self._identity_s)
        if not older:
            hashes = {collection: part}
            return {*await ledger.known_identities(hashes, identity_s=self._identity_s)}
        asked: dict[AsyncLedger, dict[str, list[bytes]]] = {ledger: {collection: part}}
        for one in older:
            its = await self._ledgers.of_collection(one)
            asked.setdefault(its, {})[one] = part
        answers = await every_answer(
            its.known_identities(hashes, identity_s=self._identity_s)
            for its, hashes in asked.items()
        )
        return {position % len(part) for known in answers for position in known}

    async def _job(
        self, tenant: str, ledger: AsyncLedger, streams: Mapping[StreamKey, StreamLines]
    ) -> tuple[NewJob, dict[StreamKey, VersoError]]:
        """Reserve numbers and return the job, and why some streams cannot be written.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        places = await reserve_all(ledger, [*streams.items()])
        slices: list[SliceSpec] = []
        identities: dict[str, list[bytes]] = {}
        faults: dict[StreamKey, VersoError] = {}
        for (key, stream), place in zip(streams.items(), places, strict=True):
            if isinstance(place, CollectionReplaced):  # the list of the gateway was too old
                faults[key] = NotReady(_REPLACED)
            elif isinstance(place, VersoError):
                faults[key] = place
            else:
                slices += slices_of(key[0], stream, place)
                if hashes := [hashed for hashed in stream.hashes if hashed]:
                    identities.setdefault(key[0], []).extend(hashes)
        names = [*dict.fromkeys(key.collection for key in streams)]
        job = NewJob(
            kind=Kind.INGEST_LINES,
            queue=Queue.BULK,
            slices=slices,
            tenant=tenant,
            job_id=new_job_id(ledger.name),
            urgency=Kind.INGEST_LINES.urgency,
            identities=identities,
            identity_s=self._identity_s,
            collection=next(iter(names), None),
            others=names[1:],
            seen={key.collection: Seen(key.made) for key in streams if key.made},
        )
        return job, faults

    async def _submit(self, job: NewJob, taken: Sequence[_Waiting]) -> None:
        """Submit a job; while the ledger does not answer, again under the same id.

        A request whose time is over meanwhile is failed, though its lines may be accepted yet.

        Raises:
            LedgerUnavailable: it did not answer as long as the last of the requests could wait.
        """
        while True:
            try:
                await self._job_service.submit(job, keep_s=self._keep_s)
            except LedgerUnavailable as error:
                if not await _held(taken, error):
                    raise
            else:
                return


@dataclass(slots=True)
class _Joined:
    """The lines of requests by stream; of each request, which records were accepted before."""

    streams: dict[StreamKey, StreamLines]
    repeated: list[set[int]]


def _joined(taken: Sequence[_Waiting], known: frozenset[Identity]) -> _Joined:
    """Return the lines of requests in the order in which the requests came.

    Of an identity that stands in several of them the first one counts.
    """
    streams: dict[StreamKey, StreamLines] = {}
    repeated: list[set[int]] = []
    seen = set(known)
    for one in taken:
        left_out: set[int] = set()
        new: list[Identity] = []
        for key, stream in one.batch.streams.items():
            into = streams.setdefault(key, StreamLines(stream.labels))
            if not one.batch.identified:
                into.extend(stream)
                continue
            kept = [n for n, hashed in enumerate(stream.hashes) if (key[0], hashed) not in seen]
            into.extend(stream.chosen(kept))
            left_out.update({*stream.positions} - {stream.positions[n] for n in kept})
            new += [(key[0], stream.hashes[n]) for n in kept if stream.hashes[n]]
        seen.update(new)
        repeated.append(left_out)
    return _Joined({key: one for key, one in streams.items() if one.lines}, repeated)


async def _held(taken: Sequence[_Waiting], error: VersoError) -> list[_Waiting]:
    """Fail the requests whose time is over; return the others after a while."""
    now = asyncio.get_running_loop().time() + _AGAIN_S
    for one in taken:
        if one.deadline_s <= now:
            one.fail(error)
    left = [one for one in taken if not one.answer.done()]
    if left:
        await asyncio.sleep(_AGAIN_S)
    return left
