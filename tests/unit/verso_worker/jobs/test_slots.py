"""Hands wake up to a bound, and another is called once when all that are awake are at work."""

from __future__ import annotations

from verso_worker.jobs.slots import Slots


def test_no_more_hands_wake_than_there_are() -> None:
    hands = Slots(2)
    assert [hands.wake(), hands.wake(), hands.wake()] == [True, True, False]
    hands.sleep()
    assert hands.wake()


def test_another_hand_is_called_once_until_it_came() -> None:
    hands = Slots(2)
    hands.wake()
    with hands.busy() as first:
        assert first
    with hands.busy() as second:
        assert not second
    hands.wake()
    hands.sleep()
    with hands.busy() as third:
        assert third


def test_none_is_called_while_one_listens_or_all_are_awake() -> None:
    hands = Slots(3)
    hands.wake()
    hands.wake()
    with hands.busy() as one_listens:
        assert not one_listens
        hands.wake()
        with hands.busy(), hands.busy() as all_awake:
            assert not all_awake
