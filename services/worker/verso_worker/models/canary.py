"""Run canaries on their share of the jobs, and withdraw those that fail too often.

The id of a job decides whether it is of the canary's share, so every attempt of a job uses the same
versions. A job that fails with a canary runs again with the stable version at once: a bad canary
costs time, but fails no request. :class:`ArtifactCanary` does so for artifacts, :func:`run_job` for
heads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from verso_core.errors import (
    Cancelled,
    CollectionExists,
    DiskFull,
    HeadUnknown,
    LedgerUnavailable,
    NotFound,
    RequestInvalid,
    VectorsUnavailable,
)
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports import Models

MOST_FAILURES = 2
"""Number of failures that may be chance."""
MOST_FAILING = 0.02
"""Share of the canary's slices that may fail by chance."""

NOT_ITS_FAULT = (
    Cancelled, CollectionExists, DiskFull, LedgerUnavailable, NotFound, RequestInvalid,
    VectorsUnavailable,
)  # fmt: skip
"""Errors that are never blamed on a canary: the caller's, or those of a store."""

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


class ArtifactCanary:
    """Counts the successes and failures of an artifact's canary.

    Args:
        models: the artifacts.
        metrics: the worker's counters.
        make: makes a pipeline that uses the canary.
        withdraw: withdraws the canary with the given codec, for a reason.
    """

    def __init__(
        self,
        models: ArtifactStore,
        metrics: Metrics,
        *,
        make: Callable[[Models], Pipeline],
        withdraw: Callable[[str, str], None],
    ) -> None:
        self._models = models
        self._metrics = metrics
        self._make = make
        self._withdraw = withdraw
        self._lock = threading.Lock()
        self._codec = ""
        self._passed = 0
        self._failed = 0

    def pipeline(self, job_id: str) -> Pipeline | None:
        """Return a pipeline that uses the canary; None for a job outside the canary's share."""
        models = self._models.canary(job_id)
        if models is None:
            return None
        codec = models.current().codec
        with self._lock:
            if codec != self._codec:  # a new canary starts with counts of zero
                self._codec, self._passed, self._failed = codec, 0, 0
        return self._make(models)

    def passed(self) -> None:
        """Count a slice that succeeded with the canary."""
        self._metrics.canary_slice("passed")
        with self._lock:
            self._passed += 1

    def failed(self, error: BaseException) -> bool:
        """Count an error, unless the canary is not to blame for it.

        Returns:
            Whether the canary is to blame, so that the slice should run with the stable artifact.
        """
        if isinstance(error, NOT_ITS_FAULT):
            return False
        self._metrics.canary_slice("failed")
        with self._lock:
            self._failed += 1
            reason = verdict(self._passed, self._failed, error)
        if reason is not None:
            self._withdraw(self._codec, reason)
        return True

    def misread(self, count: int) -> None:
        """Withdraw the canary because ``count`` of its records did not read back."""
        self._metrics.canary_slice("failed")
        self._withdraw(self._codec, f"{count} records did not read back")


class HeadsWithCanary(Protocol):
    """Heads of which each may have a canary."""

    def canary(self, name: str, job: str) -> str | None:
        """Return the canary's version if the job is of its share, else None."""

    def tried(self, name: str, version: str, error: BaseException | None) -> None:
        """Count a job that a canary ran; ``error`` is None if it succeeded."""


def run_job(
    heads: HeadsWithCanary, names: Sequence[str], call: Callable[[str | None], T], *, job: str
) -> T:
    """Run a job; if a canary may be to blame for its failure, run it again without canaries.

    Args as in :meth:`verso_worker.rules.ports.Heads.run_job`.
    """
    canaries = {name: version for name in names if (version := heads.canary(name, job)) is not None}
    if not canaries:
        return call(job)
    failure: Exception | None = None
    try:
        result = call(job)
    except Exception as error:
        if isinstance(error, NOT_ITS_FAULT):
            raise
        result = _run_stable(call, error)
        # Counted only now: if the stable versions fail as well, the canaries are not to blame.
        _log.warning("run without canaries of %s: %s", sorted(canaries), type(error).__name__)
        failure = error
    for name, version in canaries.items():
        heads.tried(name, version, failure)
    return result


def _run_stable(call: Callable[[str | None], T], error: Exception) -> T:
    """Run a job with stable versions; raise the canary's error where there are none."""
    try:
        return call(None)
    except HeadUnknown:
        raise error from None
