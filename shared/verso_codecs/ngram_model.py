"""Kernels of the byte n-gram model: how the next bit is predicted (see `ngram`).

A byte is eight decisions, highest bit first. For each decision every context (the last 1 to 6
bytes; the word so far and the word before; the two words before) looks up a one-byte state in its
part of one big table; a match model looks for the last place in this record where the last bytes
occurred. Each state stands for a fitted log-odds ("stretch"), and their weighted sum is the
prediction (logistic mixing, Mahoney 2005). The weights are fitted too, chosen by the longest
known context and by the bits so far, and drift a little within the record. All integers.

The states of one nibble stand together in a line (`lines`); a context whose line is not in the
table is unknown, and so is every longer order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, State, decode_bit
from verso_codecs.kernel import Int, kernel
from verso_codecs.lines import find_line

ORDER_COUNT = 6
CONTEXT_COUNT = ORDER_COUNT + 2
INPUT_COUNT = CONTEXT_COUNT + 1
"""The contexts' states and the match model's."""

SELECT_COUNT = ORDER_COUNT + 2
"""Weight sets by the longest known order: 0..ORDER_COUNT, and one spare."""

STRETCH_ONE = 256
"""The log-odds 1 in the unit of stretches."""

WEIGHT_ONE = 1 << 16
LOGIT_LIMIT = 11 * STRETCH_ONE - 1
"""Predictions are clipped to +- this; the table of probabilities covers it."""

MATCH_MINIMUM = 4
MATCH_LIMIT = 20
LENGTH_CLASSES = 20

_MATCH_SLOTS_LOG2 = 10
_ADAPT_SHIFT = 15  # learning rate 2^-15 * STRETCH_ONE = 0.008
_ALL = 0xFFFFFFFF


class Model(NamedTuple):
    """The arrays of fitted tables, as kernels take them.

    table: Shape: (2^width + 1, LINE_BYTES), uint8, lines of states, the last one zero
    width: log2 of the table's rows
    stretches: Shape: (INPUT_COUNT, 256), int16, log-odds of a state in 1/STRETCH_ONE
    weights: Shape: (SELECT_COUNT, INPUT_COUNT + 1), int32, in 1/WEIGHT_ONE; last = bias
    node_weights: Shape: (256, INPUT_COUNT + 1), int32, added to `weights`, by the bits so far
    squash: Shape: (2 * LOGIT_LIMIT + 1,), uint16, probability of a clipped prediction
    ends: Shape: (LENGTH_CLASSES, 256), uint16, probability that the text ends, by length class
        and last byte
    """

    table: Bytes
    width: int
    stretches: NDArray[np.int16]
    weights: NDArray[np.int32]
    node_weights: NDArray[np.int32]
    squash: NDArray[np.uint16]
    ends: NDArray[np.uint16]


# Columns of the record state: the last six bytes as one number, the hash of the word so far, of
# the word before and of the one before that, the position the match model points at, and the
# length of the match.
_RECENT, _WORD, _WORD_1, _WORD_2, _MATCH, _MATCH_LENGTH = range(6)
_STATE_SIZE = 6


@kernel
def _scramble(value: Int) -> Int:
    """Spread a 32-bit number (multiply-xorshift; the multipliers keep products below 2^62)."""
    value ^= value >> 15
    value = (value * 0x2C1B3C6D) & _ALL
    value ^= value >> 12
    value = (value * 0x297A2D39) & _ALL
    return value ^ (value >> 15)


@kernel
def context_hash(record: State, context: Int) -> Int:
    """Give the 32-bit hash of one context at a byte boundary."""
    recent = record[_RECENT]
    if context < ORDER_COUNT:
        low = recent & ((1 << (8 * min(context + 1, 3))) - 1)
        high = (recent >> 24) & ((1 << (8 * max(context - 2, 0))) - 1)
    elif context == ORDER_COUNT:
        low = record[_WORD] or recent & 0xFF
        high = record[_WORD_1]
    else:
        low = record[_WORD_1] ^ (record[_WORD] or recent & 0xFF)
        high = record[_WORD_2]
    return _scramble((low * 0x1E3779B1 + high * 0x25EBCA6B + (context + 1) * 0x3C2B2AE35) & _ALL)


@kernel
def line_key(context: Int, stage: Int) -> Int:
    """Give the 32-bit key of a nibble's line.

    context: hash from `context_hash`
    stage: 0 for the high nibble, 16 + the high nibble for the low one
    """
    key = (context + stage * 0x9E3779B1) & _ALL
    key ^= key >> 16
    key = (key * 0x2C1B3C6D) & _ALL
    key ^= key >> 15
    return key or 1


@kernel
def start_record(record: State) -> None:
    """Reset the context to that of a record's first byte."""
    record[:] = 0


