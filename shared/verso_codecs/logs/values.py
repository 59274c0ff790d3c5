"""How the lines of a block are coded: a shape's number, then the value of each of its slots.

A shape is first guessed from the three before it; then its number is spelled out. A value is first
compared with up to seven candidates:

1. what stood in this column (slot of a shape) behind the same value of the slot before;
2. what stood in this column last;
3. the value as many slots back as the last repetition in this column was: UUIDs recur in other
   columns and lines;
4. the last value moved on by the last difference;
5. as 1, and 7. as 2, by the six bytes before the slot instead of the column;
6. what followed the last value of this column when it occurred before.

If it is none of them its kind is coded, and then the difference to the last value, or its digits or
bytes, each in the contexts of those before it, of the column and of the value that is expected.
After three or four of them a value with the same beginning is one more candidate. Digits whose
beginning was never seen are coded evenly: nothing is known about them. A timestamp is the
difference to the last line's, or to the first time of its own line.

Values coded or learnt so far stand in `Memory`, in order; what refers to them is found by hash.
"""

# Compiled with what it imports: 6d859ffb9ffda3ce

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.model import (
    CONTEXTS,
    DECODE,
    MODE,
    Model,
    close_output,
    code_evenly,
    code_symbol,
    is_known,
)
from verso_codecs.logs.parsing import (
    LONG,
    NUMBER,
    TIME,
    UUID,
    UUID_BYTES,
    WORD,
    Slots,
    bytes_hash,
    mix,
    number_hash,
)
from verso_codecs.logs.shapes import ESCAPE, SLOT, STAMP, Table
from verso_codecs.logs.stamps import STAMP_BYTES, power_of_ten, put_stamp

LINK_BITS = 16
"""log2 of the places of `Memory.links`."""

CANDIDATES = 7

(
    COUNT, TEXT_END, PREVIOUS, LINE_TIME, TIMES, OUTCOMES,
    SHAPE_1, SHAPE_2, SHAPE_3, GUESSES, FAULT,
) = range(11)  # fmt: skip
STATE_SIZE = 11
"""Columns of `Memory.state`: values and bytes kept (both begin at 1); of the line, the hash of the
value before, its first time in seconds, its timestamps so far, how the last two values were found;
the last three shapes and how they were found; whether the payload cannot be right."""

_NEAR, _KIND_BITS = 6, 3  # coded like a kind of value
_LENGTH_BITS, _WIDTH_BITS = 8, 5
_BUCKET_BITS, _MANTISSA_BITS = 6, 3
_MAX_SECONDS = 1 << 33
_MAX_NEAR = 1 << 61
_EARLIEST, _LATEST = 500_000_000, 4_200_000_000
_MISSED = CANDIDATES
_ALL = 0xFFFFFFFF
_RECENT = 0xFFFFFFFFFFFF
_MAX_NUMBER = (1 << 63) - 1
(
    _GUESS, _SHAPE, _SAME, _KIND, _PADDED, _MOVED, _BUCKET, _SIGN, _MANTISSA, _MINUS, _LENGTH,
    _DIGIT, _NIBBLE, _BYTE, _COMPLETED, _SHAPE_REST,
) = range(16)  # fmt: skip


class Memory(NamedTuple):
    """Values in the order in which they occurred, from 1; and where to find them.

    kinds, numbers, widths, hashes: as in `Slots`
    offsets: where the bytes of a value stand in `text`
    lasts: the value before in the same column, or 0
    marks: how the last three values of the column were found, 3 bits each
    distances: how many values back the last repetition in the column was, or 0
    buckets: size of the last difference in the column, in bits
    ahead: seconds by which a timestamp is ahead of the first time of its line
    text: uint8
    links: Shape: (2^LINK_BITS,), int32, a value by hash
    follows: Shape: (2^LINK_BITS,), int32, a shape plus 1 by hash
    keys, picks: scratch
    state: Shape: (STATE_SIZE,), int64
    """

    kinds: Bytes
    numbers: State
    widths: State
    hashes: State
    offsets: State
    lasts: State
    marks: State
    distances: State
    buckets: State
    ahead: State
    text: Bytes
    links: NDArray[np.int32]
    follows: NDArray[np.int32]
    keys: State
    picks: State
    state: State


_COLUMNS = Memory._fields[: Memory._fields.index("text")]


