"""Facts about when leases are taken back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Queue
from verso_keeper.wakeup import Reaper
from verso_ledger import Depth, Ledger


class FakeMaintenance:
    """A ledger that can be away."""

    def __init__(self) -> None:
        self.away = False
        self.reaped = 0

    def reap(self) -> dict[Queue, int]:
        self._answer()
        self.reaped += 1
        return {Queue.BULK: 1}

    def depths(self) -> dict[Queue, Depth]:
        self._answer()
        return {Queue.BULK: Depth(queued=7, delayed=1, running=2, oldest_s=0.0)}

    def _answer(self) -> None:
        if self.away:
            raise LedgerUnavailable("away")


def test_after_an_outage_workers_get_time_for_a_beat_before_leases_are_taken_back() -> None:
    ledger, now = FakeMaintenance(), [0.0]
    reaper = Reaper(
        cast("Ledger", SimpleNamespace(maintenance=ledger)), grace_s=4.0, clock=lambda: now[0]
    )
    reaper.step()
    assert (ledger.reaped, dict(reaper.due)) == (1, {Queue.BULK: 1})
    ledger.away = True
    with pytest.raises(LedgerUnavailable):
        reaper.step()
    assert dict(reaper.due) == {}
    ledger.away = False
    for now[0] in (10.0, 12.0, 13.9):
        reaper.step()
        assert ledger.reaped == 1
        assert dict(reaper.due) == {Queue.BULK: 7}  # wake-ups for due work go on
    now[0] = 14.0
    reaper.step()
    assert ledger.reaped == 2
