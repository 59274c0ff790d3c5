"""Settings of collections, as they are stored."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core import crc
from verso_core.errors import RecordCorrupt
from verso_core.jobs import Collection, Precision, TextPolicy
from verso_ledger.codec import collection_rows

SOME = Collection(
    name="some",
    precision=Precision.INT8,
    text_policy=TextPolicy.PATCH,
    space="space",
    dim=384,
    int8_scale=0.5,
    artifacts=("codec",),
    buckets=1024,
    created=1.5,
    checksum_key="00" * 16,
)


@given(st.sets(st.integers(0, 1 << 16), min_size=2, max_size=2))
def test_a_flipped_bit_is_corrected_and_two_are_an_error(places: set[int]) -> None:
    row = collection_rows.dump(SOME)
    assert collection_rows.load(row) == SOME
    damaged = sorted({place % (8 * len(row)) for place in places})
    for place in damaged:
        assert collection_rows.load(crc.flipped(row, place)) == SOME
    if len(damaged) == 2:
        with pytest.raises(RecordCorrupt):
            collection_rows.load(functools.reduce(crc.flipped, damaged, row))


def test_a_row_without_a_crc_is_read() -> None:
    assert collection_rows.load(collection_rows.dump(SOME)[: -crc.CRC_BYTES]) == SOME
