"""Kernels of the byte n-gram model: how the next bit is predicted (see `ngram`).

A byte is eight decisions, highest bit first. Every decision is looked at from several sides:

1. Eight contexts (the last 1 to 6 bytes; the word so far and the word before; the two words
   before) look up a one-byte state in their line of one big table (`lines`). A context whose line
   is not in the table is unknown, and so is every longer order.
2. A match model looks for the last position in this record where the last bytes occurred and
   expects what followed there.
3. Two local contexts (the last 2 and 3 bytes) count, within this record only, what came after
   them, forgetting quickly.

Each state stands for a fitted log-odds ("stretch"), and their weighted sum is the prediction
(logistic mixing, Mahoney 2005). A weight is the sum of several, each chosen by one selector, such
as which contexts are known or what the last byte was; all were fitted together. Within a record
the weights drift along the gradient. Everything is done in integers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, decode_bit, inlined, kernel
from verso_codecs.fields import scramble
from verso_codecs.lines import find_line

ORDER_COUNT = 6
CONTEXT_COUNT = ORDER_COUNT + 2
LOCAL_COUNT = 2
MATCH_INPUT = CONTEXT_COUNT
LOCAL_INPUT = CONTEXT_COUNT + 1
INPUT_COUNT = LOCAL_INPUT + LOCAL_COUNT
"""States that are mixed: of the contexts, the match model and the local contexts."""

SELECTOR_COUNT = 5
"""Weight sets that are added up, each chosen by a selector of 0..255 (see `_select`)."""

MIX_SIZE = INPUT_COUNT + 1
"""What is mixed: the states and a constant input."""

STRETCH_ONE = 256
"""The log-odds 1 in the unit of stretches."""

WEIGHT_ONE = 1 << 16
BIAS_INPUT = STRETCH_ONE * 3 // 10
"""A constant input beside the states'."""

LOGIT_LIMIT = 11 * STRETCH_ONE - 1
"""Predictions are clipped to +- this; the table of probabilities covers it."""

SURE_STATES = 22
"""States 1..SURE_STATES mean that every decision went one way, odd for 0, even for 1, rising."""

MIXED_STATES = 20
"""States of each of the groups after them, for decisions that went both ways."""

MATCH_MINIMUM = 4
MATCH_LIMIT = 20
LENGTH_CLASSES = 20

_MATCH_SLOTS_LOG2 = 10
_LOCAL_SLOTS_LOG2 = 12
_LOCAL_LIMIT = 7
_DRIFT_SHIFT = 16  # learning rate STRETCH_ONE / 2^16 = 0.004
_ALL = 0xFFFFFFFF


class Model(NamedTuple):
    """The arrays of fitted tables, as kernels take them.

    table: Shape: (2^width + 1, LINE_BYTES), uint8, lines of states, the last one zero
    width: log2 of the table's rows
    stretches: Shape: (INPUT_COUNT, 256), int16, log-odds of a state in 1/STRETCH_ONE
    weights: Shape: (SELECTOR_COUNT, 256, INPUT_COUNT + 1), int32, in 1/WEIGHT_ONE; last = bias
    squash: Shape: (2 * LOGIT_LIMIT + 1,), uint16, probability of a clipped prediction
    ends: Shape: (LENGTH_CLASSES, 256), uint16, probability that the text ends, by length class
        and last byte
    """

    table: Bytes
    width: int
    stretches: NDArray[np.int16]
    weights: NDArray[np.int32]
    squash: NDArray[np.uint16]
    ends: NDArray[np.uint16]


class Scratch(NamedTuple):
    """The state of the model: the record so far and the current decision.

    What serves as an index is unsigned: the compiler then need not ask whether it counts from the
    end.

    record: Shape: (8,), int64, see the columns below
    hashes: Shape: (CONTEXT_COUNT + LOCAL_COUNT,), int64, of the contexts at this byte
    rows: Shape: (CONTEXT_COUNT,), uint32, of the contexts' lines for this nibble
    states: Shape: (INPUT_COUNT,), uint8, for this decision
    selectors: Shape: (SELECTOR_COUNT,), uint8, for this decision
    mix: Shape: (2 * MIX_SIZE,), int64: the stretches of the states and the constant input, and from
        MIX_SIZE on what the record added to their weights. One array, because the compiler uses
        vector instructions only where it can prove that reads and writes do not overlap
    slots: Shape: (LOCAL_COUNT,), uint32, of the local contexts for this decision
    local: Shape: (LOCAL_COUNT, slots), uint8, states of the local contexts
    seen: Shape: (slots,), int32, position after the last four bytes of each hash, or 0
    """

    record: State
    hashes: State
    rows: NDArray[np.uint32]
    states: Bytes
    selectors: Bytes
    mix: State
    slots: NDArray[np.uint32]
    local: Bytes
    seen: NDArray[np.int32]


