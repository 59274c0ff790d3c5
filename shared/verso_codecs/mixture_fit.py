"""Fitting of the mixture to a collection's own texts, in the order in which they were written.

1. Text by text: trace the states that every decision sees, and only then count the text. So
   every prediction that is learnt from is of a text that was not yet counted, as when the tables
   are used, and no text is lost to a held-out part.
2. Set each state's stretch to its log-odds in the trace; learn weights and stretches together by
   gradient descent, texts in random order. The rate is chosen on the last texts, which are
   then counted and learnt from like the others.
3. Round everything to integers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs import history as histories
from verso_codecs.coder import Bytes, kernel
from verso_codecs.fields import new_fields
from verso_codecs.history import COUNTS, END_COUNT, MATCH_LIMIT, STATE_COUNT, History
from verso_codecs.mixture_model import (
    FIRST_CONTEXT,
    FIRST_MATCH,
    INPUT_COUNT,
    SELECTOR_COUNT,
    Mixing,
    Tables,
    trace_text,
    write_text,
)
from verso_codecs.ngram_model import BIAS_INPUT, LOGIT_LIMIT, STRETCH_ONE, WEIGHT_ONE, Model

RATES = (0.0004, 0.0008)
"""Learning rates that are tried."""

FIRST_WEIGHT = 0.15
"""Weight of each input in the first of the mixed sums, before anything is learnt."""

_EPOCHS = (1.0, 0.8, 0.6, 0.35, 0.15)  # shares of the rate
_STRETCH_RATE = 0.5  # share of the rate; from the second epoch on
_FIRST_STRETCH = 6.0
_UNTRACED = 0.1  # share of the texts that only fill the history
_LINES_A_BYTE = 8
_WIDTHS = (12, 22)
_END_STEPS, _END_STEP = 40, 0.3
_EPOCH_SECONDS = re.compile(rb"(?<![0-9A-Za-z])([0-9]{10})(?:[0-9]{3})?(?![0-9A-Za-z])")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """What the mixer saw of texts.

    rows: Shape: (8 * bytes, INPUT_COUNT + SELECTOR_COUNT), uint8
    bits: Shape: (8 * bytes,), uint8
    bounds: Shape: (texts + 1,), int64, bytes
    end_rows: Shape: (bytes + texts, END_COUNT), uint8
    end_bits: Shape: (bytes + texts,), uint8, whether the text ended
    """

    rows: Bytes
    bits: Bytes
    bounds: NDArray[np.int64]
    end_rows: Bytes
    end_bits: Bytes


def width_for(size_bytes: int) -> int:
    """Return log2 of the rows of a table for texts of this size: 16 bytes a row, 64 MB at most."""
    least, most = _WIDTHS
    return min(max((size_bytes * _LINES_A_BYTE).bit_length(), least), most)


def clock_shift(texts: Sequence[bytes]) -> int:
    """Find how far the clock of dates is ahead of UTC where texts contain both, in seconds.

    Tries all half hours of a day either way, and returns the one that predicts the most dates.
    """
    right = dict.fromkeys(range(-14 * 3600, 14 * 3600 + 1, 1800), 0)
    for text in texts:
        digits = re.sub(rb"[^0-9]", b"", text)
        for match in _EPOCH_SECONDS.finditer(text):
            moment = datetime.fromtimestamp(int(match[1]), UTC)
            for shift in right:
                local = moment + timedelta(seconds=shift)
                right[shift] += local.strftime("%Y%m%d%H%M").encode() in digits
    best = max(right, key=lambda shift: (right[shift], -abs(shift)))
    return best if right[best] else 0


def trace(general: Model, history: History, texts: Sequence[bytes], *, traced: int) -> Trace:
    """Count texts, and trace the last `traced` of them, each before it is counted."""
    first = len(texts) - traced
    fields = new_fields()
    bounds = np.cumsum([0, *(len(text) for text in texts[first:])], dtype=np.int64)
    size = int(bounds[-1])
    found = Trace(
        rows=np.empty((8 * size, INPUT_COUNT + SELECTOR_COUNT), np.uint8),
        bits=np.empty(8 * size, np.uint8),
        bounds=bounds,
        end_rows=np.empty((size + traced, END_COUNT), np.uint8),
        end_bits=np.zeros(size + traced, np.uint8),
    )
    tables = Tables(general, history, unmixed())
    for number, text in enumerate(texts, -first):
        data = np.frombuffer(text, np.uint8)
        if number >= 0:
            begin, end = int(bounds[number]), int(bounds[number + 1])
            part = slice(8 * begin, 8 * end)
            ends = found.end_rows[begin + number : end + number + 1]
            trace_text(tables, data, found.rows[part], found.bits[part], ends)
            found.end_bits[end + number] = 1
        histories.count_text(history, fields, data)
    return found


def traced_count(texts: Sequence[bytes], limit_bytes: int) -> int:
    """Return how many of the last texts are traced: most of them, within the limit."""
    count, size = 0, 0
    while count < len(texts) - int(_UNTRACED * len(texts)) and size < limit_bytes:
        count += 1
        size += len(texts[-count])
    return count


def unmixed() -> Mixing:
    """Return a mixing that predicts nothing."""
    return Mixing(
        stretches=np.zeros((INPUT_COUNT, 256), np.int16),
        weights=np.zeros((SELECTOR_COUNT, 256, INPUT_COUNT + 1), np.int32),
        end_stretches=np.zeros((END_COUNT, 256), np.int16),
        end_weights=np.zeros(END_COUNT + 1, np.int32),
    )


# Much like `_descend` of `ngram_fit`, and apart from it: sums in another order would round to other
# weights, and fitted tables would no longer be the same bytes.
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
            mixed[:] = 0.0
            for selector in range(SELECTOR_COUNT):
                kind = rows[row, INPUT_COUNT + selector]
                for index in range(INPUT_COUNT + 1):
                    mixed[index] += weights[selector, kind, index]
            for index in range(INPUT_COUNT):
                inputs[index] = stretches[index, rows[row, index]]
            logit = 0.0
            for index in range(INPUT_COUNT + 1):
                logit += inputs[index] * mixed[index]
            error = bits[row] - 1.0 / (1.0 + np.exp(-min(max(logit, -limit), limit)))
            for selector in range(SELECTOR_COUNT):
                kind = rows[row, INPUT_COUNT + selector]
                for index in range(INPUT_COUNT + 1):
                    weights[selector, kind, index] += rate * error * inputs[index]
            for index in range(INPUT_COUNT):
                if rows[row, index]:
                    stretches[index, rows[row, index]] += stretch_rate * error * mixed[index]


def _expected_stretches(general: Model) -> Floats:
    """Guess what each state means, for those that the trace never shows.

    Returns: Shape: (INPUT_COUNT, 256), 0 for unknown states
    """
    guess = np.zeros((INPUT_COUNT, 256))
    guess[:FIRST_CONTEXT] = general.stretches / STRETCH_ONE
    odds = np.log((COUNTS[:, 1] + 0.4) / (COUNTS[:, 0] + 0.4))
    guess[FIRST_CONTEXT:FIRST_MATCH, :STATE_COUNT] = odds
    lengths = np.log(1.0 + 2.0 * np.arange(1, MATCH_LIMIT + 1))
    guess[FIRST_MATCH:, 1 : 2 * MATCH_LIMIT : 2] = -lengths
    guess[FIRST_MATCH:, 2 : 2 * MATCH_LIMIT + 1 : 2] = lengths
    return guess


def _log_odds(states: Bytes, bits: Bytes, prior: Floats) -> Floats:
    """Return the log-odds of bit 1 by state, one decision as by the prior's odds added."""
    chance = 1.0 / (1.0 + np.exp(-prior))
    total = np.bincount(states, minlength=256)
    ones = np.bincount(states, weights=bits, minlength=256)
    odds: Floats = np.log((ones + chance) / (total - ones + 1.0 - chance))
    return np.clip(odds, -_FIRST_STRETCH, _FIRST_STRETCH)


