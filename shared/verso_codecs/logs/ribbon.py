"""Sets of hashes that keep a small number with each, and say yes to few others.

A ribbon filter (Dillinger & Walzer 2021, "Ribbon filter: practically smaller than Bloom and Xor").
The table has a few bits in each slot. A hash chooses `WIDTH` adjacent slots, some of them, and the
exclusive or of the chosen slots' bits is, for each hash in the set, `sure` bits that the hash says
and behind them the bits of its number. For another hash the first are right with probability
2^-sure, and its number is any. The bits solve a system of linear equations; as each has
its variables close to one another, it is solved in one pass (their algorithm 1). Hashes that would
begin outside of the table begin at its ends, which are used too little otherwise ("smash" in
Dillinger et al. 2022, "Fast succinct retrieval and approximate membership using ribbon").

The table is stored column by column, each a string of bits, the lowest first.
"""

# Compiled with what it imports: bf6decfc995269a8

import numpy as np

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.parsing import mix

WIDTH = 56
"""Slots among which a hash chooses: as many bits as 8 bytes hold from any bit of the first."""

_HALF = WIDTH // 2
_HALF_MASK = (1 << _HALF) - 1


@inlined
def _equation(value: Int, seed: Int, slots: Int) -> tuple[Int, Int, Int]:
    """Return the first slot of a hash, which are chosen from there, and the bits to expect."""
    low, high = value >> 31, value & 0x7FFFFFFF
    first = mix(low, high ^ seed)
    second = mix(first, high)
    third = mix(second, low)
    begin = min(max(first % slots - _HALF, 0), slots - WIDTH)
    chosen = (second & _HALF_MASK) << _HALF | (third & _HALF_MASK) | 1
    return begin, chosen, mix(third, second)


@inlined
def _parity(bits: Int) -> Int:
    """Return 1 if an odd number of bits are set, else 0."""
    value = bits ^ bits >> 32
    value ^= value >> 16
    value ^= value >> 8
    value ^= value >> 4
    return (0x6996 >> (value & 15)) & 1


@kernel
def solve(hashes: State, numbers: State, sure: int, seed: int, columns: int, table: Bytes) -> bool:
    """Fill the table of a set; return whether there is one for this seed and number of slots.

    Args:
        hashes: distinct, of 62 bits.
        numbers: of the hashes, less than 2^(columns - sure). Shape: as of the hashes
        sure: bits by which others are refused.
        seed: of the equations.
        columns: bits of a slot, at most 31.
        table: zeros. Shape: (columns * slots / 8,), slots at least `WIDTH`
    """
    size = table.size // columns
    slots = 8 * size
    rows = np.zeros(slots, np.int64)
    sums = np.zeros(slots, np.int64)
    for index in range(hashes.size):
        at, chosen, expected = _equation(hashes[index], np.int64(seed), np.int64(slots))
        expected = expected & ((1 << sure) - 1) | numbers[index] << sure
        while chosen and rows[at]:
            chosen ^= rows[at]
            expected ^= sums[at]
            while chosen and not chosen & 1:
                chosen >>= 1
                at += 1
        if chosen:
            rows[at] = chosen
            sums[at] = expected
        elif expected & ((1 << columns) - 1):
            return False
    for column in range(columns):
        behind: Int = np.int64(0)  # the bits of the slots behind, the nearest lowest
        for at in range(slots - 1, -1, -1):
            bit = _parity(rows[at] & behind << 1) ^ (sums[at] >> column & 1)
            if not rows[at]:
                bit = np.int64(0)
            behind = (behind << 1 | bit) & ((1 << WIDTH) - 1)
            table[column * size + (at >> 3)] |= bit << (at & 7)
    return True


@inlined
def number_of(
    data: Bytes, begin: Int, size: Int, columns: Int, sure: Int, seed: Int, value: Int
) -> Int:
    """Return the number of a hash, or -1 if it is not in the set.

    Args:
        data: bytes with a table in them.
        begin: of the table.
        size: of a column, bytes.
        columns: bits of a slot.
        sure: the first of them, by which others are refused.
        seed: of the equations.
        value: the hash.
    """
    number: Int = np.int64(0)
    at, chosen, expected = _equation(value, seed, 8 * size)
    first, shift = at >> 3, at & 7
    for column in range(columns):
        place = begin + column * size + first
        bits: Int = np.int64(data[place]) >> shift
        for byte in range(1, 7):
            bits |= np.int64(data[place + byte]) << (8 * byte - shift)
        if shift:
            bits |= (np.int64(data[place + 7]) & ((1 << shift) - 1)) << (WIDTH - shift)
        told = _parity(bits & chosen)
        if column >= sure:
            number |= told << (column - sure)
        elif told != expected >> column & 1:
            return np.int64(-1)
    return number
