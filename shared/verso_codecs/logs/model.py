"""How a decision is predicted: counters of a few contexts, mixed in the logistic domain.

1. Each context of the decision has a counter: a probability of 1 in 18 bits, and how often it was
   seen. Counters stand in a hash table with a check of 8 bits; one that is not there predicts
   nothing.
2. The stretched probabilities are summed with weights (logistic mixing, Mahoney 2005). A weight is
   the sum of two, one chosen by what is decided and how well its contexts are known, the other by
   what is decided and the column.
3. The coder codes the decision; then weights move along the gradient, and counters towards it.

The same loop codes, decodes and learns, so that they cannot differ. Everything is done in integers.
The two curves are computed once from integers of any size, and are the same on every machine.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import Bytes, Int, State, decode_bit, inlined
from verso_codecs.logs.parsing import mix

CONTEXTS = 6
"""Contexts of a decision."""

INPUTS = CONTEXTS + 1
"""What is mixed: the contexts and a constant."""

COUNTER_BITS = 17
"""log2 of the counters."""

PURPOSES = 32
"""Kinds of decisions, each with weights of its own."""

(
    FOR_GUESS, FOR_SHAPE, FOR_SAME, FOR_KIND, FOR_PADDED, FOR_MOVED, FOR_BUCKET, FOR_SIGN,
    FOR_MANTISSA, FOR_MINUS, FOR_LENGTH, FOR_DIGIT, FOR_NIBBLE, FOR_BYTE, FOR_COMPLETED,
    FOR_SHAPE_REST, FOR_NEWEST, FOR_LONG,
) = range(18)  # fmt: skip
"""The purposes of decisions; part of the format."""

COLUMN_CLASSES = 64

MODE, FULL = coder.STATE_SIZE, coder.STATE_SIZE + 1
"""Columns of `Model.state` behind those of the decoder: whether it decodes or encodes, and whether
the output was too short."""

ENCODE, DECODE = 0, 1

SLACK_BYTES = 48
"""Room behind decoded lines, so that a timestamp may be written before it is measured."""

STATE_SIZE = coder.STATE_SIZE + 2

_ALL = 0xFFFFFFFF
_LOGITS = 2047  # in 1/256, either way
_FIRST_WEIGHT = 22000  # in 1/65536
_WEIGHT_SHIFT = 14  # learning rate
_COUNT_LIMIT = 40
_CONFIDENCES = 5
_SETS = PURPOSES * _CONFIDENCES * _CONFIDENCES + PURPOSES * COLUMN_CLASSES


def _squash_curve() -> NDArray[np.int64]:
    """Return 2^16 / (1 + e^(-x / 256)) for x = -2048..2047, within 16..65520."""
    one = 1 << 64
    step = term = one  # e^(1/256) by its series
    for number in range(1, 16):
        term //= 256 * number
        step += term
    curve = np.empty(4096, np.int64)
    power = one
    for logit in range(2048):
        curve[2048 + logit] = (power << 16) // (one + power)
        curve[2047 - logit] = (one << 16) // (one + (power * step >> 64))
        power = power * step >> 64
    return np.clip(curve, 16, 65520)


SQUASH = _squash_curve()
"""Shape: (4096,), int64, by log-odds in 1/256 plus 2048: a probability in 2^-16."""

STRETCH = np.clip(
    np.searchsorted(SQUASH, np.arange(4096) * 16 + 8).astype(np.int64) - 2048, -_LOGITS, _LOGITS
)
"""Shape: (4096,), int64, by probability in 2^-12: log-odds in 1/256."""

_RATES = (65536 * 2 // (2 * np.arange(64) + 3)).astype(np.int64)  # 1 / (n + 1.5)
_CONFIDENCE = np.array([0, 1, 2, 2, *[3] * 8, *[4] * 52], np.int64)  # class of a count


class Model(NamedTuple):
    """What decisions are coded with.

    state: Shape: (STATE_SIZE,), int64
    data: uint8, the payload, written or read
    counters: Shape: (2^COUNTER_BITS,), uint32: probability 18 bits, count 6, check 8
    weights: Shape: (sets, INPUTS), int32, in 1/65536
    contexts: Shape: (CONTEXTS,), int64, hashes of 32 bits; of the symbol that is coded
    found: Shape: (CONTEXTS,), int64, the places of their counters
    inputs: Shape: (INPUTS,), int64
    """

    state: State
    data: Bytes
    counters: NDArray[np.uint32]
    weights: NDArray[np.int32]
    contexts: State
    found: State
    inputs: State


def new_model() -> Model:
    """Return a model that knows nothing."""
    weights = np.zeros((_SETS, INPUTS), np.int32)
    weights[: PURPOSES * _CONFIDENCES * _CONFIDENCES, :CONTEXTS] = _FIRST_WEIGHT
    return Model(
        np.zeros(STATE_SIZE, np.int64),
        np.zeros(1, np.uint8),
        np.full(1 << COUNTER_BITS, 1 << 31, np.uint32),
        weights,
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(INPUTS, np.int64),
    )


@inlined
def _put_bit(state: State, data: Bytes, bit: Int, chance: Int) -> None:
    """Encode a bit; `coder.decode_bit` undoes it."""
    low, high = state[coder.LOW], state[coder.HIGH]
    middle = low + (((high - low) * chance) >> 16)
    if bit:
        high = middle
    else:
        low = middle + 1
    length = state[coder.NEXT]
    while (low ^ high) & 0xFF000000 == 0:
        if length < data.size:
            data[length] = high >> 24
        else:
            state[FULL] = 1
        length += 1
        low = (low << 8) & _ALL
        high = ((high << 8) & _ALL) | 0xFF
    state[coder.NEXT] = length
    state[coder.LOW] = low
    state[coder.HIGH] = high


def open_output(state: State) -> None:
    """Prepare to encode."""
    state[:] = 0
    state[coder.HIGH] = _ALL
    state[MODE] = ENCODE


@inlined
def close_output(state: State, data: Bytes) -> Int:
    """End the payload on the fewest bytes; return its length, or -1 if `data` was too short."""
    length = state[coder.NEXT]
    if state[FULL] or length >= data.size:
        return np.int64(-1)
    if state[coder.LOW] > 0:
        data[length] = state[coder.HIGH] >> 24
        length += 1
    while length > 0 and data[length - 1] == 0:
        length -= 1
    return np.int64(length)


@inlined
def code_bit(model: Model, bit: Int, chance: Int) -> Int:
    """Encode `bit`, or decode one; return it. chance: of 1, in 2^-16"""
    if model.state[MODE] == DECODE:
        return np.int64(decode_bit(model.state, model.data, chance))
    _put_bit(model.state, model.data, bit, chance)
    return np.int64(bit)


@inlined
def _place(context: Int, node: Int) -> tuple[Int, Int]:
    """Return the place of a counter and its check."""
    key = ((context + node * 0x9E3779B1) & _ALL) * 0x2C1B3C6D
    return (key >> 30) & ((1 << COUNTER_BITS) - 1), (key >> 48) & 0xFF


@inlined
def is_known(model: Model, index: Int, node: Int) -> bool:
    """Whether a decision was ever seen in a context."""
    place, check = _place(model.contexts[index], node)
    first = np.int64(model.counters[place])
    second = np.int64(model.counters[place ^ 1])
    return bool(
        (first & 0xFF == check and (first >> 8) & 63 > 0)
        or (second & 0xFF == check and (second >> 8) & 63 > 0)
    )


@inlined
def _find_counter(model: Model, index: Int, node: Int) -> Int:
    """Return the place of a context's counter, which is a new one if there was none."""
    counters = model.counters
    place, check = _place(model.contexts[index], node)
    first = np.int64(counters[place])
    if first & 0xFF == check:
        return place
    second = np.int64(counters[place ^ 1])
    if second & 0xFF == check:
        return place ^ 1
    if (second >> 8) & 63 < (first >> 8) & 63:
        place ^= 1
    counters[place] = (1 << 31) | check
    return place


