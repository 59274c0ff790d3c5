"""From an accepted request to its answer.

1. The job is written to the ledger; from then on it will be done or end in an error of its own.
2. A bell wakes a worker.
3. The caller's answer waits for the job as long as it prefers: then comes the result, or 202 and
   where to ask for it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from verso_core import tracing
from verso_core.errors import (
    AttemptsExhausted,
    Cancelled,
    DeadlineExpired,
    JobEnded,
    NotReady,
    VersoError,
    from_body,
)
from verso_core.jobs import Kind, Queue, Result, SliceSpec, Status
from verso_core.result_files import ResultFiles, is_reference
from verso_gateway import pages
from verso_gateway.metrics import Metrics
from verso_gateway.wakeup import WakeupSender
from verso_ledger import URGENCY, Accepted, AsyncLedger, JobOutcome, JobRecord, Limits, NewJob


@dataclass(frozen=True, slots=True)
class Order:
    """A job to be placed.

    Args:
        deadline_s: drop the work when nobody has begun it after so many seconds.
        urgency: 0 first, 7 last among the tenant's jobs.
        webhook: id of the webhook that is told of the end.
    """

    kind: Kind
    queue: Queue
    slices: Sequence[SliceSpec]
    tenant: str
    idempotency: tuple[str, str] | None = None
    deadline_s: float | None = None
    urgency: int = URGENCY
    webhook: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended in time, with the results of its slices."""

    record: JobRecord
    results: list[Result]


class JobService:
    """Places jobs and waits for them."""

    def __init__(
        self,
        ledger: AsyncLedger,
        bells: WakeupSender,
        *,
        files: ResultFiles,
        metrics: Metrics,
        limits: Limits,
        keep_s: int,
        closing: asyncio.Event,
    ) -> None:
        self._ledger = ledger
        self._bells = bells
        self._files = files
        self._metrics = metrics
        self._limits = limits
        self._keep_s = keep_s
        self._closing = closing

    async def place(
        self, order: Order, *, job_id: str | None = None, wait: bool = False
    ) -> Accepted:
        """Write a job to the ledger, by a new id or this one, and ring for it if need be.

        With ``wait`` the news of its end bring its result.

        Raises:
            IdempotencyConflict: its idempotency key belongs to another request.
            QueueFull: more work waits than may be held.
            LedgerUnavailable: the ledger does not answer; nothing was accepted, or the same
                idempotency key finds what was.
        """
        job = NewJob(
            kind=order.kind,
            queue=order.queue,
            slices=list(order.slices),
            tenant=order.tenant,
            idempotency=order.idempotency,
            deadline_s=order.deadline_s,
            limits=self._limits,
            keep_s=self._keep_s,
            job_id=job_id or uuid.uuid4().hex,
            urgency=order.urgency,
            webhook=order.webhook,
            trace=tracing.current(),
            wait=wait,
        )
        with tracing.span(
            "accept", about={"verso.kind": order.kind, "verso.slices": len(job.slices)}
        ):
            accepted = await self._ledger.accept(job)
        if not accepted.replayed:
            self._metrics.accepted(order.kind, order.queue)
        if accepted.wakeup and order.queue.rung:
            self._bells.ring(order.queue)
        return accepted

    async def carry(
        self, order: Order, *, wait_s: float, accepted: Callable[[Accepted], None]
    ) -> JobOutcome:
        """Place a job and wait for its end; ``accepted`` is told when it is on disk.

        The ear is on the job before it is accepted, so its end cannot be missed, and the news of it
        bring the outcome: the ledger is asked once, to take the job in. It is asked again where the
        result is long, in several slices, or the news did not come.

        Raises:
            VersoError: as :meth:`place` does.
        """
        job_id = uuid.uuid4().hex
        slices = len(order.slices)
        with self._ledger.watch(job_id) as watch:
            placed = await self.place(order, job_id=job_id, wait=wait_s > 0)
            accepted(placed)
            if wait_s <= 0:
                return JobOutcome(await self._ledger.job(placed.job_id), [])
            if placed.replayed:
                record = await self.wait(placed.job_id, wait_s)
                results = await self._ledger.results(placed.job_id)
                return await self._whole(JobOutcome(record, results))
            with tracing.span("wait", about={"verso.job": job_id}):
                outcome = await watch.end(job_id, timeout_s=wait_s, slices=slices)
        self._metrics.waited(ended=outcome.record.status.terminal)
        return await self._whole(outcome)

    async def _whole(self, outcome: JobOutcome) -> JobOutcome:
        if not any(row is not None and is_reference(row) for row in outcome.results):
            return outcome
        found = await pages.whole(self._files, outcome.record.job_id, outcome.results)
        return replace(outcome, results=found)

    async def wait(self, job_id: str, timeout_s: float) -> JobRecord:
        """Wait until a job ends, the time is over, or the gateway is told to stop."""
        if timeout_s <= 0 or self._closing.is_set():
            return await self._ledger.job(job_id)
        record = await self._ledger.wait(job_id, timeout_s)
        self._metrics.waited(ended=record.status.terminal)
        return record

    async def finish(self, order: Order, *, timeout_s: float) -> Ended:
        """Place a job whose caller cannot be sent away with a 202, and wait for its end.

        Raises:
            NotReady: it did not end in time. The job is cancelled, as nobody would ask for it,
                unless an idempotency key finds it again.
            VersoError: it ended in an error.
        """
        started = time.monotonic()
        outcome = await self.carry(order, wait_s=timeout_s, accepted=lambda _: None)
        record = outcome.record
        if not record.status.terminal:
            if order.idempotency is None:
                await self._ledger.cancel(record.job_id)
            raise NotReady(f"no worker answered within {time.monotonic() - started:.1f} s")
        return ended(outcome)

    def ring(self, queue: Queue) -> None:
        """Wake a worker for a queue."""
        self._bells.ring(queue)


def ended(outcome: JobOutcome) -> Ended:
    """Read the results of a job that ended.

    Raises:
        VersoError: the job ended without results for every slice; the error says why.
    """
    record = outcome.record
    if record.status is not Status.SUCCEEDED and record.error is not None:
        raise failure(record)
    if any(data is None for data in outcome.results):
        raise failure(record)
    # a job whose every item failed has a result as well: the errors of its items
    results = [Result.unpack(data) for data in outcome.results if data is not None]
    return Ended(record=record, results=results)


def failure(record: JobRecord) -> VersoError:
    """Return the error that a job ended in."""
    if record.error is not None:
        return from_body(record.error)
    match record.status:
        case Status.CANCELLED:
            return Cancelled("the job was cancelled")
        case Status.EXPIRED:
            return DeadlineExpired("the job's deadline passed before a worker began it")
        case Status.DEAD:
            return AttemptsExhausted("the job failed too often; it can be replayed")
        case _:
            return JobEnded(f"the job ended as {record.status}")
