"""A group: the jobs that several ledgers have of one request, as one job.

Each ledger takes in its part of the request by itself. What is known of the group is known of its
parts: no ledger keeps more than its own. Slices of the group are those of the part that leads, then
those of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Status
from verso_ledger.async_client import AsyncLedger
from verso_ledger.ledgers.answers import every_answer
from verso_ledger.models import Event, JobOutcome, JobRecord, SliceFailures

_WORST = (Status.DEAD, Status.FAILED, Status.EXPIRED, Status.CANCELLED)
"""How a group ended of which a part did not succeed: the first of these that a part ended in."""
_COUNTS = ("done", "slices", "items", "ok", "err")

T = TypeVar("T")


class JobGroup:
    """The jobs of a group, asked as :class:`AsyncLedger` is asked for one job.

    Every method takes the id of any job of the group, and raises LedgerUnavailable if one of its
    ledgers does not answer.

    Args:
        parts: each ledger with the id of its job, that of the job that leads first.
        failed: is told of a ledger that did not answer.
    """

    def __init__(
        self, parts: Sequence[tuple[AsyncLedger, str]], *, failed: Callable[[AsyncLedger], None]
    ) -> None:
        self._parts = parts
        self._failed = failed

    async def job(self, job_id: str) -> JobRecord:  # noqa: ARG002 - asked as a ledger is
        """Return what is known of the group.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        return joined(await self._each(lambda one, own: one.job(own)))

    async def results(
        self, job_id: str, *, first: int = 0, count: int | None = None
    ) -> list[bytes | None]:
        """Return the result frames of slices, in order from ``first``."""
        record = await self.job(job_id)
        last = record.slices if count is None else min(record.slices, first + count)
        rows: list[bytes | None] = []
        for ledger, own, start, end in self._ranges(record, first, last):
            rows += await self._ask(ledger, ledger.results(own, first=start, count=end - start))
        return rows

    async def failures(self, job_id: str, *, first: int, count: int) -> list[SliceFailures]:
        """Return what is known of the failed items of some slices, in order."""
        record = await self.job(job_id)
        rows: list[SliceFailures] = []
        for ledger, own, start, end in self._ranges(record, first, first + count):
            rows += await self._ask(ledger, ledger.failures(own, first=start, count=end - start))
        return rows

    async def wait(self, job_id: str, timeout_s: float) -> JobRecord:  # noqa: ARG002
        """Return the group as soon as it has ended, or as it is after ``timeout_s``."""
        return joined(await self._each(lambda one, own: one.wait(own, timeout_s)))

    async def cancel(self, job_id: str) -> Status:
        """End the jobs of the group that have not ended; return the group's status."""
        await self._each(lambda one, own: one.cancel(own))
        return (await self.job(job_id)).status

    async def replay(self, job_id: str) -> Status:
        """Grant the dead slices of the group new attempts; return the group's status."""
        await self._each(lambda one, own: one.replay(own))
        return (await self.job(job_id)).status

    async def retain(self, job_id: str) -> Status:
        """Keep the group as others are kept; see :meth:`AsyncLedger.retain`."""
        await self._each(lambda one, own: one.retain(own))
        return (await self.job(job_id)).status

    async def follow(
        self,
        job_id: str,  # noqa: ARG002 - asked as a ledger is
        after: str = "0",
    ) -> AsyncIterator[Event]:
        """Yield the state of the group whenever that of a part changes, at last its end.

        Args:
            job_id: of any of its jobs.
            after: id of the event to continue after, which each part does by its server's clock.
        """
        records = await self._each(lambda one, own: one.job(own))
        states = [_state(record) for record in records]
        queue: asyncio.Queue[tuple[int, Event | Exception | None]] = asyncio.Queue(maxsize=1)

        async def follow(number: int, ledger: AsyncLedger, own: str) -> None:
            end: Exception | None = None
            try:
                coming: Any = ledger.follow(own, after)
                async with aclosing(coming) as stream:
                    async for event in stream:
                        await queue.put((number, event))
            except LedgerUnavailable as error:
                self._failed(ledger)
                end = error
            await queue.put((number, end))

        following = [
            asyncio.create_task(follow(number, *part)) for number, part in enumerate(self._parts)
        ]
        left = len(following)
        try:
            while left:
                number, event = await queue.get()
                if isinstance(event, Event):
                    states[number] = event.data
                    yield Event(event.id, _joined_state(states, event.data))
                elif event is not None:
                    raise event
                else:
                    left -= 1
        finally:
            for task in following:
                task.cancel()

    def _ranges(
        self, record: JobRecord, first: int, last: int
    ) -> list[tuple[AsyncLedger, str, int, int]]:
        """Return which slices of which part the slices [first, last) of the group are."""
        found = []
        begin = 0
        for (ledger, own), (_, slices) in zip(self._parts, record.parts, strict=True):
            start, end = max(first - begin, 0), min(last - begin, slices)
            if start < end:
                found.append((ledger, own, start, end))
            begin += slices
        return found

    async def _each(self, ask: Callable[[AsyncLedger, str], Awaitable[T]]) -> list[T]:
        return await every_answer(
            self._ask(ledger, ask(ledger, own)) for ledger, own in self._parts
        )

    async def _ask(self, ledger: AsyncLedger, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except LedgerUnavailable:
            self._failed(ledger)
            raise


def joined(records: Sequence[JobRecord]) -> JobRecord:
    """Describe the jobs of a group as one, that of the job that leads first."""
    ended = [one.finished for one in records]
    started = [one.started for one in records if one.started is not None]
    return replace(
        records[0],
        status=joined_status([one.status for one in records]),
        created=min(one.created for one in records),
        started=min(started, default=None),
        finished=None if None in ended else max(filter(None, ended)),
        items=sum(one.items for one in records),
        n_ok=sum(one.n_ok for one in records),
        n_err=sum(one.n_err for one in records),
        slices=sum(one.slices for one in records),
        done=sum(one.done for one in records),
        attempts=max(one.attempts for one in records),
        error=next((one.error for one in records if one.error is not None), None),
        parts=tuple((one.job_id, one.slices) for one in records),
    )


def joined_outcome(outcomes: Sequence[JobOutcome]) -> JobOutcome:
    """Return a group and its results, those of the job that leads first."""
    results = [row for one in outcomes for row in one.results]
    return JobOutcome(joined([one.record for one in outcomes]), results)


def joined_status(statuses: Sequence[Status]) -> Status:
    """Return the state of a group: it has ended when each of its jobs has."""
    if all(one.terminal for one in statuses):
        return next((worst for worst in _WORST if worst in statuses), Status.SUCCEEDED)
    return Status.QUEUED if {*statuses} == {Status.QUEUED} else Status.RUNNING


def _state(record: JobRecord) -> dict[str, Any]:
    counts = (record.done, record.slices, record.items, record.n_ok, record.n_err)
    return {"status": record.status, **dict(zip(_COUNTS, counts, strict=True))}


def _joined_state(states: Sequence[dict[str, Any]], newest: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a group's event; ``newest`` is that of the part that has changed."""
    status = joined_status([Status(one["status"]) for one in states])
    counts = {name: sum(one[name] for one in states) for name in _COUNTS}
    progress = {name: newest[name] for name in ("progress",) if name in newest}
    return {"status": status.value, **counts, **progress}
