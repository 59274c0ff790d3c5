"""From an accepted request to its answer.

1. The job is written to the ledger; from then on it will be done or end in an error of its own.
2. A bell wakes a worker.
3. The caller's answer waits for the job as long as it prefers: then comes the result, or 202 and
   where to ask for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

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
from verso_core.ledger import Accepted, AsyncLedger, JobRecord, Limits, NewJob
from verso_gateway.bells import Bells
from verso_gateway.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Order:
    """A job to be placed.

    Args:
        deadline_s: drop the work when nobody has begun it after so many seconds.
    """

    kind: Kind
    queue: Queue
    slices: Sequence[SliceSpec]
    tenant: str
    idempotency: tuple[str, str] | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended in time, with the results of its slices."""

    record: JobRecord
    results: list[Result]


class Desk:
    """Places jobs and waits for them."""

    def __init__(
        self,
        ledger: AsyncLedger,
        bells: Bells,
        *,
        metrics: Metrics,
        limits: Limits,
        closing: asyncio.Event,
    ) -> None:
        self._ledger = ledger
        self._bells = bells
        self._metrics = metrics
        self._limits = limits
        self._closing = closing

    async def place(self, order: Order) -> Accepted:
        """Write a job to the ledger and ring for it.

        Raises:
            IdempotencyConflict: its idempotency key belongs to another request.
            QueueFull: more work waits than may be held.
            LedgerUnavailable: the ledger does not answer; nothing was accepted, or the same
                idempotency key finds what was.
        """
        accepted = await self._ledger.accept(
            NewJob(
                kind=order.kind,
                queue=order.queue,
                slices=list(order.slices),
                tenant=order.tenant,
                idempotency=order.idempotency,
                deadline_s=order.deadline_s,
                limits=self._limits,
            )
        )
        if not accepted.replayed:
            self._metrics.accepted(order.kind, order.queue)
            self._bells.ring(order.queue)
        return accepted

    async def wait(self, job_id: str, timeout_s: float) -> JobRecord:
        """Wait until a job ends, the time is over, or the gateway is told to stop."""
        if timeout_s <= 0 or self._closing.is_set():
            return await self._ledger.job(job_id)
        waiting = asyncio.ensure_future(self._ledger.wait(job_id, timeout_s))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
            record = await waiting if waiting.done() else await self._ledger.job(job_id)
        finally:
            for task in (waiting, closing):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing
        self._metrics.waited(ended=record.status.terminal)
        return record

    async def ended(self, record: JobRecord) -> Ended:
        """Give the results of a job that ended.

        Raises:
            VersoError: the job ended without results for every slice; the error says why.
        """
        if record.status is not Status.SUCCEEDED and record.error is not None:
            raise failure(record)
        found = await self._ledger.results(record.job_id)
        if any(data is None for data in found):
            raise failure(record)
        # a job whose every item failed has a result as well: the errors of its items
        results = [Result.unpack(data) for data in found if data is not None]
        return Ended(record=record, results=results)

    async def finish(self, order: Order, *, timeout_s: float) -> Ended:
        """Place a job whose caller cannot be sent away with a 202, and wait for its end.

        Raises:
            NotReady: it did not end in time; the job is cancelled, as nobody would ask for it.
            VersoError: it ended in an error.
        """
        started = time.monotonic()
        accepted = await self.place(order)
        record = await self.wait(accepted.job_id, timeout_s)
        if not record.status.terminal:
            await self._ledger.cancel(accepted.job_id)
            raise NotReady(f"no worker answered within {time.monotonic() - started:.1f} s")
        return await self.ended(record)

    def ring(self, queue: Queue) -> None:
        """Wake a worker for a queue."""
        self._bells.ring(queue)


def failure(record: JobRecord) -> VersoError:
    """Give the error that a job ended in."""
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
