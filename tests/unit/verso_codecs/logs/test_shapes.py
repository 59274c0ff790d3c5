"""The table of shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs.shapes import Shapes
from verso_core.errors import ArtifactInvalid

ROWS = st.lists(
    st.lists(
        st.sampled_from(
            [
                *(b"a", b"word ", b"\x01", b"\x02Y- :.6", b"\x02S    0", b"\x03\x01", b"\xff"),
                *(b"\n", b"n", b"\x03\x03"),
            ]
        )
    ).map(b"".join),
    unique=True,
    max_size=30,
)


@given(ROWS)
def test_a_number_is_the_position(rows: list[bytes]) -> None:
    shapes = Shapes(rows[:3])
    for row in rows[3:]:
        shapes.extend([row])
    assert len(shapes) == len(rows)
    assert [shapes.row(number) for number in range(len(rows))] == rows
    assert [shapes.find(row) for row in rows] == list(range(len(rows)))
    assert shapes.find(b"not there") == -1


@given(ROWS, st.integers(0, 30))
def test_packed_rows_come_back(rows: list[bytes], at: int) -> None:
    at = min(at, len(rows))
    shapes = Shapes(rows)
    other = Shapes(other_rows := Shapes().unpack(shapes.pack(0, at)))
    other.extend(other.unpack(shapes.pack(at, len(rows))))
    assert other_rows == rows[:at]
    assert [other.row(number) for number in range(len(other))] == rows


def test_no_rows_come_back_as_none() -> None:
    assert Shapes().unpack(Shapes().pack_rows([])) == []


def test_a_row_before_is_worth_its_bytes() -> None:
    rows = [
        b"the connection of user \x01 was closed by the peer %c" % letter for letter in b"abcdef"
    ]
    shapes = Shapes(rows)
    assert len(shapes.pack(1, 2)) < len(rows[1])


@pytest.mark.parametrize(
    "row", [b"\x02", b"\x02Y", b"\x02Z- :.6", b"\x02Y- :.a", b"\x03a", b"a\x03"]
)
def test_what_is_no_shape_is_refused(row: bytes) -> None:
    with pytest.raises(ArtifactInvalid, match="expected a row"):
        Shapes([row])


def test_a_shape_has_one_number() -> None:
    shapes = Shapes([b"a", b"b"])
    with pytest.raises(ValueError, match="got number 1 again"):
        shapes.extend([b"c", b"b"])
    with pytest.raises(IndexError):
        shapes.row(3)


def test_damaged_rows_are_refused() -> None:
    packed = Shapes([b"a", b"b"]).pack(0, 2)
    for damaged in (b"", packed[:9], b"\x09" + packed[1:], packed[:-1], packed + b"x"):
        with pytest.raises(ArtifactInvalid):
            Shapes().unpack(damaged)
    with pytest.raises(ArtifactInvalid, match="expected 1 rows before"):
        Shapes().unpack(Shapes([b"a", b"b"]).pack(1, 2))
