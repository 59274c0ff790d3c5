"""Tables of integers come back, and take little where values are like their neighbours."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs import integer_tables
from verso_core.errors import ArtifactInvalid

VALUES = st.one_of(
    st.just(0),
    st.integers(-5, 5),
    st.integers(-(1 << 15), 1 << 15),
    st.integers(-(1 << 38), (1 << 38) - 1),
)


@given(data=st.data(), rows=st.integers(0, 6), columns=st.integers(0, 6), block=st.integers(1, 4))
def test_any_table_comes_back(data: st.DataObject, rows: int, columns: int, block: int) -> None:
    row = st.one_of(st.just([0] * columns), st.lists(VALUES, min_size=columns, max_size=columns))
    table = np.array([data.draw(row) for _ in range(rows)], np.int64).reshape(rows, columns)
    payload = integer_tables.encode(table, block=block)
    again = integer_tables.decode(payload, (rows, columns), block=block)
    np.testing.assert_array_equal(again, table)


@given(payload=st.binary(max_size=80))
def test_any_bytes_decode_to_a_table_or_are_refused(payload: bytes) -> None:
    with contextlib.suppress(ArtifactInvalid):
        table = integer_tables.decode(payload, (5, 7), block=2)
        assert table.shape == (5, 7)
        assert np.abs(table).max(initial=0) <= 1 << 38


@pytest.mark.parametrize("value", [1 << 38, -(1 << 38) - 1, 1 << 62])
def test_values_that_are_too_large_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="38 bits"):
        integer_tables.encode(np.array([[value]]), block=1)


def test_bytes_after_the_end_are_refused() -> None:
    payload = integer_tables.encode(np.arange(12).reshape(3, 4), block=3)
    with pytest.raises(ArtifactInvalid, match="after its end"):
        integer_tables.decode(payload + b"\x01" * 9, (3, 4), block=3)


def test_rows_of_zeros_and_values_like_their_neighbours_take_little() -> None:
    """Of 40,000 values one row in eight is used, by numbers that follow the column."""
    table = np.zeros((1000, 40), np.int64)
    rng = np.random.default_rng(1)
    table[::8] = (np.arange(40) % 9 - 4) * 50 + rng.integers(-1, 2, (125, 40))
    payload = integer_tables.encode(table, block=256)
    assert len(payload) < 2500  # 990 bytes are the least: 5,000 times one of three
