"""Has the codecs of collections fitted to their own texts, and deletes tables that nothing names.

A collection of documents is fitted by a job of the queue ``scrub``, one collection at a time,
unless its setting ``auto_fit`` is off:

1. once it has ``after_chunks`` chunks;
2. again once so many more have come and their patches are larger than those of the fit by
   ``growth``, or the collection has doubled and its tables could hold more text;
3. after a fit that gained nothing, once the collection has doubled.

The collection itself holds how many fits it had, and a fit of another number changes nothing. So
several keepers, and one that starts again, may submit the same job: they submit it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from verso_core import tracing
from verso_core.errors import CollectionBusy, CollectionUnknown, JobUnknown
from verso_core.jobs import (
    CodecPolicy,
    Collection,
    CollectionKind,
    Kind,
    Queue,
    Result,
    Status,
)
from verso_core.jobs.fitting import FitItem, FitParams, Fitted, GenerationStage
from verso_core.jobs.statistics import Holdings
from verso_keeper.periodic import submit
from verso_ledger import Ledger

FULL_BYTES = 2 << 20
"""Text that tables hold at most: a larger collection gains nothing by a fit to more of it."""

WINDOW = 500
"""Chunks over which the size of new patches is measured."""

_RETRY_S = 3600.0
_KEPT_S = 3600.0  # a slice that began before a generation ended may still write with it
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a collection held when a window began; sizes of patches in bytes."""

    number: int
    chunks: int
    patches: int


class Fitter:
    """Submits the jobs of fits.

    Args:
        ledger: holds jobs, collections and tables.
        after_chunks: chunks that the first fit takes; 0 submits none.
        growth: share by which new patches must be larger for another fit.
        clock: Unix seconds; by default the ledger's.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        after_chunks: int,
        growth: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._ledger = ledger
        self._after = after_chunks
        self._growth = growth
        self._clock = clock or ledger.now
        self._seen: dict[str, _Seen] = {}
        self._job: tuple[str, str] | None = None

    def step(self) -> None:
        """Run one round: submit the next fit that is due, and delete tables that nothing names.

        Raises:
            LedgerUnavailable: Redis did not answer.
            QueueFull: the queue holds as much as it may.
        """
        collections = self._ledger.documents.collections()
        own = {collection.name for collection in collections.values()}
        self._seen = {name: seen for name, seen in self._seen.items() if name in own}
        for name, collection in collections.items():
            try:
                self._drop(collection)
                if self._after and not self._running():
                    self._submit_due(name, collection)
            except (CollectionUnknown, CollectionBusy):  # deleted meanwhile, or it moves
                continue

    def _submit_due(self, name: str, collection: Collection) -> None:
        if not collection.auto_fit or collection.kind is CollectionKind.LOGS:
            return  # lines are fitted to while they are written
        if collection.codec_policy is CodecPolicy.FAST:  # it reads no tables
            return
        held = self._ledger.documents.holdings(collection.name)
        if not self._due(collection, held):
            return
        number = collection.fitting.number
        # One that failed is submitted again in another hour.
        hour = int(self._clock() // _RETRY_S)
        with tracing.span("fit"):
            accepted = submit(
                self._ledger,
                Queue.FIT,
                Kind.FIT,
                params=FitParams(collection=name, number=number),
                item=FitItem(chunks=held.chunks),
                key=f"fit-{collection.name}-{collection.checksum_key[:8]}-{number}-{hour}",
            )
        self._job = (name, accepted.job_id)

    def _due(self, collection: Collection, held: Holdings) -> bool:
        fitting, patches = collection.fitting, _patches(held)
        if fitting.find(GenerationStage.CANARY) is not None:
            self._seen.pop(collection.name, None)
            return False
        if held.chunks < self._after:
            return False
        if not fitting.number:
            return True
        serving = fitting.find(GenerationStage.SERVING)
        useful = not fitting.gained or serving is None or held.bytes_text < FULL_BYTES
        if held.chunks >= 2 * fitting.chunks and useful:
            return True
        seen = self._seen.setdefault(collection.name, _Seen(fitting.number, held.chunks, patches))
        more = held.chunks - seen.chunks
        if serving is None or not fitting.gained or (0 <= more < WINDOW):
            return False
        del self._seen[collection.name]
        late = held.chunks - fitting.chunks >= self._after and seen.number == fitting.number
        return late and patches - seen.patches > (1 + self._growth) * serving.level * more > 0

    def _running(self) -> bool:
        """Whether the last fit has not ended; log what one that has ended did."""
        if self._job is None:
            return False
        name, job_id = self._job
        try:
            record = self._ledger.jobs.get(job_id)
        except JobUnknown:
            self._job = None
            return False
        if not record.status.terminal:
            return True
        self._job = None
        data = self._ledger.jobs.result(job_id)
        if record.status is not Status.SUCCEEDED or data is None:
            return False
        found: Fitted = Result.unpack(Kind.FIT, data).only
        about: dict[str, object] = {
            "collection": name,
            "generation": found.generation,
            "chunks": found.chunks,
            "before": round(found.before, 1),
            "after": round(found.after, 1),
        }
        _log.info("codec fitted", extra=about)
        return False

    def _drop(self, collection: Collection) -> None:
        """Delete the generations that stopped to write a while ago and that no record names."""
        ended = [
            one
            for one in collection.fitting.generations
            if one.ended is not None and self._clock() - one.ended > _KEPT_S
        ]
        if not ended:
            return
        slots = self._ledger.documents.holdings(collection.name).slots
        for one in ended:
            if slots.get(collection.artifacts.index(one.id), 0):
                continue
            if self._ledger.generations.drop(collection.name, one.id):
                _log.info("fitted tables deleted", extra={"generation": one.id})


def _patches(held: Holdings) -> int:
    return sum(share.size_bytes for share in held.codecs.values())
