"""Make log collections that rules name and that are missing."""

from __future__ import annotations

from dataclasses import dataclass, field

from verso_core.errors import NotReady
from verso_core.jobs import CollectionKind, Kind, NoItem, Queue, cut
from verso_core.jobs.collections import CollectionParams
from verso_gateway.job_service import JobService
from verso_ledger import NewJob


@dataclass(frozen=True, slots=True)
class CollectionMaker:
    """Makes log collections, each by one job however many ask for it.

    ``jobs`` are those under way, by the collection's name.
    """

    job_service: JobService
    jobs: dict[str, str] = field(default_factory=dict)

    async def make(self, name: str, *, owner: str | None, tenant: str, wait_s: float) -> None:
        """Wait until a collection is made.

        Raises:
            NotReady: it was not made in time; it still will be.
            QueueFull, LedgerUnavailable: the job was not accepted.
        """
        if name not in self.jobs:
            params = CollectionParams(name=name, kind=CollectionKind.LOGS, owner=owner)
            job = NewJob(
                kind=Kind.COLLECTION_CREATE,
                queue=Queue.INTERACTIVE,
                slices=list(cut(Kind.COLLECTION_CREATE, params, [NoItem()])),
                tenant=tenant,
                collection=name,
            )
            self.jobs[name] = (await self.job_service.submit(job)).job_id
        record = await self.job_service.wait(self.jobs[name], wait_s)
        if not record.status.terminal:
            raise NotReady(f"the collection {name!a} is being made")
        self.jobs.pop(name, None)
