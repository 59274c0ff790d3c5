"""Kernels of the mixture codec: how the next bit is predicted (see `mixture`).

A byte is eight decisions, highest bit first; before each byte one more says whether the text ends.
Every decision is looked at from several sides:

1. all inputs of the general n-gram model: its eight contexts in tables counted over many kinds of
   text, its match and its local contexts within this record (`ngram_model`);
2. the contexts of `fields` in the counters of the collection's own texts (`history`);
3. two matches with those texts: what followed the last occurrence of the last 5 or 12 bytes.

Each state stands for a fitted log-odds, and their weighted sum is the prediction (logistic mixing,
Mahoney 2005). A weight is the sum of several, each chosen by one selector; within a record all
weights drift along the gradient. The tables never change, so a record needs no other one to be
read. Everything is done in integers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs import ngram_model as general
from verso_codecs.coder import Bytes, Int, State, decode_bit, inlined, kernel
from verso_codecs.fields import (
    AFTER_NUMBER,
    ATOM_KIND,
    ATOM_LENGTH,
    COLUMN_PAIR,
    CONTEXT_COUNT,
    DIGIT,
    FIELD_COUNT,
    ORDER_COUNT,
    PLACE,
    PLACE_CLASS,
    SHAPE,
    TAIL,
    Fields,
    hash_contexts,
    new_fields,
    push_byte,
)
from verso_codecs.history import (
    COUNTS,
    END_COUNT,
    MATCH_COUNT,
    MATCH_LIMIT,
    History,
    Points,
    end_slots,
    follow_points,
    new_points,
)
from verso_codecs.lines import find_line
from verso_codecs.ngram_model import BIAS_INPUT, LOGIT_LIMIT, Model, Scratch, line_key

FIRST_CONTEXT = general.INPUT_COUNT
FIRST_MATCH = FIRST_CONTEXT + CONTEXT_COUNT
INPUT_COUNT = FIRST_MATCH + MATCH_COUNT
"""States that are mixed: the general model's, the contexts', the matches'."""

SELECTOR_COUNT = general.SELECTOR_COUNT + 6
"""Weight sets that are added up, each chosen by a selector of 0..255."""

_DRIFT_SHIFT = 16  # learning rate STRETCH_ONE / 2^16 = 0.004


class Mixing(NamedTuple):
    """Fitted numbers of the mixture.

    stretches: Shape: (INPUT_COUNT, 256), int16, log-odds of a state in 1/STRETCH_ONE
    weights: Shape: (SELECTOR_COUNT, 256, INPUT_COUNT + 1), int32, in 1/WEIGHT_ONE; last = bias
    end_stretches: Shape: (END_COUNT, 256), int16, likewise for the end of the text
    end_weights: Shape: (END_COUNT + 1,), int32
    """

    stretches: NDArray[np.int16]
    weights: NDArray[np.int32]
    end_stretches: NDArray[np.int16]
    end_weights: NDArray[np.int32]


class Tables(NamedTuple):
    """All that a record is read with."""

    general: Model
    history: History
    mixing: Mixing


class View(NamedTuple):
    """What is known of the record and of the decision at hand.

    scratch: the general model's
    fields: how the record looks so far
    points: positions in the history where the record may continue
    rows: Shape: (CONTEXT_COUNT,), int64, of the contexts' lines for this nibble
    states: Shape: (INPUT_COUNT,), int64, for this decision
    selectors: Shape: (SELECTOR_COUNT,), int64, for this decision
    inputs: Shape: (INPUT_COUNT,), int64, stretches of the states
    weights: Shape: (INPUT_COUNT + 1,), int64, for this decision
    drift: Shape: (INPUT_COUNT,), int64, what the record added to the weights
    ends: Shape: (END_COUNT,), int64, states of the contexts of the end
    """

    scratch: Scratch
    fields: Fields
    points: Points
    rows: State
    states: State
    selectors: State
    inputs: State
    weights: State
    drift: State
    ends: State


def _trust_of(zeros: int, ones: int) -> int:
    """Class of a counter: 0 unknown, 1..3 always one way, 4..5 both ways."""
    if zeros and ones:
        return 5 if zeros + ones > 6 else 4
    total = zeros + ones
    return 0 if total == 0 else 1 if total < 3 else 2 if total < 12 else 3


_TRUSTS = np.zeros(256, np.int64)
_TRUSTS[: COUNTS.shape[0]] = [_trust_of(int(zeros), int(ones)) for zeros, ones in COUNTS]


