"""From an accepted request to its answer.

1. The job is written to the ledger; from then on it will be done or end in an error of its own.
2. A wake-up is sent where no worker listens.
3. The caller's answer waits for the job as long as the caller prefers: then comes the result, or
   202 and where to ask for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from verso_core import tracing
from verso_core.errors import (
    CollectionUnknown,
    LedgerUnavailable,
    NotReady,
    WebhookUnknown,
    from_body,
)
from verso_core.jobs import AnyResult, Kind, Queue, Result, Status
from verso_core.jobs.collections import collection_of_partition
from verso_core.result_files import ResultFiles, is_reference
from verso_gateway.metrics import Metrics
from verso_gateway.wakeup import WakeupSender
from verso_ledger import Accepted, AsyncLedger, JobOutcome, JobRecord, Ledgers, Limits, NewJob
from verso_ledger.ledgers.submission import LED_AT_HOME, GroupSubmission, job_of_key
from verso_ledger.models import CollectionReplaced, Seen
from verso_ledger.names import new_job_id

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended in time, with the results of its slices."""

    record: JobRecord
    results: list[AnyResult]


class Part(NamedTuple):
    """A part of a job's result, as its worker reported it."""

    name: str
    data: dict[str, Any]


class JobService:
    """Submits jobs and waits for them."""

    def __init__(
        self,
        ledgers: Ledgers,
        wakeups: WakeupSender,
        *,
        files: ResultFiles,
        metrics: Metrics,
        limits: Limits,
        keep_s: int,
        read_keep_s: int,
        closing: asyncio.Event,
    ) -> None:
        self._ledgers = ledgers
        self._wakeups = wakeups
        self._files = files
        self._metrics = metrics
        self._limits = limits
        self._keep_s = keep_s
        self._read_keep_s = read_keep_s
        self._closing = closing
        self._groups = GroupSubmission(ledgers, self._submit, self._known)

    async def submit(
        self, job: NewJob, *, keep_s: int | None = None, followed: bool = False
    ) -> Accepted:
        """Write a job to its ledger, within the limits, and send a wake-up if needed.

        Args:
            job: the job.
            keep_s: how long it is kept after its end, seconds; as all others by default.
            followed: whether its events are read; those of a read are not recorded otherwise.

        Raises:
            IdempotencyConflict: its idempotency key belongs to another request.
            QueueFull: the queue holds as much work as it may.
            LedgerUnavailable: the ledger does not answer; nothing was accepted, or the same
                idempotency key finds what was.
            CollectionBusy: its collection moves to another ledger, and that did not end in time.
        """

        async def submitted(job: NewJob) -> Accepted:
            ledger = await self._ledgers.for_job(job)
            return await self._submit(ledger, job, keep_s=keep_s, followed=followed)

        return await self._renewed(job, partial(self._placed, submitted))

    async def _placed(self, ask: Callable[[NewJob], Awaitable[T]], job: NewJob) -> T:
        """Ask again while the job's collection moves, unless the job is made for one ledger.

        Raises:
            CollectionBusy: the collection moves.
        """
        if job.job_id is not None:
            return await ask(job)
        names = [one for one in (job.collection, *job.others) if one is not None]
        return await self._ledgers.while_moving(partial(ask, job), names=names)

    async def _renewed(self, job: NewJob, ask: Callable[[NewJob], Awaitable[T]]) -> T:
        """Ask again for the collections of now, if another was made under the name of one.

        Raises:
            CollectionReplaced: the job has numbers of the one that is gone, or deletes a partition.
            CollectionUnknown: the one of now is another owner's.
        """
        try:
            return await ask(job)
        except CollectionReplaced:
            whole = job.kind is Kind.COLLECTION_DELETE and collection_of_partition(
                job.collection or ""
            )
            if job.job_id is not None or whole:  # the new one's partition is not what was meant
                raise
            renewed = await self._seen_again(job)
        return await ask(renewed)

    async def _seen_again(self, job: NewJob) -> NewJob:
        """Return a job for the collections of now, where another was made under a name.

        The gateway's list was too old. Who may have access depends on the name and the owner alone.

        Raises:
            CollectionUnknown: the one of now is another owner's.
        """
        found = await self._ledgers.collections()
        seen: dict[str, Seen] = {}
        for name in {*job.concerned, *job.parts} & job.seen.keys():
            now, before = found.get(name), job.seen[name]
            if now is None or now.owner != before.owner:
                raise CollectionUnknown(
                    f"no collection {name!a} that was there when this was asked"
                )
            seen[name] = Seen.of(now)
        return replace(job, seen=seen)

    async def _submit(
        self, ledger: AsyncLedger, job: NewJob, *, keep_s: int | None, followed: bool = False
    ) -> Accepted:
        # a webhook's receiver asks for the job later
        brief = job.kind.is_read and job.webhook is None
        if brief and followed:
            keep_s, brief = self._read_keep_s, False
        brief_s = self._read_keep_s if brief else 0
        job = replace(
            job,
            limits=self._limits,
            keep_s=self._keep_s if keep_s is None else keep_s,
            brief_s=brief_s,
            trace=tracing.current(),
        )
        about: dict[str, tracing.Attribute] = {
            "verso.kind": job.kind,
            "verso.slices": len(job.slices),
        }
        with tracing.span("accept", about=about):
            accepted = await self._accept(ledger, job)
        if not accepted.replayed:
            self._metrics.accepted(job.kind, job.queue)
        if accepted.wakeup:
            self.notify(job.queue)
        return accepted

    async def _accept(self, ledger: AsyncLedger, job: NewJob) -> Accepted:
        if (known := await self._known(job)) is not None:
            return known
        try:
            return await ledger.accept(job)
        except LedgerUnavailable:
            self._ledgers.failed(ledger)
            raise
        except WebhookUnknown:
            # one that was made before this ledger was
            home = self._ledgers.home
            if ledger is home or job.webhook is None:
                raise
            hook = await home.webhooks.get(job.tenant, job.webhook)
            await ledger.webhooks.copy(job.tenant, hook)
            return await ledger.accept(job)

    async def find(self, job: NewJob) -> Accepted | None:
        """Return the job that a job's idempotency key, if it has one, has made before.

        Raises:
            IdempotencyConflict: the key belongs to another request.
            LedgerUnavailable: a ledger that may know it does not answer.
        """
        if job.idempotency is None:
            return None
        found = await job_of_key(await self._ledgers.for_job(job), job)
        return found or await self._known(job)

    async def is_noted(self, job: NewJob) -> bool:
        """Whether the home ledger knows a job's idempotency key.

        Raises:
            IdempotencyConflict: the key belongs to another request.
            LedgerUnavailable: the home ledger does not answer.
        """
        return await job_of_key(self._ledgers.home, job) is not None

    async def note(self, job: NewJob) -> None:
        """Note the idempotency key of a request that is not one job: a job without work has it.

        Raises:
            IdempotencyConflict: the key belongs to another request.
            LedgerUnavailable: the home ledger does not answer.
        """
        if job.idempotency is not None:
            noted = replace(job, slices=(), collection=None, seen={}, webhook=None)
            await self._submit(self._ledgers.home, noted, keep_s=None)

    async def _known(self, job: NewJob) -> Accepted | None:
        """Return the job that an idempotency key made elsewhere than on its collection's ledger.

        That is where the collection was before it moved, and the home ledger for what is asked of
        all of a collection's partitions.

        Raises:
            IdempotencyConflict: the key belongs to another request.
            LedgerUnavailable: a ledger that may know it does not answer.
        """
        if job.idempotency is None or job.collection is None:
            return None
        asked = await self._ledgers.earlier(job.collection)
        home = self._ledgers.home  # while it is away, collections of other ledgers are served
        if job.kind in LED_AT_HOME and home.name not in self._ledgers.away:
            asked = [home, *asked]
        for ledger in asked:
            try:
                found = await job_of_key(ledger, job)
            except LedgerUnavailable:
                self._ledgers.failed(ledger)
                raise
            if found is not None:
                return found
        return None

    async def submit_and_wait(
        self,
        job: NewJob,
        *,
        wait_s: float,
        on_accepted: Callable[[Accepted], None],
        keep_s: int | None = None,
    ) -> JobOutcome:
        """Submit a job and wait for its end; call ``on_accepted`` when the job is on disk.

        The event subscription is on the job before it is accepted, so its end cannot be missed, and
        the event of its end carries the outcome: the ledger is asked once, to accept the job. It is
        asked again where the result is long, in several slices, or the event did not come.

        Raises:
            VersoError: as :meth:`submit` does.
        """

        async def grouped(job: NewJob) -> JobOutcome:
            outcome = await self._groups.submit_and_wait(
                job, wait_s=wait_s, on_accepted=on_accepted, keep_s=keep_s
            )
            return await self._with_files(outcome)

        async def waited(job: NewJob) -> JobOutcome:
            ledger = await self._ledgers.for_job(job)
            return await self._submit_and_wait(
                ledger, job, wait_s=wait_s, on_accepted=on_accepted, keep_s=keep_s
            )

        return await self._renewed(job, grouped if job.parts else partial(self._placed, waited))

    async def _submit_and_wait(
        self,
        ledger: AsyncLedger,
        job: NewJob,
        *,
        wait_s: float,
        on_accepted: Callable[[Accepted], None],
        keep_s: int | None,
    ) -> JobOutcome:
        job_id = new_job_id(ledger.name)
        with ledger.watch(job_id) as watch:
            job = replace(job, job_id=job_id, wait=wait_s > 0)
            accepted = await self._submit(ledger, job, keep_s=keep_s)
            on_accepted(accepted)
            its_ledger = self._ledgers.of_job(accepted.job_id)
            if wait_s <= 0:
                return JobOutcome(await its_ledger.job(accepted.job_id), [])
            if accepted.replayed:
                record = await self.wait(accepted.job_id, wait_s)
                results = await its_ledger.results(accepted.job_id)
                outcome = JobOutcome(record, results)
            else:
                with tracing.span("wait", about={"verso.job": job_id}):
                    outcome = await watch.end(job_id, timeout_s=wait_s, slices=len(job.slices))
                self._metrics.waited(ended=outcome.record.status.terminal)
        if not outcome.record.status.terminal and job.kind.is_read:
            await its_ledger.retain(outcome.record.job_id)  # the caller asks for the job later
        return await self._with_files(outcome)

    async def run(self, job: NewJob, *, timeout_s: float) -> Ended:
        """Submit a job whose caller cannot be answered with a 202, and wait for its end.

        Raises:
            NotReady: it did not end in time. The job is cancelled, as no caller would ask for it,
                unless an idempotency key finds it again.
            VersoError: it ended in an error.
        """
        started = time.monotonic()
        outcome = await self.submit_and_wait(job, wait_s=timeout_s, on_accepted=lambda _: None)
        record = outcome.record
        if not record.status.terminal:
            if job.idempotency is None:
                await self._ledgers.of_job(record.job_id).cancel(record.job_id)
            raise NotReady(f"no worker answered within {time.monotonic() - started:.1f} s")
        return ended(outcome)

    async def parts(self, job_id: str) -> AsyncGenerator[Part | Ended]:
        """Yield the parts of a job's result that its worker reports, and at last the job.

        Raises:
            VersoError: the job ended in an error.
        """
        ledger = self._ledgers.of_job(job_id)
        async for event in ledger.follow(job_id):
            reported = event.data.get("progress", {})
            if "part" in reported:
                yield Part(reported["part"], reported["data"])
        outcome = JobOutcome(await ledger.job(job_id), await ledger.results(job_id))
        yield ended(await self._with_files(outcome))

    async def wait(self, job_id: str, timeout_s: float) -> JobRecord:
        """Wait until a job ends, the time is over, or the gateway stops."""
        ledger = self._ledgers.of_job(job_id)
        if timeout_s <= 0 or self._closing.is_set():
            return await ledger.job(job_id)
        record = await ledger.wait(job_id, timeout_s)
        self._metrics.waited(ended=record.status.terminal)
        return record

    def notify(self, queue: Queue) -> None:
        """Send a wake-up for a queue, if its workers take any."""
        if queue.takes_wakeups:
            self._wakeups.notify(queue)

    async def _with_files(self, outcome: JobOutcome) -> JobOutcome:
        """Replace references to result files by the results."""
        if not any(row is not None and is_reference(row) for row in outcome.results):
            return outcome
        found = await whole(self._files, outcome.record, outcome.results)
        return replace(outcome, results=found)


def ended(outcome: JobOutcome) -> Ended:
    """Read the results of a job that ended.

    Raises:
        VersoError: the job ended without results for every slice; the error says why.
    """
    record = outcome.record
    if record.status is not Status.SUCCEEDED and record.error is not None:
        raise from_body(record.error)
    if None in outcome.results:
        raise record.status.exception()
    # a job whose every item failed has a result as well: the errors of its items
    results = [Result.unpack(record.kind, data) for data in outcome.results if data is not None]
    return Ended(record=record, results=results)


async def whole(
    files: ResultFiles, record: JobRecord, held: Sequence[bytes | None]
) -> list[bytes | None]:
    """Return the result frames of a job's first slices, those in files read.

    Raises:
        ResultLost: a file is gone or damaged.
        ResultsUnavailable: the folder cannot be read.
    """
    return [
        await asyncio.to_thread(files.read, *record.place(number), row)
        if row is not None and is_reference(row)
        else row
        for number, row in enumerate(held)
    ]
