"""Run claimed slices and commit what came of them: what a worker's hands do.

Embeds that were claimed together run as one call of the engine: a batch of texts costs it much less
than the same texts one by one. Whatever a slice fails with, its lease ends: done, given back to be
tried again, or failed for good.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from verso_core import telemetry, tracing
from verso_core.errors import VersoError
from verso_core.jobs import Kind, Queue, Result, Slice, read_slice
from verso_core.result_files import ResultFiles
from verso_ledger import (
    Ahead,
    Commit,
    DocumentDelete,
    DocumentWrite,
    End,
    Lease,
    Ledger,
    Phase,
)
from verso_worker.jobs.bisect import bisect_failures, worth_bisecting
from verso_worker.jobs.headstart import HeadStarts
from verso_worker.jobs.leases import LeaseRenewer
from verso_worker.jobs.progress import ProgressReporter
from verso_worker.metrics import Metrics
from verso_worker.models.canary import ArtifactCanary
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports import OnProgress, SliceOutcome, Write, no_progress

_RETRY_S = 1.0
_NOTE_S = 1.0
# What the platform's own parts ask for; they read the ledger alone.
_FOR_PARTS = frozenset({Kind.ROWS, Kind.SCRUB, Kind.MIGRATE})
# What changes nothing, so that its caller may have the result before the commit is on disk.
_READS = frozenset(
    {Kind.EMBED, Kind.RECONSTRUCT, Kind.SEARCH, Kind.CLASSIFY, Kind.ANSWER, Kind.SCORE}
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdleTicket:
    """How a hand stands in line once it has done what it was given.

    Args:
        name: gives it a new name.
        line_s: how long it stands there, seconds.
    """

    name: Callable[[], str]
    line_s: float


class Executor:
    """Where slices are worked on; any number of hands may share it.

    Args:
        ledger: the truth about jobs.
        pipeline: the rules.
        heart: renews the leases of what is in hand.
        metrics: what is counted.
        verify_delay_s: from a commit to its independent verify, seconds.
        raw_text_retention_s: from a passed verify to the drop of the text, seconds.
        results: where results go that are too large for the ledger.
        trials: where a canary gets its share of the jobs; None where there is never one.
    """

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        heart: LeaseRenewer,
        metrics: Metrics,
        *,
        verify_delay_s: float,
        raw_text_retention_s: float,
        results: ResultFiles,
        trials: ArtifactCanary | None,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._heart = heart
        self._metrics = metrics
        self._verify_delay_s = verify_delay_s
        self._raw_text_retention_s = raw_text_retention_s
        self._results = results
        self._trials = trials
        self._starts = HeadStarts()
        self._noted = 0.0

    def do(self, leases: Sequence[Lease], *, stand: IdleTicket | None = None) -> bool:
        """Work on what was claimed: embeds together, and alone what that did not end.

        With ``stand`` a hand that has ended a single slice stands in line where nothing else is
        due. Returns whether it does.
        """
        for lease in leases:
            self._metrics.claimed(lease.queue, waited_s=lease.waited_ms / 1e3)
        if len(leases) > 1:
            stand = None
            leases = self._embed_together(leases)
        stands = False
        for lease in leases:
            stands = self._hold(lease, stand=stand, begun=self._starts.take(lease.job_id))
        return stands

    def begin(self, ahead: Ahead, *, stand: IdleTicket | None = None) -> bool:
        """Do the work of a job that is not accepted yet; end its lease, if that comes meanwhile.

        Gives whether nothing else is known to be due.
        """
        self._starts.begin(ahead.job_id)
        begun: SliceOutcome | None = None
        try:
            with tracing.span("embed ahead", parent=ahead.trace):
                begun = self._run(read_slice(ahead.payload), ahead.job_id, tell=no_progress)
        except Exception as error:  # noqa: BLE001  # it meets its fault again under its lease
            _log.warning("an embed is begun again: %s", type(error).__name__)
        finally:
            lease = self._starts.end(ahead.job_id, begun)
        return lease is None or self._hold(lease, stand=stand, begun=begun)

    def leave(self, lease: Lease) -> bool:
        """Leave a slice to the hand that has begun it; False where none has."""
        self._heart.hold(lease)  # before it is left: whoever ends it lets it go
        if self._starts.left(lease):
            self._metrics.claimed(lease.queue, waited_s=lease.waited_ms / 1e3)
            return True
        return False

    def _embed_together(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Run embeds as one call of the engine; give back all of them if that fails."""
        started = time.perf_counter()
        with ExitStack() as held:
            # one run for all: its phases stand in the first one's trace
            held.enter_context(tracing.span("embed batch", parent=leases[0].trace))
            for lease in leases:
                self._heart.hold(lease)
                held.callback(self._heart.release, lease)
            try:
                results = self._pipeline.embed([read_slice(lease.payload) for lease in leases])
                ends: list[End] = []
                for lease, result in zip(leases, results, strict=True):
                    result.timings_ms["queue"] = lease.waited_ms
                    errors = len(result.items) - result.ok
                    ends.append(End(lease, self._kept(lease, result), ok=result.ok, errors=errors))
                spent_ms = round((time.perf_counter() - started) * 1e3)
                ends = self._ledger.tell(ends, spent_ms=spent_ms)
                commits = self._ledger.commit_all(ends)
            except Exception as error:  # noqa: BLE001  # alone each meets its own fault
                _log.warning("embeds are run one by one: %s", type(error).__name__)
                return leases
        spent = (time.perf_counter() - started) / len(leases)
        for lease, result, commit in zip(leases, results, commits, strict=True):
            outcome = "stale" if commit is Commit.STALE else "done"
            about = _about(lease) | {"verso.together": len(leases), "verso.outcome": outcome}
            tracing.note(
                _title(lease), seconds=spent * len(leases), parent=lease.trace, about=about
            )
            self._metrics.slice_done(lease.kind, lease.phase, outcome, seconds=spent)
            if commit is not Commit.STALE:
                self._metrics.result(lease.kind, result)
        if any(result.ok for result in results):
            self._note_embed()
        return []

    def _note_embed(self) -> None:
        """Tell that an embed has succeeded, at most once a second."""
        now = time.monotonic()
        if now - self._noted >= _NOTE_S:
            self._noted = now
            self._ledger.note_embed()

    def _hold(self, lease: Lease, *, stand: IdleTicket | None, begun: SliceOutcome | None) -> bool:
        stands = False
        lost = self._heart.hold(lease)
        started = time.perf_counter()
        traced = tracing.span(_title(lease), parent=lease.trace, about=_about(lease))
        with telemetry.about(lease.slice_id), traced as span:
            try:
                outcome, stands = self._work(lease, stand=stand, begun=begun)
            except VersoError as error:
                outcome = self._give_back(lease, error)
            except Exception as error:  # noqa: BLE001  # one slice's fault must not end the worker
                # The stack without the message: a foreign message may quote a text.
                stack = "".join(traceback.format_tb(error.__traceback__))
                _log.error("%s failed: %s\n%s", lease.kind, type(error).__name__, stack)
                outcome = self._give_back(lease, error)
            finally:
                self._heart.release(lease)
            if span is not None:
                span.set_attribute("verso.outcome", outcome)
            spent = time.perf_counter() - started
            self._metrics.slice_done(lease.kind, lease.phase, outcome, seconds=spent)
            # Bulk work is followed by its lines; interactive work would be a line for each request.
            _log.log(
                logging.INFO if lease.queue is Queue.BULK else logging.DEBUG,
                "slice",
                extra={
                    "task": lease.kind,
                    "phase": lease.phase,
                    "outcome": outcome,
                    "ms": round(spent * 1e3, 1),
                },
            )
            if lost():
                _log.warning("lease was lost while working", extra={"outcome": outcome})
        return stands

    def _work(
        self, lease: Lease, *, stand: IdleTicket | None, begun: SliceOutcome | None
    ) -> tuple[str, bool]:
        """Run and commit a slice; name what came of it, and whether the hand stands in line."""
        started = time.perf_counter()
        if lease.phase is Phase.VERIFY:
            return self._verify(lease), False
        outcome = begun or self._done(lease)
        outcome.result.timings_ms["queue"] = lease.waited_ms
        result = self._kept(lease, outcome.result)
        errors = len(outcome.result.items) - outcome.result.ok
        end = End(lease, result, ok=outcome.result.ok, errors=errors)
        if lease.kind in _READS:
            spent_ms = round((time.perf_counter() - started) * 1e3)
            [end] = self._ledger.tell([end], spent_ms=spent_ms)
        with tracing.span("commit"):
            committed = self._ledger.commit(
                lease,
                result,
                ok=outcome.result.ok,
                errors=errors,
                documents=_documents(outcome),
                verify_delay_s=self._verify_delay_s,
                told=end.told,
                hand=stand.name() if stand else "",
                line_s=stand.line_s if stand else 0.0,
            )
        if committed is Commit.STALE:
            return "stale", False
        if committed is Commit.SEALED:
            self._ledger.release(lease, delay_s=_RETRY_S)
            return "retried", False
        self._metrics.result(lease.kind, outcome.result)
        self._metrics.written(outcome.writes)
        if lease.kind in (Kind.EMBED, Kind.INGEST) and outcome.result.ok:
            self._note_embed()
        return "done", committed is Commit.IDLE

    def _done(self, lease: Lease) -> SliceOutcome:
        """Run a slice; one that fails whole in halves, where that can help."""
        work = read_slice(lease.payload)
        tell = ProgressReporter(self._ledger, lease)
        run = partial(self._run, job_id=lease.job_id, seq=lease.seq, tell=tell)
        try:
            return run(work)
        except Exception as error:
            if not worth_bisecting(work, error, attempt=lease.fence):
                raise
            return bisect_failures(run, work, attempt=lease.fence)

    def _kept(self, lease: Lease, result: Result) -> bytes:
        """Return what the ledger is to hold of a result; a large one is in its file by then."""
        frame = result.pack()
        if lease.kind in _FOR_PARTS:
            return frame
        return self._results.keep(lease.job_id, lease.number, frame)

    def _run(self, work: Slice, job_id: str, *, tell: OnProgress, seq: int = 0) -> SliceOutcome:
        """Run a slice: with the canary in its turn; what that fails, with the stable artifact."""
        trials = self._trials
        if trials is not None and (trial := trials.pipeline(job_id)) is not None:
            try:
                outcome = trial.run(work, seq=seq, tell=tell)
            except Exception as error:
                if not trials.failed(error):
                    raise
                _log.warning("%s is done without the canary: %s", work.kind, type(error).__name__)
            else:
                trials.passed()
                return outcome
        return self._pipeline.run(work, seq=seq, tell=tell)

    def _verify(self, lease: Lease) -> str:
        work = read_slice(lease.payload)
        verdict = self._pipeline.verify(work, seq=lease.seq)
        collection = verdict.collection
        committed = self._ledger.verified(
            lease,
            [(collection, document, lease.seq) for document in verdict.sound],
            rewritten=[_document(collection, write) for write in verdict.rewritten],
            grace_s=self._raw_text_retention_s,
            verify_delay_s=self._verify_delay_s,
        )
        if committed is Commit.STALE:
            return "stale"
        self._metrics.verified(sound=len(verdict.sound), rewritten=len(verdict.rewritten))
        if verdict.rewritten:
            _log.error("records did not read back", extra={"count": len(verdict.rewritten)})
            if self._trials is not None and self._trials.pipeline(lease.job_id) is not None:
                self._trials.misread(len(verdict.rewritten))
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


def _title(lease: Lease) -> str:
    return f"{lease.kind} {lease.phase}"


def _about(lease: Lease) -> dict[str, tracing.Attribute]:
    return {
        "verso.job": lease.job_id,
        "verso.slice": lease.number,
        "verso.queue": lease.queue,
        "verso.attempt": lease.fence,
        "verso.waited_ms": lease.waited_ms,
    }


def _documents(outcome: SliceOutcome) -> list[DocumentWrite | DocumentDelete]:
    collection = outcome.collection
    if (outcome.writes or outcome.deletes) and not collection:
        # Committed under no name they would be acknowledged and never found again.
        raise ValueError("expected the collection of what is written")
    writes: list[DocumentWrite | DocumentDelete] = [
        _document(collection, write) for write in outcome.writes
    ]
    return writes + [DocumentDelete(collection, document) for document in outcome.deletes]


def _document(collection: str, write: Write) -> DocumentWrite:
    return DocumentWrite(collection, write.document, write.entry, write.text, write.over)
