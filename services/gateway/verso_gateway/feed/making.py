"""Make log collections that rules name and that are missing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from verso_core.errors import JobUnknown, NotReady
from verso_core.jobs import CollectionKind, Kind, NoItem, Queue, Status, cut
from verso_core.jobs.collections import CollectionParams
from verso_gateway.job_service import JobService
from verso_ledger import NewJob


@dataclass(frozen=True, slots=True)
class CollectionMaker:
    """Makes log collections, each by one job however many ask for it.

    ``jobs`` are those under way as far as is known, by the collection's name.
    """

    job_service: JobService
    jobs: dict[str, str] = field(default_factory=dict)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def make(self, name: str, *, owner: str | None, tenant: str, wait_s: float) -> None:
        """Wait until a collection is made.

        Raises:
            NotReady: it was not made in time, and still will be; or its job failed, and the next
                call submits another.
            QueueFull, LedgerUnavailable: the job was not accepted.
        """
        async with self.asking:
            if not await self._is_being_made(name):
                self.jobs[name] = await self._submit(name, owner=owner, tenant=tenant)
            job_id = self.jobs[name]
        record = await self.job_service.wait(job_id, wait_s)
        if not record.status.terminal:
            raise NotReady(f"the collection {name!a} is being made")
        if record.status is not Status.SUCCEEDED:
            raise NotReady(
                f"the collection {name!a} could not be made: the job has {record.status}"
            )

    async def _is_being_made(self, name: str) -> bool:
        """Return whether a job is under way; a collection that one made before is gone by now."""
        if name not in self.jobs:
            return False
        try:
            return not (await self.job_service.wait(self.jobs[name], 0.0)).status.terminal
        except JobUnknown:  # it has expired
            return False

    async def _submit(self, name: str, *, owner: str | None, tenant: str) -> str:
        params = CollectionParams(name=name, kind=CollectionKind.LOGS, owner=owner)
        job = NewJob(
            kind=Kind.COLLECTION_CREATE,
            queue=Queue.INTERACTIVE,
            slices=list(cut(Kind.COLLECTION_CREATE, params, [NoItem()])),
            tenant=tenant,
            collection=name,
        )
        return (await self.job_service.submit(job)).job_id