@inlined
def _decide(model: Model, purpose: Int, column: Int, node: Int, bit: Int) -> Int:
    """Code one decision of the symbol whose contexts are set; return it."""
    counters, weights, inputs = model.counters, model.weights, model.inputs
    known: Int = np.int64(0)
    for index in range(CONTEXTS):
        place = _find_counter(model, np.int64(index), node)
        model.found[index] = place
        counter = np.int64(counters[place])
        count = (counter >> 8) & 63
        inputs[index] = STRETCH[counter >> 20] if count else 0
        if index < 2:
            known = known * _CONFIDENCES + _CONFIDENCE[count]
    inputs[CONTEXTS] = 256
    first = purpose * (_CONFIDENCES * _CONFIDENCES) + known
    second = PURPOSES * (_CONFIDENCES * _CONFIDENCES) + purpose * COLUMN_CLASSES
    second += column & (COLUMN_CLASSES - 1)
    total: Int = np.int64(0)
    for index in range(INPUTS):
        total += inputs[index] * (
            np.int64(weights[first, index]) + np.int64(weights[second, index])
        )
    logit = min(max(total >> 16, -_LOGITS), _LOGITS)
    chance = SQUASH[logit + 2048]
    bit = code_bit(model, bit, chance)
    error = (bit << 16) - chance
    for index in range(INPUTS):
        step = (inputs[index] * error + (1 << (_WEIGHT_SHIFT - 1))) >> _WEIGHT_SHIFT
        weights[first, index] = np.int64(weights[first, index]) + step
        weights[second, index] = np.int64(weights[second, index]) + (step >> 1)
    target: Int = 0x3FFFF if bit else 0
    for index in range(CONTEXTS):
        place = model.found[index]
        counter = np.int64(counters[place])
        count = (counter >> 8) & 63
        chance = counter >> 14
        chance += ((target - chance) * _RATES[count]) >> 16
        if count < _COUNT_LIMIT:
            count += 1
        counters[place] = (chance << 14) | (count << 8) | (counter & 0xFF)
    return bit


