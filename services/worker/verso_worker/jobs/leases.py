"""Renew the leases of the slices in hand, from a thread that never touches a model or a store.

A lease is only there to save work: whoever holds it keeps others from doing the same. What a
worker may still commit is decided at the commit, by the fencing token. So a heart that stops for a
while costs a repeated slice and never a wrong one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from verso_core.errors import LedgerUnavailable
from verso_ledger import Lease, Ledger

_log = logging.getLogger(__name__)


class LeaseRenewer:
    """Beats every third of a lease.

    Args:
        ledger: where leases are.
        owner: this worker's name.
        lease_s: length of a lease, seconds.
        beat_file: touched at every beat that reached the ledger; None for no file.
    """

    def __init__(
        self, ledger: Ledger, *, owner: str, lease_s: float, beat_file: Path | None = None
    ) -> None:
        self._ledger = ledger
        self._owner = owner
        self._lease_s = lease_s
        self._beat_file = beat_file
        self._leases: dict[str, Lease] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def start(self) -> None:
        """Start beating."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating, and tell the ledger that this worker left in good order."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(LedgerUnavailable):
            self._ledger.forget_worker(self._owner)

    def hold(self, lease: Lease) -> Callable[[], bool]:
        """Renew a lease from now on; the function given tells whether it has been lost."""
        with self._lock:
            self._leases[lease.slice_id] = lease
            self._lost.discard(lease.slice_id)
        return lambda: lease.slice_id in self._lost

    def release(self, lease: Lease) -> None:
        """Renew a lease no longer."""
        with self._lock:
            self._leases.pop(lease.slice_id, None)
            self._lost.discard(lease.slice_id)

    def held(self) -> list[Lease]:
        """Return the leases that are renewed now."""
        with self._lock:
            return list(self._leases.values())

    def _run(self) -> None:
        while not self._stop.wait(self._lease_s / 3):
            try:
                self.beat()
            except LedgerUnavailable as error:
                _log.warning("no beat: %s", error.detail)

    def beat(self) -> None:
        """Renew all leases in hand once."""
        held = self.held()
        self._ledger.note_beat(self._owner)
        lost = self._ledger.beat(held, self._lease_s) if held else set()
        with self._lock:
            self._lost |= lost & self._leases.keys()
        if self._beat_file is not None:
            self._beat_file.touch()
