"""Fitting of the n-gram model: counting, choosing states, and learning how to mix them.

1. Count, context by context, how often each decision went either way, in a large hash table that
   drops the rarest line where it is full.
2. Quantise each pair of counts to a state, and place it in the sparse table that will be kept.
   Where two contexts want one place, the more frequent gets it.
3. On held-out texts, trace the states every decision sees; set each state's stretch to its
   log-odds there, then learn weights and stretches together by gradient descent.
4. Round everything to integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import Bytes
from verso_codecs.kernel import Int, kernel
from verso_codecs.ngram_model import (
    CONTEXT_COUNT,
    INPUT_COUNT,
    LENGTH_CLASSES,
    LOGIT_LIMIT,
    MATCH_LIMIT,
    SELECT_COUNT,
    STRETCH_ONE,
    WEIGHT_ONE,
    Model,
    context_hash,
    length_class,
    line_key,
    push_byte,
    start_record,
    trace_text,
)

SURE_LEVELS = np.array([1, 2, 3, 4, 6, 9, 14, 25, 60, 200, 1000], np.int64)
"""Counts at which a decision that always went one way gets the next state."""

_MIXED_COUNTS = np.array([5, 13, 50], np.int64)
_MIXED_STEPS = 20
_MIXED_STEP = 0.7
_PROBES = 8
_EPOCHS = (0.003, 0.002, 0.001, 0.0005, 0.0002)
_FIRST_WEIGHT = 0.22

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Texts:
    """Texts one after the other.

    data: Shape: (bytes,), uint8
    bounds: Shape: (texts + 1,), int64
    """

    data: Bytes
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "Texts":
        """Join texts; an empty one stays a text."""
        sizes = [0, *(len(text) for text in texts)]
        return cls(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(sizes, dtype=np.int64))


@kernel
def _count(
    data: Bytes,
    bounds: NDArray[np.int64],
    context: Int,
    keys: NDArray[np.uint32],
    counts: NDArray[np.uint16],
    shift: Int,
) -> None:
    """Count all decisions of all texts in one context.

    keys: Shape: (lines,), 0 = free; counts: Shape: (lines, 16, 2), by node and bit
    shift: 32 - log2(lines)
    """
    record = np.zeros(8, np.int64)
    for text in range(bounds.size - 1):
        start_record(record)
        for position in range(bounds[text], bounds[text + 1]):
            byte = np.int64(data[position])
            hashed = context_hash(record, context)
            for half in range(2):
                nibble = (byte >> 4) if half == 0 else (byte & 15)
                line = _line_of(line_key(hashed, half * (16 + (byte >> 4))), keys, counts, shift)
                node: Int = 1
                for place in range(3, -1, -1):
                    bit = (nibble >> place) & 1
                    if counts[line, node, bit] == 65535:
                        counts[line, node, 0] >>= 1
                        counts[line, node, 1] >>= 1
                    counts[line, node, bit] += 1
                    node = node * 2 + bit
            push_byte(record, byte)


@kernel
def _line_of(key: Int, keys: NDArray[np.uint32], counts: NDArray[np.uint16], shift: Int) -> Int:
    """Find the line of a key, taking a free one or the least used of its neighbourhood."""
    mask = keys.size - 1
    home = key >> shift
    least: Int = home & mask
    least_count: Int = 1 << 40
    for probe in range(_PROBES):
        line = (home + probe) & mask
        if keys[line] == key:
            return line
        if keys[line] == 0:
            keys[line] = key
            return line
        count = np.int64(counts[line, 1, 0]) + np.int64(counts[line, 1, 1])
        if count < least_count:
            least, least_count = line, count
    keys[least] = key
    counts[least] = 0
    return least


@kernel
def _state_of(zeros: Int, ones: Int, levels: NDArray[np.int64], mixed: NDArray[np.int64]) -> Int:
    """Quantise two counts, not both 0, to 1..255."""
    total = zeros + ones
    if zeros == 0 or ones == 0:
        level = 0
        while level < levels.size and total >= levels[level]:
            level += 1
        return 2 * level - (0 if ones else 1)
    trust = 0
    while trust < mixed.size and total >= mixed[trust]:
        trust += 1
    odds = np.log((ones + 0.3) / (zeros + 0.3))
    step = int(np.floor(odds / _MIXED_STEP)) + _MIXED_STEPS // 2
    step = min(max(step, 0), _MIXED_STEPS - 1)
    return 2 * levels.size + 1 + trust * _MIXED_STEPS + step


@kernel
def _place(
    keys: NDArray[np.uint32],
    counts: NDArray[np.uint16],
    part: Bytes,
    width: Int,
    minimum: Int,
    levels: NDArray[np.int64],
    mixed: NDArray[np.int64],
) -> None:
    """Fill one context's part of the table with the states of what was seen often enough."""
    strength = np.zeros(part.size, np.int32)
    for line in range(keys.size):
        if keys[line] == 0:
            continue
        key = np.int64(keys[line])
        first = (key >> (36 - width)) << 4
        for node in range(1, 16):
            zeros, ones = np.int64(counts[line, node, 0]), np.int64(counts[line, node, 1])
            slot = first + (node ^ (key & 15))
            if zeros + ones >= minimum and zeros + ones > strength[slot]:
                strength[slot] = zeros + ones
                part[slot] = _state_of(zeros, ones, levels, mixed)


