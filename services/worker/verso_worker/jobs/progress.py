"""Tell whoever follows a job how far a slice is, and learn on the way that nobody wants it."""

from __future__ import annotations

import time

from verso_core.errors import Cancelled
from verso_ledger import Commit, Lease, Ledger


class ProgressReporter:
    """Tells of one slice's work.

    Args:
        ledger: where the job's events are.
        lease: the slice in hand.
        every_s: told no more often than that, seconds.
    """

    def __init__(self, ledger: Ledger, lease: Lease, *, every_s: float = 1.0) -> None:
        self._ledger = ledger
        self._lease = lease
        self._every_s = every_s
        self._told: float | None = None

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Return how much of a stage is done.

        Raises:
            Cancelled: the job was cancelled, or another worker has the slice.
        """
        now = time.monotonic()
        if self._told is not None and now - self._told < self._every_s:
            return
        self._told = now
        state = {"stage": stage, "share": round(done / max(1, of), 4)}
        if self._ledger.progress(self._lease, state) is Commit.STALE:
            raise Cancelled("cancelled, or done by another worker")
