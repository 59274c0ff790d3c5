"""Run canaries on their share of the jobs, and withdraw those that fail too often or are worse.

The id of a job decides whether it is of the canary's share, so every attempt of a job uses the same
versions. A job that fails with a canary runs again with the stable version at once: a bad canary
costs time, but fails no request. :class:`ArtifactCanary` does so for artifacts, :func:`run_job` for
heads. Both compare what a canary and the stable version say of the same job
(:mod:`verso_worker.models.comparison`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from verso_core.errors import (
    Cancelled,
    CollectionExists,
    DiskFull,
    HeadUnknown,
    LedgerUnavailable,
    NotFound,
    RequestInvalid,
    VectorsDamaged,
    VectorsUnavailable,
)
from verso_core.jobs import AnySlice, Kind
from verso_worker.metrics import Metrics
from verso_worker.models.agreement import agreement
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.comparison import Comparisons, Pair
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports.models import Models, StableRun
from verso_worker.rules.ports.outcome import SliceOutcome, Verdict

MOST_FAILURES = 2
"""Number of failures that may be chance."""
MOST_FAILING = 0.02
"""Share of the canary's slices that may fail by chance."""

NOT_ITS_FAULT = (
    Cancelled, CollectionExists, DiskFull, LedgerUnavailable, NotFound, RequestInvalid,
    VectorsDamaged, VectorsUnavailable,
)  # fmt: skip
"""Errors that are never blamed on a canary: the caller's, or those of a store."""

