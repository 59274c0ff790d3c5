"""The texts of a collection as a model: counters by context, and the texts themselves.

The counters stand in one table of lines (see `lines`), a line for each nibble in each context of
`fields`. The table is not stored: an artifact keeps the texts, and counting them again builds
the same table on every machine. The texts take a fortieth of the bytes, and they are needed anyway
to look up where the last bytes occurred before and what followed there.

A counter is one byte: how often a decision went either way, recent decisions weighing most. A
state stands for (zeros, ones, last bit). Counting a bit adds one on its side, up to a bound that
is lower the more the other side holds; and what the other side holds beyond two shrinks to the
order of its logarithm, so that the model follows a lasting change soon (the
nonstationary states of PAQ6 and lpaq, Mahoney 2005 and 2007). State 0 means never seen.

The states are numbered in the order in which they are reached from state 0. The numbers are
part of the format of everything that was coded with them.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.fields import (
    ATOM,
    ATOM_1,
    ATOM_KIND,
    CONTEXT_COUNT,
    DIGITS,
    FIELD_COUNT,
    MASKED,
    OLDER,
    POSITION,
    RECENT,
    Fields,
    forget_fields,
    hash_contexts,
    join,
    new_fields,
    push_byte,
)
from verso_codecs.lines import LINE_BYTES, check_of, find_line
from verso_codecs.ngram_model import line_key

_BOUNDS = (40, 20, 10, 6, 5, 5)
"""Most that one side counts, by what the other side holds."""


def _following(state: tuple[int, int, int], bit: int) -> tuple[int, int, int]:
    counts = [state[0], state[1]]
    other = counts[1 - bit]
    if other > 2:
        other = other.bit_length()
    counts[1 - bit] = other
    counts[bit] = max(counts[bit], min(counts[bit] + 1, _BOUNDS[min(other, 5)]))
    counts[bit] = min(counts[bit], _BOUNDS[min(other, 5)])
    zeros, ones = counts
    return zeros, ones, bit if zeros and ones else 0


def _tables() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    number = {(0, 0, 0): 0}
    queue = deque(number)
    following: list[tuple[int, int]] = []
    while queue:
        state = queue.popleft()
        pair = []
        for bit in (0, 1):
            reached = _following(state, bit)
            if reached not in number:
                number[reached] = len(number)
                queue.append(reached)
            pair.append(number[reached])
        following.append((pair[0], pair[1]))
    counts = np.array([state[:2] for state in number], np.int64)
    return np.array(following, np.uint8), counts


FOLLOWING, COUNTS = _tables()
"""The state after each bit, shape (states, 2), uint8; zeros and ones of a state, (states, 2)."""

STATE_COUNT = COUNTS.shape[0]


MATCH_COUNT = 2
"""Matches that are followed: of at least 5 and of at least 12 bytes."""

MATCH_LIMIT = 31
"""Lengths of matches above this count as this."""

END_COUNT = 6
"""Contexts in which it is counted whether a text ends."""

_MATCH_MINIMA = np.array([5, 12], np.int64)
_SEEN_LOG2 = 18
_ENDS_LOG2 = 16
_STRENGTHS = COUNTS.sum(axis=1)
_PROBES = 4
_FIVE = 0xFFFFFFFFFF
_SPARE_BYTES = 16
_MATCH, _END = 32, 40  # names of hashes; see fields


class History(NamedTuple):
    """Counted texts, in the form that kernels take.

    table: Shape: (2^width + 1, LINE_BYTES), uint8, lines of counters, the last one zero
    width: log2 of the table's rows
    ends: Shape: (END_COUNT, slots), uint8, counters of whether a text ends here
    texts: Shape: (bytes,), uint8, the texts, a zero byte before each and some after the last
    size: Shape: (1,), int64, bytes of `texts` that are in use
    seen: Shape: (MATCH_COUNT, slots), int32, where the bytes after each hash stand in `texts`
    clock_shift_s: how far the clock of dates is ahead of UTC
    """

    table: Bytes
    width: int
    ends: Bytes
    texts: Bytes
    size: State
    seen: NDArray[np.int32]
    clock_shift_s: int


class Points(NamedTuple):
    """Positions in the history where the record may continue: its matches.

    positions: Shape: (MATCH_COUNT,), int64, in `History.texts`
    lengths: Shape: (MATCH_COUNT,), int64, 0 for no match
    """

    positions: State
    lengths: State


def empty(width: int, *, size_bytes: int, clock_shift_s: int) -> History:
    """Return a history without texts.

    size_bytes: of the texts that will be counted, one more for each
    """
    return History(
        table=np.zeros(((1 << width) + 1, LINE_BYTES), np.uint8),
        width=width,
        ends=np.zeros((END_COUNT, 1 << _ENDS_LOG2), np.uint8),
        texts=np.zeros(size_bytes + _SPARE_BYTES, np.uint8),
        size=np.zeros(1, np.int64),
        seen=np.zeros((MATCH_COUNT, 1 << _SEEN_LOG2), np.int32),
        clock_shift_s=clock_shift_s,
    )


@inlined
def new_points() -> Points:
    """Return the state at a record's start."""
    return Points(np.zeros(MATCH_COUNT, np.int64), np.zeros(MATCH_COUNT, np.int64))


