"""Sparse byte tables, packed for the artifact.

A table of states is mostly zeros. What is kept of each non-zero byte is the number of zeros
before it and its value, in two streams that Zstandard's Huffman stage brings near their entropy:
7 to 9 bits an entry, where deflating the table itself takes 13, and it unpacks in a moment.
"""

from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from verso_codecs.coder import Bytes
from verso_codecs.kernel import Int, kernel
from verso_core.errors import ArtifactInvalid

MEMBERS = ("gaps", "entries")
"""Names of the arrays that `pack` gives."""

_SKIP = 255  # a gap that stands for 255 zeros and no entry
_LEVEL = 3


@kernel
def _list_entries(values: Bytes, gaps: Bytes, entries: Bytes) -> tuple[int, int]:
    """List gaps and entries; give their numbers."""
    gap_count, entry_count, gap = 0, 0, 0
    for value in values:
        if value:
            gaps[gap_count] = gap
            entries[entry_count] = value
            gap_count += 1
            entry_count += 1
            gap = 0
        else:
            gap += 1
            if gap == _SKIP:
                gaps[gap_count] = _SKIP
                gap_count += 1
                gap = 0
    return gap_count, entry_count


@kernel
def _place_entries(gaps: Bytes, entries: Bytes, values: Bytes) -> bool:
    """Fill `values`; False when gaps and entries do not fit it."""
    entry = 0
    position: Int = 0
    for gap in gaps:
        position += np.int64(gap)
        if gap != _SKIP:
            if position >= values.size or entry == entries.size:
                return False
            values[position] = entries[entry]
            position += 1
            entry += 1
    return entry == entries.size


def pack(values: Bytes) -> dict[str, NDArray[np.generic]]:
    """Give the arrays that `unpack` needs to restore a table.

    values: Shape: (slots,), uint8
    """
    gaps, entries = np.empty(values.size, np.uint8), np.empty(values.size, np.uint8)
    gap_count, entry_count = _list_entries(values, gaps, entries)
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    streams = (gaps[:gap_count].tobytes(), entries[:entry_count].tobytes())
    packed = (np.frombuffer(compressor.compress(stream), np.uint8) for stream in streams)
    return dict(zip(MEMBERS, packed, strict=True))


def unpack(members: dict[str, NDArray[Any]], slot_count: int) -> Bytes:
    """Restore a table of `slot_count` bytes.

    Raises:
        ArtifactInvalid: when the members do not describe such a table.
    """
    streams = []
    for name in MEMBERS:
        member = members[name]
        if member.dtype != np.uint8 or member.ndim != 1:
            raise ArtifactInvalid(f"sparse table: {name}: expected bytes, got {member.dtype}")
        try:
            # Frames state their size; no stream of a table is longer than the table.
            size = zstandard.frame_content_size(member.tobytes())
            if not 0 <= size <= slot_count:
                raise ArtifactInvalid(f"sparse table: {name}: {size} symbols are too many")
            stream = zstandard.ZstdDecompressor().decompress(member.tobytes())
        except zstandard.ZstdError as exc:
            raise ArtifactInvalid(f"sparse table: {name}: {exc}") from exc
        streams.append(np.frombuffer(stream, np.uint8))
    values = np.zeros(slot_count, np.uint8)
    if not _place_entries(streams[0], streams[1], values):
        raise ArtifactInvalid("sparse table: the entries do not fit it")
    return values
