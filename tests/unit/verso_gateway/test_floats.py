"""Facts about vectors as bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import VectorInvalid
from verso_gateway import floats


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_float32_numbers_come_back_as_they_were(values: list[float]) -> None:
    assert floats.unpack(floats.pack(values)) == values


def test_bytes_are_little_endian() -> None:
    assert floats.pack([1.0]) == bytes.fromhex("0000803f")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_numbers_that_are_no_finite_float32_are_refused(value: float) -> None:
    with pytest.raises(VectorInvalid):
        floats.pack([0.0, value])
