"""Let a canary do its share of the jobs, and take it back as soon as it does them badly.

A job's share is decided by its id, so a repeated attempt meets the same artifact. What fails with
the canary is done with the stable artifact at once: a bad canary costs time, never a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from verso_core.errors import (
    CollectionExists,
    DiskFull,
    LedgerUnavailable,
    NotFound,
    RequestInvalid,
    VectorsUnavailable,
)
from verso_worker.metrics import Metrics
from verso_worker.rules.ports import Models

if TYPE_CHECKING:
    from verso_worker.rules.pipeline import Pipeline

MOST_FAILURES = 2
"""Failures that may be chance."""
MOST_FAILING = 0.02
"""Share of the canary's slices that may fail."""

NOT_ITS_FAULT = (
    CollectionExists, DiskFull, LedgerUnavailable, NotFound, RequestInvalid, VectorsUnavailable,
)  # fmt: skip
"""What a canary cannot be blamed for."""


def verdict(passed: int, failed: int, error: BaseException) -> str | None:
    """Say why a canary is to be taken back; None while its failures may be chance.

    Args:
        passed: slices it did well.
        failed: slices it failed.
        error: that the last one failed with.
    """
    runs = passed + failed
    if failed <= MOST_FAILURES or failed <= MOST_FAILING * runs:
        return None
    return f"{failed} of {runs} slices failed, the last with {_name(error)}"


class Canaries(Protocol):
    """What has a canary or none."""

    def canary(self, job_id: str) -> Models | None:
        """Return the artifacts as a job of the canary's share sees them; None for any other job."""
        ...


class ArtifactCanary:
    """Counts what a canary does well and badly.

    Args:
        models: may have a canary.
        metrics: what is counted.
        make: makes the pipeline that works with a canary.
        withdraw: takes the canary of a codec back, for a reason.
    """

    def __init__(
        self,
        models: Canaries,
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
        """Return the pipeline that tries the canary on this job; None where the job tries
        nothing.
        """
        models = self._models.canary(job_id)
        if models is None:
            return None
        codec = models.current().codec
        with self._lock:
            if codec != self._codec:  # another canary begins with a clean record
                self._codec, self._passed, self._failed = codec, 0, 0
        return self._make(models)

    def passed(self) -> None:
        """Note a slice that the canary did well."""
        self._metrics.trial("passed")
        with self._lock:
            self._passed += 1

    def failed(self, error: BaseException) -> bool:
        """Note an error; give whether it was the canary's, so that the stable one should try."""
        if isinstance(error, NOT_ITS_FAULT):
            return False
        self._metrics.trial("failed")
        with self._lock:
            self._failed += 1
            reason = verdict(self._passed, self._failed, error)
        if reason is not None:
            self._withdraw(self._codec, reason)
        return True

    def misread(self, count: int) -> None:
        """Note records of the canary that did not read back; one is enough."""
        self._metrics.trial("failed")
        self._withdraw(self._codec, f"{count} records did not read back")


def _name(error: BaseException) -> str:
    return str(getattr(error, "code", type(error).__name__))
