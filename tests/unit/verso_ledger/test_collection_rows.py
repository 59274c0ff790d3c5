"""Settings of collections, as they are stored."""

from __future__ import annotations

import contextlib
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
def test_a_flipped_bit_is_corrected_and_two_are_never_taken_for_other_settings(
    places: set[int],
) -> None:
    row = collection_rows.dump(SOME)
    assert collection_rows.load(row) == SOME
    damaged = sorted({place % (8 * len(row)) for place in places})
    for place in damaged:
        assert collection_rows.load(crc.flipped(row, place)) == SOME
    if len(damaged) == 2:
        twice = functools.reduce(crc.flipped, damaged, row)
        if damaged[1] < 8 * len(row.rstrip()):
            with pytest.raises(RecordCorrupt):
                collection_rows.load(twice)
        else:  # a bit of a blank is not yet a bit of the CRC
            with contextlib.suppress(RecordCorrupt):
                assert collection_rows.load(twice) == SOME


def test_a_row_without_a_crc_is_read_and_one_with_it_is_json() -> None:
    row = collection_rows.dump(SOME)
    assert collection_rows.load(row.rstrip()) == SOME
    # as processes of before the CRC read it
    assert Collection.model_validate_json(row) == SOME