def new_memory(values: int, size_bytes: int) -> Memory:
    """Return an empty memory with room for so many values and bytes."""
    state = np.zeros(STATE_SIZE, np.int64)
    state[COUNT] = state[TEXT_END] = 1
    return Memory(
        kinds=np.zeros(values + 1, np.uint8),
        numbers=np.zeros(values + 1, np.int64),
        widths=np.zeros(values + 1, np.int64),
        hashes=np.zeros(values + 1, np.int64),
        offsets=np.zeros(values + 1, np.int64),
        lasts=np.zeros(values + 1, np.int64),
        marks=np.zeros(values + 1, np.int64),
        distances=np.zeros(values + 1, np.int64),
        buckets=np.zeros(values + 1, np.int64),
        ahead=np.zeros(values + 1, np.int64),
        text=np.zeros(size_bytes + 1, np.uint8),
        links=np.zeros(1 << LINK_BITS, np.int32),
        follows=np.zeros(1 << LINK_BITS, np.int32),
        keys=np.zeros(8, np.int64),
        picks=np.zeros(CANDIDATES, np.int64),
        state=state,
    )


def remember(memory: Memory, learnt: Memory) -> None:
    """Begin `memory` with the values of `learnt`."""
    count, end = int(learnt.state[COUNT]), int(learnt.state[TEXT_END])
    for name in _COLUMNS:
        getattr(memory, name)[:count] = getattr(learnt, name)[:count]
    memory.text[:end] = learnt.text[:end]


def restore(memory: Memory, learnt: Memory) -> None:
    """Forget all that came behind the values of `learnt`, with which `memory` began."""
    np.copyto(memory.links, learnt.links)
    np.copyto(memory.follows, learnt.follows)
    np.copyto(memory.state, learnt.state)


@inlined
def _link(first: Int, second: Int) -> Int:
    return mix(first, second) >> (32 - LINK_BITS)


@inlined
def _bits_of(value: Int) -> Int:
    """Return the length of a number >= 0 in bits."""
    count: Int = np.int64(0)
    while value > 0:
        value >>= 1
        count += 1
    return count


@inlined
def _magnitude(value: Int) -> Int:
    return value if value >= 0 else -value


@inlined
def _digits_of(value: Int) -> Int:
    """Return the number of decimal digits of a number of either sign."""
    value = _magnitude(value)
    count: Int = np.int64(1)
    while value >= 10:
        value //= 10
        count += 1
    return count


@inlined
def _set(model: Model, a: Int, b: Int, c: Int, d: Int, e: Int, f: Int) -> None:
    contexts = model.contexts
    contexts[0], contexts[1], contexts[2] = a, b, c
    contexts[3], contexts[4], contexts[5] = d, e, f


@inlined
def _turn(model: Model, value: Int) -> None:
    """Go on to the next part of a symbol: in the same contexts, and what was coded of it."""
    for index in range(CONTEXTS):
        model.contexts[index] = mix(model.contexts[index], value)


@inlined
def _code_shape(model: Model, memory: Memory, shape_count: Int, number: Int) -> Int:
    """Code the number of a line's shape; return it, or set FAULT."""
    state, follows = memory.state, memory.follows
    last: Int = state[SHAPE_1]
    older, oldest = state[SHAPE_2], state[SHAPE_3]
    pair = mix(last, older)
    keys, picks = memory.keys, memory.picks
    keys[0], keys[1], keys[2] = (
        _link(pair, oldest),
        _link(pair, np.int64(-1)),
        _link(last, np.int64(-2)),
    )
    for index in range(3):
        picks[index] = np.int64(follows[keys[index]])
    picks[3] = last
    agree: Int = np.int64(picks[1] == picks[0]) + 2 * np.int64(picks[2] == picks[0])
    agree += 4 * np.int64(picks[2] == picks[1]) + 8 * np.int64(picks[3] == picks[2])
    guesses = state[GUESSES]
    found: Int = np.int64(4)
    for index in range(4):
        pick = picks[index]
        repeated = pick == 0 or pick > shape_count
        for before in range(index):
            repeated = repeated or picks[before] == pick
        if repeated:
            continue
        place = agree * 4 + index
        _set(
            model,
            mix(last, place),
            mix(pair, place),
            mix(pair, oldest * 4 + index),
            mix(last, pick * 4 + index),
            mix(guesses, place + 4096),
            mix(guesses & 63, 4 * np.int64(pick) + index),
        )
        hit = code_symbol(
            model, np.int64(_GUESS), guesses, np.int64(number + 1 == pick), np.int64(1)
        )
        if hit:
            found = np.int64(index)
            number = pick - 1
            break
    if found == 4:
        _set(
            model,
            mix(last, np.int64(-3)),
            np.int64(12345),
            mix(pair, np.int64(-4)),
            mix(guesses & 63, np.int64(-5)),
            mix(older, np.int64(-6)),
            np.int64(54321),
        )
        bits = code_symbol(model, np.int64(_SHAPE), last, _bits_of(number), np.int64(5))
        _turn(model, bits)
        low = max(bits - 1, 0)
        rest: Int = number & ((np.int64(1) << low) - 1)
        rest = code_symbol(model, np.int64(_SHAPE_REST), last, rest, low)
        number = ((np.int64(1) << low) | rest) if bits > 0 else np.int64(0)
        if number >= shape_count:
            state[FAULT] = 1
            return np.int64(0)
    for index in range(3):
        follows[keys[index]] = number + 1
    state[SHAPE_3], state[SHAPE_2], state[SHAPE_1] = older, last, number + 1
    state[GUESSES] = ((guesses << 3) | found) & 0xFFF
    return number


