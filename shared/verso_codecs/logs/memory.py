"""Values coded or learnt so far, in order, and where to find them by hash."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined
from verso_codecs.logs.parsing import NUMBER, Slots, mix, number_hash

LINK_BITS = 16
"""log2 of the places of `Memory.links`."""

CANDIDATES = 7

(
    COUNT, TEXT_END, PREVIOUS, LINE_TIME, TIMES, OUTCOMES,
    SHAPE_1, SHAPE_2, SHAPE_3, GUESSES, FAULT, RULES, NEWEST,
) = range(13)  # fmt: skip
STATE_SIZE = 13
"""Columns of `Memory.state`: values and bytes kept (both begin at 1); of the line, the hash of the
value before, its first time in seconds, its timestamps so far, how the last two values were found;
the last three shapes and how they were found; whether the payload cannot be right; the `RULES_1` or
`RULES_2` that it is coded by; the highest number of a shape so far plus 1."""

RULES_1, RULES_2 = 1, 2
"""How blocks and tables of the first and of the second version are coded. By the second, a new
shape is guessed, a value is spelled in the context of all with the same beginning, and long ones
are not coded evenly."""

MAX_NEAR = 1 << 61
"""Numbers below it may be coded as a difference, either way."""


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
def link(first: Int, second: Int) -> Int:
    """Return the place of a value in `Memory.links`, of a shape in `Memory.follows`."""
    return mix(first, second) >> (32 - LINK_BITS)


@inlined
def bits_of(value: Int) -> Int:
    """Return the length of a number >= 0 in bits."""
    count: Int = np.int64(0)
    while value > 0:
        value >>= 1
        count += 1
    return count


@inlined
def magnitude(value: Int) -> Int:
    """Return a number without its sign."""
    return value if value >= 0 else -value


@inlined
def digits_of(value: Int) -> Int:
    """Return the number of decimal digits of a number of either sign."""
    value = magnitude(value)
    count: Int = np.int64(1)
    while value >= 10:
        value //= 10
        count += 1
    return count


@inlined
def keep_number(memory: Memory, at: Int, number: Int, width: Int) -> None:
    """Keep a number of so many digits at `at`."""
    memory.kinds[at] = NUMBER
    memory.numbers[at] = number
    memory.widths[at] = width
    memory.hashes[at] = number_hash(number, width)
    memory.offsets[at] = 0


@inlined
def copy_value(memory: Memory, pick: Int, at: Int) -> None:
    """Keep the value at `pick` at `at` too."""
    memory.kinds[at] = memory.kinds[pick]
    memory.numbers[at] = memory.numbers[pick]
    memory.widths[at] = memory.widths[pick]
    memory.hashes[at] = memory.hashes[pick]
    memory.offsets[at] = memory.offsets[pick]


@inlined
def equals(memory: Memory, pick: Int, slots: Slots, source: Bytes, slot: Int) -> bool:
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
