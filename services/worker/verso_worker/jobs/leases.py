"""What a worker reports about the slices it holds: lease renewals and progress.

A lease only saves work: it keeps other workers from running the same slice. The fence decides at
the commit whether a worker may commit. So a late renewal can cause a slice to run twice, but never
a wrong commit. Renewals run in a thread that uses no model and no store.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from verso_core.errors import Cancelled, LedgerUnavailable
from verso_ledger import Commit, Lease, Ledger

_log = logging.getLogger(__name__)


class LeaseRenewer:
    """Renews the leases of a worker, and records its heartbeat, every third of a lease.

    Args:
        ledger: where the leases are.
        owner: this worker's name.
        lease_s: length of a lease, seconds.
        heartbeat_file: touched after every heartbeat that reached the ledger; None for no file.
    """

    def __init__(
        self, ledger: Ledger, *, owner: str, lease_s: float, heartbeat_file: Path | None = None
    ) -> None:
        self._ledger = ledger
        self.owner = owner
        self.lease_s = lease_s
        self._heartbeat_file = heartbeat_file
        self._leases: dict[str, Lease] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        """Start the renewals."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the renewals, and remove this worker from the ledger's list of live workers."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(LedgerUnavailable):
            self._ledger.liveness.forget_worker(self.owner)

    def hold(self, lease: Lease) -> Callable[[], bool]:
        """Renew a lease from now on.

        Returns:
            A function: whether the lease has been lost.
        """
        with self._lock:
            self._leases[lease.slice_id] = lease
            self._lost.discard(lease.slice_id)
        return lambda: lease.slice_id in self._lost

    def release(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        with self._lock:
            self._leases.pop(lease.slice_id, None)
            self._lost.discard(lease.slice_id)

    def held(self) -> list[Lease]:
        """Return the leases that are renewed now."""
        with self._lock:
            return list(self._leases.values())

    def renew(self) -> None:
        """Record a heartbeat and renew all leases once.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        held = self.held()
        self._ledger.liveness.note_worker(self.owner)
        lost = self._ledger.leases.renew(held, self.lease_s) if held else set()
        with self._lock:
            self._lost |= lost & self._leases.keys()
        if self._heartbeat_file is not None:
            self._heartbeat_file.touch()

    def _run(self) -> None:
        while not self._stop.wait(self.lease_s / 3):
            try:
                self.renew()
            except LedgerUnavailable as error:
                _log.warning("heartbeat failed: %s", error.detail)


class ProgressReporter:
    """Reports the progress of one slice as events of its job.

    Args:
        ledger: where the job's events are.
        lease: the slice.
        every_s: shortest time between two reports, seconds.
    """

    def __init__(self, ledger: Ledger, lease: Lease, *, every_s: float = 1.0) -> None:
        self._ledger = ledger
        self._lease = lease
        self._every_s = every_s
        self._reported_s: float | None = None

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Report how much of a stage is done.

        Raises:
            Cancelled: the job was cancelled, or another worker has the slice.
        """
        now = time.monotonic()
        if self._reported_s is not None and now - self._reported_s < self._every_s:
            return
        self._reported_s = now
        state = {"stage": stage, "share": round(done / max(1, of), 4)}
        if self._ledger.leases.report_progress(self._lease, state) is Commit.STALE:
            raise Cancelled("cancelled, or done by another worker")