@kernel
def push_byte(record: State, byte: Int) -> None:
    """Move the context on by one byte. Words are runs of letters and bytes above 127."""
    record[_RECENT] = ((record[_RECENT] << 8) | byte) & 0xFFFFFFFFFFFF
    letter = byte + 32 if 65 <= byte <= 90 else byte
    if 97 <= letter <= 122 or letter >= 128:
        record[_WORD] = ((record[_WORD] + letter + 1) * 0x2F0B4C47) & _ALL
    elif record[_WORD] != 0:
        record[_WORD_2] = record[_WORD_1]
        record[_WORD_1] = record[_WORD]
        record[_WORD] = 0


@kernel
def find_match(record: State, data: Bytes, length: Int, seen: NDArray[np.int32]) -> None:
    """Point the match model at the byte that followed the last occurrence of the last bytes.

    data: the record so far, `length` bytes of it
    seen: position after the last occurrence of each hash of four bytes, or 0
    """
    match_length = record[_MATCH_LENGTH]
    if match_length > 0 and data[record[_MATCH]] == data[length - 1]:
        record[_MATCH] += 1
        if match_length < MATCH_LIMIT:
            record[_MATCH_LENGTH] = match_length + 1
    else:
        record[_MATCH_LENGTH] = 0
    if length < MATCH_MINIMUM:
        return
    mixed = ((record[_RECENT] & _ALL) * 0x2F0B4C47) & _ALL
    slot = mixed >> (32 - _MATCH_SLOTS_LOG2)
    candidate = np.int64(seen[slot])
    if record[_MATCH_LENGTH] == 0 and candidate > 0:
        common = 0
        while (
            common < MATCH_LIMIT
            and common < candidate
            and data[candidate - 1 - common] == data[length - 1 - common]
        ):
            common += 1
        if common >= MATCH_MINIMUM:
            record[_MATCH] = candidate
            record[_MATCH_LENGTH] = common
    seen[slot] = length


@kernel
def start_byte(record: State, data: Bytes, hashes: State) -> Int:
    """Hash all contexts; give the byte the match model expects, with a leading 1, or 0."""
    for context in range(CONTEXT_COUNT):
        hashes[context] = context_hash(record, context)
    if record[_MATCH_LENGTH] > 0:
        return 256 | np.int64(data[record[_MATCH]])
    return 0


@kernel
def start_nibble(model: Model, hashes: State, stage: Int, rows: State) -> None:
    """Find the row of each context's line for the next four decisions.

    rows: Shape: (CONTEXT_COUNT,)
    """
    unknown = 1 << model.width
    known = True
    for context in range(CONTEXT_COUNT):
        row: Int = unknown
        if known or context >= ORDER_COUNT:
            row = find_line(model.table, line_key(hashes[context], stage), model.width)
            known = row != unknown
        rows[context] = row


@kernel
def read_states(
    model: Model,
    rows: State,
    node: Int,
    expected: Int,
    partial: Int,
    match_length: Int,
    states: State,
) -> Int:
    """Look up the state of every input for one decision; give the longest known order.

    rows: what `start_nibble` gave
    node: the decisions of this nibble so far, with a leading 1
    expected: what `start_byte` gave
    partial: the decisions of this byte so far, with a leading 1
    """
    longest = 0
    for context in range(CONTEXT_COUNT):
        state: Int = np.int64(model.table[rows[context], node])
        if context < ORDER_COUNT and state != 0:
            longest = context + 1
        states[context] = state
    states[CONTEXT_COUNT] = 0
    if expected:
        bits_left = 8
        while partial >> (9 - bits_left):
            bits_left -= 1
        if expected >> bits_left == partial:
            bit = (expected >> (bits_left - 1)) & 1
            states[CONTEXT_COUNT] = 2 * match_length - 1 + bit
    return longest


@kernel
def predict(
    model: Model, states: State, longest: Int, partial: Int, drift: State, inputs: State
) -> Int:
    """Mix the states' stretches; give the probability of bit 1 and leave the inputs for `learn`."""
    first, second = model.weights[longest], model.node_weights[partial]
    total = np.int64(first[INPUT_COUNT]) + np.int64(second[INPUT_COUNT])
    total *= STRETCH_ONE
    for index in range(INPUT_COUNT):
        stretch = np.int64(model.stretches[index, states[index]])
        inputs[index] = stretch
        total += stretch * (np.int64(first[index]) + np.int64(second[index]) + drift[index])
    logit = total >> 16
    if logit > LOGIT_LIMIT:
        logit = np.int64(LOGIT_LIMIT)
    elif logit < -LOGIT_LIMIT:
        logit = np.int64(-LOGIT_LIMIT)
    return np.int64(model.squash[logit + LOGIT_LIMIT])


@kernel
def learn(drift: State, inputs: State, bit: Int, chance: Int) -> None:
    """Move the record's own weights along the gradient of the coding cost."""
    error = (bit << 16) - chance
    for index in range(INPUT_COUNT):
        drift[index] += (error * inputs[index]) >> _ADAPT_SHIFT