@inlined
def new_view() -> View:
    """Return the state at a record's start."""
    return View(
        general.new_scratch(),
        new_fields(),
        new_points(),
        np.zeros(CONTEXT_COUNT, np.int64),
        np.zeros(INPUT_COUNT, np.int64),
        np.zeros(SELECTOR_COUNT, np.int64),
        np.zeros(INPUT_COUNT, np.int64),
        np.zeros(INPUT_COUNT + 1, np.int64),
        np.zeros(INPUT_COUNT, np.int64),
        np.zeros(END_COUNT, np.int64),
    )


@inlined
def start_byte(view: View, data: Bytes) -> None:
    """Hash all contexts of the next byte."""
    general.start_byte(view.scratch, data)
    hash_contexts(view.fields, data)


@inlined
def end_byte(tables: Tables, view: View, data: Bytes, length: Int) -> None:
    """Move on past the last of the record's `length` bytes."""
    general.end_byte(view.scratch, data, length)
    push_byte(view.fields, data, tables.history.clock_shift_s)
    follow_points(tables.history, view.points, view.fields, data)


@inlined
def observe(tables: Tables, view: View, shift: Int, partial: Int) -> None:
    """Look up the states and selectors of one decision.

    shift: the bit of the byte that is decided, 7 first
    partial: the decisions of this byte so far, with a leading 1
    """
    history, states = tables.history, view.states
    general.observe(tables.general, view.scratch, shift, partial)
    for index in range(general.INPUT_COUNT):
        states[index] = view.scratch.states[index]
    if shift in (7, 3):
        stage = 0 if shift == 7 else partial
        for context in range(CONTEXT_COUNT):
            key = line_key(view.fields.hashes[context], stage)
            view.rows[context] = find_line(history.table, key, history.width)
    node = partial if shift > 3 else (partial & ((1 << (3 - shift)) - 1)) | (1 << (3 - shift))
    longest = 0
    for context in range(CONTEXT_COUNT):
        state = np.int64(history.table[view.rows[context], node])
        states[FIRST_CONTEXT + context] = state
        if state != 0 and context < ORDER_COUNT:
            longest = context + 1
    best: Int = 0
    for match in range(MATCH_COUNT):
        states[FIRST_MATCH + match] = 0
        length = view.points.lengths[match]
        if length > 0:
            expected = 256 | np.int64(history.texts[view.points.positions[match]])
            if expected >> (shift + 1) == partial:
                states[FIRST_MATCH + match] = 2 * length - 1 + ((expected >> shift) & 1)
                best = max(best, length)
    _select(view, longest, best, shift)


@inlined
def _trust(view: View, context: Int) -> Int:
    trust: Int = _TRUSTS[view.states[FIRST_CONTEXT + context]]
    return trust


@inlined
def _select(view: View, longest: Int, match: Int, shift: Int) -> None:
    """Choose the weights of one decision."""
    selectors, state = view.selectors, view.fields.state
    for index in range(general.SELECTOR_COUNT):
        selectors[index] = view.scratch.selectors[index]
    match_class: Int = 0
    if match > 0:
        match_class = 1 + (match >= 8) + (match >= 16) + (match >= MATCH_LIMIT)
    at = general.SELECTOR_COUNT
    selectors[at] = longest * 8 + match_class
    atom = min(state[ATOM_LENGTH], 15) * 4 + state[ATOM_KIND]
    selectors[at + 1] = atom + 64 * min(7 - shift, 3)
    trusts = 6 * _trust(view, PLACE) + _trust(view, PLACE_CLASS)
    selectors[at + 2] = trusts + 36 * (_trust(view, TAIL) > 2)
    selectors[at + 3] = min(state[FIELD_COUNT], 31) * 8 + 7 - shift
    trusts = 6 * _trust(view, AFTER_NUMBER) + _trust(view, COLUMN_PAIR)
    selectors[at + 4] = trusts + 36 * (_trust(view, DIGIT) > 0)
    trusts = 36 * _trust(view, 1) + 6 * _trust(view, 3)
    selectors[at + 5] = trusts + _trust(view, SHAPE)


@inlined
def _chance(tables: Tables, total: Int) -> Int:
    """Squash a weighted sum to the probability of bit 1."""
    logit = min(max(total >> 16, -LOGIT_LIMIT), LOGIT_LIMIT)
    return np.int64(tables.general.squash[logit + LOGIT_LIMIT])


