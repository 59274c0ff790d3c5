"""Work that is begun before its job is accepted, and how it meets the lease that follows.

The ledger syncs its file before it says that a job is accepted. An embed changes nothing, so the
hand that will be given it is shown it first and begins (decision 18):

    1. A hand that was shown a job begins it: :meth:`HeadStarts.begin`.
    2. The lease comes while it runs: whoever hears of it leaves it here (:meth:`~HeadStarts.left`),
       and the hand that runs it finds it at the end (:meth:`~HeadStarts.end`).
    3. Or it comes later, and whoever hears of it takes what was done (:meth:`~HeadStarts.take`).
    4. Or never: the job was refused, or another worker has it. A few outcomes are kept, not more.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from verso_ledger import Lease
from verso_worker.rules.ports import SliceOutcome

_KEPT = 16


@dataclass(slots=True)
class _Start:
    running: bool = True
    lease: Lease | None = None
    outcome: SliceOutcome | None = None


class HeadStarts:
    """What was begun ahead, by job; any number of threads may use it."""

    def __init__(self) -> None:
        self._starts: dict[str, _Start] = {}  # in order of beginning
        self._lock = threading.Lock()

    def begin(self, job_id: str) -> None:
        """Note that a job's work begins."""
        with self._lock:
            over = [job for job, start in self._starts.items() if not start.running]
            for job in over[: max(0, len(over) - _KEPT + 1)]:
                del self._starts[job]
            self._starts[job_id] = _Start()

    def end(self, job_id: str, outcome: SliceOutcome | None) -> Lease | None:
        """Note what came of it, None where it failed; returns the lease if that has come."""
        with self._lock:
            start = self._starts[job_id]
            if outcome is None or start.lease is not None:
                del self._starts[job_id]
            start.running, start.outcome = False, outcome
            return start.lease

    def left(self, lease: Lease) -> bool:
        """Leave a lease to the hand that runs its job now; False where none does."""
        with self._lock:
            start = self._starts.get(lease.job_id)
            if start is None or not start.running:
                return False
            start.lease = lease
            return True

    def take(self, job_id: str) -> SliceOutcome | None:
        """Return what came of a job that was begun ahead, once."""
        with self._lock:
            start = self._starts.get(job_id)
            if start is None or start.running:
                return None
            del self._starts[job_id]
            return start.outcome
