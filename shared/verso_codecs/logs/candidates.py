"""The candidates that a value is compared with before it is spelled out.

1. what stood in this column (slot of a shape) behind the same value of the slot before;
2. what stood in this column last;
3. the value as many slots back as the last repetition in this column was: UUIDs recur in other
   columns and lines;
4. the last value moved on by the last difference;
5. as 1, and 7. as 2, by the six bytes before the slot instead of the column;
6. what followed the last value of this column when it occurred before.
"""

import numpy as np

from verso_codecs.coder import Bytes, Int, inlined
from verso_codecs.logs.memory import (
    CANDIDATES,
    MAX_NEAR,
    OUTCOMES,
    PREVIOUS,
    Memory,
    digits_of,
    equals,
    keep_number,
    link,
    magnitude,
)
from verso_codecs.logs.model import DECODE, FOR_SAME, MODE, Model, code_symbol, set_contexts
from verso_codecs.logs.parsing import NUMBER, Slots, mix


@inlined
def find_candidates(memory: Memory, column: Int, place: Int, at: Int) -> Int:
    """List the candidates of the next value in `picks`, 0 for none; return the column's last.

    place: hash of the bytes before the slot
    at: where the value will stand
    """
    state, links, keys, picks = memory.state, memory.links, memory.keys, memory.picks
    previous = state[PREVIOUS]
    keys[1] = link(column, np.int64(2))
    last = np.int64(links[keys[1]])
    keys[0] = link(mix(column, np.int64(1)), previous)
    keys[2] = link(mix(column, np.int64(3)), memory.hashes[last])
    keys[3] = link(place, np.int64(4))
    keys[4] = link(mix(place, np.int64(5)), previous)
    picks[0], picks[1] = np.int64(links[keys[0]]), last
    distance = memory.distances[last]
    picks[2] = at - distance if 0 < distance < at else 0
    picks[3] = 0
    older = memory.lasts[last]
    if memory.kinds[last] == NUMBER and memory.kinds[older] == NUMBER and older > 0:
        number: Int = memory.numbers[last]
        before = memory.numbers[older]
        if number != before and magnitude(number) < MAX_NEAR and magnitude(before) < MAX_NEAR:
            padded = memory.widths[last] > digits_of(number)
            number = 2 * number - before
            width: Int = digits_of(number)
            if padded:
                width = max(width, memory.widths[last])
            keep_number(memory, at, number, width)
            picks[3] = at
    picks[4] = np.int64(links[keys[4]])
    picks[5] = np.int64(links[keys[2]])
    picks[6] = np.int64(links[keys[3]])
    return last


@inlined
def code_candidates(
    model: Model,
    memory: Memory,
    slots: Slots,
    source: Bytes,
    slot: Int,
    column: Int,
    place: Int,
    last: Int,
) -> Int:
    """Code which candidate the value is; return its index, or CANDIDATES."""
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
        if writes and equals(memory, pick, slots, source, slot):
            same = np.int64(1)
        known = agree * 8 + index
        set_contexts(
            model,
            mix(column, known),
            mix(column, (marks * 8 + index) + (1 << 12)),
            mix(place, known * 8 + (marks & 7)),
            mix(column, (outcomes * 8 + index) + (1 << 13)),
            mix(known, (marks & 63) + (1 << 14)),
            mix(mix(column, hashes[pick]), np.int64(index)),
        )
        same = code_symbol(model, np.int64(FOR_SAME), column, same, np.int64(1))
        if same:
            return np.int64(index)
    return np.int64(CANDIDATES)
