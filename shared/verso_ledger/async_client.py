"""The ledger as the gateway uses it: accept, watch, cancel; asynchronous."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, cast

from redis.asyncio import Redis

from verso_core.errors import VersoError
from verso_core.jobs import Collection, Kind, Queue, Status
from verso_core.jobs.collections import Partitioned
from verso_core.jobs.migrate import Migration
from verso_core.segments import Reserved
from verso_ledger import pages, scrub
from verso_ledger.codec import collection_rows, gauges, job_rows, scalars
from verso_ledger.codec.admission import (
    IDEMPOTENCY_S,
    STAGED_FOR_MS,
    Admission,
    accepted,
    accepted_before,
    identity_args,
)
from verso_ledger.collections.moves import AsyncMoves, Listed, earlier
from verso_ledger.collections.placement import Placements
from verso_ledger.collections.reserving import Asked, Places, reserve_each
from verso_ledger.collections.waiting import WaitingLines
from verso_ledger.connection import connect_async, translated
from verso_ledger.durability import Server, read_server
from verso_ledger.events.arrivals import Arrivals
from verso_ledger.events.job_events import JobEvents, JobWaiter
from verso_ledger.events.webhooks import Webhooks
from verso_ledger.keys import key
from verso_ledger.models import (
    Accepted,
    Backlog,
    CollectionReplaced,
    DeadLetter,
    Depth,
    Event,
    Health,
    JobOutcome,
    JobRecord,
    NewJob,
    Policy,
    SliceFailures,
)
from verso_ledger.names import HOME
from verso_ledger.pages import DocumentRow, Page
from verso_ledger.scripts import AsyncScripts
from verso_ledger.scrub import Scrub
from verso_ledger.sessions import Sessions

_EVENTS_PAGE = 1000
_GATHER_S = 0.2


class AsyncLedger:
    """The durable record of jobs, as the gateway uses it.

    Args:
        client: the connection.
        policy: the numbers the steps go by.
        replicas: replicas that must have a step before it returns.
        name: of the ledger, among those of a platform.
    """

    def __init__(
        self,
        client: Redis,
        *,
        policy: Policy | None = None,
        replicas: int = 0,
        name: str = HOME,
    ) -> None:
        self._redis = client
        self.name = name
        self._scripts = AsyncScripts(client, policy, replicas=replicas)
        self._events = JobEvents(client)
        self._reader = collection_rows.Reader()
        self.arrivals = Arrivals(client, self._events)
        self.webhooks = Webhooks(client, self._scripts)
        self.sessions = Sessions(client)
        self.waiting = WaitingLines(client)
        self.placements = Placements(client, self._scripts)
        self.moves = AsyncMoves(client, self._scripts, ledger=name)

    @classmethod
    def from_url(
        cls, url: str, *, timeout_s: float = 1.5, replicas: int = 0, name: str = HOME
    ) -> AsyncLedger:
        """Connect to the ledger at ``redis://…``, ``unix://…`` or ``redis+sentinel://…``."""
        return cls(connect_async(url, timeout_s=timeout_s), replicas=replicas, name=name)

    async def close(self) -> None:
        """End the subscription and close the connections."""
        await self._events.close()
        await self._redis.aclose()

    async def accept(self, job: NewJob) -> Accepted:
        """Accept a job: when this returns it is on disk, and with the replicas asked for.

        Raises:
            IdempotencyConflict: the idempotency key came with another body before.
            QueueFull: the queue holds as much as it may; ``retry_after_s`` follows the drain rate.
            BodyTooLarge: the job is larger than an empty queue may hold.
            IdentityKnown: one of its identities was accepted meanwhile.
            SourceMoved: the source that its lines are of stands elsewhere.
            CollectionReplaced: a collection that it concerns is another than the one seen.
        """
        admission = Admission.of(job, ledger=self.name)
        if admission.staged:
            before = accepted_before(await self._scripts.run("stage", admission.reservation))
            if before is not None:
                return before
        for part in admission.parts:
            with translated():
                async with self._redis.pipeline(transaction=False) as pipe:
                    for name, payload in part:
                        pipe.set(name, payload, px=STAGED_FOR_MS, nx=True)
                    await pipe.execute()
        try:
            return accepted(await self._scripts.run("accept", admission.args))
        except CollectionReplaced:
            made = await self._made()  # a flipped bit is corrected here
            names = job.seen.keys() & {*job.concerned}
            if any(made.get(name) != job.seen[name].made for name in names):
                raise
        return await self.accept(replace(job, seen={}))

    async def _made(self) -> dict[str, str]:
        return {name: one.made for name, one in (await self.collections()).items()}

    async def job(self, job_id: str) -> JobRecord:
        """Return what is known of a job.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        with translated():
            fields = await cast("Any", self._redis.hgetall(key("job", job_id)))
        return job_rows.job_record(job_id, cast("Mapping[bytes, bytes]", fields))

    async def results(
        self, job_id: str, *, first: int = 0, count: int | None = None
    ) -> list[bytes | None]:
        """Return the result frames of a job's slices, in order from ``first``.

        A slice has none (yet) when it waits, runs, or ended without success; the job's ``error``
        then says why.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        slices = (await self.job(job_id)).slices
        last = slices if count is None else min(slices, first + count)
        if first >= last:
            return []
        with translated():
            rows = await cast(
                "Any", self._redis.hmget(key("result", job_id), list(map(str, range(first, last))))
            )
        return cast("list[bytes | None]", rows)

    async def jobs(
        self,
        tenant: str,
        *,
        after: str | None = None,
        limit: int = 50,
        statuses: Iterable[Status] = (),
        kinds: Iterable[Kind] = (),
        reads: bool = False,
    ) -> Page[JobRecord]:
        """Return a tenant's jobs, the newest first; see :func:`verso_ledger.pages.jobs`."""
        return await pages.jobs(
            self._redis, tenant, after=after, limit=limit,
            statuses=frozenset(statuses), kinds=frozenset(kinds), reads=reads,
        )  # fmt: skip

    async def changes(
        self, tenant: str, *, kinds: Iterable[Kind] = (), reads: bool = False
    ) -> AsyncIterator[list[JobRecord] | None]:
        """Yield a tenant's jobs as they change, those of a fifth of a second together.

        None comes first, and where changes may have been missed: any job may be another now.
        """
        chosen = frozenset(kinds)
        with self._events.changes() as changes:
            while True:
                await changes.wait()
                jobs = changes.take()
                if jobs is None:
                    yield None
                elif found := await pages.changed(
                    self._redis, jobs, tenant=tenant, kinds=chosen, reads=reads
                ):
                    yield found
                await asyncio.sleep(_GATHER_S)

    async def failures(self, job_id: str, *, first: int, count: int) -> list[SliceFailures]:
        """Return what is known of the failed items of some of a job's slices, in order."""
        return await pages.failures(self._redis, job_id, first=first, count=count)

    async def dead(
        self, tenant: str, *, after: str | None = None, limit: int = 50
    ) -> Page[DeadLetter]:
        """Return a tenant's dead letters, the newest first."""
        return await pages.dead(self._redis, tenant, after=after, limit=limit)

    async def retain(self, job_id: str) -> Status:
        """Keep a brief job as others are kept: its caller was not told of its end.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        reply = await self._scripts.run("retain", [job_id, IDEMPOTENCY_S])
        return job_rows.status_or_unknown(reply, job_id)

    async def cancel(self, job_id: str) -> Status:
        """End a job, unless it has ended; return the status it has now.

        Slices already committed stay done; the commit of a running slice will be refused.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        return job_rows.status_or_unknown(await self._scripts.run("cancel", [job_id]), job_id)

    async def replay(self, job_id: str) -> Status:
        """Grant the dead slices of a job new attempts; return the status it has now.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        return job_rows.status_or_unknown(await self._scripts.run("replay", [job_id]), job_id)

    async def events(self, job_id: str, after: str = "0") -> list[Event]:
        """Return a job's events later than the event ``after``, oldest first, at most 1000."""
        with translated():
            rows = await cast(
                "Any",
                self._redis.xrange(key("events", job_id), f"({after}", "+", count=_EVENTS_PAGE),
            )
        return [job_rows.event(row) for row in cast("Sequence[Any]", rows)]

    async def wait(self, job_id: str, timeout_s: float) -> JobRecord:
        """Return a job as soon as it has ended, or as it is after ``timeout_s``.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        with self._events.waiter(job_id, end=True) as waiter:
            watch = Watch(self, self._events, waiter, known=True)
            return (await watch.end(job_id, timeout_s=timeout_s, slices=0)).record

    @contextmanager
    def watch(self, job_id: str) -> Iterator[Watch]:
        """Listen for the end of a job that is not accepted yet, so that the end is not missed."""
        with self._events.waiter(job_id, end=True) as waiter:
            yield Watch(self, self._events, waiter, known=False)

    def release(self) -> None:
        """Let all callers who wait for an end return with what is known: this process stops."""
        self._events.release()

    async def outcome(self, job_id: str, *, slices: int) -> JobOutcome:
        """Return a job and the results of its first slices, in one exchange.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        if slices == 0:
            return JobOutcome(await self.job(job_id), [])
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hgetall(key("job", job_id))
                pipe.hmget(key("result", job_id), list(map(str, range(slices))))
                fields, rows = await pipe.execute()
        return JobOutcome(job_rows.job_record(job_id, fields), rows)

    async def follow(self, job_id: str, after: str = "0") -> AsyncIterator[Event]:
        """Yield a job's events as they come, and end with its terminal one.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        with self._events.waiter(job_id) as waiter:
            while True:
                waiter.clear()
                record = await self.job(job_id)
                page = await self.events(job_id, after)
                for event in page:
                    after = event.id
                    yield event
                if page and Status(page[-1].data["status"]).terminal:
                    return
                if not page and record.status.terminal:
                    return
                if not page:
                    await _wait(waiter, self._events.poll_s)

    async def collections(self) -> dict[str, Collection]:
        """Return all collections by the name that users know, which each carries, in order."""
        return dict((await self.listed()).collections)

    async def listed(self) -> Listed:
        """Return all collections as :meth:`collections` does, and which of them have moved."""
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(key("collections"))
                pipe.hgetall(key("aliases"))
                pipe.smembers(key("hidden"))
                pipe.hgetall(key("shut"))
                pipe.hgetall(key("came"))
                pipe.hgetall(key("partitioned"))
                pipe.time()
                rows, aliases, hidden, shut, came, partitioned, clock = await pipe.execute()
        found = self._reader.collections(rows, aliases=aliases, hidden=hidden)
        states = {name: shut.get(f"n:{name}".encode()) for name in found}
        return Listed(
            {
                name: one if one.name == name else one.model_copy(update={"name": name})
                for name, one in found.items()
            },
            frozenset(name for name, state in states.items() if scalars.has_moved(state)),
            frozenset(n for n, state in states.items() if scalars.is_fenced(state, now_s=clock[0])),
            {scalars.text(name): earlier(row) for name, row in came.items()},
            {
                scalars.text(name): Partitioned.model_validate_json(row)
                for name, row in partitioned.items()
            },
            scalars.server_seconds(clock) - time.monotonic(),
        )

    async def documents(
        self, collection: str, *, after: str | None = None, limit: int = 1000
    ) -> Page[DocumentRow]:
        """Return a collection's documents; see :func:`verso_ledger.pages.documents`."""
        return await pages.documents(self._redis, collection, after=after, limit=limit)

    async def reserve(
        self, collection: str, labels: Mapping[str, str], lines: int, *, made: str = ""
    ) -> Reserved:
        """Reserve numbers for lines of a stream, which is made if it is new.

        ``made``: when the collection that the caller has seen was made; empty for any.

        Raises:
            CollectionUnknown: there is no such collection.
            CollectionReplaced: there is one that was made at another time.
            PartitionRolled: it is a partition by time that takes no more lines.
        """
        [place] = await self.reserve_each([(collection, labels, lines, made)])
        if isinstance(place, VersoError):
            raise place
        return place

    async def reserve_each(self, asked: Sequence[Asked]) -> Places:
        """Reserve numbers for lines of streams; return the places, or why there is none.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        return await reserve_each(self._scripts, asked, self._made)

    async def known_identities(
        self, identities: Mapping[str, Sequence[bytes]], *, identity_s: int
    ) -> list[int]:
        """Return the positions of identities that were accepted lately, over all collections."""
        args = identity_args(identities, identity_s)
        return cast("list[int]", await self._scripts.run("identities", args))

    async def position(self, collection: str, source: bytes) -> int | None:
        """Return how far a source of lines was accepted lately; None if that is not known."""
        found = await self._scripts.run("position", [collection, source])
        return None if found is None else int(found)

    async def has_rolled(self, partition: str) -> bool:
        """Whether a partition by time takes no more lines."""
        return bool(await self._scripts.run("rolled", [partition]))

    async def document_count(self, collection: str) -> int:
        """Return how many documents a collection holds, as counted last; 0 before that."""
        return await pages.document_count(self._redis, collection)

    async def check_made(self, collection: str, made: str) -> None:
        """Check which collection has a name; see :func:`verso_ledger.pages.check_made`."""
        await pages.check_made(self._redis, collection, made)

    async def migration(self, collection: str) -> Migration | None:
        """Return a collection's newest migration."""
        with translated():
            row = await cast("Any", self._redis.hget(key("migrations"), collection))
        return None if row is None else Migration.model_validate_json(row)

    async def server(self) -> Server:
        """Return the state of the server under the ledger."""
        with translated():
            return read_server(await cast("Any", self._redis.info()))

    async def health(self) -> Health:
        """Return the age of the newest heartbeats and of the newest embed."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hgetall(key("health"))
                pipe.time()
                rows, clock = await pipe.execute()
        return gauges.health(rows, scalars.server_seconds(clock))

    async def depths(self) -> dict[Queue, Depth]:
        """Return what waits and runs in each queue."""
        return gauges.depths(await self._scripts.run("depths", list(Queue)))

    async def backlog(self) -> Backlog:
        """Return what waits outside the queues."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                gauges.ask_backlog(pipe)
                return gauges.backlog(await pipe.execute())

    async def serving(self) -> dict[str, dict[str, Any]]:
        """Return what each living worker said it serves, by its name."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hgetall(key("serving"))
                pipe.hgetall(key("health"))
                pipe.time()
                rows, signs, clock = await pipe.execute()
        return gauges.serving(rows, signs, scalars.server_seconds(clock))

    async def scrub(self) -> Scrub:
        """Return the state of the scrub."""
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(key("scrub"))
                pipe.lrange(key("damaged"), 0, -1)
                pipe.time()
                rows, listed, clock = await pipe.execute()
        return scrub.read(rows, listed, now=scalars.server_seconds(clock))

    async def scrub_request(self) -> None:
        """Request a pass, at once or as soon as the one under way has ended."""
        await self._scripts.run("scrub_ask", [])


class Watch:
    """Waits for the end of one job.

    Args:
        ledger: where the job is.
        events: sets the waiter.
        waiter: set at the job's end.
        known: the job was accepted before the waiter was registered, so its end may have passed.
            Such a caller polls the ledger first and sees no end before its commit.
    """

    def __init__(
        self, ledger: AsyncLedger, events: JobEvents, waiter: JobWaiter, *, known: bool
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._waiter = waiter
        self._known = known

    async def end(self, job_id: str, *, timeout_s: float, slices: int) -> JobOutcome:
        """Return a job and its results as soon as it has ended, or as they are after ``timeout_s``.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + timeout_s
        # The end of a job that was accepted during a subscription cannot be missed.
        poll = self._known or not self._events.connected or self._events.released
        while True:
            message = None if self._known else self._waiter.end
            if message is not None and (outcome := job_rows.end_outcome(job_id, message)):
                return outcome
            if poll:
                self._waiter.clear()
                outcome = await self._ledger.outcome(job_id, slices=slices)
                if outcome.record.status.terminal or end <= clock() or self._events.released:
                    return outcome
            poll = True
            await _wait(self._waiter, min(end - clock(), self._events.poll_s))


async def _wait(waiter: JobWaiter, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await waiter.wait()