# Columns of `Scratch.record`: the last six bytes as one number; the hash of the word so far, of
# the word before and of the one before that; the position the match model points at, the length
# of the match, and the byte it expects with a leading 1, or 0.
_RECENT, _WORD, _WORD_1, _WORD_2, _MATCH, _MATCH_LENGTH, _EXPECTED = range(7)
RECORD_SIZE = 8


@inlined
def new_scratch() -> Scratch:
    """Return the state at a record's start."""
    return Scratch(
        np.zeros(RECORD_SIZE, np.int64),
        np.zeros(CONTEXT_COUNT + LOCAL_COUNT, np.int64),
        np.zeros(CONTEXT_COUNT, np.uint32),
        np.zeros(INPUT_COUNT, np.uint8),
        np.zeros(SELECTOR_COUNT, np.uint8),
        np.zeros(2 * MIX_SIZE, np.int64),
        np.zeros(LOCAL_COUNT, np.uint32),
        np.zeros((LOCAL_COUNT, 1 << _LOCAL_SLOTS_LOG2), np.uint8),
        np.zeros(1 << _MATCH_SLOTS_LOG2, np.int32),
    )


@inlined
def context_hash(record: State, context: Int) -> Int:
    """Return the 32-bit hash of one context at a byte boundary."""
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
    return scramble((low * 0x1E3779B1 + high * 0x25EBCA6B + (context + 1) * 0x3C2B2AE35) & _ALL)


@inlined
def line_key(context: Int, stage: Int) -> Int:
    """Return the 32-bit key of a nibble's line.

    context: hash from `context_hash`
    stage: 0 for the high nibble, 16 + the high nibble for the low one
    """
    key = (context + stage * 0x9E3779B1) & _ALL
    key ^= key >> 16
    key = (key * 0x2C1B3C6D) & _ALL
    key ^= key >> 15
    return key or 1


@inlined
def push_byte(record: State, byte: Int) -> None:
    """Advance the context by one byte. Words are runs of letters and bytes above 127."""
    record[_RECENT] = ((record[_RECENT] << 8) | byte) & 0xFFFFFFFFFFFF
    letter = byte + 32 if 65 <= byte <= 90 else byte
    if 97 <= letter <= 122 or letter >= 128:
        record[_WORD] = ((record[_WORD] + letter + 1) * 0x2F0B4C47) & _ALL
    elif record[_WORD] != 0:
        record[_WORD_2] = record[_WORD_1]
        record[_WORD_1] = record[_WORD]
        record[_WORD] = 0


@inlined
def _follow_match(scratch: Scratch, data: Bytes, length: Int) -> None:
    """Point the match model at the byte that followed the last occurrence of the last bytes.

    data: the record so far, `length` bytes of it
    """
    record, seen = scratch.record, scratch.seen
    if record[_MATCH_LENGTH] > 0 and data[record[_MATCH]] == data[length - 1]:
        record[_MATCH] += 1
        if record[_MATCH_LENGTH] < MATCH_LIMIT:
            record[_MATCH_LENGTH] += 1
    else:
        record[_MATCH_LENGTH] = 0
    if length < MATCH_MINIMUM:
        return
    slot = (((record[_RECENT] & _ALL) * 0x2F0B4C47) & _ALL) >> (32 - _MATCH_SLOTS_LOG2)
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


@inlined
def start_byte(scratch: Scratch, data: Bytes) -> None:
    """Hash all contexts, and note which byte the match model expects."""
    record = scratch.record
    for context in range(CONTEXT_COUNT):
        scratch.hashes[context] = context_hash(record, context)
    for local in range(LOCAL_COUNT):
        last = record[_RECENT] & ((1 << (8 * (local + 2))) - 1)
        scratch.hashes[CONTEXT_COUNT + local] = scramble((last * 11 + local) & _ALL)
    record[_EXPECTED] = 0
    if record[_MATCH_LENGTH] > 0:
        record[_EXPECTED] = 256 | np.int64(data[record[_MATCH]])


@inlined
def end_byte(scratch: Scratch, data: Bytes, length: Int) -> None:
    """Advance past the last of the record's `length` bytes."""
    push_byte(scratch.record, np.int64(data[length - 1]))
    _follow_match(scratch, data, length)


