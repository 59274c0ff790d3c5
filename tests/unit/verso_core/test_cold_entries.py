"""Entries in cold storage: what is left in the ledger leads to the part, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.verso_core.drawn_records import RECORDS

from verso_core import crc
from verso_core.errors import PatchCorrupt
from verso_core.record import (
    MAX_SEQ,
    OBJECT_BYTES,
    Codec,
    Entry,
    Flag,
    Part,
    Record,
    point_ids,
    seq_of,
)

_entries = st.builds(
    Entry,
    seq=st.integers(0, MAX_SEQ),
    size_bytes=st.integers(0, 2**40),
    records=st.lists(RECORDS, max_size=5).map(tuple),
    flags=st.just(Flag.VERIFIED),
    about=st.sampled_from([b"", b"hash"]),
) | st.builds(
    Entry,
    seq=st.integers(0, MAX_SEQ),
    size_bytes=st.integers(0, 2**40),
    records=st.lists(RECORDS, max_size=5).map(tuple),
    flags=st.just(Flag.VERIFIED),
    located=st.just(True),
)
_places = st.builds(
    Part,
    object=st.binary(min_size=OBJECT_BYTES, max_size=OBJECT_BYTES),
    offset=st.integers(0, 2**32),
    size_bytes=st.integers(0, 2**32),
)
RECORD = Record(Codec.ZSTD, 1, b"8 bytes.", b"sum.", b"a payload")
ENTRY = Entry(77, 300, (RECORD, RECORD), Flag.VERIFIED, b"hash")
PLACE = Part(b"8 bytes!", 70_000, 131)


@given(entry=_entries, place=_places)
def test_what_is_left_reads_back_and_the_part_gives_the_entry(entry: Entry, place: Part) -> None:
    packed = entry.moved(place).pack()
    left = Entry.unpack(packed)
    assert left == entry.moved(place)
    assert left.cold == place
    assert left.back(entry.part()) == entry
    assert crc.opened(entry.part()) == entry.pack()
    assert seq_of(packed) == entry.seq
    assert point_ids("c", "d", left) == point_ids("c", "d", entry)


@given(entry=_entries, place=_places, data=st.data())
def test_a_flipped_bit_of_what_is_left_is_corrected_and_known(
    entry: Entry, place: Part, data: st.DataObject
) -> None:
    packed = entry.moved(place).pack()
    bit = data.draw(st.integers(0, 8 * len(packed) - 1))
    found = Entry.unpack(crc.flipped(packed, bit))
    assert found.damaged
    if bit != 3:  # LONG is how the ledger tells that the head of a long entry is damaged
        assert replace(found, damaged=False) == entry.moved(place)
    assert replace(found.back(entry.part()), flags=entry.flags, damaged=False) == entry


@given(entry=_entries, data=st.data())
def test_a_flipped_bit_of_the_part_is_corrected_and_known(
    entry: Entry, data: st.DataObject
) -> None:
    part = entry.part()
    bit = data.draw(st.integers(0, 8 * len(part) - 1))
    found = entry.moved(PLACE).back(crc.flipped(part, bit))
    assert found == replace(entry, damaged=True)


@given(data=st.binary(min_size=1, max_size=120), place=_places)
def test_any_other_part_is_refused(data: bytes, place: Part) -> None:
    left = ENTRY.moved(place)
    for part in (None, data, crc.closed(data), ENTRY.part()[:-1], ENTRY.part() + b"\0"):
        with pytest.raises(PatchCorrupt):
            left.back(part)


@pytest.mark.parametrize(
    "other",
    [
        replace(ENTRY, seq=78),
        replace(ENTRY, size_bytes=301),
        replace(ENTRY, about=b""),
        replace(ENTRY, located=True, about=b""),
        replace(ENTRY, records=(RECORD,)),
        replace(ENTRY, records=(RECORD, replace(RECORD, slot=2))),
        replace(ENTRY, records=(RECORD, replace(RECORD, vector_hash=b"8 others"))),
        ENTRY.moved(PLACE),
    ],
)
def test_the_part_of_another_document_or_write_is_refused(other: Entry) -> None:
    with pytest.raises(PatchCorrupt):
        ENTRY.moved(PLACE).back(other.part())


@given(first=st.integers(0, 399), second=st.integers(0, 399))
def test_two_flipped_bits_are_never_taken_for_a_sound_entry(first: int, second: int) -> None:
    packed = ENTRY.moved(PLACE).pack()
    assume(first != second and max(first, second) < 8 * len(packed))
    try:
        found = Entry.unpack(crc.flipped(crc.flipped(packed, first), second))
    except PatchCorrupt:
        return
    assert found.damaged


def test_a_long_entry_in_cold_storage_has_the_head_of_any_long_entry() -> None:
    assert ENTRY.moved(PLACE).head() == ENTRY.head()


def test_a_worker_of_an_earlier_version_knows_that_it_does_not_know_the_format() -> None:
    assert ENTRY.moved(PLACE).pack()[0] & 7 == 4
