"""Deletes documents that are older than their collection keeps them.

The work is that of any delete by filter: one job for each collection and span of time, in slices,
in the queue of bulk work. Its idempotency key names the span, so several keepers submit one between
them, before and after any restart. Documents without a time stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from verso_core.errors import CollectionBusy
from verso_core.jobs import CollectionKind, Filter, Kind, Queue, cut
from verso_core.jobs.collections import collection_of_partition
from verso_core.jobs.documents import DeleteMatchingParams, parts_of
from verso_ledger import Ledger, NewJob

TENANT = "verso"
_DAY_S = 86_400.0
_KEEP_S = 3_600
_log = logging.getLogger(__name__)


class Retention:
    """Submits the jobs that delete expired documents.

    Args:
        ledger: where collections and jobs are.
        every_s: from one job of a collection to the next, seconds.
        clock: Unix seconds; by default the ledger's, as a machine's that is ahead deletes early.
    """

    def __init__(
        self, ledger: Ledger, *, every_s: float, clock: Callable[[], float] | None = None
    ) -> None:
        self._ledger = ledger
        self._every_s = every_s
        self._clock = clock or ledger.now
        self._submitted: dict[str, tuple[int, float]] = {}

    def step(self) -> int:
        """Run one round; return how many jobs were submitted.

        Raises:
            LedgerUnavailable: Redis did not answer.
            QueueFull: the queue holds as much as it may; the next round tries again.
        """
        span = int(self._clock() // self._every_s)
        submitted = 0
        for name, collection in self._ledger.documents.collections().items():
            days = collection.retention_days
            if collection.kind is CollectionKind.LOGS and collection_of_partition(name) is not None:
                continue  # dropped as a whole (verso_keeper.rollover)
            if days is None or self._submitted.get(name) == (span, days):
                continue
            try:
                submitted += self._submit(name, collection.name, span=span, days=days)
            except CollectionBusy:  # it moves to another ledger: a later round tries again
                continue
            self._submitted[name] = (span, days)
        return submitted

    def _submit(self, name: str, own: str, *, span: int, days: float) -> bool:
        expired = Filter(field="time", lt=span * self._every_s - days * _DAY_S)
        parts = parts_of(self._ledger.documents.holdings(own).documents)
        params = DeleteMatchingParams(collection=name, filter=expired)
        job = NewJob(
            kind=Kind.DELETE_MATCHING,
            queue=Queue.BULK,
            slices=list(cut(Kind.DELETE_MATCHING, params, parts, max_items=1)),
            tenant=TENANT,
            idempotency=(f"retention-{own}-{span}-{days}", "retention"),
            keep_s=_KEEP_S,
            collection=name,
        )
        accepted = self._ledger.jobs.accept(job)
        if not accepted.replayed:
            _log.info("expired documents are deleted", extra={"collection": name})
        return not accepted.replayed
