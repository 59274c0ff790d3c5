"""Take in a request for several partitions: a job on each ledger that has some of them.

1. The ledger of the first partition leads: it knows the idempotency key, and is asked for it first.
   What changes or deletes a whole collection is led by the home ledger, with or without a part of
   it: who sends that again may find no partition, or those of another collection of the name.
2. The others take in their parts, then the one that leads. So what it knows was accepted whole.
3. If one refuses, what others have accepted is cancelled, and the caller is told the error; not if
   the one that leads did not answer, as it may know the key by now. A caller that sends the request
   again writes the same documents again, if they have the same ids: those that the gateway makes
   follow from the idempotency key.
4. If a partition has moved meanwhile, all is sent again in the same way, to where it is now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Protocol

from verso_core.errors import (
    IdempotencyConflict,
    JobUnknown,
    LedgerUnavailable,
    Unavailable,
    VersoError,
)
from verso_core.jobs import Kind
from verso_ledger.async_client import AsyncLedger
from verso_ledger.ledgers.groups import joined_outcome
from verso_ledger.ledgers.router import Ledgers
from verso_ledger.models import Accepted, JobOutcome, NewJob
from verso_ledger.names import group_ids

LED_AT_HOME = frozenset({Kind.COLLECTION_CHANGE, Kind.COLLECTION_DELETE})
"""Kinds whose requests for several partitions the home ledger leads."""
_Part = tuple[AsyncLedger, NewJob]


class Submit(Protocol):
    """Writes a job to its ledger."""

    async def __call__(
        self, ledger: AsyncLedger, job: NewJob, *, keep_s: int | None
    ) -> Accepted: ...


class GroupSubmission:
    """Submits requests to several ledgers at once.

    Args:
        ledgers: of the platform.
        submit: writes the part of one.
        known: returns what an idempotency key has made where its collection was before.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        submit: Submit,
        known: Callable[[NewJob], Awaitable[Accepted | None]],
    ) -> None:
        self._ledgers = ledgers
        self._submit = submit
        self._known = known
        self._cancelling: set[asyncio.Task[None]] = set()

    async def submit_and_wait(
        self,
        job: NewJob,
        *,
        wait_s: float,
        on_accepted: Callable[[Accepted], None],
        keep_s: int | None,
    ) -> JobOutcome:
        """Submit a job of several partitions, and wait for its end; as for a job of one.

        Raises:
            VersoError: a part was not accepted.
        """

        async def waited() -> JobOutcome:
            parts = await self._parts(replace(job, wait=wait_s > 0))
            repeated = await self._repeated(job, parts[0])
            if repeated is not None:
                return await self._again(repeated, wait_s=wait_s, on_accepted=on_accepted)
            with ExitStack() as stack:
                watches = [stack.enter_context(one.watch(own.job_id or "")) for one, own in parts]
                accepted = await self._accept(parts, keep_s=keep_s)
                if accepted.replayed:
                    return await self._again(accepted, wait_s=wait_s, on_accepted=on_accepted)
                on_accepted(accepted)
                if wait_s <= 0:
                    group = self._ledgers.of_job(accepted.job_id)
                    return JobOutcome(await group.job(accepted.job_id), [])
                outcomes = await asyncio.gather(
                    *(
                        watch.end(own.job_id or "", timeout_s=wait_s, slices=len(own.slices))
                        for watch, (_, own) in zip(watches, parts, strict=True)
                    )
                )
                return joined_outcome(outcomes)

        return await self._ledgers.while_moving(waited, names=list(job.parts))

    async def _parts(self, job: NewJob) -> list[_Part]:
        """Return the job of each ledger, that of the one that leads first."""
        names: dict[str, list[str]] = {}
        ledgers: dict[str, AsyncLedger] = {}
        if job.kind in LED_AT_HOME:
            home = self._ledgers.home
            names[home.name], ledgers[home.name] = [], home
        for name in job.parts:
            ledger = await self._ledgers.of_collection(name)
            ledgers[ledger.name] = ledger
            names.setdefault(ledger.name, []).append(name)
        ids = group_ids(list(names))
        found: list[_Part] = []
        for ledger_name, own in names.items():
            part = replace(
                job,
                job_id=ids[ledger_name],
                slices=[spec for name in own for spec in job.parts[name]],
                collection=own[0] if own else None,
                others=own[1:],
                parts={},
                idempotency=None if found else job.idempotency,
            )
            found.append((ledgers[ledger_name], part))
        return found

    async def _repeated(self, job: NewJob, lead: _Part) -> Accepted | None:
        """Return the group that the job's idempotency key has made.

        Raises:
            IdempotencyConflict: the key belongs to another request.
        """
        ledger, part = lead
        return await job_of_key(ledger, job) or await self._known(part)

    async def _accept(self, parts: Sequence[_Part], *, keep_s: int | None) -> Accepted:
        """Write all parts, the one that leads last.

        Raises:
            VersoError: one was not accepted. The others are cancelled, unless the one that leads
                may have been accepted for all that: then its key finds the group.
        """
        lead, *others = parts
        answers = await asyncio.gather(
            *(self._submit(*part, keep_s=keep_s) for part in others), return_exceptions=True
        )
        refused = next((one for one in answers if isinstance(one, BaseException)), None)
        if refused is None:
            try:
                accepted = await self._submit(*lead, keep_s=keep_s)
            except LedgerUnavailable:
                raise
            except VersoError as error:
                refused = error
            else:
                if not accepted.replayed:
                    return accepted
        for part in others:  # beside the answer: the caller may have gone
            task = asyncio.create_task(_cancel(*part))
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)
        if refused is not None:
            raise refused
        return accepted

    async def _again(
        self, accepted: Accepted, *, wait_s: float, on_accepted: Callable[[Accepted], None]
    ) -> JobOutcome:
        """Return what became of a request that was accepted before."""
        on_accepted(accepted)
        found = self._ledgers.of_job(accepted.job_id)
        if wait_s <= 0:
            return JobOutcome(await found.job(accepted.job_id), [])
        record = await found.wait(accepted.job_id, wait_s)
        return JobOutcome(record, await found.results(accepted.job_id))


async def _cancel(ledger: AsyncLedger, part: NewJob) -> None:
    with suppress(JobUnknown, Unavailable):
        await ledger.cancel(part.job_id or "")


async def job_of_key(ledger: AsyncLedger, job: NewJob) -> Accepted | None:
    """Return the job that a job's idempotency key has made on a ledger; None if there is none.

    Raises:
        IdempotencyConflict: the key belongs to another request.
        LedgerUnavailable: the ledger does not answer.
    """
    if job.idempotency is None:
        return None
    key, digest = job.idempotency
    if (found := await ledger.moves.job_of_key(job.tenant, key)) is None:
        return None
    if found[1] != digest:
        raise IdempotencyConflict("expected the same body as this key's first request")
    return Accepted(found[0], replayed=True, wakeup=False)
