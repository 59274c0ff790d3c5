"""Submits jobs that read every stored record again, a few buckets at a time, without end.

A pass goes through all collections by name and through their buckets in order. Each step of a pass
is a job like any other (ADR 0009): a worker scrubs buckets for a few seconds and reports how many.
The ledger holds the cursor, so a pass continues after any restart, and only one of several keepers
can move the cursor on.

When the next job is submitted:

1. One at a time, with a rest after each: the jobs take no more than ``share`` of one core.
2. Only while no job waits or runs, unless the pass is behind the pace that ends it within
   ``pass_s``. The share holds even then, and the pass takes longer.
3. After an unclean start, documents written in the hour before it come first, in a walk of their
   own that does not wait for other jobs: a crash may have damaged what was written last.
4. A pass starts ``every_s`` after the start of the last, or as soon as one is requested.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from verso_core import tracing
from verso_core.errors import CollectionUnknown, JobUnknown
from verso_core.jobs import BucketRange, Collection, Kind, Queue, Result, Status
from verso_core.jobs.scrub import SCRUB_COUNTS, Scrubbed, ScrubParams
from verso_keeper.periodic import submit
from verso_ledger import Counting, Damage, JobRecord, Ledger, Move, Recent, Scrub

SPEND_S = 2.0
"""How long one job reads, about: short, since verifying shares its queue."""
COUNT_S = 0.1
"""How long one round of :class:`Recounter` counts, about."""
_RECENT = ("recent", "recent_collection", "recent_bucket", "recent_documents")
_MAX_TRIES = 5
_RETRY_S = 60.0
_log = logging.getLogger(__name__)


class Scrubber:
    """Submits the jobs of the scrub.

    Args:
        ledger: holds jobs and the scrub's cursor.
        share: part of one core that scrub jobs may take, in (0, 1]; 0 submits none.
        every_s: from the start of one pass to the start of the next, seconds.
        pass_s: longest time a pass should take, seconds.
    """

    def __init__(self, ledger: Ledger, *, share: float, every_s: float, pass_s: float) -> None:
        self._ledger = ledger
        self._share = share
        self._every_s = every_s
        self._pass_s = pass_s

    def step(self) -> None:
        """Run one round: start a pass, submit its next job, or record what the last one found.

        Raises:
            LedgerUnavailable: Redis did not answer.
            QueueFull: the scrub queue holds as much as it may.
        """
        if not self._share:
            return
        state = self._ledger.scrub.state()
        if state.job_id is not None:
            if not self._record_end(state, state.job_id):
                return
            state = self._ledger.scrub.state()  # the next job may be due at once
        if state.job_id is not None:
            return
        if state.recent is not None:
            self._submit_recent(state, state.recent)
        elif state.running:
            self._submit_next(state)
        elif self._wanted(state) and self._ledger.scrub.move(state.turn, Move(begin=True)):
            _log.info("scrub pass %d started", state.number + 1)

    def _wanted(self, state: Scrub) -> bool:
        return state.asked or state.age_s is None or state.age_s >= self._every_s

    def _submit_next(self, state: Scrub) -> None:
        """Submit the next buckets of a pass if they are due; end the pass if none are left."""
        collections = self._ledger.documents.here()
        following = _next(state.collection, state.bucket, collections)
        if following is None:
            if self._ledger.scrub.move(state.turn, Move(end=True)):
                _log.info("scrub pass %d ends", state.number, extra={"counts": dict(state.counts)})
            return
        if state.now < state.due or not (self._behind(state, collections) or self._quiet()):
            return
        name, first = following
        # After a failure one bucket alone, so that no other than the faulty one is left out.
        count = 1 if state.tries else collections[name].buckets - first
        buckets = BucketRange(first, count, SPEND_S)
        key = f"scrub-{state.number}-{name}-{first}-{state.tries}"
        job_id = self._accept(name, buckets, key=key)
        self._ledger.scrub.move(
            state.turn, Move(set={"collection": name, "bucket": first, "job": job_id})
        )

    def _submit_recent(self, state: Scrub, recent: Recent) -> None:
        """Submit the next buckets of the walk over recent documents; end it if none are left."""
        collections = self._ledger.documents.here()
        following = _next(recent.collection, recent.bucket, collections)
        if following is None:
            over = dict.fromkeys(_RECENT)
            if self._ledger.scrub.move(state.turn, Move(set=over)):
                _log.info("recent documents have been read", extra={"seq": recent.since})
            return
        if state.now < state.due:
            return
        name, first = following
        count = 1 if state.tries else collections[name].buckets - first
        buckets = BucketRange(first, count, SPEND_S, since=recent.since)
        job_id = self._accept(name, buckets, key=f"scrub-recent-{state.turn}")
        where: dict[str, str | int] = {"recent_collection": name, "recent_bucket": first}
        self._ledger.scrub.move(state.turn, Move(set=where | {"job": job_id, "walk": "recent"}))

    def _accept(self, name: str, buckets: BucketRange, *, key: str) -> str:
        params = ScrubParams(collection=name)
        with tracing.span("scrub"):
            return submit(
                self._ledger, Queue.SCRUB, Kind.SCRUB, params=params, item=buckets, key=key
            ).job_id

    def _quiet(self) -> bool:
        return not any(
            depth.queued + depth.running for depth in self._ledger.maintenance.depths().values()
        )

    def _behind(self, state: Scrub, collections: Mapping[str, Collection]) -> bool:
        return (state.age_s or 0.0) / self._pass_s > state.progress(collections)

    def _record_end(self, state: Scrub, job_id: str) -> bool:
        """Advance past a job that has ended; return whether this call did it.

        A job that is gone is submitted again.
        """
        try:
            record = self._ledger.jobs.get(job_id)
        except JobUnknown:
            gone = _ended(state) | {"tries": state.tries + 1}
            return self._ledger.scrub.move(state.turn, Move(set=gone))
        if not record.status.terminal:
            return False
        data = self._ledger.jobs.result(job_id)
        if record.status is not Status.SUCCEEDED or data is None:
            self._try_again(state, record)
            return False
        found: Scrubbed = Result.unpack(Kind.SCRUB, data).only
        rest_s = _duration_s(record) * (1 / self._share - 1)
        collection, bucket, field = _cursor(state)
        if not collection:  # the walk begins again since, and comes by here
            again = Move(set=_ended(state), add={"repaired": found.repaired})
            return self._ledger.scrub.move(state.turn, again)
        # The pass counts recent documents when it reads them; damage is recorded at once.
        counted = ("repaired", "damaged") if state.of_recent else SCRUB_COUNTS
        moved = self._ledger.scrub.move(
            state.turn,
            Move(
                set=_ended(state)
                | _recent_read(state, found.documents)
                | {
                    "tries": 0,
                    field: bucket + found.buckets,
                    "due": (record.finished or state.now) + rest_s,
                },
                add={name: getattr(found, name) for name in counted},
                damaged=[Damage(collection, document) for document in found.ids],
            ),
        )
        if moved and found.damaged:
            _log.error("damaged documents", extra={"count": found.damaged})
        return moved

    def _try_again(self, state: Scrub, record: JobRecord) -> None:
        """Wait longer after each failure; leave out a bucket that fails repeatedly.

        Such buckets are counted, and their jobs stay as dead letters that say why.
        """
        collection, bucket, field = _cursor(state)
        later = {"tries": state.tries + 1, "due": state.now + _RETRY_S * 2**state.tries}
        move = Move(set=_ended(state) | later)
        if state.tries + 1 >= _MAX_TRIES:
            left_out = {} if state.of_recent else {"unread": 1}
            move = Move(set=_ended(state) | {"tries": 0, field: bucket + 1}, add=left_out)
        if self._ledger.scrub.move(state.turn, move):
            code = record.error["code"] if record.error else record.status.value
            _log.error(
                "scrub job failed", extra={"code": code, "collection": collection, "bucket": bucket}
            )


def _ended(state: Scrub) -> dict[str, str | int | float | None]:
    """Return the change that the end of any job makes."""
    return {"job": None, "walk": None} if state.of_recent else {"job": None}


def _recent_read(state: Scrub, documents: int) -> dict[str, int]:
    """Return the change of the count of recent documents, if the job read any."""
    if not state.of_recent or state.recent is None:
        return {}
    return {"recent_documents": state.recent.documents + documents}


def _cursor(state: Scrub) -> tuple[str, int, str]:
    """Return the cursor of the job's walk: collection, bucket, and the field of the bucket."""
    if state.of_recent and state.recent is not None:
        return state.recent.collection, state.recent.bucket, "recent_bucket"
    return state.collection, state.bucket, "bucket"


