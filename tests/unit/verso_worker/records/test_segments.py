"""Segments: their fronts come back, and a flipped bit is corrected by its CRC."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, strategies
from hypothesis.extra.numpy import arrays

from verso_core import crc
from verso_core.errors import PatchCorrupt
from verso_core.segments import Segment
from verso_worker.records.segments import (
    BLOCK_LINES,
    OPEN,
    SEGMENT_LINES,
    Front,
    Inventory,
    TimeSource,
    bitmap,
    corrected,
    set_bits,
)

shapes = arrays(
    np.int32, strategies.integers(1, SEGMENT_LINES), elements=strategies.integers(0, 100_000)
)


@given(shapes)
def test_an_inventory_says_how_often_and_in_which_blocks_a_shape_occurs(
    found: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> None:
    inventory = Inventory.unpack(Inventory.of(found).pack())
    assert inventory.shapes.tolist() == sorted(set(found.tolist()))
    for shape, count, blocks in zip(
        inventory.shapes, inventory.counts, inventory.blocks, strict=True
    ):
        places = np.flatnonzero(found == shape)
        assert count == len(places)
        assert blocks == sum(1 << int(block) for block in set((places // BLOCK_LINES).tolist()))


@given(
    strategies.lists(strategies.binary(min_size=1, max_size=40), max_size=4),
    strategies.binary(max_size=30),
    strategies.integers(-(2**62), 2**62),
)
def test_a_front_and_its_blocks_come_back(blocks: list[bytes], kept: bytes, arrived: int) -> None:
    lines = max(1, len(blocks) * BLOCK_LINES - 3)
    front = Front(
        OPEN,
        lines,
        TimeSource("%b %d %H:%M:%S", 2, arrived, -3600),
        Inventory.of(np.arange(lines, dtype=np.int32) % 7),
        kept,
        tuple(map(len, blocks)),
    )
    data = front.pack(blocks)
    again = Front.read(data)
    assert again is not None
    assert (again.flags, again.lines, again.times, again.filter, again.sizes) == (
        OPEN, lines, front.times, kept, front.sizes,
    )  # fmt: skip
    assert again.blocks(data) == blocks
    assert Front.read(data[: again.size_bytes - 1]) is None


def test_no_flipped_bit_of_a_front_passes() -> None:
    front = Front(0, 5, TimeSource(), Inventory.of(np.zeros(5, np.int32)), b"filter", (3,))
    data = front.pack([b"abc"])
    for place in range(8 * (len(data) - 3)):
        altered = bytearray(data)
        altered[place // 8] ^= 1 << place % 8
        try:
            found = Front.read(bytes(altered))
        except PatchCorrupt:
            continue
        assert found is None  # it seems to be longer than it is: its reader finds no more bytes


def test_every_flipped_bit_of_a_front_is_corrected() -> None:
    times = TimeSource("%Y-%m-%d", 1, 1_700_000_000_000_000_000, 3600)
    shapes = np.arange(300, dtype=np.int32) % 7
    front = Front(OPEN, 300, times, Inventory.of(shapes), b"filter", (3, 1, 2))
    data = front.pack([b"abc", b"d", b"ef"])
    for place in range(8 * (len(data) - 6)):
        assert corrected(crc.flipped(data, place)) == data
    assert corrected(data) == data
    for end in range(len(data) - 6):
        assert corrected(data[:end]) is None


def test_every_flipped_bit_of_a_segments_place_is_corrected() -> None:
    segment = Segment(3, 2**40, 2048, -5, 2**62, OPEN)
    member = segment.pack()
    for place in range(8 * len(member)):
        assert Segment.unpack(crc.flipped(member, place)) == segment
    with pytest.raises(PatchCorrupt):
        Segment.unpack(crc.flipped(crc.flipped(member, 5), 6))
    with pytest.raises(PatchCorrupt):
        Segment.unpack(crc.closed(b"another value"))


def test_every_flipped_bit_of_a_bitmap_is_corrected() -> None:
    chosen = np.array([0, 7, 299], np.int64)
    data = bitmap(chosen, 300)
    for place in range(8 * len(data)):
        assert np.flatnonzero(set_bits(crc.flipped(data, place), 300)).tolist() == [0, 7, 299]
    for other in (crc.flipped(crc.flipped(data, 1), 2), data[:-1], b"x"):
        with pytest.raises(PatchCorrupt):
            set_bits(other, 300)
    with pytest.raises(PatchCorrupt):
        set_bits(data, 2000)


@given(strategies.sets(strategies.integers(0, 299)))
def test_a_bitmap_names_its_lines(chosen: set[int]) -> None:
    data = bitmap(np.array(sorted(chosen), np.int64), 300)
    assert set(np.flatnonzero(set_bits(data, 300)).tolist()) == chosen
    with pytest.raises(IndexError):
        bitmap(np.array([300], np.int64), 300)


@given(strategies.binary(min_size=1, max_size=200), strategies.data())
def test_one_flipped_bit_is_corrected(value: bytes, data: strategies.DataObject) -> None:
    stored = crc.closed(value)
    assert crc.opened(stored) == value
    assert crc.intact(stored)
    wrong = crc.flipped(stored, data.draw(strategies.integers(0, 8 * len(stored) - 1)))
    assert not crc.intact(wrong)
    assert crc.opened(wrong) == value
    assert crc.corrected(wrong) == stored


@given(strategies.binary(min_size=1, max_size=200), strategies.data())
def test_two_flipped_bits_are_found(value: bytes, data: strategies.DataObject) -> None:
    stored = crc.closed(value)
    places = strategies.integers(0, 8 * len(stored) - 1)
    one, other = data.draw(strategies.lists(places, min_size=2, max_size=2, unique=True))
    wrong = crc.flipped(crc.flipped(stored, one), other)
    assert crc.corrected(wrong) is None
    with pytest.raises(PatchCorrupt):
        crc.opened(wrong)


def test_a_bit_of_a_long_value_is_corrected() -> None:
    drawn = random.Random(1)
    stored = crc.closed(drawn.randbytes(50_000))
    for place in (0, 8 * len(stored) - 1, drawn.randrange(8 * len(stored))):
        assert crc.corrected(crc.flipped(stored, place)) == stored


@given(strategies.binary(max_size=4))
def test_nothing_is_no_value(data: bytes) -> None:
    assert not crc.intact(data)
    assert crc.corrected(data) is None