CODED_CHUNKS = 8
"""Chunks of an ingest's slice that both versions code once more, to be compared."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


def verdict(passed: int, failed: int, error: BaseException) -> str | None:
    """Return why a canary is to be withdrawn; None while its failures may be chance.

    Args:
        passed: slices that succeeded with it.
        failed: slices that failed with it.
        error: the error of the last failure.
    """
    runs = passed + failed
    if failed <= MOST_FAILURES or failed <= MOST_FAILING * runs:
        return None
    name = getattr(error, "code", type(error).__name__)
    return f"{failed} of {runs} slices failed, the last with {name}"


@dataclass(slots=True)
class Tries:
    """How many slices the newest canary has passed and failed, over all ledgers of a worker.

    ``trial``: the name of its trial; a version that is tried again starts with counts of zero.
    """

    codec: str = ""
    trial: str | None = None
    passed: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class ArtifactCanary:
    """Counts the successes and failures of an artifact's canary.

    Args:
        models: the artifacts.
        metrics: the worker's counters.
        make: makes a pipeline that uses the canary.
        withdraw: withdraws the canary with the given codec, for a reason.
        comparisons: compares the canary with the stable artifact; None compares nothing.
        trial: returns the name of the canary's trial; None without one.
        on_tried: called with the canary's codec and how many slices it has passed and failed.
        tries: counts these, where the canary's slices are of several ledgers.
    """

    def __init__(
        self,
        models: ArtifactStore,
        metrics: Metrics,
        *,
        make: Callable[[Models], Pipeline],
        withdraw: Callable[[str, str], None],
        comparisons: Comparisons | None = None,
        trial: Callable[[], str | None] = lambda: None,
        on_tried: Callable[[str, int, int], None] = lambda _codec, _passed, _failed: None,
        tries: Tries | None = None,
    ) -> None:
        self._models = models
        self._metrics = metrics
        self._make = make
        self._withdraw = withdraw
        self._comparisons = comparisons
        self._trial = trial
        self._on_tried = on_tried
        self._tries = tries or Tries()
        self._made: tuple[str, Pipeline] | None = None

    def pipeline(self, job_id: str) -> Pipeline | None:
        """Return a pipeline that uses the canary; None for a job outside the canary's share.

        It is made once: as the stable artifact's it keeps what it reads of log collections.
        """
        models = self._models.canary(job_id)
        if models is None:
            return None
        codec = models.current().codec
        self._note_trial(codec)
        made = self._made
        if made is None or made[0] != codec:
            made = self._made = codec, self._make(models)
        return made[1]

    def _note_trial(self, codec: str) -> None:
        tries, trial = self._tries, self._trial()
        with tries.lock:
            if (codec, trial) != (tries.codec, tries.trial):
                tries.codec, tries.trial, tries.passed, tries.failed = codec, trial, 0, 0

    def run(
        self,
        work: AnySlice,
        call: Callable[[], SliceOutcome],
        beside: Callable[[], SliceOutcome],
        *,
        job: str,
    ) -> SliceOutcome:
        """Run a slice with the canary; for a sample of reads also with the stable artifact.

        Args:
            work: the slice.
            call: runs it with the canary.
            beside: runs it with the stable artifact.
            job: the job's id.
        """
        trial = self._trial()
        if self._comparisons is None or trial is None or not _is_compared(work):
            return call()
        outcome, pair = self._comparisons.run(call, beside, job=job)
        if pair is not None:
            found = agreement(work.kind, pair.canary.result, pair.stable.result)
            self._comparisons.add_agreement(trial, agreed=found.agreed, differed=found.differed)
            self._comparisons.add_seconds(
                trial, canary_s=pair.canary_s, stable_s=pair.stable_s, texts=len(work.accepted)
            )
        return outcome

    def compare_coding(
        self, work: AnySlice, canary: Pipeline, stable: Pipeline, *, job: str
    ) -> None:
        """Compare how long the canary and the stable artifact take to code some texts of an ingest.

        A record is read by the artifact that wrote it, whichever serves: how slow a canary's
        decoder is shows only in what it codes, as each payload is decoded before it is kept. An
        error is logged only: the slice itself has succeeded.

        Args:
            work: the slice, which the canary has executed.
            canary: the canary's pipeline.
            stable: the stable artifact's.
            job: the job's id.
        """
        trial = self._trial()
        if self._comparisons is None or trial is None or work.kind is not Kind.INGEST:
            return
        try:
            _, pair = self._comparisons.run(
                partial(canary.code, work, most=CODED_CHUNKS),
                partial(stable.code, work, most=CODED_CHUNKS),
                job=job,
            )
        except Exception as error:  # noqa: BLE001  # the slice itself has succeeded
            _log.warning("the canary's coding is not compared: %s", type(error).__name__)
            return
        if pair is not None:
            seconds = {"canary_s": pair.canary_s, "stable_s": pair.stable_s}
            self._comparisons.add_seconds(trial, **seconds, texts=pair.canary)

    def verified(self, verdict: Verdict, *, job_id: str) -> None:
        """Count records of the canary that read back; withdraw it for those that did not.

        A job of its share may have been written by the stable artifact: before the canary came, or
        because the canary failed, or by a verify.
        """
        models = self._models.canary(job_id)
        if models is None:
            return
        codec = models.current().codec
        own = {document for document, writer in verdict.written_by.items() if writer == codec}
        if self._comparisons is not None and (trial := self._trial()) is not None:
            self._comparisons.add(trial, {"read_back": len(own.intersection(verdict.sound))})
        if misread := len(own.intersection(write.document for write in verdict.rewritten)):
            self._note_trial(codec)
            self.misread(misread)

    def passed(self) -> None:
        """Count a slice that succeeded with the canary."""
        self._metrics.canary_slice("passed")
        tries = self._tries
        with tries.lock:
            tries.passed += 1
            self._on_tried(tries.codec, tries.passed, tries.failed)

    def failed(self, error: BaseException) -> bool:
        """Count an error, unless the canary is not to blame for it.

        Returns:
            Whether the canary is to blame, so that the slice should run with the stable artifact.
        """
        if isinstance(error, NOT_ITS_FAULT):
            return False
        self._metrics.canary_slice("failed")
        tries = self._tries
        with tries.lock:
            tries.failed += 1
            self._on_tried(tries.codec, tries.passed, tries.failed)
            reason = verdict(tries.passed, tries.failed, error)
        if reason is not None:
            self._withdraw(tries.codec, reason)
        return True

    def misread(self, count: int) -> None:
        """Withdraw the canary because ``count`` of its records did not read back."""
        self._metrics.canary_slice("failed")
        self._withdraw(self._tries.codec, f"{count} records did not read back")


def _is_compared(work: AnySlice) -> bool:
    """Whether an artifact decides what a slice returns: a head compares its own versions."""
    if work.kind is Kind.SEARCH:
        return work.params.rerank is None
    return work.kind in (Kind.EMBED, Kind.RECONSTRUCT)


class HeadsWithCanary(Protocol):
    """Heads of which each may have a canary."""

    comparisons: Comparisons | None

    def canary(self, name: str, job: str) -> str | None:
        """Return the canary's version if the job is of its share, else None."""

    def tried(self, name: str, version: str, error: BaseException | None) -> None:
        """Count a job that a canary ran; ``error`` is None if it succeeded."""

    def compared(self, canaries: Mapping[str, str], work: AnySlice, pair: Pair[Any]) -> None:
        """Note what the versions of canaries, by head, and the stable versions said of a job."""


def run_job(
    heads: HeadsWithCanary,
    names: Sequence[str],
    call: Callable[[str | None], T],
    *,
    job: str,
    beside: StableRun[T] | None = None,
) -> T:
    """Run a job; if a canary may be to blame for its failure, run it again without canaries.

    Args as in :meth:`verso_worker.rules.ports.models.Heads.run_job`.
    """
    canaries = {name: version for name in names if (version := heads.canary(name, job)) is not None}
    if not canaries:
        return call(job)
    failure: Exception | None = None
    pair: Pair[T] | None = None
    try:
        if beside is None or heads.comparisons is None:
            result = call(job)
        else:
            result, pair = heads.comparisons.run(partial(call, job), beside.run, job=job)
    except Exception as error:
        if isinstance(error, NOT_ITS_FAULT):
            raise
        result = _run_stable(call, error)
        # Counted only now: if the stable versions fail as well, the canaries are not to blame.
        _log.warning("run without canaries of %s: %s", sorted(canaries), type(error).__name__)
        failure = error
    for name, version in canaries.items():
        heads.tried(name, version, failure)
    if beside is not None and pair is not None:
        heads.compared(canaries, beside.work, pair)
    return result


def _run_stable(call: Callable[[str | None], T], error: Exception) -> T:
    """Run a job with stable versions; raise the canary's error where there are none."""
    try:
        return call(None)
    except HeadUnknown:
        raise error from None
