"""Slots are activated up to a limit, and another is woken once while all active ones execute."""

from __future__ import annotations

from verso_worker.jobs.dispatcher import Slots


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