@inlined
def _keep_number(memory: Memory, at: Int, number: Int, width: Int) -> None:
    memory.kinds[at] = NUMBER
    memory.numbers[at] = number
    memory.widths[at] = width
    memory.hashes[at] = number_hash(number, width)
    memory.offsets[at] = 0


@inlined
def _find_candidates(memory: Memory, column: Int, place: Int, at: Int) -> Int:
    """List the candidates of the next value in `picks`, 0 for none; return the column's last.

    place: hash of the bytes before the slot
    at: where the value will stand
    """
    state, links, keys, picks = memory.state, memory.links, memory.keys, memory.picks
    previous = state[PREVIOUS]
    keys[1] = _link(column, np.int64(2))
    last = np.int64(links[keys[1]])
    keys[0] = _link(mix(column, np.int64(1)), previous)
    keys[2] = _link(mix(column, np.int64(3)), memory.hashes[last])
    keys[3] = _link(place, np.int64(4))
    keys[4] = _link(mix(place, np.int64(5)), previous)
    picks[0], picks[1] = np.int64(links[keys[0]]), last
    distance = memory.distances[last]
    picks[2] = at - distance if 0 < distance < at else 0
    picks[3] = 0
    older = memory.lasts[last]
    if memory.kinds[last] == NUMBER and memory.kinds[older] == NUMBER and older > 0:
        number: Int = memory.numbers[last]
        before = memory.numbers[older]
        if number != before and _magnitude(number) < _MAX_NEAR and _magnitude(before) < _MAX_NEAR:
            padded = memory.widths[last] > _digits_of(number)
            number = 2 * number - before
            width: Int = _digits_of(number)
            if padded:
                width = max(width, memory.widths[last])
            _keep_number(memory, at, number, width)
            picks[3] = at
    picks[4] = np.int64(links[keys[4]])
    picks[5] = np.int64(links[keys[2]])
    picks[6] = np.int64(links[keys[3]])
    return last


@inlined
def _equals(memory: Memory, pick: Int, slots: Slots, source: Bytes, slot: Int) -> bool:
    """Whether a value of the memory is the one in a slot."""
    kind = np.int64(slots.kinds[slot])
    if memory.hashes[pick] != slots.hashes[slot] or np.int64(memory.kinds[pick]) != kind:
        return False
    width = slots.widths[slot]
    if memory.widths[pick] != width:
        return False
    if kind == NUMBER:
        return bool(memory.numbers[pick] == slots.numbers[slot])
    begin, other = slots.begins[slot], memory.offsets[pick]
    for index in range(width):  # noqa: SIM110 (kernels have no generators)
        if source[begin + index] != memory.text[other + index]:
            return False
    return True


@inlined
def _copy(memory: Memory, pick: Int, at: Int) -> None:
    memory.kinds[at] = memory.kinds[pick]
    memory.numbers[at] = memory.numbers[pick]
    memory.widths[at] = memory.widths[pick]
    memory.hashes[at] = memory.hashes[pick]
    memory.offsets[at] = memory.offsets[pick]


