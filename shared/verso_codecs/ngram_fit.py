"""Fitting of the n-gram model's mixing, after its lines were counted (`ngram_counts`).

1. On held-out texts, trace the states every decision sees; set each state's stretch to its
   log-odds there.
2. Learn weights and stretches together by gradient descent, texts in random order.
3. Round everything to integers.
"""

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import Bytes
from verso_codecs.kernel import Int, kernel
from verso_codecs.ngram_counts import MIXED_COUNTS, MIXED_STEP, MIXED_STEPS, SURE_LEVELS, Texts
from verso_codecs.ngram_model import (
    INPUT_COUNT,
    LENGTH_CLASSES,
    LOGIT_LIMIT,
    MATCH_LIMIT,
    SELECT_COUNT,
    STRETCH_ONE,
    WEIGHT_ONE,
    Model,
    length_class,
    trace_text,
)

_EPOCHS = (0.003, 0.002, 0.001, 0.0005, 0.0002)
_FIRST_WEIGHT = 0.22

Floats = NDArray[np.float64]


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
    mixed = (np.arange(MIXED_STEPS) - (MIXED_STEPS - 1) / 2) * MIXED_STEP
    for trust in range(MIXED_COUNTS.size + 1):
        first = 2 * sure.size + 1 + trust * MIXED_STEPS
        guess[:-1, first : first + MIXED_STEPS] = mixed
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


def unmixed(table: Bytes, ends: NDArray[np.uint16]) -> Model:
    """Give a model that knows its lines but not yet how to mix."""
    return Model(
        table=table,
        width=(table.shape[0] - 1).bit_length() - 1,
        stretches=np.zeros((INPUT_COUNT, 256), np.int16),
        weights=np.zeros((SELECT_COUNT, INPUT_COUNT + 1), np.int32),
        node_weights=np.zeros((256, INPUT_COUNT + 1), np.int32),
        squash=squash_table(),
        ends=ends,
    )
