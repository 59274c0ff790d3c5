"""Has every stored record read again, a few buckets at a time, without end.

A pass goes through all collections by name and through their buckets in order. Each step of it is
a job like any other (ADR 0009): a worker scrubs buckets for a few seconds and says how far it came.
The cursor is in the ledger, so a pass goes on where it was after any restart; every move of it is
one step that only one of several keepers can make.

When the next job is submitted:

1. One at a time, and after each a rest: the jobs take no more than ``share`` of one core.
2. Only while nothing waits or runs, unless the pass is behind the pace that ends it within
   ``pass_s``. The budget holds even then: what it cannot buy shows in the pass's age.
3. After an unclean start the documents of the hour before it come first, in a walk of its own that
   waits for no quiet: what was written last is what a crash may have harmed.
4. A pass starts ``every_s`` after the last started, or as soon as one is requested.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from verso_core import tracing
from verso_core.errors import CollectionUnknown, JobUnknown
from verso_core.jobs import BucketRange, Collection, Kind, Queue, Result, Status, cut
from verso_core.jobs.admin import Scrubbed, ScrubParams
from verso_ledger import Counting, Damage, JobRecord, Ledger, Move, NewJob, Recent, Scrub

TENANT = "verso"
SPEND_S = 2.0
"""How long one job reads, about: short, since verifying shares its queue."""
COUNT_S = 0.1
"""How long one round of :class:`Recounter` counts, about."""
_RECENT = ("recent", "recent_collection", "recent_bucket", "recent_documents")
_COUNTED = ("documents", "sound", "repaired", "damaged", "bytes", "orphans")
_MAX_TRIES = 5
_RETRY_S = 60.0
_log = logging.getLogger(__name__)


class Scrubber:
    """Paces the scrub.

    Args:
        ledger: the truth about jobs and about the scrub.
        share: part of one core that scrub jobs may take, in (0, 1]; 0 asks for none.
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
            self._ask_recent(state, state.recent)
        elif state.running:
            self._ask(state)
        elif self._wanted(state) and self._ledger.scrub.move(state.turn, Move(begin=True)):
            _log.info("scrub pass %d started", state.number + 1)

    def _wanted(self, state: Scrub) -> bool:
        return state.asked or state.age_s is None or state.age_s >= self._every_s

    def _ask(self, state: Scrub) -> None:
        """Have the next buckets scrubbed, if it is time; without any the pass ends."""
        collections = self._ledger.documents.collections()
        place = _next(state.collection, state.bucket, collections)
        if place is None:
            if self._ledger.scrub.move(state.turn, Move(end=True)):
                _log.info("scrub pass %d ends", state.number, extra={"counts": dict(state.counts)})
            return
        if state.now < state.due or not (self._behind(state, collections) or self._quiet()):
            return
        name, first = place
        # After a failure one bucket alone, so that only the one to blame is ever left out.
        count = 1 if state.tries else collections[name].buckets - first
        buckets = BucketRange(first, count, SPEND_S)
        # The same step is the same job for every keeper, before and after a restart.
        key = f"scrub-{state.number}-{name}-{first}-{state.tries}"
        job_id = self._accept(name, buckets, key=key)
        self._ledger.scrub.move(
            state.turn, Move(set={"collection": name, "bucket": first, "job": job_id})
        )

    def _ask_recent(self, state: Scrub, recent: Recent) -> None:
        """Have the next buckets looked through for recent documents; without any the walk ends."""
        collections = self._ledger.documents.collections()
        place = _next(recent.collection, recent.bucket, collections)
        if place is None:
            over = dict.fromkeys(_RECENT)
            if self._ledger.scrub.move(state.turn, Move(set=over)):
                _log.info("recent documents have been read", extra={"seq": recent.since})
            return
        if state.now < state.due:
            return
        name, first = place
        count = 1 if state.tries else collections[name].buckets - first
        buckets = BucketRange(first, count, SPEND_S, since=recent.since)
        job_id = self._accept(name, buckets, key=f"scrub-recent-{state.turn}")
        where: dict[str, str | int] = {"recent_collection": name, "recent_bucket": first}
        self._ledger.scrub.move(state.turn, Move(set=where | {"job": job_id, "walk": "recent"}))

    def _accept(self, name: str, buckets: BucketRange, *, key: str) -> str:
        params = ScrubParams(collection=name)
        with tracing.span("scrub"):
            accepted = self._ledger.jobs.accept(
                NewJob(
                    kind=Kind.SCRUB,
                    queue=Queue.SCRUB,
                    slices=list(cut(Kind.SCRUB, params, [buckets])),
                    tenant=TENANT,
                    idempotency=(key, "scrub"),
                    trace=tracing.current(),
                )
            )
        return accepted.job_id

    def _quiet(self) -> bool:
        return not any(
            depth.queued + depth.running for depth in self._ledger.maintenance.depths().values()
        )

    def _behind(self, state: Scrub, collections: Mapping[str, Collection]) -> bool:
        return (state.age_s or 0.0) / self._pass_s > state.progress(collections)

    def _record_end(self, state: Scrub, job_id: str) -> bool:
        """Move on behind a job that has ended; return whether this call did it.

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
        # A recent document is counted by the pass that reads it; but damage is recorded at once.
        counted = ("repaired", "damaged") if state.of_recent else _COUNTED
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
        """Wait longer after each failure; buckets that fail again and again are left out.

        They are counted, and their jobs stay as dead letters that say why.
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
                "scrub job failed",
                extra={"code": code, "collection": collection, "bucket": bucket},
            )


def _ended(state: Scrub) -> dict[str, str | int | float | None]:
    """Return the change that a job's end makes in any case."""
    return {"job": None, "walk": None} if state.of_recent else {"job": None}


def _recent_read(state: Scrub, documents: int) -> dict[str, int]:
    """Return the change of the count of recent documents, if the job read such."""
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
    """Find the collection and bucket that a walk comes to next; None at its end.

    A collection that vanished is passed over; one that came behind the cursor waits for the next
    pass.
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
    """Counts again what each collection holds, in parts: once for each pass of the scrub.

    The ledger's counts follow every write by themselves. What they cannot follow is rot in the
    store, and workers of an older version beside newer ones; and a ledger that an older version
    filled has none. So once a pass of the scrub has ended, and what it could repair is repaired,
    all entries are counted again and the counts compared. A part takes the ledger a few
    milliseconds, and a round a small part of its second, so that callers notice nothing.

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
