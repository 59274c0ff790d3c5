"""A wake-up runs its queue, and an unavailable ledger is one line in the log."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import TASK_WORK, Queue
from verso_worker.app import create_app
from verso_worker.jobs.dispatcher import Dispatcher


class RecordingDispatcher:
    """Notes which queue it was asked to run, and then raises an error, if it has one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.queues: list[Queue] = []

    def run_queue(self, queue: Queue, **_: Any) -> int:
        """Note the queue."""
        self.queues.append(queue)
        if self.error is not None:
            raise self.error
        return 1


def wake(dispatcher: RecordingDispatcher) -> None:
    create_app("memory://", cast("Dispatcher", dispatcher)).tasks[TASK_WORK](Queue.BULK.value)


def test_a_wakeup_runs_its_queue() -> None:
    dispatcher = RecordingDispatcher()
    wake(dispatcher)
    assert dispatcher.queues == [Queue.BULK]


def test_an_unavailable_ledger_is_one_line_and_no_stack(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        wake(RecordingDispatcher(LedgerUnavailable("connection refused")))
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "wake-up failed: ledger unavailable: connection refused" in record.getMessage()


def test_an_unforeseen_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        wake(RecordingDispatcher(ZeroDivisionError()))