@inlined
def predict(tables: Tables, view: View) -> Int:
    """Mix the stretches of the states that `observe` found and return the probability of bit 1."""
    mixing, inputs, mixed = tables.mixing, view.inputs, view.weights
    for index in range(INPUT_COUNT):
        mixed[index] = view.drift[index]
    mixed[INPUT_COUNT] = 0
    # One selector after the other, not one input after the other: these loops become vector code.
    for selector in range(SELECTOR_COUNT):
        kind = view.selectors[selector]
        for index in range(INPUT_COUNT + 1):
            mixed[index] += np.int64(mixing.weights[selector, kind, index])
    for index in range(INPUT_COUNT):
        inputs[index] = np.int64(mixing.stretches[index, view.states[index]])
    total = BIAS_INPUT * mixed[INPUT_COUNT]
    for index in range(INPUT_COUNT):
        total += inputs[index] * mixed[index]
    return _chance(tables, total)


@inlined
def learn(view: View, bit: Int, chance: Int) -> None:
    """Move the record's own weights along the gradient of the cost, and count locally."""
    error = (bit << 16) - chance
    for index in range(INPUT_COUNT):
        view.drift[index] += (error * view.inputs[index]) >> _DRIFT_SHIFT
    general.count_locally(view.scratch, bit)


@inlined
def observe_end(history: History, view: View) -> None:
    """Look up the states by which it is predicted whether the text ends."""
    end_slots(view.fields, view.ends)
    for index in range(END_COUNT):
        view.ends[index] = np.int64(history.ends[index, view.ends[index]])


@inlined
def end_chance(tables: Tables, view: View) -> Int:
    """Return the probability that the text ends here."""
    mixing = tables.mixing
    observe_end(tables.history, view)
    total = BIAS_INPUT * np.int64(mixing.end_weights[END_COUNT])
    for index in range(END_COUNT):
        stretch = np.int64(mixing.end_stretches[index, view.ends[index]])
        total += stretch * np.int64(mixing.end_weights[index])
    return _chance(tables, total)


# The loops over a text are those of `ngram_model`: a kernel cannot take other kernels as arguments
# without a call that is not inlined, which doubles its time.
@kernel
def write_text(tables: Tables, data: Bytes, bits: Bytes, chances: NDArray[np.uint16]) -> None:
    """List the decisions of a text, nine a byte and one more."""
    view = new_view()
    at = 0
    for position in range(data.size):
        bits[at] = 0
        chances[at] = end_chance(tables, view)
        at += 1
        start_byte(view, data)
        partial: Int = 1
        for shift in range(7, -1, -1):
            observe(tables, view, shift, partial)
            chance = predict(tables, view)
            bit = (np.int64(data[position]) >> shift) & 1
            bits[at] = bit
            chances[at] = chance
            at += 1
            learn(view, bit, chance)
            partial = partial * 2 + bit
        end_byte(tables, view, data, position + 1)
    bits[at] = 1
    chances[at] = end_chance(tables, view)


@kernel
def read_text(tables: Tables, payload: Bytes, state: State, data: Bytes) -> Int:
    """Decode a text into `data`; return its length, or -1 when it does not end within `data`."""
    view = new_view()
    position = 0
    while not decode_bit(state, payload, end_chance(tables, view)):
        if position == data.size:
            return -1
        start_byte(view, data)
        partial: Int = 1
        for shift in range(7, -1, -1):
            observe(tables, view, shift, partial)
            chance = predict(tables, view)
            bit = decode_bit(state, payload, chance)
            learn(view, bit, chance)
            partial = partial * 2 + bit
        data[position] = partial & 0xFF
        position += 1
        end_byte(tables, view, data, position)
    return position


@kernel
def trace_text(tables: Tables, data: Bytes, rows: Bytes, bits: Bytes, end_rows: Bytes) -> None:
    """List what the mixer sees for every decision of a text, for fitting.

    rows: Shape: (8 * bytes, INPUT_COUNT + SELECTOR_COUNT), states and selectors
    bits: Shape: (8 * bytes,)
    end_rows: Shape: (bytes + 1, END_COUNT), states before each byte and at the end
    """
    view = new_view()
    at = 0
    for position in range(data.size + 1):
        observe_end(tables.history, view)
        for index in range(END_COUNT):
            end_rows[position, index] = view.ends[index]
        if position == data.size:
            break
        start_byte(view, data)
        partial: Int = 1
        for shift in range(7, -1, -1):
            observe(tables, view, shift, partial)
            for index in range(INPUT_COUNT):
                rows[at, index] = view.states[index]
            for selector in range(SELECTOR_COUNT):
                rows[at, INPUT_COUNT + selector] = view.selectors[selector]
            bit = (np.int64(data[position]) >> shift) & 1
            bits[at] = bit
            at += 1
            general.count_locally(view.scratch, bit)
            partial = partial * 2 + bit
        end_byte(tables, view, data, position + 1)