@kernel
def length_class(length: Int) -> Int:
    """Class of a length for the end flag: two per power of two."""
    if length < 2:
        return length
    exponent = 1
    while length >> (exponent + 1):
        exponent += 1
    return min(2 * exponent + ((length >> (exponent - 1)) & 1), LENGTH_CLASSES - 1)


@kernel
def write_text(model: Model, data: Bytes, bits: Bytes, chances: NDArray[np.uint16]) -> Int:
    """List the decisions of a text, nine a byte and one more; give their number."""
    record, hashes = np.zeros(_STATE_SIZE, np.int64), np.zeros(CONTEXT_COUNT, np.int64)
    found = np.zeros(CONTEXT_COUNT, np.int64)
    states, inputs = np.zeros(INPUT_COUNT, np.int64), np.zeros(INPUT_COUNT, np.int64)
    drift = np.zeros(INPUT_COUNT, np.int64)
    seen = np.zeros(1 << _MATCH_SLOTS_LOG2, np.int32)
    start_record(record)
    at = 0
    for position in range(data.size + 1):
        bits[at] = position == data.size
        chances[at] = model.ends[length_class(position), record[_RECENT] & 0xFF]
        at += 1
        if position == data.size:
            break
        byte = np.int64(data[position])
        expected = start_byte(record, data, hashes)
        partial: Int = 1
        node: Int = 1
        for place in range(7, -1, -1):
            if place == 7 or place == 3:
                start_nibble(model, hashes, 0 if place == 7 else partial, found)
                node = 1
            longest = read_states(
                model, found, node, expected, partial, record[_MATCH_LENGTH], states
            )
            chance = predict(model, states, longest, partial, drift, inputs)
            bit = (byte >> place) & 1
            bits[at] = bit
            chances[at] = chance
            at += 1
            learn(drift, inputs, bit, chance)
            node = node * 2 + bit
            partial = partial * 2 + bit
        push_byte(record, byte)
        find_match(record, data, position + 1, seen)
    return at


@kernel
def read_text(model: Model, payload: Bytes, state: State, data: Bytes) -> Int:
    """Decode a text into `data`; give its length, or -1 when it does not end within `data`."""
    record, hashes = np.zeros(_STATE_SIZE, np.int64), np.zeros(CONTEXT_COUNT, np.int64)
    found = np.zeros(CONTEXT_COUNT, np.int64)
    states, inputs = np.zeros(INPUT_COUNT, np.int64), np.zeros(INPUT_COUNT, np.int64)
    drift = np.zeros(INPUT_COUNT, np.int64)
    seen = np.zeros(1 << _MATCH_SLOTS_LOG2, np.int32)
    start_record(record)
    position = 0
    while True:
        end = np.int64(model.ends[length_class(position), record[_RECENT] & 0xFF])
        if decode_bit(state, payload, end):
            return position
        if position == data.size:
            return -1
        expected = start_byte(record, data, hashes)
        partial: Int = 1
        node: Int = 1
        for place in range(7, -1, -1):
            if place == 7 or place == 3:
                start_nibble(model, hashes, 0 if place == 7 else partial, found)
                node = 1
            longest = read_states(
                model, found, node, expected, partial, record[_MATCH_LENGTH], states
            )
            chance = predict(model, states, longest, partial, drift, inputs)
            bit = decode_bit(state, payload, chance)
            learn(drift, inputs, bit, chance)
            node = node * 2 + bit
            partial = partial * 2 + bit
        data[position] = partial & 0xFF
        position += 1
        push_byte(record, partial & 0xFF)
        find_match(record, data, position, seen)


@kernel
def trace_text(model: Model, data: Bytes, rows: Bytes, bits: Bytes) -> None:
    """List what the mixer sees for every decision of a text, for fitting.

    rows: Shape: (8 * bytes, INPUT_COUNT + 2); the states, the longest order, the bits so far
    bits: Shape: (8 * bytes,)
    """
    record, hashes = np.zeros(_STATE_SIZE, np.int64), np.zeros(CONTEXT_COUNT, np.int64)
    found = np.zeros(CONTEXT_COUNT, np.int64)
    states = np.zeros(INPUT_COUNT, np.int64)
    seen = np.zeros(1 << _MATCH_SLOTS_LOG2, np.int32)
    start_record(record)
    at = 0
    for position in range(data.size):
        byte = np.int64(data[position])
        expected = start_byte(record, data, hashes)
        partial: Int = 1
        node: Int = 1
        for place in range(7, -1, -1):
            if place == 7 or place == 3:
                start_nibble(model, hashes, 0 if place == 7 else partial, found)
                node = 1
            rows[at, INPUT_COUNT] = read_states(
                model, found, node, expected, partial, record[_MATCH_LENGTH], states
            )
            rows[at, INPUT_COUNT + 1] = partial
            for index in range(INPUT_COUNT):
                rows[at, index] = states[index]
            bit = (byte >> place) & 1
            bits[at] = bit
            at += 1
            node = node * 2 + bit
            partial = partial * 2 + bit
        push_byte(record, byte)
        find_match(record, data, position + 1, seen)
