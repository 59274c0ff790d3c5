"""The table of the n-gram model: 16-byte lines of states, found by hash, packed for the artifact.

A line holds what is known about one nibble in one context: byte 0 is a check of the context, byte
n is the state of the decision at node n of the nibble's tree (root 1, children 2n and 2n + 1).
State 0 means never seen, and then nothing below it was seen either. A line lives in one of four
rows next to each other, so finding it costs one or two cache misses (the layout of lpaq, Mahoney
2007). One row after the last is all zeros: the line of everything unknown.

Packed, a table is five streams, each compressed by Zstandard's Huffman stage: the gaps between
taken rows, the checks, the roots' states, for every known node whether its two children are
unknown, as it is, or other, and those other states. Where a decision always went one way, so did
the one below it, so most children equal their parent. The last two streams are sorted by the
parent's state, which gives each state a Huffman code of its own. About 28 bits a line.
"""

from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, inlined, kernel
from verso_core.errors import ArtifactInvalid

LINE_BYTES = 16

MEMBERS = ("gaps", "checks", "roots", "pairs", "others", "tallies")
"""Names of the arrays that `pack` gives."""

_PROBES = 4
_SKIP = 255  # a gap that stands for 255 free rows and no line
_ZERO, _SAME, _OTHER = range(3)
_LEVEL = 3

Links = NDArray[np.int64]


@kernel
def find_line(table: Bytes, key: Int, width: Int) -> Int:
    """Return the row of a key's line, or that of the zero line.

    table: Shape: (2^width + 1, LINE_BYTES), uint8
    key: 32 bits; its highest choose the row, its lowest are the check
    """
    home = key >> (32 - width)
    check = check_of(key)
    # All four rows are looked at, last one first: which of them holds the line cannot be foreseen,
    # and a branch that is guessed wrong costs more than the three other looks.
    row: Int = 1 << width
    for probe in range(_PROBES - 1, -1, -1):
        row = home ^ probe if table[home ^ probe, 0] == check else row
    return row


@inlined
def check_of(key: Int) -> Int:
    """Return the check byte of a key, 1..255."""
    check = key & 255
    return check or 1


@kernel
def claim_row(
    table: Bytes, strengths: NDArray[np.float32], key: Int, width: Int, strength: float
) -> Int:
    """Return the row for a new line, or -1 if all its rows hold stronger ones.

    strengths: Shape: (2^width,), float32, of the lines in the table
    """
    home = key >> (32 - width)
    weakest: Int = -1
    least = strength
    for probe in range(_PROBES):
        row = home ^ probe
        if table[row, 0] == 0:
            return row
        if strengths[row] < least:
            weakest, least = row, float(strengths[row])
    return weakest


@kernel
def _list_lines(table: Bytes, gaps: Bytes, checks: Bytes, roots: Bytes) -> Int:
    """List the rows of the lines and their first bytes; return the number of gaps."""
    gap_count, line_count, gap = 0, 0, 0
    for row in range(table.shape[0]):
        if table[row, 0] == 0:
            gap += 1
            if gap == _SKIP:
                gaps[gap_count] = _SKIP
                gap_count += 1
                gap = 0
            continue
        gaps[gap_count] = gap
        gap_count += 1
        gap = 0
        checks[line_count] = table[row, 0]
        roots[line_count] = table[row, 1]
        line_count += 1
    return gap_count


