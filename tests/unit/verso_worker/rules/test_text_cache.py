"""Texts kept in memory: within their bound, and under names that no other text can have."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs import Collection, Precision, TextPolicy
from verso_core.record import Codec, Record
from verso_worker.records.cache import ENTRY_BYTES, Cache
from verso_worker.rules.reader import name_of

COLLECTION = Collection(
    name="c",
    precision=Precision.INT8,
    text_policy=TextPolicy.PATCH,
    space="s",
    dim=4,
    int8_scale=1.0,
    artifacts=("one", "two"),
    buckets=4,
    checksum_key="00ff",
    created=datetime(2026, 1, 1, tzinfo=UTC),
)
RECORD = Record(Codec.NEURAL, 0, b"8 bytes.", b"sum.", b"a payload")


def test_what_was_kept_is_found_and_the_rest_is_missed() -> None:
    told: list[tuple[int, int, int]] = []
    cache: Cache[bytes] = Cache(10_000, on_lookup=lambda *row: told.append(row))
    assert cache.find([b"a"]) == {}
    cache.keep({b"a": b"text"})
    assert cache.find([b"a", b"b", b"a"]) == {b"a": b"text"}
    assert told == [(0, 1, 0), (2, 1, ENTRY_BYTES + 4)]


def test_what_was_not_read_for_longest_goes_first() -> None:
    cache: Cache[bytes] = Cache(2 * (ENTRY_BYTES + 1))
    cache.keep({b"a": b"1", b"b": b"2"})
    cache.find([b"a"])
    cache.keep({b"c": b"3"})
    assert cache.find([b"a", b"b", b"c"]) == {b"a": b"1", b"c": b"3"}


@given(sizes=st.lists(st.integers(0, 900), max_size=60), limit=st.integers(0, 2000))
def test_never_more_is_kept_than_the_bound(sizes: list[int], limit: int) -> None:
    told: list[int] = []
    cache: Cache[bytes] = Cache(limit, on_lookup=lambda _, __, size: told.append(size))
    for number, size in enumerate(sizes):
        name = bytes([number % 7])
        cache.keep({name: bytes(size)})
        found = cache.find([bytes([n]) for n in range(7)])
        assert sum(len(text) + ENTRY_BYTES for text in found.values()) == told[-1] <= limit


@pytest.mark.parametrize(
    ("collection", "record"),
    [
        (COLLECTION, replace(RECORD, payload=b"a payloae")),
        (COLLECTION, replace(RECORD, vector_hash=b"8 bytes!")),
        (COLLECTION, replace(RECORD, checksum=b"sum!")),
        (COLLECTION, replace(RECORD, codec=Codec.NGRAM)),
        (COLLECTION, replace(RECORD, slot=1)),
        (COLLECTION.model_copy(update={"checksum_key": "00fe"}), RECORD),
        (COLLECTION.model_copy(update={"artifacts": ("two",)}), RECORD),
    ],
)
def test_a_name_changes_with_all_that_a_text_follows_from(
    collection: Collection, record: Record
) -> None:
    assert name_of(collection, record) != name_of(COLLECTION, RECORD)


def test_a_raw_record_has_no_name_nor_one_of_an_unknown_artifact() -> None:
    assert name_of(COLLECTION, replace(RECORD, codec=Codec.RAW)) is None
    assert name_of(COLLECTION, replace(RECORD, slot=2)) is None


def test_a_record_in_cold_storage_is_named_by_its_place() -> None:
    names = {name_of(COLLECTION, RECORD, place=place) for place in (b"", b"one", b"other")}
    assert len(names) == 3
    assert name_of(COLLECTION, replace(RECORD, codec=Codec.RAW), place=b"one") is not None
