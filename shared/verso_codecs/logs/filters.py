"""Which values occur in a block: a set of 10 bits a token that may say yes too often.

A token is a maximal run of letters, digits, `.`, `-` and bytes from 128, without `.` and `-` at its
ends, of 3 bytes or more, that contains a digit and is not part of a timestamp. A question's tokens
are found by the same rule.

The set is a ribbon filter with as many columns as fit: 9, of some two hundred tokens and more, by
which 0.2 % of other tokens are in it too. Sets that are too small for 7 columns, and those written
before there were ribbon filters, are Bloom filters (Bloom 1970) with 7 probes, at positions that
are steps of one hash from another (Kirsch & Mitzenmacher 2006): 0.8 %. Stored are a byte for the
version, of a ribbon filter two more for its seed and its columns, the bits, and a CRC of two bytes.
"""

# Compiled with what it imports: 93fb2c1132ad6358

import binascii
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.parsing import TIME, Lines, Parsed, Slots, mix
from verso_codecs.logs.ribbon import WIDTH, holds, solve
from verso_core.errors import RecordCorrupt

BITS = 10
"""Bits of a filter for each of its tokens."""

MIN_TOKEN_BYTES = 3

_PROBES = 7
_BLOOM = 1  # versions
_RIBBON = 2
_RIBBON_HEADER_BYTES = 3
_SIZES = ((9, 94), (9, 90), (8, 80), (7, 70))
"""Columns of a ribbon filter, and tokens for a hundred slots: the first that can be solved."""
_SEEDS = 4
_CHECK_BYTES = 2
_LEAST_BYTES = 1 + _CHECK_BYTES
_HASH_MASK = (1 << 37) - 1


def _token_bytes() -> Bytes:
    kinds = np.zeros(256, np.uint8)
    kinds[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] = 1
    kinds[128:] = 1
    kinds[list(b".-")] = 2
    return kinds


_KINDS = _token_bytes()


@inlined
def _token_hash(data: Bytes, begin: Int, end: Int) -> Int:
    """Hash a token to 62 bits: 31 and 31."""
    value: Int = np.int64(end - begin)
    for index in range(begin, end):
        value = ((value ^ np.int64(data[index])) * 0x2000193) & _HASH_MASK
    low = mix(value & 0xFFFFFFFF, value >> 32)
    high = mix(low, (value >> 5) & 0xFFFFFFFF)
    return (low & 0x7FFFFFFF) << 31 | (high & 0x7FFFFFFF)


@inlined
def _bounds_of(data: Bytes, at: Int, begin: Int, end: Int) -> tuple[Int, Int]:
    """Return the token around a place between `begin` and `end`, the bounds of its line."""
    first: Int = at
    while first > begin and _KINDS[data[first - 1]]:
        first -= 1
    last: Int = at
    while last < end and _KINDS[data[last]]:
        last += 1
    while first < last and _KINDS[data[first]] == 2:
        first += 1
    while first < last and _KINDS[data[last - 1]] == 2:
        last -= 1
    return first, last


@kernel
def _list_tokens(
    lines: Lines, slot_bounds: State, slots: Slots, first: Int, count: Int, hashes: State
) -> Int:
    """List the hashes of the tokens of lines [first, first + count); return their number."""
    found: Int = np.int64(0)
    data = lines.data
    for line in range(first, first + count):
        begin, end = lines.begins[line], lines.ends[line]
        done: Int = begin
        for slot in range(slot_bounds[line], slot_bounds[line + 1]):
            at: Int = slots.begins[slot]
            if slots.kinds[slot] == TIME or at < done:
                continue
            stop = at + slots.widths[slot]
            # A value may be several tokens: MAC addresses have colons, other words may too.
            while at < stop:
                if not _KINDS[data[at]]:
                    at += 1
                    continue
                head, tail = _bounds_of(data, at, begin, end)
                digit = False
                for index in range(head, tail):
                    digit = digit or 48 <= data[index] <= 57
                if digit and tail - head >= MIN_TOKEN_BYTES:
                    hashes[found] = _token_hash(data, head, tail)
                    found += 1
                while at < end and _KINDS[data[at]]:
                    at += 1
                done = at
    return found


@inlined
def _probe(value: Int, number: Int, size: Int) -> Int:
    low, high = value >> 31, value & 0x7FFFFFFF
    return (low + number * (high | 1)) % size


@kernel
def _fill(hashes: State, bits: Bytes) -> None:
    """Set the bits of tokens. bits: behind the byte of the version"""
    size = 8 * (bits.size - 1)
    for token in range(hashes.size):
        for number in range(_PROBES):
            place = _probe(hashes[token], np.int64(number), np.int64(size))
            bits[1 + (place >> 3)] |= 1 << (place & 7)


@inlined
def _held_by_bloom(data: Bytes, begin: Int, size: Int, value: Int) -> bool:
    """Whether a Bloom filter may hold a hash. begin: of its bits; size: bytes"""
    if size <= 0:
        return False
    for number in range(_PROBES):
        place = _probe(value, np.int64(number), np.int64(8 * size))
        if not np.int64(data[begin + (place >> 3)]) >> (place & 7) & 1:
            return False
    return True


