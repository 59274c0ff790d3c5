"""Which values occur in a segment, and in which block: some 12 bits a token.

A token is a maximal run of letters, digits, `.`, `-` and bytes from 128, without `.` and `-` at its
ends, of 3 bytes or more, that contains a digit and is not part of a timestamp. A question's tokens
are found by the same rule.

The set is a ribbon filter with as many columns as fit: 11, of some two hundred tokens and more. By
six of them 1.6 % of other tokens are taken to be in it; the other five say which block has the
token, or that several have it. Nine in ten tokens of logs are in one block of their segment, so
that a search decodes one block for a value, and not sixteen.

Other forms are read, and say nothing of blocks: ribbon filters of 9 columns, by which 0.2 % of
other tokens are in it, and Bloom filters (Bloom 1970) with 7 probes, at positions that are steps of
one hash from another (Kirsch & Mitzenmacher 2006): 0.8 %. The latter are also written of sets that
are too small for 9 columns. Stored are a byte for the version, of a ribbon filter two more for its
seed and its columns, the bits, and a CRC of two bytes.
"""

# Compiled with what it imports: d9d1a5ae84907946

import binascii
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.parsing import TIME, Lines, Parsed, Slots, mix, parse, split
from verso_codecs.logs.ribbon import WIDTH, number_of, solve
from verso_codecs.logs.shapes import Shapes
from verso_core.errors import RecordCorrupt

BITS = 13
"""Most bits of a filter for each of its tokens."""

ANY_BLOCK = 255
"""A token may be in any block of a segment: several have it, or the filter does not say."""

MIN_TOKEN_BYTES = 3

_PROBES = 7
_BLOOM = 1  # versions
_RIBBON = 2
_PLACED = 3  # a ribbon filter that says which block
_RIBBON_HEADER_BYTES = 3
_SIZES = ((11, 94), (11, 90), (10, 80), (9, 70))
"""Columns of a ribbon filter, and tokens for a hundred slots: the first that can be solved."""
_PLACE_COLUMNS = 5
_BLOOM_BITS = 10
_SEEDS = 4
_CHECK_BYTES = 2
_LEAST_BYTES = 1 + _CHECK_BYTES
_HASH_MASK = (1 << 37) - 1
_RUN = re.compile(rb"[A-Za-z0-9.\x80-\xff-]+")
_DIGIT = re.compile(rb"[0-9]")


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
            if slots.kinds[slot] == TIME:
                continue
            stop = slots.begins[slot] + slots.widths[slot]
            # A value may be several tokens: MAC addresses have colons, other words may too. The
            # first of them may be listed already, with a value before it.
            at: Int = max(slots.begins[slot], done)
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