def _next(
    collection: str, bucket: int, collections: Mapping[str, Collection]
) -> tuple[str, int] | None:
    """Return the collection and bucket that a walk reads next; None at its end.

    A deleted collection is passed over; one created behind the cursor waits for the next pass.
    """
    here = collections.get(collection)
    if here is not None and bucket < here.buckets:
        return collection, bucket
    later = sorted(name for name in collections if name > collection)
    return (later[0], 0) if later else None


def _duration_s(record: JobRecord) -> float:
    if record.started is None or record.finished is None:
        return 0.0
    return max(0.0, record.finished - record.started)


class Recounter:
    """Counts what each collection holds again, in parts, after each pass of the scrub.

    The ledger updates its counts with every write. They are wrong after damage in the store or
    writes of a worker of an older version, and missing in a ledger that an older version filled.
    Hence all entries are counted again once a pass has ended and repaired what it could. A part
    takes the ledger a few milliseconds, and a round a small part of its second.

    Args:
        ledger: holds entries and counts.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._counted: dict[str, int] = {}

    def step(self) -> None:
        """Run one round.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        scrub = self._ledger.scrub.state()
        ended = scrub.number - scrub.running
        until = time.monotonic() + COUNT_S
        names = {collection.name for collection in self._ledger.documents.collections().values()}
        self._counted = {name: n for name, n in self._counted.items() if name in names}
        for name in sorted(names):
            while self._counted.get(name) != ended:
                if time.monotonic() >= until:
                    return
                self._count(name, ended)

    def _count(self, name: str, ended: int) -> None:
        try:
            counting = self._ledger.documents.count(name, scrubbed=ended)
        except CollectionUnknown:
            counting = Counting.MOVED
        if counting is Counting.MENDED:
            _log.warning("collection counts corrected", extra={"collection": name})
        if counting is not Counting.MORE:
            self._counted[name] = ended