def mix(general: Model, seen: Trace, *, rate: float, seed: int = 0) -> Mixing:
    """Learn stretches and weights from a trace."""
    stretches = _expected_stretches(general)
    for index in range(FIRST_CONTEXT, INPUT_COUNT):
        stretches[index] = _log_odds(seen.rows[:, index], seen.bits, stretches[index])
    stretches[:, 0] = 0.0  # unknown says nothing
    weights = np.zeros((SELECTOR_COUNT, 256, INPUT_COUNT + 1))
    weights[0, :, :INPUT_COUNT] = FIRST_WEIGHT
    rng = np.random.default_rng(seed)
    for epoch, share in enumerate(_EPOCHS):
        order = rng.permutation(seen.bounds.size - 1)
        stretch_rate = _STRETCH_RATE * share * rate if epoch else 0.0
        _descend(
            seen.rows, seen.bits, seen.bounds, order, stretches, weights, share * rate, stretch_rate
        )
    end_stretches, end_weights = _mix_ends(seen)
    return Mixing(
        stretches=_rounded(stretches),
        weights=np.rint(weights * WEIGHT_ONE).astype(np.int32),
        end_stretches=_rounded(end_stretches),
        end_weights=np.rint(end_weights * WEIGHT_ONE).astype(np.int32),
    )


def _mix_ends(seen: Trace) -> tuple[Floats, Floats]:
    """Learn the prediction of the end: logistic regression on the states' log-odds (Newton)."""
    bits = seen.end_bits
    rarely = np.full(256, np.log((bits.sum() + 0.5) / (bits.size - bits.sum() + 0.5)))
    stretches = np.stack([_log_odds(states, bits, rarely) for states in seen.end_rows.T])
    stretches[:, 0] = 0.0
    columns = [stretches[index, seen.end_rows[:, index]] for index in range(END_COUNT)]
    inputs = np.stack([*columns, np.full(bits.size, BIAS_INPUT / STRETCH_ONE)], axis=1)
    weights = np.full(END_COUNT + 1, 1.5 / END_COUNT)
    for _ in range(_END_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(inputs @ weights, -20.0, 20.0)))
        gradient = inputs.T @ (bits - chance) - weights
        spread = (chance * (1.0 - chance))[:, None]
        step = np.linalg.solve((inputs * spread).T @ inputs + np.eye(END_COUNT + 1), gradient)
        # Texts that all end alike are separated perfectly; a full step would then diverge.
        weights += step * min(1.0, _END_STEP / max(float(np.abs(step).max()), 1e-9))
    return stretches, weights


def _rounded(stretches: Floats) -> NDArray[np.int16]:
    limit = np.iinfo(np.int16).max
    return np.clip(np.rint(stretches * STRETCH_ONE), -limit, limit).astype(np.int16)


def cost(tables: Tables, texts: Sequence[bytes]) -> float:
    """Return the ideal code length of texts in bits."""
    return sum(coder.cost(*decisions(text, tables)) for text in texts)


def decisions(text: bytes, tables: Tables) -> tuple[Bytes, NDArray[np.uint16]]:
    """Return what is coded of a text. Shapes: (9 * bytes + 1,), bits and probabilities of 1."""
    bound = 9 * len(text) + 1
    decided, chances = np.empty(bound, np.uint8), np.empty(bound, np.uint16)
    write_text(tables, np.frombuffer(text, np.uint8), decided, chances)
    return decided, chances