@inlined
def _start_nibble(model: Model, scratch: Scratch, stage: Int) -> None:
    """Find the row of each context's line for the next four decisions."""
    # All lines are looked for first, without a branch between them: the waits for memory overlap.
    for context in range(CONTEXT_COUNT):
        key = line_key(scratch.hashes[context], stage)
        scratch.rows[context] = find_line(model.table, key, model.width)
    unknown = 1 << model.width
    known = True
    for context in range(ORDER_COUNT):
        known = known and scratch.rows[context] != unknown
        if not known:
            scratch.rows[context] = unknown


@inlined
def observe(model: Model, scratch: Scratch, shift: Int, partial: Int) -> None:
    """Look up the states and selectors of one decision.

    shift: the bit of the byte that is decided, 7 first
    partial: the decisions of this byte so far, with a leading 1
    """
    if shift == 7:
        _start_nibble(model, scratch, np.int64(0))
    elif shift == 3:
        _start_nibble(model, scratch, partial)
    node = partial if shift > 3 else (partial & ((1 << (3 - shift)) - 1)) | (1 << (3 - shift))
    states = scratch.states
    longest: Int = np.int64(0)
    for context in range(CONTEXT_COUNT):
        state = np.int64(model.table[scratch.rows[context], node])
        states[context] = state
        if state != 0 and context < ORDER_COUNT:
            longest = context + 1
    states[MATCH_INPUT] = 0
    expected = scratch.record[_EXPECTED]
    if expected >> (shift + 1) == partial:
        bit = (expected >> shift) & 1
        states[MATCH_INPUT] = 2 * scratch.record[_MATCH_LENGTH] - 1 + bit
    for local in range(LOCAL_COUNT):
        mixed = (scratch.hashes[CONTEXT_COUNT + local] + partial * 0x9E3779B1) & _ALL
        slot = scramble(mixed) >> (32 - _LOCAL_SLOTS_LOG2)
        scratch.slots[local] = slot
        states[LOCAL_INPUT + local] = scratch.local[local, scratch.slots[local]]
    _select(scratch, longest, partial)


def _trust(state: int) -> int:
    """Class of a context's state: 0 unknown, 1..3 always one way, 4..5 both ways."""
    if state == 0:
        return 0
    if state <= SURE_STATES:
        return 1 + min((state - 1) >> 3, 2)
    return 4 if state <= SURE_STATES + 2 * MIXED_STATES else 5


_TRUST = np.array([_trust(state) for state in range(256)], np.uint8)


@inlined
def _select(scratch: Scratch, longest: Int, partial: Int) -> None:
    """Choose the weights of one decision."""
    states, selectors = scratch.states, scratch.selectors
    trust = np.int64(_TRUST[states[longest - 1]]) if longest > 0 else 0
    match: Int = (np.int64(states[MATCH_INPUT]) + 1) >> 1
    match_class = 0 if match == 0 else 1 + min((match - 1) >> 2, 4)
    local = np.int64(states[LOCAL_INPUT + 1])
    ones: Int = local & 7
    zeros: Int = local >> 3
    selectors[0] = 6 * longest + trust
    selectors[1] = partial
    selectors[2] = scratch.record[_RECENT] & 0xFF
    word = np.int64(_TRUST[states[ORDER_COUNT]])
    selectors[3] = 6 * word + np.int64(_TRUST[states[ORDER_COUNT + 1]])
    selectors[4] = 9 * match_class + 3 * min(zeros, 2) + min(ones, 2)


@inlined
def predict(model: Model, scratch: Scratch) -> Int:
    """Mix the stretches of the states that `observe` found and return the probability of bit 1."""
    mix, weights, selectors = scratch.mix, model.weights, scratch.selectors
    for index in range(INPUT_COUNT):
        mix[index] = np.int64(model.stretches[index, scratch.states[index]])
    mix[INPUT_COUNT] = BIAS_INPUT
    first, second, third = selectors[0], selectors[1], selectors[2]
    fourth, fifth = selectors[3], selectors[4]
    total: Int = 0
    size = mix.size >> 1  # MIX_SIZE; a number known beforehand would be unrolled, not vectorised
    for index in range(size):
        weight = mix[size + index]
        weight += np.int64(weights[0, first, index]) + np.int64(weights[1, second, index])
        weight += np.int64(weights[2, third, index]) + np.int64(weights[3, fourth, index])
        weight += np.int64(weights[4, fifth, index])
        total += mix[index] * weight
    logit = total >> 16
    if logit > LOGIT_LIMIT:
        logit = LOGIT_LIMIT
    elif logit < -LOGIT_LIMIT:
        logit = -LOGIT_LIMIT
    return np.int64(model.squash[logit + LOGIT_LIMIT])


