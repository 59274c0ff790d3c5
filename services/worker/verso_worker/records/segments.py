"""The bytes of a segment: consecutive lines of a stream, in blocks that are read alone.

    offset  size  field
    0       1     version, 1
    1       1     flags: OPEN, RECORDS, ASCENDING
    2       4     n, lines
    6       8     when the lines arrived, Unix nanoseconds
    14      4     zone of times without one, seconds east of UTC
    18      2     b, blocks, each of 128 lines but the last
    20      4     size of everything before the blocks, checksum included
    24      4     i, size of the inventory
    28      1     p, size of the pattern of times; 0 without times
    29      1     spaces before the time
    30      p     the pattern
    30+p    4b    size of each block
    ..      i     inventory
    ..      ..    filter of the value tokens of all lines
    ..      4     CRC-32 of everything before it
    ..            the blocks

All numbers are little endian. The inventory says which shapes occur: for each, in ascending order,
the difference to the one before, how many lines have it less one, and a bit for each block that has
such a line. It is written column by column, each as wide as its largest number, and compressed.

A segment with the flag RECORDS has no blocks: its lines are documents, named by their lines' ids.

A segment whose blocks are in cold storage begins with where they are, and ends with its front:

    offset  size  field
    0       1     version, 2
    1       4     size of all blocks together; with the highest bit the last 8 bytes of the name are
                  a BLAKE2b hash of the blocks
    5       16    name of their object
    21      4     CRC-32 of everything before it
    25            the front, as above
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core import crc
from verso_core.errors import PatchCorrupt

VERSION = 1
COLD_VERSION = 2
COLD_BYTES = 25
"""What stands before the front of a segment whose blocks are in cold storage."""
COLD_NAME_BYTES = 16
OPEN = 1
"""Flag: the last line came without a line end."""
RECORDS = 2
"""Flag: the lines are stored as documents."""
ASCENDING = 4
"""Flag: no line is of an earlier time than the line before, as each block by itself reads them."""
BLOCK_LINES = 128
SEGMENT_BLOCKS = 16
SEGMENT_LINES = BLOCK_LINES * SEGMENT_BLOCKS
FRONT_BYTES = 8192
"""Enough for the front of nearly every segment."""

_HEAD = struct.Struct("<BBIqiHIIBB")
_COLD = struct.Struct("<BI16s")
_CHECKED = 1 << 31
_MARK_BYTES = 8  # of a name's 16: the others are drawn at random
_SIZE, _SIZE_AT = 6, 20
"""Where the size of the front stands among the numbers of the head, and among its bytes."""
_WIDTHS: tuple[np.dtype[Any], ...] = (np.dtype("u1"), np.dtype("<u2"), np.dtype("<u4"))
_FAULT = "expected a segment, got other bytes"

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TimeSource:
    """Where the times of lines come from.

    Attributes:
        pattern: format of the times in the lines; '' if they have none.
        field: spaces before it.
        arrived_ns: when the lines arrived, Unix nanoseconds: it gives years that are not written,
            and is the time of lines that have none.
        offset_s: zone of times without one, seconds east of UTC.
    """

    pattern: str = ""
    field: int = 0
    arrived_ns: int = 0
    offset_s: int = 0


@dataclass(frozen=True, slots=True)
class ColdBlocks:
    """The blocks of a segment in cold storage: the size of all together, and their object.

    ``checked``: the end of its name is a hash of the blocks, by which those of another segment are
    told from them. It is the highest bit of the size.
    """

    size_bytes: int
    name: bytes
    checked: bool = False

    @classmethod
    def read(cls, data: bytes) -> ColdBlocks | None:
        """Return where the blocks of a segment are, by its first bytes; None if it has them.

        One flipped bit is corrected. The versions differ in two, so none is taken for the other.
        """
        if not data or data[0] == VERSION:
            return None
        right = crc.corrected(data[:COLD_BYTES])
        if right is None or len(right) < COLD_BYTES or right[0] != COLD_VERSION:
            return None
        _, size_bytes, name = _COLD.unpack_from(right)
        return cls(size_bytes & ~_CHECKED, name, bool(size_bytes & _CHECKED))

    def pack(self, front: bytes) -> bytes:
        """Return the segment with this front whose blocks are these."""
        size = self.size_bytes | (_CHECKED if self.checked else 0)
        return crc.closed(_COLD.pack(COLD_VERSION, size, self.name)) + front

    def are(self, blocks: Sequence[bytes]) -> bool:
        """Whether these may be the blocks; damaged ones may be, and so may all of an older one."""
        right = [crc.corrected(block) for block in blocks]
        sound = [block for block in right if block is not None]
        return not self.checked or len(sound) < len(right) or self.name.endswith(mark_of(sound))


def mark_of(blocks: Sequence[bytes]) -> bytes:
    """Return what the name of an object with these blocks ends with."""
    digest = hashlib.blake2b(digest_size=_MARK_BYTES)
    for block in blocks:
        digest.update(block)
    return digest.digest()


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """Which shapes occur in a segment. Shape of each array: (shapes,).

    Attributes:
        shapes: their numbers, ascending.
        counts: how many lines have each.
        blocks: bit b is set if block b has such a line.
    """

    shapes: Counts
    counts: Counts
    blocks: Counts

    @classmethod
    def of(cls, shapes: NDArray[np.int32]) -> Inventory:
        """Return the inventory of a segment's lines. Shape of ``shapes``: (lines,)."""
        found, inverse, counts = np.unique(shapes, return_inverse=True, return_counts=True)
        block = np.arange(len(shapes)) // BLOCK_LINES
        pairs = np.unique(inverse * SEGMENT_BLOCKS + block)
        masks = np.zeros(len(found), np.int64)
        np.bitwise_or.at(masks, pairs // SEGMENT_BLOCKS, 1 << (pairs % SEGMENT_BLOCKS))
        return cls(found.astype(np.int64), counts.astype(np.int64), masks)

    def pack(self) -> bytes:
        """Return the inventory's bytes."""
        deltas = np.diff(self.shapes, prepend=0)
        return zlib.compress(b"".join(map(_packed, (deltas, self.counts - 1, self.blocks))), 9)

    @classmethod
    def unpack(cls, data: bytes) -> Inventory:
        """Read what :meth:`pack` wrote.

        Raises:
            PatchCorrupt: the data is none.
        """
        try:
            rest = zlib.decompress(data)
        except zlib.error as exc:
            raise PatchCorrupt(_FAULT) from exc
        columns = []
        for _ in range(3):
            column, rest = _unpacked(rest)
            columns.append(column)
        deltas, counts, blocks = columns
        if rest or not len(deltas) == len(counts) == len(blocks):
            raise PatchCorrupt(_FAULT)
        return cls(np.cumsum(deltas), counts + 1, blocks)


EMPTY = Inventory(*(np.zeros(0, np.int64) for _ in range(3)))


@dataclass(frozen=True, slots=True, eq=False)
class Front:
    """Everything of a segment but its blocks.

    Attributes:
        flags: OPEN, RECORDS, ASCENDING.
        lines: how many.
        times: where their times come from.
        inventory: which shapes occur.
        filter: of the value tokens.
        sizes: of the blocks, bytes.
        size_bytes: of the front itself.
    """

    flags: int
    lines: int
    times: TimeSource
    inventory: Inventory
    filter: bytes
    sizes: tuple[int, ...]
    size_bytes: int = 0

    def pack(self, blocks: Sequence[bytes]) -> bytes:
        """Return the whole segment."""
        inventory, pattern = self.inventory.pack(), self.times.pattern.encode()
        sizes = struct.pack(f"<{len(blocks)}I", *map(len, blocks))
        size = _HEAD.size + len(pattern) + len(sizes) + len(inventory) + len(self.filter) + 4
        head = _HEAD.pack(
            VERSION, self.flags, self.lines, self.times.arrived_ns, self.times.offset_s,
            len(blocks), size, len(inventory), len(pattern), self.times.field,
        )  # fmt: skip
        front = b"".join((head, pattern, sizes, inventory, self.filter))
        return b"".join((front, zlib.crc32(front).to_bytes(4, "little"), *blocks))

    @classmethod
    def read(cls, data: bytes) -> Front | None:
        """Read the front of a segment; None if ``data`` ends before the front does.

        Raises:
            PatchCorrupt: it is none, or a bit of it is not as it was written.
        """
        if ColdBlocks.read(data) is not None:
            data = data[COLD_BYTES:]
        if len(data) < _HEAD.size:
            raise PatchCorrupt(_FAULT)
        version, flags, lines, arrived, offset, blocks, size, inventory, pattern, field = (
            _HEAD.unpack_from(data)
        )
        if version != VERSION or size > len(data):
            if version == VERSION and size <= 1 << 30 and blocks <= SEGMENT_BLOCKS:
                return None
            raise PatchCorrupt(_FAULT)
        if zlib.crc32(data[: size - 4]) != int.from_bytes(data[size - 4 : size], "little"):
            raise PatchCorrupt(_FAULT)
        at = _HEAD.size
        times = TimeSource(data[at : at + pattern].decode(), field, arrived, offset)
        at += pattern
        sizes = struct.unpack_from(f"<{blocks}I", data, at)
        at += 4 * blocks
        kept = Inventory.unpack(data[at : at + inventory]) if inventory else EMPTY
        return cls(flags, lines, times, kept, data[at + inventory : size - 4], sizes, size)

    def lines_of(self, block: int) -> int:
        """Return how many lines a block has."""
        return min(BLOCK_LINES, self.lines - block * BLOCK_LINES)

    def blocks(self, data: bytes) -> list[bytes]:
        """Return the blocks of a whole segment.

        Raises:
            PatchCorrupt: the segment has another size.
        """
        found, at = [], self.size_bytes
        for size in self.sizes:
            found.append(data[at : at + size])
            at += size
        if at != len(data):
            raise PatchCorrupt(_FAULT)
        return found


def corrected(data: bytes) -> bytes | None:
    """Return a whole segment with a flipped bit of its front corrected; None if it cannot be."""
    if (cold := ColdBlocks.read(data)) is not None:
        front = corrected(data[COLD_BYTES:])
        return None if front is None else cold.pack(front)
    if len(data) < _HEAD.size:
        return None
    size: int = _HEAD.unpack_from(data)[_SIZE]
    for bit in range(32):
        # The size says where the CRC is: of a wrong one no CRC would be found.
        other = size ^ 1 << bit
        if _HEAD.size < other <= len(data):
            front = data[:_SIZE_AT] + other.to_bytes(4, "little") + data[_SIZE_AT + 4 : other]
            if crc.intact(front):
                return front + data[other:]
    right = crc.corrected(data[:size]) if _HEAD.size < size <= len(data) else None
    return None if right is None else right + data[size:]


def bitmap(indices: NDArray[np.int64], lines: int) -> bytes:
    """Return a bitmap of some of a segment's lines: bit 0 of byte 0 is the first line."""
    bits = np.zeros(lines, np.uint8)
    bits[indices] = 1
    return crc.closed(np.packbits(bits, bitorder="little").tobytes())


def set_bits(data: bytes | None, lines: int) -> NDArray[np.bool_]:
    """Return which lines a bitmap names. Shape: (lines,).

    Raises:
        PatchCorrupt: more than one bit of it is not as it was written.
    """
    if not data:
        return np.zeros(lines, np.bool_)
    packed = crc.opened(data)
    if len(packed) != (lines + 7) // 8:
        raise PatchCorrupt(f"expected a bitmap of {lines} lines, got {len(packed)} bytes")
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    found: NDArray[np.bool_] = bits[:lines].astype(np.bool_)
    return found


def _packed(column: Counts) -> bytes:
    largest = int(column.max(initial=0))
    width = next(n for n, kind in enumerate(_WIDTHS) if largest <= np.iinfo(kind).max)
    return struct.pack("<BI", width, len(column)) + column.astype(_WIDTHS[width]).tobytes()


def _unpacked(data: bytes) -> tuple[Counts, bytes]:
    if len(data) < 5 or data[0] >= len(_WIDTHS):
        raise PatchCorrupt(_FAULT)
    kind, count = _WIDTHS[data[0]], int.from_bytes(data[1:5], "little")
    end = 5 + count * kind.itemsize
    if end > len(data):
        raise PatchCorrupt(_FAULT)
    return np.frombuffer(data, kind, count, 5).astype(np.int64), data[end:]
