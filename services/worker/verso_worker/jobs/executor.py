"""Execute claimed slices and commit their results.

Embeds that were claimed together run as one call of the engine, because a batch of texts costs it
much less than the same texts one by one. However a slice ends, its lease ends with it: committed,
returned to the queue to be tried again, or failed for good.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from verso_core import telemetry, tracing
from verso_core.errors import NotReady, Unavailable, VersoError
from verso_core.jobs import AnyResult, AnySlice, Kind, Queue, read_slice
from verso_core.result_files import ResultFiles
from verso_ledger import (
    Commit,
    DocumentDelete,
    DocumentWrite,
    Finished,
    Lease,
    Ledger,
    Phase,
)
from verso_worker.ipc.cancellation import Cancellation
from verso_worker.jobs.bisect import bisect_failures, worth_bisecting
from verso_worker.jobs.leases import LeaseRenewer, ProgressReporter
from verso_worker.metrics import Metrics
from verso_worker.models.canary import ArtifactCanary
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports.outcome import SliceOutcome, Write

_RETRY_S = 1.0
_NOTE_S = 1.0
_GC_BATCH = 64
# Jobs of the platform's own parts, which read results from the ledger alone.
_INTERNAL = frozenset({Kind.ROWS, Kind.SCRUB, Kind.MIGRATE, Kind.FIT})
_log = logging.getLogger(__name__)


class Executor:
    """Executes slices; any number of threads may share it.

    Args:
        ledger: the truth about jobs.
        pipeline: runs slices.
        leases: renews the leases of the slices that are executed.
        metrics: the worker's counters.
        verify_delay_s: from a commit to its independent verify, seconds.
        raw_text_retention_s: from a passed verify to the drop of the text, seconds.
        results: where results go that are too large for the ledger; None keeps all in the ledger.
        canary: selects the jobs that a canary artifact serves; None where there is never one.
    """

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        leases: LeaseRenewer,
        metrics: Metrics,
        *,
        verify_delay_s: float,
        raw_text_retention_s: float,
        results: ResultFiles | None = None,
        canary: ArtifactCanary | None = None,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._leases = leases
        self._metrics = metrics
        self._verify_delay_s = verify_delay_s
        self._raw_text_retention_s = raw_text_retention_s
        self._results = results or ResultFiles(None)
        self._canary = canary
        self._noted_s = 0.0

    def execute(self, leases: Sequence[Lease]) -> None:
        """Execute claimed slices: several embeds together, all others one by one."""
        for lease in leases:
            self._metrics.claimed(lease.queue, waited_s=lease.waited_ms / 1e3)
        if len(leases) > 1 and self._execute_embeds(leases):
            return
        for lease in leases:
            self._execute_one(lease)

    def _execute_embeds(self, leases: Sequence[Lease]) -> bool:
        """Run embeds as one call of the engine and commit them; False if that failed."""
        started = time.perf_counter()
        with ExitStack() as held:
            # One run for all of them: its phases are recorded in the first one's trace.
            held.enter_context(tracing.span("embed batch", parent=leases[0].trace))
            for lease in leases:
                self._leases.hold(lease)
                held.callback(self._leases.release, lease)
            try:
                results = self._pipeline.embed([read_slice(lease.payload) for lease in leases])
                finished = list(map(self._finished, leases, results))
                spent_ms = round((time.perf_counter() - started) * 1e3)
                commits = self._ledger.leases.commit_all(
                    self._ledger.leases.notify_callers(finished, spent_ms=spent_ms)
                )
            except Exception as error:  # noqa: BLE001  # run alone, each slice meets its own fault
                _log.warning("embed batch failed, slices run singly: %s", type(error).__name__)
                return False
        seconds = time.perf_counter() - started
        for lease, result, commit in zip(leases, results, commits, strict=True):
            self._record_embed(lease, result, commit, of=len(leases), seconds=seconds)
        if any(result.ok for result in results):
            self._note_embed()
        return True

    def _record_embed(
        self, lease: Lease, result: AnyResult, commit: Commit, *, of: int, seconds: float
    ) -> None:
        """Trace and count one of ``of`` embeds that ran together for so many seconds."""
        outcome = "stale" if commit is Commit.STALE else "done"
        about = _attributes(lease) | {"verso.together": of, "verso.outcome": outcome}
        tracing.note(_title(lease), seconds=seconds, parent=lease.trace, about=about)
        self._metrics.slice_done(lease.kind, lease.phase, outcome, seconds=seconds / of)
        if commit is not Commit.STALE:
            self._metrics.result(lease.kind, result)

    def _execute_one(self, lease: Lease) -> None:
        """Execute one slice under its lease, and log and count how it ended."""
        cancellation = Cancellation()
        is_lost = self._leases.hold(lease, on_lost=cancellation.cancel)
        started = time.perf_counter()
        traced = tracing.span(_title(lease), parent=lease.trace, about=_attributes(lease))
        with telemetry.about(lease.slice_id), traced as span, cancellation.entered():
            try:
                outcome = self._attempt(lease)
            finally:
                self._leases.release(lease)
            if span is not None:
                span.set_attribute("verso.outcome", outcome)
            seconds = time.perf_counter() - started
            self._metrics.slice_done(lease.kind, lease.phase, outcome, seconds=seconds)
            about = {"task": lease.kind, "phase": lease.phase, "outcome": outcome}
            # Bulk work is followed in the log; interactive work would be a line for each request.
            level = logging.INFO if lease.queue is Queue.BULK else logging.DEBUG
            _log.log(level, "slice", extra=about | {"ms": round(seconds * 1e3, 1)})
            if is_lost():
                _log.warning("lease lost during execution", extra={"outcome": outcome})

    def _attempt(self, lease: Lease) -> str:
        """Execute one slice and end its lease, whatever happens; return the outcome's name."""
        try:
            return self._verify(lease) if lease.phase is Phase.VERIFY else self._work(lease)
        except VersoError as error:
            return self._return(lease, error)
        except Exception as error:  # noqa: BLE001  # one slice's fault must not end the worker
            # The stack without the message: a library's message may quote a text.
            stack = "".join(traceback.format_tb(error.__traceback__))
            _log.error("%s failed: %s\n%s", lease.kind, type(error).__name__, stack)
            return self._return(lease, error)

    def _work(self, lease: Lease) -> str:
        """Run and commit a slice; return the outcome's name."""
        started = time.perf_counter()
        outcome = self._run_or_bisect(lease)
        finished = self._finished(lease, outcome.result)
        if lease.kind.is_read:
            spent_ms = round((time.perf_counter() - started) * 1e3)
            [finished] = self._ledger.leases.notify_callers([finished], spent_ms=spent_ms)
        with tracing.span("commit"):
            commit = self._ledger.leases.commit(
                lease,
                finished.result,
                ok=finished.ok,
                errors=finished.errors,
                documents=_documents(outcome),
                lines=outcome.lines,
                verify_delay_s=self._verify_delay_s,
                notified=finished.notified,
            )
        if commit is Commit.STALE:
            return "stale"
        if commit is Commit.SEALED:
            self._ledger.leases.release(lease, delay_s=_RETRY_S)
            return "retried"
        if commit is Commit.BEHIND:
            _log.warning("the ledger lacks what lines were coded by: they are coded again")
            self._pipeline.forget_lines(outcome.collection)
            self._ledger.leases.release(lease)
            return "retried"
        self._metrics.result(lease.kind, outcome.result)
        self._metrics.written(outcome.writes)
        if lease.kind in (Kind.EMBED, Kind.INGEST, Kind.INGEST_LINES) and outcome.result.ok:
            self._note_embed()
        return "done"

    def _finished(self, lease: Lease, result: AnyResult) -> Finished:
        """Return what is committed of a slice; a large result is written to its file first."""
        result.timings_ms["queue"] = lease.waited_ms
        frame = result.pack()
        if lease.kind not in _INTERNAL:
            frame = self._results.keep(lease.job_id, lease.number, frame)
        return Finished(lease, frame, ok=result.ok, errors=len(result.items) - result.ok)

    def _run_or_bisect(self, lease: Lease) -> SliceOutcome:
        """Run a slice; run one that fails as a whole in halves, where that can help."""
        work = read_slice(lease.payload)
        reporter = ProgressReporter(self._ledger, lease)
        run = partial(self._run, job_id=lease.job_id, seq=lease.seq, reporter=reporter)
        try:
            return run(work)
        except Exception as error:
            if not worth_bisecting(work, error, attempt=lease.fence):
                raise
            return bisect_failures(run, work, attempt=lease.fence)

    def _run(
        self, work: AnySlice, *, job_id: str, seq: int, reporter: ProgressReporter
    ) -> SliceOutcome:
        """Run a slice with the canary if the job is of its share; if that fails, without it."""
        on_part = reporter.part
        canary = self._canary
        if canary is not None and (trial := canary.pipeline(job_id)) is not None:
            tried = partial(trial.run, work, seq=seq, on_progress=reporter, on_part=on_part)
            beside = partial(self._pipeline.run, work, seq=seq)
            try:
                outcome = canary.run(work, tried, beside, job=job_id)
            except Exception as error:
                if not canary.failed(error):
                    raise
                _log.warning("%s runs without the canary: %s", work.kind, type(error).__name__)
            else:
                canary.passed()
                canary.compare_coding(work, trial, self._pipeline, job=job_id)
                return outcome
        return self._pipeline.run(work, seq=seq, on_progress=reporter, on_part=on_part)

    def _verify(self, lease: Lease) -> str:
        """Verify and commit an ingest's slice; return the outcome's name."""
        verdict = self._pipeline.verify(read_slice(lease.payload), seq=lease.seq)
        collection = verdict.collection
        commit = self._ledger.leases.commit_verified(
            lease,
            [(collection, document, lease.seq) for document in verdict.sound],
            rewritten=[_document(collection, write) for write in verdict.rewritten],
            lines=verdict.lines,
            raw_text_retention_s=self._raw_text_retention_s,
            verify_delay_s=self._verify_delay_s,
        )
        if commit is Commit.STALE:
            return "stale"
        if commit is Commit.SEALED:
            self._ledger.leases.release(lease, delay_s=_RETRY_S)
            return "retried"
        self._metrics.verified(sound=len(verdict.sound), rewritten=len(verdict.rewritten))
        if self._canary is not None:
            self._canary.verified(verdict, job_id=lease.job_id)
        if not verdict.rewritten:
            return "verified"
        _log.error("records did not read back", extra={"count": len(verdict.rewritten)})
        return "rewritten"

    def _return(self, lease: Lease, error: Exception) -> str:
        """Return a slice to the queue if another attempt may help, else fail it."""
        if isinstance(error, NotReady):  # it came too early, and may come as often as it takes
            self._ledger.leases.release(lease, delay_s=_RETRY_S)
            return "retried"
        # An error that Verso did not foresee may pass; the ledger counts and limits the attempts.
        if error.retryable if isinstance(error, VersoError) else True:
            timed_out = isinstance(error, Unavailable) and error.timed_out
            self._ledger.leases.retry(lease, error, delay_s=_RETRY_S, timed_out=timed_out)
            return "retried"
        self._ledger.leases.fail(lease, error)
        return "failed"

    def collect_discarded(self) -> None:
        """Remove the points of entries that were replaced or deleted."""
        while discarded := self._ledger.maintenance.gc_take(_GC_BATCH):
            for old in discarded:
                self._pipeline.collect(old.collection, old.document, old.entry)
            self._ledger.maintenance.gc_done([old.token for old in discarded])

    def _note_embed(self) -> None:
        """Record that an embed has succeeded, at most once a second."""
        now = time.monotonic()
        if now - self._noted_s >= _NOTE_S:
            self._noted_s = now
            self._ledger.liveness.note_embed()


def _title(lease: Lease) -> str:
    return f"{lease.kind} {lease.phase}"


def _attributes(lease: Lease) -> dict[str, tracing.Attribute]:
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
    deletes = [DocumentDelete(collection, one.document, one.replaces) for one in outcome.deletes]
    return writes + deletes


def _document(collection: str, write: Write) -> DocumentWrite:
    return DocumentWrite(
        collection, write.document, write.entry, write.text, write.over, write.replaces
    )