@inlined
def learn(scratch: Scratch, bit: Int, chance: Int) -> None:
    """Move the record's own weights along the gradient of the cost, and count locally."""
    error, mix = (bit << 16) - chance, scratch.mix
    size = mix.size >> 1
    for index in range(size):
        mix[size + index] += (error * mix[index]) >> _DRIFT_SHIFT
    mix[2 * size - 1] = 0  # the constant input's weight does not drift
    count_locally(scratch, bit)


def _counted(state: int, bit: int) -> int:
    """A local state after one more decision: up to 7 of each bit, the other one is halved."""
    counts = [state >> 3, state & 7]
    counts[bit] = min(counts[bit] + 1, _LOCAL_LIMIT)
    if counts[1 - bit] > 1:
        counts[1 - bit] >>= 1
    return (counts[0] << 3) | counts[1]


_COUNTED = np.array([[_counted(state, bit) for state in range(64)] for bit in (0, 1)], np.uint8)


@inlined
def count_locally(scratch: Scratch, bit: Int) -> None:
    """Count a decision in the local contexts."""
    for local in range(LOCAL_COUNT):
        slot = scratch.slots[local]
        scratch.local[local, slot] = _COUNTED[bit, scratch.local[local, slot]]


@inlined
def end_chance(model: Model, scratch: Scratch, length: Int) -> Int:
    """Return the probability that the text ends after `length` bytes."""
    last = scratch.record[_RECENT] & 0xFF
    return np.int64(model.ends[length_class(length), last])


@inlined
def length_class(length: Int) -> Int:
    """Class of a length for the end flag: two per power of two."""
    if length < 2:
        return length
    exponent = 1
    while length >> (exponent + 1):
        exponent += 1
    return min(2 * exponent + ((length >> (exponent - 1)) & 1), LENGTH_CLASSES - 1)


@kernel
def write_text(model: Model, data: Bytes, bits: Bytes, chances: NDArray[np.uint16]) -> None:
    """List the decisions of a text, nine a byte and one more."""
    scratch = new_scratch()
    at = 0
    for position in range(data.size):
        bits[at] = 0
        chances[at] = end_chance(model, scratch, position)
        at += 1
        start_byte(scratch, data)
        partial: Int = np.int64(1)
        for shift in range(7, -1, -1):
            observe(model, scratch, shift, partial)
            chance = predict(model, scratch)
            bit = (np.int64(data[position]) >> shift) & 1
            bits[at] = bit
            chances[at] = chance
            at += 1
            learn(scratch, bit, chance)
            partial = partial * 2 + bit
        end_byte(scratch, data, position + 1)
    bits[at] = 1
    chances[at] = end_chance(model, scratch, data.size)


@kernel
def read_text(model: Model, payload: Bytes, state: State, data: Bytes) -> Int:
    """Decode a text into `data`; return its length, or -1 when it does not end within `data`."""
    scratch = new_scratch()
    position: Int = np.int64(0)
    while not decode_bit(state, payload, end_chance(model, scratch, position)):
        if position == data.size:
            return -1
        start_byte(scratch, data)
        partial: Int = np.int64(1)
        for shift in range(7, -1, -1):
            observe(model, scratch, shift, partial)
            chance = predict(model, scratch)
            bit = decode_bit(state, payload, chance)
            learn(scratch, bit, chance)
            partial = partial * 2 + bit
        data[position] = partial & 0xFF
        position += 1
        end_byte(scratch, data, position)
    return position


@kernel
def trace_text(model: Model, data: Bytes, rows: Bytes, bits: Bytes) -> None:
    """List what the mixer sees for every decision of a text, for fitting.

    rows: Shape: (8 * bytes, INPUT_COUNT + SELECTOR_COUNT), states and selectors
    bits: Shape: (8 * bytes,)
    """
    scratch = new_scratch()
    at = 0
    for position in range(data.size):
        start_byte(scratch, data)
        partial: Int = np.int64(1)
        for shift in range(7, -1, -1):
            observe(model, scratch, shift, partial)
            for index in range(INPUT_COUNT):
                rows[at, index] = scratch.states[index]
            for selector in range(SELECTOR_COUNT):
                rows[at, INPUT_COUNT + selector] = scratch.selectors[selector]
            bit = (np.int64(data[position]) >> shift) & 1
            bits[at] = bit
            at += 1
            count_locally(scratch, bit)
            partial = partial * 2 + bit
        end_byte(scratch, data, position + 1)
