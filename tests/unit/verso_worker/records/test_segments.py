"""Segments: their fronts come back, and no flipped bit of one passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies
from hypothesis.extra.numpy import arrays

from verso_core.errors import PatchCorrupt
from verso_worker.records.segments import (
    BLOCK_LINES,
    OPEN,
    SEGMENT_LINES,
    Front,
    Inventory,
    TimeSource,
    bitmap,
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


@given(strategies.sets(strategies.integers(0, 299)))
def test_a_bitmap_names_its_lines(chosen: set[int]) -> None:
    data = bitmap(np.array(sorted(chosen), np.int64), 300)
    assert set(np.flatnonzero(set_bits(data, 300)).tolist()) == chosen
    with pytest.raises(IndexError):
        bitmap(np.array([300], np.int64), 300)
