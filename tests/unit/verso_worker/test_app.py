"""A door-bell and what may come of it."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import TASK_WORK, Queue
from verso_worker.app import create_app
from verso_worker.jobs.dispatcher import Dispatcher


class OneDesk:
    """A desk that says which queue it was rung for, and then fails with an error, if it has one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.rung: list[Queue] = []

    def drain(self, queue: Queue, **_: Any) -> int:
        """Note the queue."""
        self.rung.append(queue)
        if self.error is not None:
            raise self.error
        return 1


def ring(desk: OneDesk) -> None:
    create_app("memory://", cast("Dispatcher", desk)).tasks[TASK_WORK](Queue.BULK.value)


def test_a_bell_rings_its_queue() -> None:
    desk = OneDesk()
    ring(desk)
    assert desk.rung == [Queue.BULK]


def test_a_ledger_that_is_away_is_one_line_and_no_stack(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ring(OneDesk(LedgerUnavailable("connection refused")))
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "connection refused" in record.getMessage()


def test_what_nobody_foresaw_is_told_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        ring(OneDesk(ZeroDivisionError()))
