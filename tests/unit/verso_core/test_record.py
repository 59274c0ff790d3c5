"""Records and entries: exact both ways, and damaged bytes never pass for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.verso_core.drawn_records import RECORDS

from verso_core.errors import PatchCorrupt
from verso_core.record import (
    MAX_SEQ,
    RECORD_OVERHEAD_BYTES,
    Codec,
    Entry,
    Flag,
    Record,
    about_hash,
    bucket_of,
    checksum,
    document_hash,
    located,
    locating_id,
    point_id,
    point_ids,
    total_payload,
    vector_hash,
    written_by,
)

_flags = st.sampled_from([Flag.NONE, Flag.VERIFIED, Flag.LONG, Flag.LONG | Flag.VERIFIED])
_entries = st.builds(
    Entry,
    seq=st.integers(0, MAX_SEQ),
    size_bytes=st.integers(0, 2**40),
    records=st.lists(RECORDS, max_size=5).map(tuple),
    flags=_flags,
    about=st.one_of(st.none(), st.just(b""), st.binary(min_size=4, max_size=4)),
) | st.builds(
    Entry,
    seq=st.integers(0, MAX_SEQ),
    size_bytes=st.integers(0, 2**40),
    records=st.lists(RECORDS, max_size=5).map(tuple),
    flags=_flags,
    located=st.just(True),
)
RECORD = Record(Codec.ZSTD, 1, b"8 bytes.", b"sum.", b"a payload")
ENTRIES = [
    Entry(seq=77, size_bytes=300, records=(RECORD, RECORD), flags=flags, about=about)
    for flags in (Flag.NONE, Flag.VERIFIED)
    for about in (b"", b"hash")
]
ENTRIES += [replace(ENTRIES[0], located=True)]


@given(record=RECORDS)
def test_a_record_reads_back(record: Record) -> None:
    packed = record.pack()
    assert Record.unpack(packed) == record
    assert len(packed) == RECORD_OVERHEAD_BYTES + len(record.payload)


@given(entry=_entries)
def test_an_entry_reads_back(entry: Entry) -> None:
    assert Entry.unpack(entry.pack()) == entry


@given(entry=_entries, data=st.data())
def test_a_truncated_entry_is_corrupt(entry: Entry, data: st.DataObject) -> None:
    packed = entry.pack()
    size = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(PatchCorrupt):
        Entry.unpack(packed[:size])


@given(data=st.binary(max_size=80))
def test_any_bytes_give_an_entry_or_patch_corrupt(data: bytes) -> None:
    try:
        entry = Entry.unpack(data)
    except PatchCorrupt:
        return
    assert entry.seq <= MAX_SEQ


@given(entry=_entries)
def test_a_head_keeps_the_sequence_and_says_that_the_records_are_elsewhere(entry: Entry) -> None:
    head = Entry.unpack(entry.head())
    assert head.seq == entry.seq
    assert head.size_bytes == entry.size_bytes
    assert head.flags == entry.flags | Flag.LONG
    assert head.records == ()


def test_the_sequence_stands_in_bytes_1_to_6_big_endian() -> None:
    """The ledger's scripts read it there."""
    assert Entry(seq=258, size_bytes=0, records=()).pack()[1:7] == bytes([0, 0, 0, 0, 1, 2])


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("form", [Entry.pack, Entry.head], ids=["entry", "head"])
def test_every_flipped_bit_of_an_entry_is_found(
    entry: Entry, form: Callable[[Entry], bytes]
) -> None:
    packed = form(entry)
    assert not found_damaged(packed)
    for bit in range(8 * len(packed)):
        assert found_damaged(flipped(packed, bit))


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_known_again_by_its_number_where_only_that_is_damaged(entry: Entry) -> None:
    packed = entry.pack()
    for bit in range(8 * len(packed)):
        own = written_by(flipped(packed, bit), entry.seq)
        # of the VERIFIED bits, which the CRC leaves out, one alone is damage as well
        assert own == (entry if bit in range(8, 56) else None)
        assert written_by(flipped(packed, bit), entry.seq + 1) is None
    assert written_by(packed, entry.seq) == entry
    assert written_by(packed[:5], entry.seq) is None
    assert written_by(replace(entry, about=None).pack(), entry.seq) is None


@given(entry=_entries.filter(lambda entry: entry.about is not None), data=st.data())
def test_two_flipped_bits_of_an_entry_are_found(entry: Entry, data: st.DataObject) -> None:
    """But for the two that say VERIFIED, which the ledger sets."""
    packed = entry.pack()
    bits = st.integers(0, 8 * len(packed) - 1)
    one, two = sorted(data.draw(st.tuples(bits, bits).filter(lambda pair: pair[0] != pair[1])))
    assume((one, two) != (4, 6))
    assert found_damaged(flipped(flipped(packed, one), two))


