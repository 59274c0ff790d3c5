"""Fitting of the n-gram model's mixing, after its lines were counted (`ngram_counts`).

1. On held-out texts, trace the states every decision sees; set each state's stretch to its
   log-odds there.
2. Learn weights and stretches together by gradient descent, texts in random order.
3. Round everything to integers.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import Bytes, Int, kernel
from verso_codecs.ngram_counts import MIXED_COUNTS, MIXED_STEP, SURE_LEVELS, Texts
from verso_codecs.ngram_model import (
    BIAS_INPUT,
    CONTEXT_COUNT,
    INPUT_COUNT,
    LENGTH_CLASSES,
    LOCAL_INPUT,
    LOGIT_LIMIT,
    MATCH_INPUT,
    MATCH_LIMIT,
    MIXED_STATES,
    SELECTOR_COUNT,
    STRETCH_ONE,
    SURE_STATES,
    WEIGHT_ONE,
    Model,
    length_class,
    trace_text,
)

_RATES = (0.003, 0.002, 0.001, 0.0005, 0.0002)
_FIRST_WEIGHT = 0.22

Floats = NDArray[np.float64]


@kernel
def _descend(
    rows: Bytes,
    bits: Bytes,
    bounds: NDArray[np.int64],
    order: NDArray[np.int64],
    stretches: Floats,
    weights: Floats,
    rate: float,
    stretch_rate: float,
) -> None:
    """Go down the gradient once through all traced decisions, texts in the given order."""
    inputs, mixed = np.empty(INPUT_COUNT + 1), np.empty(INPUT_COUNT + 1)
    inputs[INPUT_COUNT] = BIAS_INPUT / STRETCH_ONE
    limit = LOGIT_LIMIT / STRETCH_ONE
    for text in order:
        for row in range(8 * bounds[text], 8 * bounds[text + 1]):
            logit = 0.0
            for index in range(INPUT_COUNT + 1):
                if index < INPUT_COUNT:
                    inputs[index] = stretches[index, rows[row, index]]
                mixed[index] = 0.0
                for selector in range(SELECTOR_COUNT):
                    mixed[index] += weights[selector, rows[row, INPUT_COUNT + selector], index]
                logit += inputs[index] * mixed[index]
            error = bits[row] - 1.0 / (1.0 + np.exp(-min(max(logit, -limit), limit)))
            for index in range(INPUT_COUNT + 1):
                step = rate * error * inputs[index]
                for selector in range(SELECTOR_COUNT):
                    weights[selector, rows[row, INPUT_COUNT + selector], index] += step
                if index < INPUT_COUNT and rows[row, index]:
                    stretches[index, rows[row, index]] += stretch_rate * error * mixed[index]


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

    Returns: Shape: (INPUT_COUNT, 256), 0 for unknown states
    """
    guess = np.zeros((INPUT_COUNT, 256))
    sure = np.log(1.0 + 2.0 * SURE_LEVELS)
    guess[:CONTEXT_COUNT, 1:SURE_STATES:2] = -sure
    guess[:CONTEXT_COUNT, 2 : SURE_STATES + 1 : 2] = sure
    mixed = (np.arange(MIXED_STATES) - (MIXED_STATES - 1) / 2) * MIXED_STEP
    for trust in range(MIXED_COUNTS.size + 1):
        first = SURE_STATES + 1 + trust * MIXED_STATES
        guess[:CONTEXT_COUNT, first : first + MIXED_STATES] = mixed
    lengths = np.log(1.0 + 2.0 * np.arange(1, MATCH_LIMIT + 1))
    guess[MATCH_INPUT, 1 : 2 * MATCH_LIMIT : 2] = -lengths
    guess[MATCH_INPUT, 2 : 2 * MATCH_LIMIT + 1 : 2] = lengths
    counts = np.arange(64)
    guess[LOCAL_INPUT:, :64] = np.log(((counts & 7) + 0.5) / ((counts >> 3) + 0.5))
    return guess


def fit_mixing(model: Model, heldout: Texts, *, seed: int) -> Model:
    """Return the model with stretches and weights learnt on texts that were not counted."""
    size = 8 * heldout.data.size
    rows = np.empty((size, INPUT_COUNT + SELECTOR_COUNT), np.uint8)
    bits = np.empty(size, np.uint8)
    for begin, end in pairwise(heldout.bounds):
        part = slice(8 * begin, 8 * end)
        trace_text(model, heldout.data[begin:end], rows[part], bits[part])
    stretches = expected_stretches()
    for index in range(INPUT_COUNT):
        chance = 1.0 / (1.0 + np.exp(-stretches[index]))
        total = np.bincount(rows[:, index], minlength=256)
        ones = np.bincount(rows[:, index], weights=bits, minlength=256)
        stretches[index] = np.log((ones + chance) / (total - ones + 1.0 - chance))
    stretches[:, 0] = 0.0  # unknown says nothing
    weights = np.zeros((SELECTOR_COUNT, 256, INPUT_COUNT + 1))
    weights[0, :, :INPUT_COUNT] = _FIRST_WEIGHT
    rng = np.random.default_rng(seed)
    for epoch, rate in enumerate(_RATES):
        order = rng.permutation(heldout.bounds.size - 1)
        stretch_rate = 0.5 * rate if epoch else 0.0
        _descend(rows, bits, heldout.bounds, order, stretches, weights, rate, stretch_rate)
    limit = np.iinfo(np.int16).max
    return model._replace(
        stretches=np.clip(np.rint(stretches * STRETCH_ONE), -limit, limit).astype(np.int16),
        weights=np.rint(weights * WEIGHT_ONE).astype(np.int32),
    )


def unmixed(table: Bytes, ends: NDArray[np.uint16]) -> Model:
    """Return a model that knows its lines but not yet how to mix."""
    return Model(
        table=table,
        width=(table.shape[0] - 1).bit_length() - 1,
        stretches=np.zeros((INPUT_COUNT, 256), np.int16),
        weights=np.zeros((SELECTOR_COUNT, 256, INPUT_COUNT + 1), np.int32),
        squash=squash_table(),
        ends=ends,
    )