@inlined
def _code_candidates(
    model: Model,
    memory: Memory,
    slots: Slots,
    source: Bytes,
    slot: Int,
    column: Int,
    place: Int,
    last: Int,
) -> Int:
    """Code which candidate the value is; return its index, or _MISSED."""
    hashes, picks = memory.hashes, memory.picks
    writes = model.state[MODE] != DECODE
    first, second = hashes[picks[0]], hashes[picks[1]]
    agree: Int = np.int64(first == second) + 2 * np.int64(hashes[picks[2]] == first)
    agree += 4 * np.int64(hashes[picks[2]] == second) + 8 * np.int64(hashes[picks[4]] == first)
    agree += 16 * np.int64(hashes[picks[5]] == second) + 32 * np.int64(picks[0] == 0)
    marks, outcomes = memory.marks[last], memory.state[OUTCOMES]
    for index in range(CANDIDATES):
        pick = picks[index]
        repeated = pick == 0
        for before in range(index):
            repeated = repeated or (picks[before] > 0 and hashes[picks[before]] == hashes[pick])
        if repeated:
            continue
        same: Int = np.int64(0)
        if writes and _equals(memory, pick, slots, source, slot):
            same = np.int64(1)
        known = agree * 8 + index
        _set(
            model,
            mix(column, known),
            mix(column, (marks * 8 + index) + (1 << 12)),
            mix(place, known * 8 + (marks & 7)),
            mix(column, (outcomes * 8 + index) + (1 << 13)),
            mix(known, (marks & 63) + (1 << 14)),
            mix(mix(column, hashes[pick]), np.int64(index)),
        )
        same = code_symbol(model, np.int64(_SAME), column, same, np.int64(1))
        if same:
            return np.int64(index)
    return np.int64(_MISSED)


@inlined
def _code_difference(
    model: Model, column: Int, place: Int, bucket: Int, mark: Int, difference: Int
) -> Int:
    """Code a difference; return it. bucket: bits of the last one; mark: what else is known"""
    _set(
        model,
        mix(column, np.int64(101)),
        mix(place, np.int64(102)),
        mix(column, bucket + 128),
        mix(place, bucket + 256),
        mix(column, mark + 1024),
        mix(place, mark + 1024),
    )
    moved: Int = np.int64(difference != 0)
    moved = code_symbol(model, np.int64(_MOVED), column, moved, np.int64(1))
    if not moved:
        return np.int64(0)
    _turn(model, np.int64(1))
    size = _magnitude(difference)
    bits = code_symbol(model, np.int64(_BUCKET), column, _bits_of(size), np.int64(_BUCKET_BITS))
    _turn(model, bits)
    minus = code_symbol(model, np.int64(_SIGN), column, np.int64(difference < 0), np.int64(1))
    _turn(model, minus)
    low = max(bits - 1 - _MANTISSA_BITS, 0)
    count = max(bits - 1, 0) - low
    top = code_symbol(
        model, np.int64(_MANTISSA), column, (size >> low) & ((1 << count) - 1), np.int64(count)
    )
    value = (np.int64(1) << count) | top
    while low > 0:
        part = min(low, 30)
        low -= part
        rest = code_evenly(model, (size >> low) & ((1 << part) - 1), np.int64(1) << part)
        value = (value << part) | rest
    if bits == 0:
        value = np.int64(0)
    return -value if minus else value


@inlined
def _symbol_at(text: Bytes, at: Int, kind: Int) -> Int:
    """Return the digit, nibble or byte at a place of a value's bytes."""
    byte = np.int64(text[at])
    if kind == WORD:
        return byte
    return byte - 48 if byte < 58 else byte - 87


@inlined
def _skip_dash(kind: Int, offset: Int) -> Int:
    """Return the offset, or the next where a UUID has a dash."""
    dash = offset == 8 or offset == 13 or offset == 18 or offset == 23
    return offset + 1 if kind == UUID and dash else offset


@inlined
def _expected(memory: Memory, last: Int, kind: Int, offset: Int, width: Int) -> Int:
    """Return the last value's symbol at the same offset plus 1, or 0."""
    if np.int64(memory.kinds[last]) != kind or last == 0:
        return np.int64(0)
    if kind == NUMBER:
        if memory.widths[last] != width:
            return np.int64(0)
        digit: Int = _magnitude(memory.numbers[last]) // power_of_ten(width - 1 - offset) % 10
        return digit + 1
    if offset >= memory.widths[last]:
        return np.int64(0)
    return 1 + _symbol_at(memory.text, memory.offsets[last] + offset, kind)