@inlined
def _seen_slot(state: State, match: Int) -> Int:
    recent = state[RECENT]
    if match == 0:
        hashed = join(recent & 0xFFFFFF, (recent & _FIVE) >> 24, _MATCH)
    else:
        half = join(recent & 0xFFFFFF, recent >> 24, _MATCH + 1)
        hashed = join(half ^ (state[OLDER] >> 24), state[OLDER] & 0xFFFFFF, _MATCH + 2)
    return hashed >> (32 - _SEEN_LOG2)


@inlined
def _common(history: History, earlier: Int, data: Bytes, position: Int) -> Int:
    """Return how many bytes before a position of the history equal the last bytes of the record."""
    length = 0
    while (
        length < MATCH_LIMIT
        and length < position
        and length < earlier
        and history.texts[earlier - 1 - length] == data[position - 1 - length]
    ):
        length += 1
    return length


@inlined
def follow_points(history: History, points: Points, fields: Fields, data: Bytes) -> None:
    """Advance the matches past the record's last byte, and look for new ones where they end."""
    position = fields.state[POSITION]
    for match in range(MATCH_COUNT):
        earlier, length = points.positions[match], points.lengths[match]
        if length > 0 and history.texts[earlier] == data[position - 1]:
            earlier += 1
            length = min(length + 1, MATCH_LIMIT)
        else:
            length = 0
            if position >= _MATCH_MINIMA[match]:
                earlier = np.int64(history.seen[match, _seen_slot(fields.state, match)])
                length = _common(history, earlier, data, position)
                if length < _MATCH_MINIMA[match]:
                    length = 0
        points.positions[match] = earlier
        points.lengths[match] = length


@inlined
def end_slots(fields: Fields, slots: State) -> None:
    """Return the slot of each context in which the end is counted. Shape: (END_COUNT,)."""
    state = fields.state
    recent = state[RECENT]
    last = recent & 0xFF
    here = state[ATOM] or last
    slots[0] = join(last, 0, _END)
    slots[1] = join(recent & 0xFFFF, 0, _END + 1)
    slots[2] = join(recent & 0xFFFFFF, 0, _END + 2)
    slots[3] = join(state[MASKED], DIGITS if state[ATOM_KIND] & DIGITS else here, _END + 3)
    slots[4] = join(here, state[ATOM_1], _END + 4)
    slots[5] = join(last, min(state[FIELD_COUNT], 63), _END + 5)
    for index in range(END_COUNT):
        slots[index] >>= 32 - _ENDS_LOG2


@inlined
def _count_line(table: Bytes, width: int, key: Int, nibble: Int) -> None:
    row: Int = find_line(table, key, width)
    if row == 1 << width:
        home = key >> (32 - width)
        least: Int = 1 << 40
        for probe in range(_PROBES):
            candidate = home ^ probe
            # A free row has the root's state 0, whose strength is 0.
            strength = _STRENGTHS[table[candidate, 1]]
            if strength < least:
                row, least = candidate, strength
        table[row] = 0
        table[row, 0] = check_of(key)
    node: Int = 1
    for shift in range(3, -1, -1):
        bit = (nibble >> shift) & 1
        table[row, node] = FOLLOWING[table[row, node], bit]
        node = node * 2 + bit


@kernel
def count_text(history: History, fields: Fields, data: Bytes) -> None:
    """Count a text, and add it to the texts for look-up.

    fields: scratch space
    """
    forget_fields(fields)
    slots = np.zeros(END_COUNT, np.int64)
    base = history.size[0] + 1
    for position in range(data.size + 1):
        ended = 1 if position == data.size else 0
        end_slots(fields, slots)
        for index in range(END_COUNT):
            slot = slots[index]
            history.ends[index, slot] = FOLLOWING[history.ends[index, slot], ended]
        if ended:
            break
        byte = np.int64(data[position])
        hash_contexts(fields, data)
        for context in range(CONTEXT_COUNT):
            hashed = fields.hashes[context]
            _count_line(history.table, history.width, line_key(hashed, 0), byte >> 4)
            low = line_key(hashed, 16 + (byte >> 4))
            _count_line(history.table, history.width, low, byte & 15)
        push_byte(fields, data, history.clock_shift_s)
        history.texts[base + position] = byte
        for match in range(MATCH_COUNT):
            if position + 1 >= _MATCH_MINIMA[match]:
                history.seen[match, _seen_slot(fields.state, match)] = base + position + 1
    history.size[0] = base + data.size


def count_texts(history: History, texts: Sequence[bytes]) -> None:
    """Count texts in their order."""
    fields = new_fields()
    for text in texts:
        count_text(history, fields, np.frombuffer(text, np.uint8))