@kernel
def _descend(
    rows: Bytes,
    bits: Bytes,
    order: NDArray[np.int64],
    stretches: Floats,
    weights: Floats,
    node_weights: Floats,
    rate: float,
    stretch_rate: float,
) -> float:
    """One pass of gradient descent over traced decisions in the given order; the cost in bits."""
    inputs = np.empty(INPUT_COUNT)
    cost = 0.0
    for row in order:
        first = weights[rows[row, INPUT_COUNT]]
        second = node_weights[rows[row, INPUT_COUNT + 1]]
        logit = first[INPUT_COUNT] + second[INPUT_COUNT]
        for index in range(INPUT_COUNT):
            inputs[index] = stretches[index, rows[row, index]]
            logit += inputs[index] * (first[index] + second[index])
        limit = LOGIT_LIMIT / STRETCH_ONE
        logit = min(max(logit, -limit), limit)
        chance = 1.0 / (1.0 + np.exp(-logit))
        cost -= np.log2(chance if bits[row] else 1.0 - chance)
        error = bits[row] - chance
        for index in range(INPUT_COUNT):
            weight = first[index] + second[index]
            first[index] += rate * error * inputs[index]
            second[index] += rate * error * inputs[index]
            if rows[row, index]:
                stretches[index, rows[row, index]] += stretch_rate * error * weight
        first[INPUT_COUNT] += 0.3 * rate * error
        second[INPUT_COUNT] += 0.3 * rate * error
    return cost


def count_table(
    texts: Texts,
    *,
    widths: Sequence[int],
    minimums: Sequence[int],
    counting_width: int,
) -> Bytes:
    """Count the texts and give the table of states.

    widths: log2 of the slots of each context's part
    minimums: how often a decision must have been seen to be kept, by context
    counting_width: log2 of the lines of the counting table; a line takes 68 bytes
    Returns: Shape: (sum of 2^width,), uint8
    """
    table = np.zeros(sum(1 << width for width in widths), np.uint8)
    keys = np.zeros(1 << counting_width, np.uint32)
    counts = np.zeros((1 << counting_width, 16, 2), np.uint16)
    start = 0
    for context, (width, minimum) in enumerate(zip(widths, minimums, strict=True)):
        keys[:] = 0
        counts[:] = 0
        _count(texts.data, texts.bounds, context, keys, counts, 32 - counting_width)
        part = table[start : start + (1 << width)]
        _place(keys, counts, part, width, minimum, SURE_LEVELS, _MIXED_COUNTS)
        start += 1 << width
    return table


def squash_table() -> NDArray[np.uint16]:
    """Tabulate the logistic function; stored with the tables, so that no reader computes it."""
    logits = np.arange(-LOGIT_LIMIT, LOGIT_LIMIT + 1) / STRETCH_ONE
    return coder.probability(1.0, 1.0 + np.exp(-logits))


def count_ends(texts: Texts) -> NDArray[np.uint16]:
    """Fit the probability that a text ends, by length class and last byte.

    Returns: Shape: (LENGTH_CLASSES, 256), uint16
    """
    ended, passed = np.zeros((LENGTH_CLASSES, 256)), np.zeros((LENGTH_CLASSES, 256))
    _count_ends(texts.data, texts.bounds, ended, passed)
    by_class = (ended.sum(1, keepdims=True) + 0.5) / (passed.sum(1, keepdims=True) + 50.0)
    by_byte = (ended.sum(0) + 20 * by_class) / (passed.sum(0) + 20.0)
    return coder.probability(ended + 20 * by_byte, passed + 20.0)