@inlined
def _code_bytes(  # noqa: C901 (one symbol, from its contexts to its byte)
    model: Model,
    memory: Memory,
    source: Bytes,
    begin: Int,
    width: Int,
    kind: Int,
    column: Int,
    place: Int,
    last: Int,
    slots: Slots,
    slot: Int,
) -> Int:
    """Code the digits or bytes of a value into the memory's text at its end.

    begin: of the digits or bytes in `source`, when encoding

    Returns: the value of the memory that it turned out to be, or 0
    """
    text, end = memory.text, memory.state[TEXT_END]
    writes = model.state[MODE] != DECODE
    count: Int = np.int64(16)
    if kind == WORD:
        count = np.int64(256)
    elif kind == NUMBER:
        count = np.int64(10)
    purpose: Int = np.int64(_DIGIT if kind == NUMBER else _BYTE if kind == WORD else _NIBBLE)
    checked: Int = np.int64(3 if kind in (NUMBER, WORD) else 4)
    prefix: Int = mix(np.int64(kind), width)
    same: Int = np.int64(1)
    evenly = False
    offset: Int = np.int64(0)
    recent: Int = np.int64(0)
    while offset < width:
        if offset == checked and width > checked + 1:
            pick = np.int64(memory.links[_link(prefix, np.int64(9))])
            if pick > 0 and np.int64(memory.kinds[pick]) == kind and memory.widths[pick] == width:
                _set(
                    model,
                    mix(column, np.int64(201)),
                    mix(place, np.int64(202)),
                    mix(np.int64(kind) + 16 * width, np.int64(203)),
                    mix(memory.hashes[pick], np.int64(204)),
                    mix(column, np.int64(kind) + 16 * width),
                    np.int64(205),
                )
                whole: Int = np.int64(0)
                if writes and _equals(memory, pick, slots, source, slot):
                    whole = np.int64(1)
                if code_symbol(model, np.int64(_COMPLETED), column, whole, np.int64(1)):
                    return pick
        ahead = _expected(memory, last, kind, offset, width) if same else np.int64(0)
        _set(
            model,
            mix(column, prefix),
            mix(place, prefix),
            mix(mix(column, ahead), offset),
            mix(place, offset + 64 * width),
            mix(recent & 0xFFFF, np.int64(kind) + 16 * ahead),
            mix(
                recent & 0xFFFFFF if kind == WORD else width - offset,
                column if kind != WORD else np.int64(3),
            ),
        )
        if count < 256 and offset > 0:
            evenly = evenly or not (
                is_known(model, np.int64(0), np.int64(1))
                or is_known(model, np.int64(1), np.int64(1))
            )
        symbol: Int = np.int64(0)
        if writes:
            symbol = _symbol_at(source, begin + offset, kind)
        fixed = kind == UUID and (offset == 14 or offset == 19)
        if evenly and not fixed:
            symbol = code_evenly(model, symbol, count)
        else:
            if fixed:
                model.contexts[0] = mix(column, offset)
                model.contexts[1] = mix(np.int64(kind), offset)
            symbol = code_symbol(model, purpose, column, symbol, np.int64(8 if kind == WORD else 4))
            if symbol >= count:
                memory.state[FAULT] = 1
                return np.int64(0)
        same = np.int64(ahead == symbol + 1) if same else np.int64(0)
        byte = symbol
        if kind != WORD:
            byte = symbol + 48 if symbol < 10 else symbol + 87
        text[end + offset] = byte
        prefix = mix(prefix, symbol)
        recent = ((recent << 8) | byte) & 0xFFFFFF
        offset += 1
        if offset == checked:
            memory.keys[7] = prefix
        if _skip_dash(kind, offset) != offset:
            text[end + offset] = 45
            offset += 1
    return np.int64(0)


@inlined
def _code_long(model: Model, memory: Memory, source: Bytes, begin: Int, width: Int) -> None:
    """Code many bytes evenly."""
    text, end = memory.text, memory.state[TEXT_END]
    writes = model.state[MODE] != DECODE
    for index in range(width):
        byte = np.int64(source[begin + index]) if writes else np.int64(0)
        text[end + index] = code_evenly(model, byte, np.int64(256))


@inlined
def _code_width(
    model: Model, memory: Memory, kind: Int, column: Int, place: Int, last: Int, width: Int
) -> Int:
    """Code how many digits or bytes a value has; return it."""
    if kind == UUID:
        return np.int64(UUID_BYTES)
    if kind == LONG:
        high = code_evenly(model, width >> 16, np.int64(1 << 16))
        return (high << 16) | code_evenly(model, width & 0xFFFF, np.int64(1 << 16))
    before = np.int64(memory.kinds[last]) * 256 + (memory.widths[last] & 255)
    _set(
        model,
        mix(column, np.int64(kind) + 301),
        mix(place, np.int64(kind) + 301),
        mix(column, before * 8 + np.int64(kind)),
        mix(place, before * 8 + np.int64(kind)),
        mix(np.int64(kind), np.int64(302)),
        mix(before, np.int64(kind) + 303),
    )
    bits = np.int64(_WIDTH_BITS if kind == NUMBER else _LENGTH_BITS)
    return code_symbol(model, np.int64(_LENGTH), column, width, bits)