@inlined
def set_contexts(model: Model, a: Int, b: Int, c: Int, d: Int, e: Int, f: Int) -> None:
    """Set the contexts of the next decisions, by hash."""
    contexts = model.contexts
    contexts[0], contexts[1], contexts[2] = a, b, c
    contexts[3], contexts[4], contexts[5] = d, e, f


@inlined
def turn_contexts(model: Model, value: Int) -> None:
    """Go on to the next part of a symbol: in the same contexts, and what was coded of it."""
    for index in range(CONTEXTS):
        model.contexts[index] = mix(model.contexts[index], value)


@inlined
def code_symbol(model: Model, purpose: Int, column: Int, symbol: Int, bits: Int) -> Int:
    """Code the lowest bits of a symbol, highest first, in the contexts set; return it.

    purpose: below PURPOSES; column: chooses weights
    """
    node: Int = np.int64(1)
    for shift in range(bits - 1, -1, -1):
        node = node * 2 + _decide(model, purpose, column, node, (symbol >> shift) & 1)
    return node - (np.int64(1) << bits)


@inlined
def code_evenly(model: Model, value: Int, count: Int) -> Int:
    """Code a value of 0..count - 1 that nothing is known about; return it. count: below 2^40"""
    first: Int = np.int64(0)
    rest: Int = np.int64(count)
    while rest > 1:
        half = rest >> 1
        chance = min(max(((rest - half) << 16) // rest, 1), 65535)
        # 1: within the upper part, of rest - half values
        bit = code_bit(model, np.int64(1 if value >= first + half else 0), chance)
        if bit:
            first += half
            rest -= half
        else:
            rest = half
    return first