@pytest.mark.parametrize("about", [None, b"", b"hash"])
def test_the_ledger_marks_an_entry_as_verified_in_its_first_byte(about: bytes | None) -> None:
    """As ``marked`` in ``prelude.lua`` does, which cannot compute a CRC."""
    entry = Entry(7, 9, (RECORD,), about=about)
    packed = entry.pack()
    marked = bytes([packed[0] | (16 if packed[0] & 7 == 1 else 80)]) + packed[1:]
    assert Entry.unpack(marked) == replace(entry, flags=Flag.VERIFIED)
    assert replace(entry, flags=Flag.VERIFIED).pack() == marked


def test_an_entry_of_format_1_reads_as_it_always_did() -> None:
    old = bytes.fromhex("110000000000070501110201020304050607080a0b0c0d68656c6c")
    entry = Entry.unpack(old)
    assert (entry.seq, entry.size_bytes, entry.about) == (7, 5, None)
    assert entry.flags == Flag.VERIFIED
    assert [record.payload for record in entry.records] == [b"hell"]
    assert entry.pack() == old


def test_the_hash_about_a_document_knows_no_order_and_no_kind_of_number_in_time() -> None:
    one = about_hash({"a": 1, "b": "x"}, 3, key=b"k")
    assert len(one) == 4
    assert one == about_hash({"b": "x", "a": 1}, 3.0, key=b"k")
    others: list[tuple[dict[str, object], int | None]] = [
        ({"a": 1}, 3),
        ({"a": True, "b": "x"}, 3),
        ({"a": 1, "b": "x"}, None),
        ({}, 3),
    ]
    assert len({one, *(about_hash(*other, key=b"k") for other in others)}) == 5
    assert one != about_hash({"a": 1, "b": "x"}, 3, key=b"other")
    assert about_hash(None, None, key=b"k") == about_hash({}, None, key=b"k") == b""


def found_damaged(data: bytes) -> bool:
    try:
        return Entry.unpack(data).damaged
    except PatchCorrupt:
        return True


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_damaged_entry_never_says_that_its_document_is_deleted() -> None:
    packed = ENTRIES[0].pack()
    with pytest.raises(PatchCorrupt, match="deleted"):
        Entry.unpack(flipped(packed, 5))


def test_a_tombstone_is_deleted_and_small() -> None:
    packed = Entry(7, 0, (), Flag.DELETED).pack()
    assert Entry.unpack(packed).flags is Flag.DELETED
    assert len(packed) == 11


def test_a_codec_that_does_not_exist_is_corrupt() -> None:
    with pytest.raises(PatchCorrupt, match="codec"):
        Record.unpack(bytes([max(Codec) + 1]) + bytes(12))


def test_an_entry_of_another_format_is_corrupt() -> None:
    packed = bytearray(Entry(1, 0, (), Flag.DELETED).pack())
    packed[0] = packed[0] & 0xF8 | 5
    with pytest.raises(PatchCorrupt, match="format"):
        Entry.unpack(bytes(packed))


def test_a_checksum_depends_on_its_key() -> None:
    assert checksum(b"text", key=b"a") != checksum(b"text", key=b"b")


def test_other_vector_bytes_make_another_point() -> None:
    one, two = vector_hash(b"\x00\x3c"), vector_hash(b"\x01\x3c")
    assert point_id("c", "d", seq=1, chunk=0, vector=one) != point_id(
        "c", "d", seq=1, chunk=0, vector=two
    )


_names = st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)


@given(one=st.tuples(_names, _names), two=st.tuples(_names, _names))
def test_points_of_different_documents_differ(one: tuple[str, str], two: tuple[str, str]) -> None:
    points = [point_id(*pair, seq=1, chunk=0, vector=bytes(8)) for pair in (one, two)]
    assert (points[0] == points[1]) == (one == two)


def test_points_of_an_entry_are_its_records_in_order() -> None:
    records = [
        Record(Codec.RAW, 0, vector_hash(bytes([n])), checksum(b"", key=b"k"), b"") for n in (0, 1)
    ]
    entry = Entry(seq=3, size_bytes=0, records=tuple(records))
    assert point_ids("c", "d", entry) == [
        point_id("c", "d", seq=3, chunk=n, vector=record.vector_hash)
        for n, record in enumerate(records)
    ]


@given(document=_names, seq=st.integers(0, MAX_SEQ), chunk=st.integers(0, 65_535))
def test_a_locating_id_holds_its_document_and_chunk(document: str, seq: int, chunk: int) -> None:
    point = locating_id("c", document, seq=seq, chunk=chunk, vector=bytes(8))
    assert located(point) == (document_hash(document), chunk)
    assert point != locating_id("c", document, seq=seq, chunk=chunk, vector=b"another.")
    assert point != locating_id("d", document, seq=seq, chunk=chunk, vector=bytes(8))


def test_a_patch_costs_its_codec_byte_and_its_payload() -> None:
    record = Record(Codec.ZSTD, 0, bytes(8), bytes(4), b"12345")
    assert total_payload([record, record]) == 12


@given(document=st.text(min_size=1).filter(lambda t: t.isprintable()), buckets=st.integers(1, 9999))
def test_a_document_has_one_bucket(document: str, buckets: int) -> None:
    assert 0 <= bucket_of(document, buckets=buckets) < buckets
    assert bucket_of(document, buckets=buckets) == bucket_of(document, buckets=buckets)
