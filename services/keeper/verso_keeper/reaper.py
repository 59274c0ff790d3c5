"""Takes back slices whose worker died, and knows which queues have due work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Queue
from verso_ledger import Ledger

_log = logging.getLogger(__name__)


class Reaper:
    """Reaps, but not at once after the ledger was away.

    While the ledger does not answer, no worker can renew a lease, so all of them look dead the
    moment it is back. The workers get time for one beat first; otherwise every restart of Redis
    would count as a crash of every slice in hand.

    Args:
        ledger: where leases are.
        mercy_s: time the workers get, seconds; a little more than they take between two beats.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        mercy_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._mercy_s = mercy_s
        self._clock = clock
        self._away = False
        self._resume_s = 0.0
        self._due: Mapping[Queue, int] = {}

    @property
    def due(self) -> Mapping[Queue, int]:
        """Number of due slices of each queue, as the last round saw it."""
        return self._due

    def step(self) -> None:
        """Do one round.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        try:
            self._due = self._count()
        except LedgerUnavailable:
            self._away, self._due = True, {}
            raise

    def _count(self) -> dict[Queue, int]:
        if not self._away and self._clock() >= self._resume_s:
            return self._ledger.maintenance.reap()
        depths = self._ledger.maintenance.depths()
        if self._away:
            self._away = False
            self._resume_s = self._clock() + self._mercy_s
            _log.info("the ledger is back; leases may be renewed before any is taken back")
        return {queue: depth.queued for queue, depth in depths.items()}
