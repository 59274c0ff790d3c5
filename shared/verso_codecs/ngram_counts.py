"""Counting for the n-gram model, and the choice of the lines worth keeping.

1. Count, context by context, how often each decision went either way, in a hash table that drops
   its rarest line where it is full. Each line remembers the line of the next shorter context.
2. A line is worth the bits it saves against that shorter context, each of its decisions predicted
   from the others ("leave one out"), so that what was seen once saves nothing by itself.
3. A line is worth at least what a longer context built on it is worth, because contexts are only
   read where all shorter ones are known.
4. The most valuable lines are placed in the table; where four rows are full, the least valuable
   gives way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, inlined, kernel
from verso_codecs.lines import LINE_BYTES, check_of, claim_row
from verso_codecs.ngram_model import (
    CONTEXT_COUNT,
    MIXED_STATES,
    ORDER_COUNT,
    RECORD_SIZE,
    SURE_STATES,
    context_hash,
    line_key,
    push_byte,
)

SURE_LEVELS = np.array([1, 2, 3, 4, 6, 9, 14, 25, 60, 200, 1000], np.int64)
"""Counts at which a decision that always went one way gets the next state."""

MIXED_COUNTS = np.array([5, 13, 50], np.int64)
"""Counts at which a decision that went both ways gets the next group of states."""

MIXED_STEP = 0.7
"""Log-odds between the states of a group."""

_PROBES = 8
_COUNT_LIMIT = 65535
_NODE_MINIMUM = 2
_FULLEST = 0.96  # lines chosen by rows; beyond it too many find no room
_LEAST_VALUE = 1e-6
_WORD_PARENT = 4  # the word contexts are compared with the last five bytes

Counts = NDArray[np.uint16]
Keys = NDArray[np.uint32]
Links = NDArray[np.int32]
Values = NDArray[np.float32]


@dataclass(frozen=True)
class Texts:
    """Texts one after the other.

    data: Shape: (bytes,), uint8
    bounds: Shape: (texts + 1,), int64
    """

    data: Bytes
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, texts: list[bytes]) -> "Texts":
        """Join texts; an empty one stays a text."""
        sizes = [0, *(len(text) for text in texts)]
        return cls(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(sizes, dtype=np.int64))


@dataclass(frozen=True)
class Counted:
    """What one context saw.

    keys: Shape: (lines,), 0 = free
    counts: Shape: (lines, LINE_BYTES, 2), by node and bit
    parents: Shape: (lines,), line of the shorter context, -1 = none
    """

    keys: Keys
    counts: Counts
    parents: Links

    @classmethod
    def empty(cls, width: int) -> "Counted":
        """Return a table of 2^width free lines."""
        size = 1 << width
        return cls(
            np.zeros(size, np.uint32),
            np.zeros((size, LINE_BYTES, 2), np.uint16),
            np.full(size, -1, np.int32),
        )


@kernel
def _count(
    data: Bytes,
    bounds: NDArray[np.int64],
    context: Int,
    keys: Keys,
    counts: Counts,
    parents: Links,
    parent_context: Int,
    parent_keys: Keys,
) -> None:
    """Count all decisions of all texts in one context; tables as in `Counted`."""
    record = np.zeros(RECORD_SIZE, np.int64)
    for text in range(bounds.size - 1):
        record[:] = 0
        for position in range(bounds[text], bounds[text + 1]):
            byte = np.int64(data[position])
            hashed = context_hash(record, context)
            for half in range(2):
                stage = half * (16 + (byte >> 4))
                line = _line_of(line_key(hashed, stage), keys, counts)
                if line < 0:
                    line = -line - 1
                    if parent_context >= 0:
                        key = line_key(context_hash(record, parent_context), stage)
                        parents[line] = _known_line(key, parent_keys)
                nibble = (byte >> 4) if half == 0 else (byte & 15)
                node: Int = 1
                for shift in range(3, -1, -1):
                    bit = (nibble >> shift) & 1
                    if counts[line, node, bit] == _COUNT_LIMIT:
                        counts[line, node, 0] >>= 1
                        counts[line, node, 1] >>= 1
                    counts[line, node, bit] += 1
                    node = node * 2 + bit
            push_byte(record, byte)


@inlined
def _home(key: Int, size: Int) -> Int:
    return (key * size) >> 32


@inlined
def _known_line(key: Int, keys: Keys) -> Int:
    home = _home(key, keys.size)
    for probe in range(_PROBES):
        line = (home + probe) & (keys.size - 1)
        if keys[line] == key:
            return line
    return -1


@inlined
def _line_of(key: Int, keys: Keys, counts: Counts) -> Int:
    """Find the line of a key, taking a free one or the least used of its neighbourhood.

    Gives -line - 1 when the line is new.
    """
    home = _home(key, keys.size)
    least: Int = home
    least_count: Int = 1 << 40
    for probe in range(_PROBES):
        line = (home + probe) & (keys.size - 1)
        if keys[line] == key:
            return line
        if keys[line] == 0:
            keys[line] = key
            return -line - 1
        count = np.int64(counts[line, 1, 0]) + np.int64(counts[line, 1, 1])
        if count < least_count:
            least, least_count = line, count
    keys[least] = key
    counts[least] = 0
    return -least - 1


@kernel
def _values(counts: Counts, parents: Links, parent_counts: Counts, values: Values) -> None:
    """Return each line the bits it saves; see step 2.

    values: Shape: (lines,), 0 for a free line
    """
    for line in range(values.size):
        saved = 0.0
        for node in range(1, LINE_BYTES):
            zeros, ones = float(counts[line, node, 0]), float(counts[line, node, 1])
            total = zeros + ones
            if total == 0.0:
                continue
            for bit in range(2):
                count = ones if bit else zeros
                if count == 0.0:
                    continue
                shorter = 0.5
                if parents[line] >= 0:
                    pair = parent_counts[parents[line], node]
                    same = float(pair[bit])
                    all_ = float(pair[0]) + float(pair[1])
                    shorter = (max(same - 1.0, 0.0) + 0.2) / (max(all_ - 1.0, 0.0) + 0.4)
                longer = (count - 1.0 + 1.5 * shorter) / (total - 1.0 + 1.5)
                saved += count * np.log2(longer / shorter)
        values[line] = saved


@kernel
def _raise_parents(values: Values, parents: Links, above: Values) -> None:
    """Return every parent at least the value of its child; see step 3."""
    for line in range(values.size):
        parent = parents[line]
        if parent >= 0 and above[parent] < values[line]:
            above[parent] = values[line]


@inlined
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
    step = int(np.floor(odds / MIXED_STEP)) + MIXED_STATES // 2
    step = min(max(step, 0), MIXED_STATES - 1)
    return SURE_STATES + 1 + trust * MIXED_STATES + step


@kernel
def _place(
    keys: Keys,
    counts: Counts,
    values: Values,
    threshold: float,
    table: Bytes,
    strengths: Values,
    width: Int,
    levels: NDArray[np.int64],
    mixed: NDArray[np.int64],
) -> None:
    """Put the lines worth at least the threshold into the table; see step 4."""
    for line in range(keys.size):
        if keys[line] == 0 or values[line] < threshold:
            continue
        key = np.int64(keys[line])
        row = claim_row(table, strengths, key, width, float(values[line]))
        if row < 0:
            continue
        strengths[row] = values[line]
        table[row] = 0
        table[row, 0] = check_of(key)
        for node in range(1, LINE_BYTES):
            zeros, ones = np.int64(counts[line, node, 0]), np.int64(counts[line, node, 1])
            if zeros + ones >= (_NODE_MINIMUM if node > 1 else 1):
                table[row, node] = _state_of(zeros, ones, levels, mixed)


def count_table(texts: Texts, *, widths: Sequence[int], counting_width: int) -> Bytes:
    """Count the texts and return the table of the most valuable lines.

    widths: log2 of how many lines each context may keep
    counting_width: log2 of the lines counted for one context at most; a line takes 72 bytes
    Returns: Shape: (2^width + 1, LINE_BYTES), uint8, with the least width that holds the lines
    """
    counted: list[Counted] = []
    values: list[Values] = []
    for context in range(CONTEXT_COUNT):
        table = Counted.empty(min(counting_width, 13 + 4 * context))
        above = context - 1 if context < ORDER_COUNT else _WORD_PARENT
        shorter = counted[above] if above >= 0 else table
        _count(
            texts.data,
            texts.bounds,
            context,
            table.keys,
            table.counts,
            table.parents,
            above,
            shorter.keys,
        )
        worth = np.zeros(table.keys.size, np.float32)
        _values(table.counts, table.parents, shorter.counts, worth)
        counted.append(table)
        values.append(worth)
    for context in range(ORDER_COUNT - 1, 0, -1):
        _raise_parents(values[context], counted[context].parents, values[context - 1])
    return _choose(counted, values, [1 << width for width in widths])


def _choose(counted: list[Counted], values: list[Values], limits: list[int]) -> Bytes:
    thresholds = [_threshold(worth, limit) for worth, limit in zip(values, limits, strict=True)]
    chosen = sum(
        int(np.count_nonzero(worth >= threshold))
        for worth, threshold in zip(values, thresholds, strict=True)
    )
    width = max(4, math.ceil(math.log2(max(chosen, 1) / _FULLEST)))
    rows = np.zeros(((1 << width) + 1, LINE_BYTES), np.uint8)
    strengths = np.zeros(1 << width, np.float32)
    for context, worth, threshold in zip(counted, values, thresholds, strict=True):
        _place(
            context.keys,
            context.counts,
            worth,
            threshold,
            rows,
            strengths,
            width,
            SURE_LEVELS,
            MIXED_COUNTS,
        )
    return rows


def _threshold(worth: Values, limit: int) -> float:
    """Return the least value of the `limit` best lines, above 0."""
    worthy = worth[worth > _LEAST_VALUE]
    if worthy.size <= limit:
        return _LEAST_VALUE
    return float(np.partition(worthy, -limit)[-limit])
