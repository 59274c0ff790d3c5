"""The structure of a line so far: the contexts that a model of plain bytes does not see.

A log line is a template with values in it. Besides the last bytes, the next byte depends on which
*position* in the template, and on the offset in the value. So the record is read as

- **atoms**, runs of letters and digits, and the **marks** between them;
- **masked**, where all atoms with a digit are equal: the position in the template;
- **fields**, the text between spaces: the column;
- **numbers**, atoms with a digit: the same one, or a near one, often recurs;
- its **digits** alone (see `digits`).

Everything is a 32-bit hash or a small integer in one array of integers, advanced byte by byte.
"""

from typing import NamedTuple

import numpy as np

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.digits import (
    Digits,
    expected_digit,
    forget_digits,
    new_digits,
    push_clock,
    push_digit,
)

CONTEXT_COUNT = 26

ORDER_COUNT = 8
"""The first contexts are the last 1, 2, 3, 4, 5, 6, 8 and 12 bytes."""

PLACE, PLACE_CLASS, AFTER_NUMBER, COLUMN_PAIR, TAIL, DIGIT, SHAPE = 10, 11, 12, 14, 18, 22, 25
"""Contexts by which weights are chosen."""

(
    RECENT, OLDER, CLASSES, POSITION, WORD, WORD_1, WORD_2,
    ATOM, ATOM_LENGTH, ATOM_KIND, ATOM_1, MASKED, TAIL_1, TAIL_2, GAP,
    NUMBER, BEGIN_1, END_1, SAME_1, BEGIN_2, END_2, SAME_2,
    FIELD, FIELD_1, FIELD_COUNT, VALUE,
) = range(26)  # fmt: skip
STATE_SIZE = 26
"""Columns of `Fields.state`.

The last 6 bytes, the 6 before them, the classes of the last 6, the position in the record. Hashes
of the word so far and of the two before it; of the atom so far, its length and kind, and the atom
before. Hashes of the masked record up to this atom; of the last atom and the one before it,
masked, each with the marks before it; of the marks since. Hash of the last number; where it and
the one before it begin and end, and whether the atom so far is as they began. Hashes of the field
so far and the one before it; number of fields; value of the atom so far."""

LETTERS, DIGITS = 1, 2
"""Bits of ATOM_KIND."""

_ALL = 0xFFFFFFFF
_SIX = 0xFFFFFFFFFFFF
_DIGIT, _LOWER, _UPPER, _OTHER_LETTER = 48, 97, 65, 128  # classes of bytes; a mark is its own
_VALUE_DIGITS = 15
_EPOCH_DIGITS, _EPOCH_MS_DIGITS = 10, 13
# Each hash has a name, so that equal values of different things differ: contexts are 0..25.
_ATOM, _WORD, _FIELD, _GAP, _MARK, _MASKED, _TAIL, _PLACE = range(56, 64)
_MASK = 7  # what stands for every atom with a digit


class Fields(NamedTuple):
    """The structure of a record so far.

    state: Shape: (STATE_SIZE,), int64, see the columns above
    digits: its digits
    hashes: Shape: (CONTEXT_COUNT,), int64, of the contexts of the next byte
    """

    state: State
    digits: Digits
    hashes: State


@kernel
def new_fields() -> Fields:
    """Return the state at a record's start."""
    return Fields(np.zeros(STATE_SIZE, np.int64), new_digits(), np.zeros(CONTEXT_COUNT, np.int64))


@inlined
def forget_fields(fields: Fields) -> None:
    """Reset to the state at a record's start."""
    fields.state[:] = 0
    forget_digits(fields.digits)


@inlined
def scramble(value: Int) -> Int:
    """Spread a 32-bit number (multiply-xorshift; the multipliers keep products below 2^62)."""
    value ^= value >> 15
    value = (value * 0x2C1B3C6D) & _ALL
    value ^= value >> 12
    value = (value * 0x297A2D39) & _ALL
    return value ^ (value >> 15)


