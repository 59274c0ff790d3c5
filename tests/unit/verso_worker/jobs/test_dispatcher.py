"""Slots are activated up to a limit, and another is woken once while all active ones execute."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Queue
from verso_ledger import Ledger
from verso_worker.jobs.dispatcher import Dispatcher, Slots
from verso_worker.jobs.sources import Source


def test_no_more_slots_are_activated_than_there_are() -> None:
    slots = Slots(2)
    assert [slots.activate(), slots.activate(), slots.activate()] == [True, True, False]
    slots.release()
    assert slots.activate()


def test_another_slot_is_woken_once_until_it_is_activated() -> None:
    slots = Slots(2)
    slots.activate()
    with slots.executing() as first:
        assert first
    with slots.executing() as second:
        assert not second
    slots.activate()
    slots.release()
    with slots.executing() as third:
        assert third


def test_none_is_woken_while_one_listens_or_all_are_active() -> None:
    slots = Slots(3)
    slots.activate()
    slots.activate()
    with slots.executing() as one_listens:
        assert not one_listens
        slots.activate()
        with slots.executing(), slots.executing() as all_active:
            assert not all_active


class Leases:
    """A ledger's leases: so many slices are due; or it does not answer."""

    owner, lease_s = "worker", 10.0

    def __init__(self, due: int) -> None:
        self.due = due
        self.answers = True
        self.asked = 0
        self.slots: list[int] = []

    def claim(self, queue: Queue, *, slots: int, **_: object) -> list[object]:
        self.asked += 1
        if not self.answers:
            raise LedgerUnavailable("away")
        self.slots.append(slots)
        if not self.due:
            return []
        self.due -= 1
        return [object()]


class Executor:
    """Notes whose slices are executed."""

    def __init__(self, name: str, done: list[str]) -> None:
        self._name, self._done = name, done

    def execute(self, leases: Sequence[object]) -> None:
        self._done += [self._name] * len(leases)


def several(done: list[str], **due: int) -> tuple[Dispatcher, dict[str, Leases]]:
    leases = {name: Leases(count) for name, count in due.items()}
    sources: list[Any] = [
        Source(
            cast("Ledger", SimpleNamespace(leases=one)),
            cast("Any", Executor(name, done)),
            cast("Any", one),
        )
        for name, one in leases.items()
    ]
    return Dispatcher(sources, slots={Queue.BULK: 3}, kept={Queue.BULK: 1}), leases


def test_ledgers_take_turns() -> None:
    done: list[str] = []
    dispatcher, _ = several(done, home=4, b=2, c=4)
    assert dispatcher.run_queue(Queue.BULK) == 10
    assert done == ["home", "b", "c", "home", "b", "c", "home", "c", "home", "c"]


def test_a_ledger_that_is_away_is_asked_seldom_and_the_others_are_served() -> None:
    done: list[str] = []
    dispatcher, leases = several(done, home=5, b=5)
    leases["b"].answers = False
    assert dispatcher.run_queue(Queue.BULK) == 5
    assert leases["b"].asked == 1
    leases["home"].answers = False
    leases["home"].due = 1
    with pytest.raises(LedgerUnavailable):
        dispatcher.run_queue(Queue.BULK)


def test_a_ledger_gives_no_slots_that_work_for_others() -> None:
    done: list[str] = []
    dispatcher, leases = several(done, home=0, b=0)
    dispatcher._sources[0].busy[Queue.BULK] = 2
    dispatcher.run_queue(Queue.BULK)
    assert (leases["home"].slots, leases["b"].slots) == ([3], [1])