@kernel
def _find(data: Bytes, bounds: State, token: Bytes, found: Bytes) -> None:
    """Note which filters may hold a token."""
    value = _token_hash(token, np.int64(0), np.int64(token.size))
    for index in range(bounds.size - 1):
        begin = bounds[index]
        end = bounds[index + 1] - _CHECK_BYTES
        if data[begin] == _BLOOM:
            held = _held_by_bloom(data, begin + 1, end - begin - 1, value)
        else:
            seed, columns = np.int64(data[begin + 1]), np.int64(data[begin + 2])
            begin += _RIBBON_HEADER_BYTES
            held = holds(data, begin, (end - begin) // columns, columns, seed, value)
        found[index] = 1 if held else 0


def build(parsed: Parsed, *, first: int, count: int) -> bytes:
    """Return the filter of the tokens of lines [first, first + count)."""
    if not 0 <= first <= first + count <= parsed.count:
        raise ValueError(f"expected some of {parsed.count} lines, got {first} and {count} more")
    lines = parsed.lines
    size = int((lines.ends[first : first + count] - lines.begins[first : first + count]).sum())
    hashes = np.empty(size // 3 + 1, np.int64)
    used = _list_tokens(lines, parsed.slot_bounds, parsed.slots, first, count, hashes)
    body = of_hashes(np.unique(hashes[:used]))
    return body + binascii.crc_hqx(body, 0).to_bytes(_CHECK_BYTES, "little")


def of_hashes(hashes: State) -> bytes:
    """Return the filter of distinct hashes, without its CRC; no longer than `BITS` say."""
    for columns, tokens in _SIZES:
        size = 100 * hashes.size // tokens // 8
        if 8 * size < WIDTH:
            continue
        for seed in range(_SEEDS):
            table = np.zeros(columns * size, np.uint8)
            if solve(hashes, seed, columns, table):
                return bytes((_RIBBON, seed, columns)) + table.tobytes()
    bits = np.zeros(1 + (BITS * hashes.size + 7) // 8, np.uint8)
    bits[0] = _BLOOM
    _fill(hashes, bits)
    return bits.tobytes()


def check(held: bytes) -> None:
    """Verify a filter; `find` does not, which reads thousands.

    Raises:
        RecordCorrupt: when one bit is not as it was written.
    """
    _check_form(held)
    body = held[:-_CHECK_BYTES]
    if binascii.crc_hqx(body, 0).to_bytes(_CHECK_BYTES, "little") != held[-_CHECK_BYTES:]:
        raise RecordCorrupt("filter: expected another CRC")


def _check_form(held: bytes) -> None:
    """Verify that a filter can be read, whatever is in it."""
    if len(held) < _LEAST_BYTES or held[0] not in (_BLOOM, _RIBBON):
        raise RecordCorrupt(f"filter: expected version 1 or 2, got {held[:1].hex()}")
    if held[0] == _RIBBON:
        columns, size = held[2], len(held) - _RIBBON_HEADER_BYTES - _CHECK_BYTES
        if not 0 < columns < 32 or size % columns or 8 * size < columns * WIDTH:
            raise RecordCorrupt(f"filter: {columns} columns of {size} bytes")


class Joined(NamedTuple):
    """Filters one after the other, for those who ask the same ones again and again.

    data: uint8
    bounds: Shape: (filters + 1,), int64, where each begins and ends
    """

    data: Bytes
    bounds: State


def join(filters: Sequence[bytes]) -> Joined:
    """Return filters as one.

    Raises:
        RecordCorrupt: when one is none.
    """
    for held in filters:
        _check_form(held)
    data = np.frombuffer(bytearray(b"".join(filters)), np.uint8)
    return Joined(data, np.cumsum([0, *(len(held) for held in filters)], dtype=np.int64))


def find_joined(joined: Joined, token: bytes) -> NDArray[np.bool_]:
    """Return which filters may hold a token. Shape: (filters,)"""
    found = np.zeros(joined.bounds.size - 1, np.uint8)
    _find(joined.data, joined.bounds, np.frombuffer(bytearray(token), np.uint8), found)
    return found.view(np.bool_)


def find(filters: Sequence[bytes], token: bytes) -> list[int]:
    """Return the positions of the filters that may hold a token.

    Raises:
        RecordCorrupt: when a filter is none.
    """
    positions: list[int] = np.flatnonzero(find_joined(join(filters), token)).tolist()
    return positions


def contains(held: bytes, token: bytes) -> bool:
    """Whether a filter may hold a token; of a token that was put in, always.

    Raises:
        RecordCorrupt: when it is no filter.
    """
    return bool(find([held], token))


def tokens(text: bytes) -> list[bytes]:
    """Return the tokens of a question, in order and without repetition.

    What looks like a timestamp in the question is none here: its parts may be asked for.
    """
    found: dict[bytes, None] = {}
    run = bytearray()
    for byte in text + b"\0":
        if _KINDS[byte]:
            run.append(byte)
            continue
        token = bytes(run).strip(b".-")
        run.clear()
        if len(token) >= MIN_TOKEN_BYTES and any(48 <= value <= 57 for value in token):
            found[token] = None
    return list(found)