@inlined
def _number_of(memory: Memory, begin: Int, width: Int) -> Int:
    """Return the number that digits in the memory's text write, or -1 if it is too large."""
    number: Int = np.int64(0)
    for index in range(width):
        digit = np.int64(memory.text[begin + index]) - 48
        if number > (_MAX_NUMBER - digit) // 10:
            return np.int64(-1)
        number = number * 10 + digit
    return number


@inlined
def _near_base(memory: Memory, last: Int) -> Int:
    """Return the number from which a difference may be coded: the column's last, or the place's."""
    if memory.kinds[last] == NUMBER and last > 0 and _magnitude(memory.numbers[last]) < _MAX_NEAR:
        return last
    pick: Int = memory.picks[6]
    if pick > 0 and memory.kinds[pick] == NUMBER and _magnitude(memory.numbers[pick]) < _MAX_NEAR:
        return pick
    return np.int64(0)


@inlined
def _is_near(memory: Memory, base: Int, number: Int, width: Int) -> bool:
    """Whether a number is worth coding as a difference; only those that decode may be."""
    if base == 0 or _magnitude(number) >= _MAX_NEAR:
        return False
    natural = _digits_of(number)
    padded = natural < memory.widths[base] and width == memory.widths[base]
    if width != natural and not padded:
        return False
    return bool(3 * _bits_of(_magnitude(number - memory.numbers[base])) + 12 <= 10 * natural)


@inlined
def _code_kind(model: Model, memory: Memory, column: Int, place: Int, last: Int, kind: Int) -> Int:
    before = np.int64(memory.kinds[last]) * 8 + (memory.marks[last] & 7)
    _set(
        model,
        mix(column, before),
        mix(place, before),
        mix(column, np.int64(401)),
        mix(place, np.int64(402)),
        mix(before, np.int64(403)),
        mix(memory.state[OUTCOMES], np.int64(404)),
    )
    return code_symbol(model, np.int64(_KIND), column, kind, np.int64(_KIND_BITS))


@inlined
def _code_stamp_value(
    model: Model, memory: Memory, slots: Slots, slot: Int, column: Int, digits: Int, at: Int
) -> None:
    """Code a timestamp and keep it at `at`."""
    state = memory.state
    unit = power_of_ten(digits)
    place = mix(digits + 16 * state[TIMES], np.int64(77))
    key = _link(place, np.int64(8))
    last = np.int64(memory.links[key])
    base = memory.numbers[last]
    if state[LINE_TIME] > 0:
        column_key = _link(column, np.int64(2))
        before = np.int64(memory.links[column_key])
        if memory.kinds[before] == TIME:
            last = before
        seconds = min(max(state[LINE_TIME] + memory.ahead[last], 0), _MAX_SECONDS - 1)
        base = seconds * unit
    if memory.kinds[last] != TIME or memory.widths[last] != digits:
        base = max(state[LINE_TIME], 0) * unit
    difference: Int = np.int64(0)
    if model.state[MODE] != DECODE:
        difference = slots.numbers[slot] - base
    bucket = memory.buckets[last]
    mark = mix(state[SHAPE_2], np.int64(5)) & 0xFFFFF
    difference = _code_difference(model, column, place, bucket, mark, difference)
    number = base
    if difference <= _MAX_NUMBER - base:
        number += difference
    if number < 0 or number // unit >= _MAX_SECONDS:
        state[FAULT] = 1
        number = np.int64(0)
    _keep_number(memory, at, number, digits)
    memory.kinds[at] = TIME
    memory.buckets[at] = _bits_of(_magnitude(difference))
    memory.lasts[at] = 0
    memory.marks[at] = 0
    memory.distances[at] = 0
    memory.ahead[at] = 0
    if state[LINE_TIME] > 0:
        memory.ahead[at] = number // unit - state[LINE_TIME]
    else:
        state[LINE_TIME] = number // unit
    state[OUTCOMES] = ((state[OUTCOMES] << 3) | np.int64(difference != 0)) & 63
    state[TIMES] = min(state[TIMES] + 1, 15)
    memory.links[key] = at
    memory.links[_link(column, np.int64(2))] = at