@kernel
def _list_children(table: Bytes, pairs: Bytes, others: Bytes, starts: Links, fill: bool) -> None:
    """List what the children of every known node are, sorted by the node's state.

    starts: Shape: (2, 257); where each state's pairs and others begin, moved on by their number
    fill: write the lists; otherwise only `starts` moves
    """
    for row in range(table.shape[0]):
        if table[row, 0] == 0:
            continue
        for node in range(1, LINE_BYTES // 2):
            state = table[row, node]
            if state == 0:
                continue
            pair = 0
            for child in range(2 * node, 2 * node + 2):
                kind = _ZERO
                if table[row, child] == state:
                    kind = _SAME
                elif table[row, child] != 0:
                    kind = _OTHER
                    if fill:
                        others[starts[1, state]] = table[row, child]
                    starts[1, state] += 1
                pair = 3 * pair + kind
            if fill:
                pairs[starts[0, state]] = pair
            starts[0, state] += 1


@kernel
def _place_lines(
    gaps: Bytes,
    checks: Bytes,
    roots: Bytes,
    pairs: Bytes,
    others: Bytes,
    starts: Links,
    ends: Links,
    table: Bytes,
) -> bool:
    """Fill `table`; False when the streams do not fit it or one another.

    starts, ends: Shape: (2, 256), bounds of each state's pairs and others, within the lists
    """
    line = 0
    row: Int = 0
    for gap in gaps:
        row += np.int64(gap)
        if gap == _SKIP:
            continue
        if row >= table.shape[0] or line == checks.size or checks[line] == 0:
            return False
        table[row, 0] = checks[line]
        table[row, 1] = roots[line]
        for node in range(1, LINE_BYTES // 2):
            state = table[row, node]
            if state == 0:
                continue
            if starts[0, state] == ends[0, state]:
                return False
            pair = pairs[starts[0, state]]
            starts[0, state] += 1
            for side in range(2):
                kind = pair // 3 if side == 0 else pair % 3
                if kind == _SAME:
                    table[row, 2 * node + side] = state
                elif kind != _ZERO:
                    if starts[1, state] == ends[1, state]:
                        return False
                    table[row, 2 * node + side] = others[starts[1, state]]
                    starts[1, state] += 1
        line += 1
        row += 1
    return line == checks.size


def pack(table: Bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays that `unpack` needs to restore a table.

    table: Shape: (rows, LINE_BYTES), uint8, without the zero line
    """
    line_count = int(np.count_nonzero(table[:, 0]))
    gaps = np.empty(table.shape[0] + 1, np.uint8)
    checks, roots = np.empty(line_count, np.uint8), np.empty(line_count, np.uint8)
    gaps = gaps[: _list_lines(table, gaps, checks, roots)]
    tallies = np.zeros((2, 256), np.int64)
    nothing = np.empty(0, np.uint8)
    _list_children(table, nothing, nothing, tallies, False)
    pairs, others = (np.empty(int(total), np.uint8) for total in tallies.sum(axis=1))
    starts = np.cumsum(tallies, axis=1) - tallies
    _list_children(table, pairs, others, starts, True)
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    members: dict[str, NDArray[Any]] = {
        name: np.frombuffer(compressor.compress(stream.tobytes()), np.uint8)
        for name, stream in zip(MEMBERS, (gaps, checks, roots, pairs, others), strict=False)
    }
    return {**members, "tallies": tallies}


def unpack(members: dict[str, NDArray[Any]], row_count: int) -> Bytes:
    """Restore a table of `row_count` rows and add the zero line.

    Raises:
        ArtifactInvalid: when the members do not describe such a table.
    """
    limit = (LINE_BYTES - 2) * row_count + 1
    gaps, checks, roots, pairs, others = (
        _stream(name, members[name], limit) for name in MEMBERS[:5]
    )
    tallies = members["tallies"]
    if tallies.dtype != np.int64 or tallies.shape != (2, 256) or (tallies < 0).any():
        raise ArtifactInvalid("lines: tallies: expected two counts a state")
    ends = np.cumsum(tallies, axis=1)
    table = np.zeros((row_count + 1, LINE_BYTES), np.uint8)
    fits = (
        checks.size == roots.size
        and (ends >= 0).all()
        and (int(ends[0, -1]), int(ends[1, -1])) == (pairs.size, others.size)
        and _place_lines(gaps, checks, roots, pairs, others, ends - tallies, ends, table[:-1])
    )
    if not fits:
        raise ArtifactInvalid("lines: expected streams that fit the table and one another")
    return table


def _stream(name: str, member: NDArray[Any], limit: int) -> Bytes:
    """Decompress one stream. Frames state their size, so that the limit holds beforehand."""
    if member.dtype != np.uint8 or member.ndim != 1:
        raise ArtifactInvalid(f"lines: {name}: expected bytes, got {member.dtype} {member.shape}")
    try:
        size = zstandard.frame_content_size(member.tobytes())
        if not 0 <= size <= limit:
            raise ArtifactInvalid(f"lines: {name}: expected at most {limit} symbols, got {size}")
        return np.frombuffer(zstandard.ZstdDecompressor().decompress(member.tobytes()), np.uint8)
    except zstandard.ZstdError as exc:
        raise ArtifactInvalid(f"lines: {name}: {exc}") from exc
