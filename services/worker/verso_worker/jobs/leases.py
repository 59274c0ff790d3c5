"""What a worker reports about the slices it holds: lease renewals and progress.

The renewals also find out that a slice was cancelled: those of slices that run for longer than a
second are renewed every second, so that the work ends soon after.

A lease only saves work: it keeps other workers from running the same slice. The fence decides at
the commit whether a worker may commit. So a late renewal can cause a slice to run twice, but never
a wrong commit. Renewals run in a thread that uses no model and no store.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verso_core.errors import Cancelled, LedgerUnavailable
from verso_ledger import Commit, Lease, Ledger

_RENEW_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease that is renewed; ``since`` on the monotonic clock."""

    lease: Lease
    on_lost: Callable[[], None]
    since: float


class LeaseRenewer:
    """Renews the leases of a worker every second, and records its heartbeat, a third of a lease.

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
        self._leases: dict[str, _Held] = {}
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

    def hold(
        self, lease: Lease, *, on_lost: Callable[[], None] = lambda: None
    ) -> Callable[[], bool]:
        """Renew a lease from now on.

        Args:
            lease: the lease.
            on_lost: called once, in another thread, when the lease has been lost: the slice was
                cancelled, or another worker has it.

        Returns:
            A function: whether the lease has been lost.
        """
        with self._lock:
            self._leases[lease.slice_id] = _Held(lease, on_lost, time.monotonic())
            self._lost.discard(lease.slice_id)
        return lambda: lease.slice_id in self._lost

    def release(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        with self._lock:
            self._leases.pop(lease.slice_id, None)
            self._lost.discard(lease.slice_id)

    def held(self) -> list[Lease]:
        """Return the leases that are renewed now."""
        return [one.lease for one in self._all()]

    def beat(self) -> None:
        """Record a heartbeat.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        self._ledger.liveness.note_worker(self.owner)
        if self._heartbeat_file is not None:
            self._heartbeat_file.touch()

    def renew(self, *, older_than_s: float = 0.0) -> None:
        """Renew the leases that were held for so long; report those that are lost.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        since = time.monotonic() - older_than_s
        held = [one for one in self._all() if one.since <= since]
        if not held:
            return
        lost = self._ledger.leases.renew([one.lease for one in held], self.lease_s)
        with self._lock:
            found = lost & self._leases.keys() - self._lost
            self._lost |= found
        for one in held:
            if one.lease.slice_id in found:
                one.on_lost()

    def _all(self) -> list[_Held]:
        with self._lock:
            return list(self._leases.values())

    def _run(self) -> None:
        every_s = min(_RENEW_S, self.lease_s / 3)
        beat_at = 0.0
        while not self._stop.wait(every_s):
            try:
                self.renew(older_than_s=every_s)
                if time.monotonic() - beat_at >= self.lease_s / 3:
                    self.beat()
                    beat_at = time.monotonic()
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
        self._report({"stage": stage, "share": round(done / max(1, of), 4)})

    def part(self, name: str, part: Mapping[str, Any]) -> None:
        """Report a part of the result, which the job's caller waits for.

        Raises:
            Cancelled: the job was cancelled, or another worker has the slice.
        """
        self._report({"part": name, "data": part})

    def _report(self, state: Mapping[str, Any]) -> None:
        if self._ledger.leases.report_progress(self._lease, state) is Commit.STALE:
            raise Cancelled("cancelled, or done by another worker")