@inlined
def _code_new(  # noqa: C901 (one kind after the other)
    model: Model,
    memory: Memory,
    slots: Slots,
    source: Bytes,
    slot: Int,
    column: Int,
    place: Int,
    last: Int,
    at: Int,
) -> None:
    """Code a value that is no candidate and keep it at `at`."""
    state = memory.state
    writes = model.state[MODE] != DECODE
    kind: Int = np.int64(0)
    number: Int = np.int64(0)
    width: Int = np.int64(0)
    begin: Int = np.int64(0)
    base = _near_base(memory, last)
    if writes:
        kind, number = np.int64(slots.kinds[slot]), slots.numbers[slot]
        width, begin = slots.widths[slot], slots.begins[slot]
        if kind == NUMBER and _is_near(memory, base, number, width):
            kind = np.int64(_NEAR)
    kind = _code_kind(model, memory, column, place, last, kind)
    if kind == _NEAR:
        if base == 0:
            state[FAULT] = 1
            return
        value = _code_difference(
            model,
            column,
            place,
            memory.buckets[last],
            memory.marks[last] & 63,
            number - memory.numbers[base],
        )
        if _magnitude(value) >= _MAX_NEAR:
            state[FAULT] = 1
            return
        number = memory.numbers[base] + value
        natural = _digits_of(number)
        memory.buckets[at] = _bits_of(_magnitude(value))
        if natural < memory.widths[base]:
            padded: Int = np.int64(width > natural)
            _set(
                model,
                mix(column, np.int64(501)),
                mix(place, np.int64(502)),
                np.int64(503),
                np.int64(504),
                np.int64(505),
                mix(memory.widths[base], np.int64(506)),
            )
            if code_symbol(model, np.int64(_PADDED), column, padded, np.int64(1)):
                natural = memory.widths[base]
        _keep_number(memory, at, number, natural)
        return
    minus: Int = np.int64(number < 0)
    if kind == NUMBER:
        _set(
            model,
            mix(column, np.int64(601)),
            mix(place, np.int64(602)),
            np.int64(603),
            np.int64(604),
            mix(column, np.int64(memory.numbers[last] < 0)),
            np.int64(605),
        )
        minus = code_symbol(model, np.int64(_MINUS), column, minus, np.int64(1))
    width = _code_width(model, memory, kind, column, place, last, width)
    end = state[TEXT_END]
    if kind > LONG or width > memory.text.size - end or (kind == NUMBER and not 0 < width < 20):
        state[FAULT] = 1
        return
    memory.keys[7] = 0
    match: Int = np.int64(0)
    if kind == LONG:
        _code_long(model, memory, source, begin, width)
    else:
        match = _code_bytes(
            model, memory, source, begin, width, kind, column, place, last, slots, slot
        )
    if match > 0:
        _copy(memory, match, at)
        return
    memory.kinds[at] = kind
    memory.widths[at] = width
    memory.offsets[at] = end
    memory.numbers[at] = 0
    if kind == NUMBER:
        number = _number_of(memory, end, width)
        if number < 0:
            state[FAULT] = 1
            number = np.int64(0)
        number = -number if minus else number
        memory.numbers[at] = number
        memory.hashes[at] = number_hash(number, width)
    else:
        memory.hashes[at] = bytes_hash(memory.text, end, width)
        state[TEXT_END] = end + width
    if memory.keys[7] != 0:
        memory.links[_link(memory.keys[7], np.int64(9))] = at


@inlined
def _code_value(
    model: Model,
    memory: Memory,
    slots: Slots,
    source: Bytes,
    slot: Int,
    column: Int,
    place: Int,
    at: Int,
) -> None:
    """Code a value that is no timestamp and keep it at `at`."""
    state, links, keys = memory.state, memory.links, memory.keys
    last = _find_candidates(memory, column, place, at)
    found = _code_candidates(model, memory, slots, source, slot, column, place, last)
    memory.buckets[at] = memory.buckets[last]
    if found < _MISSED:
        pick = memory.picks[found]
        if pick != at:
            _copy(memory, pick, at)
    else:
        _code_new(model, memory, slots, source, slot, column, place, last, at)
        if state[FAULT]:
            return
    value = memory.hashes[at]
    here = _link(value, np.int64(6))
    before = np.int64(links[here])
    memory.distances[at] = memory.distances[last]
    if before > 0 and memory.hashes[before] == value:
        memory.distances[at] = at - before
    links[here] = at
    memory.lasts[at] = last
    memory.ahead[at] = 0
    memory.marks[at] = ((memory.marks[last] << 3) | found) & 0x1FF
    for index in range(5):
        links[keys[index]] = at
    state[OUTCOMES] = ((state[OUTCOMES] << 3) | found) & 63
    number = memory.numbers[at]
    if memory.kinds[at] == NUMBER and _EARLIEST <= number < _LATEST and state[LINE_TIME] == 0:
        state[LINE_TIME] = number