@kernel
def _count_ends(data: Bytes, bounds: NDArray[np.int64], ended: Floats, passed: Floats) -> None:
    for text in range(bounds.size - 1):
        begin, end = bounds[text], bounds[text + 1]
        last: Int = 0
        for position in range(begin, end + 1):
            kind = length_class(position - begin)
            passed[kind, last] += 1
            if position == end:
                ended[kind, last] += 1
            else:
                last = np.int64(data[position])


def expected_stretches() -> Floats:
    """Guess what each state means, for those that the held-out texts never show.

    Returns: Shape: (INPUT_COUNT, 256)
    """
    guess = np.zeros((INPUT_COUNT, 256))
    sure = np.log(1.0 + 2.0 * SURE_LEVELS)
    guess[:-1, 1 : 2 * sure.size : 2] = -sure
    guess[:-1, 2 : 2 * sure.size + 1 : 2] = sure
    mixed = (np.arange(_MIXED_STEPS) - (_MIXED_STEPS - 1) / 2) * _MIXED_STEP
    for trust in range(_MIXED_COUNTS.size + 1):
        first = 2 * sure.size + 1 + trust * _MIXED_STEPS
        guess[:-1, first : first + _MIXED_STEPS] = mixed
    lengths = np.arange(1, MATCH_LIMIT + 1)
    guess[-1, 1 : 2 * MATCH_LIMIT : 2] = -np.log(1.0 + 2.0 * lengths)
    guess[-1, 2 : 2 * MATCH_LIMIT + 1 : 2] = np.log(1.0 + 2.0 * lengths)
    return guess


def fit_mixing(model: Model, heldout: Texts, *, seed: int) -> Model:
    """Give the model with stretches and weights learnt on texts that were not counted."""
    rows = np.empty((8 * heldout.data.size, INPUT_COUNT + 2), np.uint8)
    bits = np.empty(8 * heldout.data.size, np.uint8)
    for begin, end in zip(heldout.bounds[:-1], heldout.bounds[1:], strict=True):
        part = slice(8 * begin, 8 * end)
        trace_text(model, heldout.data[begin:end], rows[part], bits[part])
    stretches = expected_stretches()
    for index in range(INPUT_COUNT):
        chance = 1.0 / (1.0 + np.exp(-stretches[index]))
        total = np.bincount(rows[:, index], minlength=256)
        ones = np.bincount(rows[:, index], weights=bits, minlength=256)
        stretches[index] = np.log((ones + chance) / (total - ones + 1.0 - chance))
    stretches[:, 0] = 0.0  # unknown says nothing
    weights = np.zeros((SELECT_COUNT, INPUT_COUNT + 1))
    weights[:, :INPUT_COUNT] = _FIRST_WEIGHT
    node_weights = np.zeros((256, INPUT_COUNT + 1))
    order = _shuffled(heldout.bounds, seed)
    for epoch, rate in enumerate(_EPOCHS):
        stretch_rate = 0.5 * rate if epoch else 0.0
        _descend(rows, bits, order, stretches, weights, node_weights, rate, stretch_rate)
    limit = np.iinfo(np.int16).max
    return model._replace(
        stretches=np.clip(np.rint(stretches * STRETCH_ONE), -limit, limit).astype(np.int16),
        weights=np.rint(weights * WEIGHT_ONE).astype(np.int32),
        node_weights=np.rint(node_weights * WEIGHT_ONE).astype(np.int32),
    )


def _shuffled(bounds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Order the decisions text by text, the texts in random order."""
    rng = np.random.default_rng(seed)
    pieces = [
        np.arange(8 * bounds[text], 8 * bounds[text + 1])
        for text in rng.permutation(bounds.size - 1)
    ]
    return np.concatenate([np.empty(0, np.int64), *pieces])


def empty_model(table: Bytes, widths: Sequence[int], ends: NDArray[np.uint16]) -> Model:
    """Give a model that knows its table but not yet how to mix."""
    sizes = np.array([1 << width for width in widths], np.int64)
    assert len(widths) == CONTEXT_COUNT
    return Model(
        table=table,
        offsets=np.cumsum(sizes) - sizes,
        widths=np.array(widths, np.int64),
        stretches=np.zeros((INPUT_COUNT, 256), np.int16),
        weights=np.zeros((SELECT_COUNT, INPUT_COUNT + 1), np.int32),
        node_weights=np.zeros((256, INPUT_COUNT + 1), np.int32),
        squash=squash_table(),
        ends=ends,
    )