@inlined
def join(low: Int, high: Int, name: Int) -> Int:
    """Hash two 32-bit numbers and a name to 32 bits."""
    mixed = (low & _ALL) * 0x1E3779B1 + (high & _ALL) * 0x25EBCA6B + (name + 1) * 0x3C2B2AE35
    return scramble(mixed & _ALL)


@inlined
def _class_of(byte: Int) -> Int:
    if 48 <= byte <= 57:
        return _DIGIT
    if 97 <= byte <= 122:
        return _LOWER
    if 65 <= byte <= 90:
        return _UPPER
    return _OTHER_LETTER if byte >= 128 else byte


@inlined
def _end_atom(fields: Fields, clock_shift_s: Int) -> None:
    state = fields.state
    kind, position, length = state[ATOM_KIND], state[POSITION], state[ATOM_LENGTH]
    masked: Int = _MASK if kind & DIGITS else state[ATOM]
    state[MASKED] = join(state[MASKED], masked, _MASKED)
    state[TAIL_2] = state[TAIL_1]
    state[TAIL_1] = join(masked, state[GAP], _TAIL)
    state[GAP] = 0
    state[ATOM_1] = state[ATOM]
    if kind & DIGITS:
        state[NUMBER] = state[ATOM]
        state[BEGIN_2], state[END_2] = state[BEGIN_1], state[END_1]
        state[BEGIN_1], state[END_1] = position - length, position
        if kind == DIGITS and length == _EPOCH_DIGITS:
            push_clock(fields.digits, state[VALUE] + clock_shift_s)
        elif kind == DIGITS and length == _EPOCH_MS_DIGITS:
            push_clock(fields.digits, state[VALUE] // 1000 + clock_shift_s)
    state[ATOM] = 0
    state[ATOM_LENGTH] = 0
    state[ATOM_KIND] = 0
    state[VALUE] = 0


@inlined
def _push_into_atom(fields: Fields, data: Bytes, byte: Int, kind: Int) -> None:
    state = fields.state
    offset = state[ATOM_LENGTH]
    if offset == 0:
        state[SAME_1] = 1
        state[SAME_2] = 1
    at = state[BEGIN_1] + offset
    if at >= state[END_1] or data[at] != byte:
        state[SAME_1] = 0
    at = state[BEGIN_2] + offset
    if at >= state[END_2] or data[at] != byte:
        state[SAME_2] = 0
    state[ATOM] = join(state[ATOM], byte + 1, _ATOM)
    state[ATOM_LENGTH] = offset + 1
    if kind == _DIGIT:
        state[ATOM_KIND] |= DIGITS
        if offset < _VALUE_DIGITS:
            state[VALUE] = state[VALUE] * 10 + byte - 48
        push_digit(fields.digits, byte - 48)
    else:
        state[ATOM_KIND] |= LETTERS


@inlined
def push_byte(fields: Fields, data: Bytes, clock_shift_s: Int) -> None:
    """Advance past `data[state[POSITION]]`.

    clock_shift_s: how many seconds the clock of dates is ahead of UTC
    """
    state = fields.state
    position = state[POSITION]
    byte = np.int64(data[position])
    kind = _class_of(byte)
    state[OLDER] = ((state[OLDER] << 8) | (state[RECENT] >> 40)) & _SIX
    state[RECENT] = ((state[RECENT] << 8) | byte) & _SIX
    state[CLASSES] = ((state[CLASSES] << 8) | kind) & _SIX
    letter = kind in (_LOWER, _UPPER, _OTHER_LETTER)
    if letter:
        state[WORD] = join(state[WORD], byte + 33 if kind == _UPPER else byte + 1, _WORD)
    elif state[WORD] != 0:
        state[WORD_2] = state[WORD_1]
        state[WORD_1] = state[WORD]
        state[WORD] = 0
    if letter or kind == _DIGIT:
        _push_into_atom(fields, data, byte, kind)
    else:
        if state[ATOM_LENGTH] > 0:
            _end_atom(fields, clock_shift_s)
        state[MASKED] = join(state[MASKED], byte + 1, _MARK)
        state[GAP] = join(state[GAP], byte + 1, _GAP)
    if byte != 32:
        state[FIELD] = join(state[FIELD], byte + 1, _FIELD)
    elif state[FIELD] != 0:
        state[FIELD_COUNT] += 1
        state[FIELD_1] = state[FIELD]
        state[FIELD] = 0
    state[POSITION] = position + 1


@inlined
def _expected(state: State, data: Bytes, begin: Int, end: Int, same: Int) -> Int:
    """Return the byte of an earlier number at this offset, and whether the atom so far equals its
    start."""
    if end == 0:
        return 0
    length = state[ATOM_LENGTH]
    at = begin + length
    byte: Int = np.int64(data[at]) if at < end else 1
    found: Int = byte | (same if length > 0 else 2) << 8 | min(length, 15) << 10
    return found


@inlined
def hash_contexts(fields: Fields, data: Bytes) -> None:
    """Hash all contexts of the byte that follows."""
    state, hashes = fields.state, fields.hashes
    recent, older, atom = state[RECENT], state[OLDER], state[ATOM]
    low, high, last = recent & 0xFFFFFF, recent >> 24, recent & 0xFF
    here = atom or last
    place = min(state[ATOM_LENGTH], 31) * 4 + state[ATOM_KIND]
    hashes[0] = join(last, 0, 0)
    hashes[1] = join(recent & 0xFFFF, 0, 1)
    hashes[2] = join(low, 0, 2)
    hashes[3] = join(low, high & 0xFF, 3)
    hashes[4] = join(low, high & 0xFFFF, 4)
    hashes[5] = join(low, high, 5)
    hashes[6] = join(hashes[5], older & 0xFFFF, 6)
    hashes[7] = join(hashes[5] ^ (older >> 24), older & 0xFFFFFF, 7)
    hashes[8] = join(state[WORD] or last, state[WORD_1], 8)
    hashes[9] = join(hashes[8], state[WORD_2], 9)
    hashes[PLACE] = join(state[MASKED], atom, PLACE)
    hashes[PLACE_CLASS] = join(state[MASKED], place, PLACE_CLASS)
    hashes[AFTER_NUMBER] = join(hashes[PLACE], state[NUMBER], AFTER_NUMBER)
    hashes[13] = join(state[FIELD], min(state[FIELD_COUNT], 255), 13)
    hashes[COLUMN_PAIR] = join(hashes[13], state[FIELD_1], COLUMN_PAIR)
    hashes[15] = join(here, state[ATOM_1], 15)
    hashes[16] = join(here, state[NUMBER], 16)
    tail = state[TAIL_1] ^ state[GAP]
    hashes[17] = join(tail, join(state[TAIL_2], place, _PLACE), 17)
    hashes[TAIL] = join(tail, atom, TAIL)
    hashes[19] = join(state[CLASSES] & 0xFFFFFF, state[CLASSES] >> 24, 19)
    marks = state[ATOM_KIND] | last << 8
    first = _expected(state, data, state[BEGIN_1], state[END_1], state[SAME_1])
    hashes[20] = join(first, marks, 20)
    second = _expected(state, data, state[BEGIN_2], state[END_2], state[SAME_2])
    hashes[21] = join(second, marks, 21)
    hashes[DIGIT] = join(expected_digit(fields.digits), place, DIGIT)
    hashes[23] = join((recent >> 8) & 0xFFFFFF, 0, 23)
    hashes[24] = join(hashes[PLACE], state[ATOM_1], 24)
    hashes[SHAPE] = join(state[CLASSES] & 0xFFFF, place, SHAPE)