@inlined
def _put_value(memory: Memory, at: Int, out: Bytes, position: Int) -> Int:
    """Write a value into `out`; return where it ends, or -1 if there is no room."""
    width: Int = memory.widths[at]
    if position + width + 1 > out.size:
        return np.int64(-1)
    if memory.kinds[at] == NUMBER:
        number = memory.numbers[at]
        if number < 0:
            out[position] = 45
            position += 1
            number = -number
        for index in range(width - 1, -1, -1):
            out[position + index] = 48 + number % 10
            number //= 10
    else:
        begin = memory.offsets[at]
        for index in range(width):
            out[position + index] = memory.text[begin + index]
    return position + width


@inlined
def _code_line(  # noqa: C901 (one pass over the row)
    model: Model,
    memory: Memory,
    table: Table,
    number: Int,
    slots: Slots,
    source: Bytes,
    slot: Int,
    out: Bytes,
    position: Int,
) -> tuple[Int, Int]:
    """Code the values of a line, and write the line into `out` when decoding.

    slot: of the line's first value; position: in `out`

    Returns: the next line's first value and position; FAULT is set where the line cannot be
    """
    state = memory.state
    reads = model.state[MODE] == DECODE
    state[PREVIOUS], state[LINE_TIME], state[TIMES], state[OUTCOMES] = number + 1, 0, 0, 0
    row, index, end = table.text, table.bounds[number], table.bounds[number + 1]
    recent: Int = np.int64(0)
    column: Int = mix(np.int64(number), np.int64(0))
    while index < end:
        byte = np.int64(row[index])
        recent = ((recent << 8) | byte) & _RECENT
        index += 1
        if byte in (SLOT, STAMP):
            at = state[COUNT]
            if at + 1 >= memory.numbers.size:
                state[FAULT] = 1
                return slot, position
            column = mix(column, np.int64(byte))
            if byte == STAMP:
                digits = np.int64(row[index + STAMP_BYTES - 1]) - 48
                _code_stamp_value(model, memory, slots, slot, column, digits, at)
            else:
                place = mix(recent & 0xFFFFFF, recent >> 24)
                _code_value(model, memory, slots, source, slot, column, place, at)
            if state[FAULT]:
                return slot, position
            state[COUNT] = at + 1
            if byte == SLOT:
                state[PREVIOUS] = memory.hashes[at]
            slot += 1
            if reads:
                if byte == STAMP:
                    position = put_stamp(out, position, row, index, memory.numbers[at])
                else:
                    position = _put_value(memory, at, out, position)
                if position < 0:
                    state[FAULT] = 1
                    return slot, np.int64(0)
            if byte == STAMP:
                index += STAMP_BYTES
            continue
        if byte == ESCAPE:
            byte = np.int64(row[index])
            index += 1
        if reads:
            if position >= out.size:
                state[FAULT] = 1
                return slot, position
            out[position] = byte
            position += 1
    return slot, position


@kernel
def code_lines(
    model: Model,
    memory: Memory,
    table: Table,
    shape_count: Int,
    shapes: NDArray[np.int32],
    slots: Slots,
    slot: Int,
    source: Bytes,
    out: Bytes,
    ends: State,
) -> Int:
    """Code lines, or decode them when `model.state[MODE]` says so.

    shape_count: shapes below it may occur
    shapes: Shape: (lines,), of the lines; when decoding, written
    slots, slot, source: the values of lines to encode, the first of them, and their payload
    out, ends: when decoding, the lines with a line feed after each, and where each ends before it

    Returns: the length of the payload or of `out`; -1 if it was too short, or cannot be decoded
    """
    position: Int = np.int64(0)
    at: Int = np.int64(slot)
    for line in range(shapes.size):
        number = _code_shape(model, memory, np.int64(shape_count), np.int64(shapes[line]))
        if memory.state[FAULT]:
            return np.int64(-1)
        at, position = _code_line(model, memory, table, number, slots, source, at, out, position)
        if memory.state[FAULT]:
            return np.int64(-1)
        if model.state[MODE] == DECODE:
            shapes[line] = number
            if position >= out.size:
                return np.int64(-1)
            ends[line] = position
            out[position] = 10
            position += 1
    if model.state[MODE] == DECODE:
        return position
    return close_output(model.state, model.data)
