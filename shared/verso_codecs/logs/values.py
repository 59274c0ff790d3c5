"""How the lines of a block are coded: a shape's number, then the value of each of its slots.

A shape is first guessed from the three before it; by the second rules the next guess is that it is
new, and numbered behind all before; then its number is spelled out. A value is first
compared with up to seven candidates (`candidates`); if it is none of them it is spelled out
(`spelling`). A timestamp is the difference to the last line's, or to the first time of its line.

Values coded or learnt so far stand in `Memory`, in order; what refers to them is found by hash.
"""

# Compiled with what it imports: f01abf8db94b4510

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.candidates import code_candidates, find_candidates
from verso_codecs.logs.differences import code_difference
from verso_codecs.logs.memory import (
    CANDIDATES,
    COUNT,
    FAULT,
    GUESSES,
    LINE_TIME,
    NEWEST,
    OUTCOMES,
    PREVIOUS,
    RULES,
    RULES_2,
    SHAPE_1,
    SHAPE_2,
    SHAPE_3,
    TIMES,
    Memory,
    bits_of,
    copy_value,
    keep_number,
    link,
    magnitude,
)
from verso_codecs.logs.model import (
    DECODE,
    FOR_GUESS,
    FOR_NEWEST,
    FOR_SHAPE,
    FOR_SHAPE_REST,
    MODE,
    Model,
    close_output,
    code_symbol,
    set_contexts,
    turn_contexts,
)
from verso_codecs.logs.parsing import NUMBER, TIME, Slots, mix
from verso_codecs.logs.shapes import ESCAPE, SLOT, STAMP, Table
from verso_codecs.logs.spelling import code_new
from verso_codecs.logs.stamps import STAMP_BYTES, power_of_ten, put_stamp

_MAX_SECONDS = 1 << 33
_EARLIEST, _LATEST = 500_000_000, 4_200_000_000
_RECENT = 0xFFFFFFFFFFFF
_MAX_NUMBER = (1 << 63) - 1


@inlined
def _code_unguessed(model: Model, state: State, pair: Int, number: Int) -> Int:
    """Code the number of a shape that no guess told; return it."""
    last: Int = state[SHAPE_1]
    set_contexts(
        model,
        mix(last, np.int64(-3)),
        np.int64(12345),
        mix(pair, np.int64(-4)),
        mix(state[GUESSES] & 63, np.int64(-5)),
        mix(state[SHAPE_2], np.int64(-6)),
        np.int64(54321),
    )
    bits = code_symbol(model, np.int64(FOR_SHAPE), last, bits_of(number), np.int64(5))
    turn_contexts(model, bits)
    low = max(bits - 1, 0)
    rest: Int = number & ((np.int64(1) << low) - 1)
    rest = code_symbol(model, np.int64(FOR_SHAPE_REST), last, rest, low)
    return ((np.int64(1) << low) | rest) if bits > 0 else np.int64(0)


@inlined
def _code_newest(model: Model, state: State, shape_count: Int, number: Int) -> tuple[Int, Int]:
    """Code whether a shape is the one that is numbered behind all before.

    number: of the shape, when encoding

    Returns: the number; 4 if it is that one, else 5
    """
    pick: Int = state[NEWEST]
    if pick >= shape_count:
        return number, np.int64(5)
    last, guesses = state[SHAPE_1], state[GUESSES]
    set_contexts(
        model,
        mix(guesses, np.int64(701)),
        mix(guesses & 63, np.int64(702)),
        mix(guesses & 7, np.int64(703)),
        mix(last, np.int64(704)),
        np.int64(705),
        mix(state[SHAPE_2], np.int64(706)),
    )
    hit = code_symbol(model, np.int64(FOR_NEWEST), guesses, np.int64(number == pick), np.int64(1))
    if hit:
        return pick, np.int64(4)
    return number, np.int64(5)


@inlined
def _code_shape(model: Model, memory: Memory, shape_count: Int, number: Int) -> Int:
    """Code the number of a line's shape; return it, or set FAULT."""
    state, follows = memory.state, memory.follows
    last: Int = state[SHAPE_1]
    older, oldest = state[SHAPE_2], state[SHAPE_3]
    pair = mix(last, older)
    keys, picks = memory.keys, memory.picks
    keys[0], keys[1], keys[2] = (
        link(pair, oldest),
        link(pair, np.int64(-1)),
        link(last, np.int64(-2)),
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
        set_contexts(
            model,
            mix(last, place),
            mix(pair, place),
            mix(pair, oldest * 4 + index),
            mix(last, pick * 4 + index),
            mix(guesses, place + 4096),
            mix(guesses & 63, 4 * np.int64(pick) + index),
        )
        hit = code_symbol(
            model, np.int64(FOR_GUESS), guesses, np.int64(number + 1 == pick), np.int64(1)
        )
        if hit:
            found = np.int64(index)
            number = pick - 1
            break
    told = found < 4
    if not told and state[RULES] >= RULES_2:
        number, found = _code_newest(model, state, shape_count, number)
        told = found == 4
    if not told:
        number = _code_unguessed(model, state, pair, number)
        if number >= shape_count:
            state[FAULT] = 1
            return np.int64(0)
    state[NEWEST] = max(state[NEWEST], number + 1)
    for index in range(3):
        follows[keys[index]] = number + 1
    state[SHAPE_3], state[SHAPE_2], state[SHAPE_1] = older, last, number + 1
    state[GUESSES] = ((guesses << 3) | found) & 0xFFF
    return number


@inlined
def _code_stamp_value(
    model: Model, memory: Memory, slots: Slots, slot: Int, column: Int, digits: Int, at: Int
) -> None:
    """Code a timestamp and keep it at `at`."""
    state = memory.state
    unit = power_of_ten(digits)
    place = mix(digits + 16 * state[TIMES], np.int64(77))
    key = link(place, np.int64(8))
    last = np.int64(memory.links[key])
    base = memory.numbers[last]
    if state[LINE_TIME] > 0:
        column_key = link(column, np.int64(2))
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
    difference = code_difference(model, column, place, bucket, mark, difference)
    number = base
    if difference <= _MAX_NUMBER - base:
        number += difference
    if number < 0 or number // unit >= _MAX_SECONDS:
        state[FAULT] = 1
        number = np.int64(0)
    keep_number(memory, at, number, digits)
    memory.kinds[at] = TIME
    memory.buckets[at] = bits_of(magnitude(difference))
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
    memory.links[link(column, np.int64(2))] = at


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
    last = find_candidates(memory, column, place, at)
    found = code_candidates(model, memory, slots, source, slot, column, place, last)
    memory.buckets[at] = memory.buckets[last]
    if found < CANDIDATES:
        pick = memory.picks[found]
        if pick != at:
            copy_value(memory, pick, at)
    else:
        code_new(model, memory, slots, source, slot, column, place, last, at)
        if state[FAULT]:
            return
    value = memory.hashes[at]
    here = link(value, np.int64(6))
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
