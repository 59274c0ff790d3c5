"""Claim slices from the ledger, run them, commit them: what a door-bell makes a worker do.

A bell names a queue and no job. Whoever hears it claims slices from that queue until there are none
or this worker has as many in hand as it should. A bell too many claims nothing; a bell too few is
made good by the keeper's bells and by :meth:`Desk.drain` being called from time to time anyway.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Mapping

from verso_core import telemetry
from verso_core.errors import VersoError
from verso_core.jobs import Kind, Queue, read_slice
from verso_core.ledger import Commit, DocumentDelete, DocumentWrite, Lease, Ledger, Phase
from verso_worker.heart import Heart
from verso_worker.metrics import Metrics
from verso_worker.pipeline import Pipeline
from verso_worker.ports import Outcome, Write

_RETRY_S = 1.0
_GC_BATCH = 64
_log = logging.getLogger(__name__)


class Desk:
    """One worker's hands.

    Args:
        ledger: the truth about jobs.
        pipeline: the rules.
        heart: renews the leases of what is in hand.
        metrics: what is counted.
        owner: this worker's name.
        hands: how many slices of each queue may be in hand at once.
        lease_s: length of a lease, seconds.
        settle_s: from a commit to its independent verify, seconds.
        raw_grace_s: from a passed verify to the drop of the text, seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        heart: Heart,
        metrics: Metrics,
        *,
        owner: str,
        hands: Mapping[Queue, int],
        lease_s: float,
        settle_s: float,
        raw_grace_s: float,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._heart = heart
        self._metrics = metrics
        self._owner = owner
        self._hands = {queue: threading.BoundedSemaphore(n) for queue, n in hands.items()}
        self._lease_s = lease_s
        self._settle_s = settle_s
        self._raw_grace_s = raw_grace_s
        self._closing = threading.Event()

    def close(self) -> None:
        """Claim nothing from now on; what is in hand is finished."""
        self._closing.set()

    def drain(self, queue: Queue) -> int:
        """Work through a queue until it is empty or enough hands are on it; count the slices."""
        done = 0
        hands = self._hands[queue]
        while hands.acquire(blocking=False):
            try:
                leases = [] if self._closing.is_set() else self._claim(queue)
                for lease in leases:
                    self._hold(lease)
                    done += 1
            finally:
                hands.release()
            # Looked at again after the release: a bell that found all hands full went unheard.
            if not leases:
                break
        if queue is Queue.SCRUB and not self._closing.is_set():
            self._collect()
        return done

    def _claim(self, queue: Queue) -> list[Lease]:
        return self._ledger.claim(queue, owner=self._owner, n=1, lease_s=self._lease_s)

    def _hold(self, lease: Lease) -> None:
        lost = self._heart.hold(lease)
        started = time.perf_counter()
        with telemetry.about(lease.slice_id):
            try:
                outcome = self._work(lease)
            except VersoError as error:
                outcome = self._give_back(lease, error)
            except Exception as error:  # noqa: BLE001  # one slice's fault must not end the worker
                # The stack without the message: a foreign message may quote a text.
                stack = "".join(traceback.format_tb(error.__traceback__))
                _log.error("%s failed: %s\n%s", lease.kind, type(error).__name__, stack)
                outcome = self._give_back(lease, error)
            finally:
                self._heart.release(lease)
            spent = time.perf_counter() - started
            self._metrics.slice_done(lease.kind, lease.phase, outcome, seconds=spent)
            if lost():
                _log.warning("lease was lost while working", extra={"outcome": outcome})

    def _work(self, lease: Lease) -> str:
        """Run and commit a slice, and name what came of it."""
        work = read_slice(lease.payload)
        if lease.phase is Phase.VERIFY:
            return self._verify(lease)
        outcome = self._pipeline.run(work, seq=lease.seq)
        outcome.result.timings_ms["queue"] = lease.waited_ms
        result = outcome.result.pack()
        collection = str(work.params.get("collection", ""))
        committed = self._ledger.commit(
            lease,
            result,
            ok=outcome.result.ok,
            errors=len(outcome.result.items) - outcome.result.ok,
            documents=_documents(collection, outcome),
            settle_s=self._settle_s,
        )
        if committed is Commit.STALE:
            return "stale"
        self._metrics.result(work.kind, outcome.result)
        if work.kind in (Kind.EMBED, Kind.INGEST) and outcome.result.ok:
            self._ledger.note_embed()
        return "done"

    def _verify(self, lease: Lease) -> str:
        work = read_slice(lease.payload)
        collection = str(work.params["collection"])
        verdict = self._pipeline.verify(work, seq=lease.seq)
        committed = self._ledger.verified(
            lease,
            [(collection, document, lease.seq) for document in verdict.sound],
            rewritten=[_document(collection, write) for write in verdict.rewritten],
            grace_s=self._raw_grace_s,
            settle_s=self._settle_s,
        )
        if committed is Commit.STALE:
            return "stale"
        self._metrics.verified(sound=len(verdict.sound), rewritten=len(verdict.rewritten))
        if verdict.rewritten:
            _log.error("records did not read back", extra={"count": len(verdict.rewritten)})
            return "rewritten"
        return "verified"

    def _give_back(self, lease: Lease, error: Exception) -> str:
        """Return a slice that could not be done: to the queue if trying again may help."""
        # What Verso did not foresee may pass; the ledger counts the tries and stops them.
        passing = error.retryable if isinstance(error, VersoError) else True
        if passing:
            self._ledger.retry(lease, error, delay_s=_RETRY_S)
            return "retried"
        self._ledger.fail(lease, error)
        return "failed"

    def _collect(self) -> None:
        """Remove points that no entry names any more."""
        while taken := self._ledger.gc_take(_GC_BATCH):
            for old in taken:
                self._pipeline.collect(old.collection, old.document, old.entry)
            self._ledger.gc_done([old.token for old in taken])


def _documents(collection: str, outcome: Outcome) -> list[DocumentWrite | DocumentDelete]:
    writes: list[DocumentWrite | DocumentDelete] = [
        _document(collection, write) for write in outcome.writes
    ]
    return writes + [DocumentDelete(collection, document) for document in outcome.deletes]


def _document(collection: str, write: Write) -> DocumentWrite:
    return DocumentWrite(collection, write.document, write.entry, write.text)
