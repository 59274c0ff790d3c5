"""Facts about duties that are done again and again."""

from __future__ import annotations

import logging
import threading

import pytest

from verso_core.errors import LedgerUnavailable
from verso_keeper.periodic import Periodic


def test_an_outage_is_said_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    away, done = [True], []

    def duty() -> None:
        if away[0]:
            raise LedgerUnavailable("away")

    periodic = Periodic("reap", duty, every_s=1.0, after_round=lambda: done.append(1))
    for _ in range(3):
        periodic.run_once()
    away[0] = False
    for _ in range(3):
        periodic.run_once()
    assert [record.getMessage() for record in caplog.records] == [
        "reap waits: away",
        "reap resumed",
    ]
    assert len(done) == 6


def test_a_fault_of_ours_does_not_end_the_duty(caplog: pytest.LogCaptureFixture) -> None:
    turns = threading.Semaphore(0)

    def duty() -> None:
        turns.release()
        raise KeyError("a fault")

    periodic = Periodic("reap", duty, every_s=0.001)
    periodic.start()
    assert all(turns.acquire(timeout=60) for _ in range(3))
    periodic.stop(timeout_s=60)
    assert "reap failed" in caplog.text
