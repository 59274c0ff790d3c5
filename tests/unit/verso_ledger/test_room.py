"""Which ledger a new collection or partition is made on."""

from __future__ import annotations

from verso_ledger.ledgers.room import ENOUGH, roomiest

FEW = {"a": 1, "b": 1}


def test_a_new_partition_goes_where_fewest_are_of_ledgers_with_room() -> None:
    def chosen(free: dict[str, int], beside: dict[str, int]) -> str:
        return roomiest(free, holds=FEW, beside=beside, like=ENOUGH)

    assert chosen({"a": 100, "b": 60}, {"a": 2, "b": 1}) == "b"
    assert chosen({"a": 100, "b": 40}, {"a": 2, "b": 0}) == "a"
    assert chosen({"a": 90, "b": 100}, {"a": 1}) == "b"
    assert chosen({"a": 90, "b": 100}, {}) == "a", "the first of equal ones"


def test_of_ledgers_with_like_room_the_one_with_fewest_collections_gets_a_new_one() -> None:
    assert roomiest({"a": 100, "b": 96}, holds={"a": 3, "b": 2}, beside={}) == "b"
    assert roomiest({"a": 100, "b": 90}, holds={"a": 3, "b": 2}, beside={}) == "a"