@kernel
def _hold(lines: Lines, token: Bytes, found: NDArray[np.bool_]) -> None:
    """Set which lines have a token; it has a byte at least."""
    data, size = lines.data, token.size
    for line in range(found.size):
        begin, end = lines.begins[line], lines.ends[line]
        at: Int = begin
        while at + size <= end and not found[line]:
            same = 0
            while same < size and data[at + same] == token[same]:
                same += 1
            if same == size:
                head, tail = _bounds_of(data, at, begin, end)
                found[line] = head == at and tail == at + size
            at += 1


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
    """Note which filters may hold a token, and in which block: 1 + its number, or ANY_BLOCK."""
    value = _token_hash(token, np.int64(0), np.int64(token.size))
    for index in range(bounds.size - 1):
        begin = bounds[index]
        end = bounds[index + 1] - _CHECK_BYTES
        found[index] = 0
        if data[begin] == _BLOOM:
            if _held_by_bloom(data, begin + 1, end - begin - 1, value):
                found[index] = ANY_BLOCK
            continue
        seed, columns = np.int64(data[begin + 1]), np.int64(data[begin + 2])
        sure = columns - _PLACE_COLUMNS if data[begin] == _PLACED else columns
        begin += _RIBBON_HEADER_BYTES
        number = number_of(data, begin, (end - begin) // columns, columns, sure, seed, value)
        if number >= 0:
            found[index] = number if number > 0 else ANY_BLOCK


def build(parsed: Parsed, *, first: int, count: int, block_lines: int) -> bytes:
    """Return the filter of the tokens of lines [first, first + count) in blocks of so many."""
    end = first + count
    if not 0 <= first <= end <= parsed.count or block_lines < 1:
        raise ValueError(f"expected some of {parsed.count} lines, got {first} and {count} more")
    found = [
        _tokens_of(parsed, first=at, count=min(block_lines, end - at))
        for at in range(first, end, block_lines)
    ]
    sizes = [one.size for one in found]
    blocks = np.repeat(np.arange(1, len(found) + 1), sizes)
    hashes, where, times = np.unique(
        np.concatenate([np.zeros(0, np.int64), *found]), return_index=True, return_counts=True
    )
    only = blocks[where]
    body = of_hashes(hashes, np.where((times == 1) & (only < 1 << _PLACE_COLUMNS), only, 0))
    return body + binascii.crc_hqx(body, 0).to_bytes(_CHECK_BYTES, "little")


def _tokens_of(parsed: Parsed, *, first: int, count: int) -> State:
    """Return the distinct hashes of the tokens of some lines."""
    lines, end = parsed.lines, first + count
    size = int((lines.ends[first:end] - lines.begins[first:end]).sum())
    hashes = np.empty(size // 3 + 1, np.int64)
    used = _list_tokens(lines, parsed.slot_bounds, parsed.slots, first, count, hashes)
    return np.unique(hashes[:used])


def of_hashes(hashes: State, places: State) -> bytes:
    """Return the filter of distinct hashes, without its CRC; no longer than `BITS` say.

    places: 1 + the block of each, or 0 if several have it. Shape: as of the hashes
    """
    for columns, tokens in _SIZES:
        size = 100 * hashes.size // tokens // 8
        if 8 * size < WIDTH:
            continue
        sure = columns - _PLACE_COLUMNS
        for seed in range(_SEEDS):
            table = np.zeros(columns * size, np.uint8)
            if solve(hashes, places, sure, seed, columns, table):
                return bytes((_PLACED, seed, columns)) + table.tobytes()
    bits = np.zeros(1 + (_BLOOM_BITS * hashes.size + 7) // 8, np.uint8)
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
    if len(held) < _LEAST_BYTES or held[0] not in (_BLOOM, _RIBBON, _PLACED):
        raise RecordCorrupt(f"filter: expected version 1, 2 or 3, got {held[:1].hex()}")
    if held[0] != _BLOOM:
        columns, size = held[2], len(held) - _RIBBON_HEADER_BYTES - _CHECK_BYTES
        least = _PLACE_COLUMNS if held[0] == _PLACED else 0
        if not least < columns < 32 or size % columns or 8 * size < columns * WIDTH:
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


def find_joined(joined: Joined, tokens: Sequence[bytes]) -> Bytes:
    """Return in which block of each segment all tokens may be.

    0: in none, the segment does not have all of them; 1 + the number of a block; ANY_BLOCK.

    Returns:
        Shape: (filters,), uint8; ANY_BLOCK everywhere without tokens.
    """
    found = np.full(joined.bounds.size - 1, ANY_BLOCK, np.uint8)
    own = np.empty_like(found)
    for token in tokens:
        _find(joined.data, joined.bounds, np.frombuffer(bytearray(token), np.uint8), own)
        both = np.where(found == ANY_BLOCK, own, found)
        found = np.where((own == both) | (own == ANY_BLOCK) & (found > 0), both, np.uint8(0))
        if not found.any():  # a long question has thousands of tokens
            break
    return found


def find(filters: Sequence[bytes], token: bytes) -> list[int]:
    """Return the positions of the filters that may hold a token.

    Raises:
        RecordCorrupt: when a filter is none.
    """
    positions: list[int] = np.flatnonzero(find_joined(join(filters), [token])).tolist()
    return positions


def contains(held: bytes, token: bytes) -> bool:
    """Whether a filter may hold a token; of a token that was put in, always.

    Raises:
        RecordCorrupt: when it is no filter.
    """
    return bool(find([held], token))


def lines_with(lines: Lines, token: bytes) -> NDArray[np.bool_]:
    """Return which lines have a token, and not only its bytes in a longer one. Shape: (lines,).

    A token of a timestamp counts here; no filter has it.
    """
    found = np.zeros(lines.begins.size, np.bool_)
    if token:
        _hold(lines, np.frombuffer(bytearray(token), np.uint8), found)
    return found


def tokens(text: bytes) -> list[bytes]:
    """Return the tokens of a question, in order and without repetition.

    None of them is of a timestamp: a line that is asked for as a whole is found by its values.
    """
    lines = split(text)
    parsed = parse(lines, Shapes())
    slots, found = parsed.slots, dict[bytes, None]()
    for line in range(parsed.count):
        own = slice(parsed.slot_bounds[line], parsed.slot_bounds[line + 1])
        values = slots.kinds[own] != TIME
        starts = (slots.begins[own] - lines.begins[line])[values]
        ends = starts + slots.widths[own][values]
        for run in _RUN.finditer(lines.line(line)):
            token = run[0].strip(b".-")
            after = int(np.searchsorted(ends, run.start(), side="right"))
            valued = after < starts.size and starts[after] < run.end()
            if valued and len(token) >= MIN_TOKEN_BYTES and _DIGIT.search(token):
                found[token] = None
    return list(found)
