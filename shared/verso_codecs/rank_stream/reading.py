"""Read streams one token a step, each from the logits that follow its last token."""

# Compiled with what it imports: 49a842f969abb2c1

import numpy as np

from verso_codecs import coder
from verso_codecs.coder import decode_bit, inlined, kernel, open_payload
from verso_codecs.rank_stream.layout import (
    BIN_COUNT,
    ESCAPE,
    EVEN,
    EXCEPTION,
    GAP_ORDER,
    MAX_GOLOMB_WIDTH,
    MAX_RANK,
    NARROW_COUNT,
    NARROW_RANKS,
    NARROW_WIDTHS,
    NODE_ESCAPE,
    NODE_LATER,
    NODE_OFFSET,
    POSITION,
    PREVIOUS,
    RARE,
    REMAINING,
    SHIFT,
    SHIFT_COUNT,
    START,
    Floats,
    Ints,
    Table,
    bucket_of,
    class_of,
)
from verso_codecs.rank_stream.literals import take_literal


@kernel
def open_streams(
    states: coder.State,
    heads: coder.State,
    payload: coder.Bytes,
    bounds: coder.State,
    shift_table: Table,
    exception_table: Table,
) -> None:
    """Read the head of every stream: its shift, its number of exceptions, the first gap."""
    for row in range(heads.shape[0]):
        state, head = states[row], heads[row]
        open_payload(state, payload, int(bounds[row]), int(bounds[row + 1]))
        shift = 0
        while shift < SHIFT_COUNT - 1 and decode_bit(state, payload, int(shift_table[shift])):
            shift += 1
        head[SHIFT] = shift
        head[REMAINING] = 0
        head[EXCEPTION] = -1
        head[POSITION] = 0
        head[PREVIOUS] = START
        if decode_bit(state, payload, int(exception_table[0])):
            head[REMAINING] = 1 + _take_golomb(state, payload, 0)
            _take_gap(state, payload, head)


@kernel
def step(
    rows: Ints,
    logits: Floats,
    confidence: Floats,
    states: coder.State,
    heads: coder.State,
    payload: coder.Bytes,
    edges: Floats,
    shift_step: float,
    rank_table: Table,
    narrow: Table,
    tree: Table,
    out: Ints,
) -> None:
    """Read one token of the stream of each row into `out`."""
    values = np.empty(MAX_RANK + 1, np.float32)
    tokens = np.empty(MAX_RANK + 1, np.int32)
    for index in range(rows.size):
        state, head = states[rows[index]], heads[rows[index]]
        if head[REMAINING] > 0 and head[POSITION] == head[EXCEPTION]:
            out[index] = _take_narrow(state, payload, logits[index], narrow, tree, values, tokens)
            head[PREVIOUS] = RARE
            head[REMAINING] -= 1
            if head[REMAINING] > 0:
                _take_gap(state, payload, head)
        else:
            shift = int(head[SHIFT]) * shift_step
            bucket = bucket_of(float(confidence[index]), edges, shift)
            rank = _take_rank(state, payload, rank_table[bucket, head[PREVIOUS]])
            if rank == ESCAPE:
                out[index] = _take_narrow(
                    state, payload, logits[index], narrow, tree, values, tokens
                )
            else:
                out[index] = _ranked(logits[index], rank, np.int64(0), np.int64(1), values, tokens)
            head[PREVIOUS] = class_of(rank)
        head[POSITION] += 1


@inlined
def _take_even(state: coder.State, payload: coder.Bytes, width: int) -> int:
    value = 0
    for _ in range(width):
        value = value * 2 + decode_bit(state, payload, EVEN)
    return value


@inlined
def _take_golomb(state: coder.State, payload: coder.Bytes, order: int) -> int:
    """Read what `_put_golomb` wrote; a corrupt payload yields some number below 2^21."""
    width = order
    while width < MAX_GOLOMB_WIDTH and decode_bit(state, payload, EVEN):
        width += 1
    return _take_even(state, payload, width) + (1 << width) - (1 << order)


@inlined
def _take_rank(state: coder.State, payload: coder.Bytes, table: Table) -> int:
    for candidate in range(4):
        if decode_bit(state, payload, int(table[candidate])):
            return candidate
    if decode_bit(state, payload, int(table[NODE_ESCAPE])):
        return ESCAPE
    bin_index = 0
    while bin_index < BIN_COUNT - 1 and decode_bit(
        state, payload, int(table[NODE_LATER + bin_index])
    ):
        bin_index += 1
    offset = decode_bit(state, payload, int(table[NODE_OFFSET + bin_index])) << bin_index
    offset += _take_even(state, payload, bin_index)
    return 2 + (1 << (bin_index + 1)) + offset


@inlined
def _take_gap(state: coder.State, payload: coder.Bytes, head: coder.State) -> None:
    head[EXCEPTION] += 1 + _take_golomb(state, payload, GAP_ORDER)


@inlined
def _take_narrow(
    state: coder.State,
    payload: coder.Bytes,
    logits: Floats,
    narrow: Table,
    tree: Table,
    values: Floats,
    tokens: Ints,
) -> int:
    """Read what `_put_narrow` wrote."""
    for level in range(NARROW_COUNT):
        if decode_bit(state, payload, int(narrow[level, 0])):
            width = NARROW_WIDTHS[level]
            first = _take_even(state, payload, width)
            rank = take_literal(state, payload, narrow[level], NARROW_RANKS)
            return _ranked(logits, rank, first, 1 << width, values, tokens)
    return take_literal(state, payload, tree, logits.size)


@inlined
def _ranked(
    logits: Floats, rank: int, first: coder.Int, stride: coder.Int, values: Floats, tokens: Ints
) -> int:
    """Token at a rank among `first`, `first + stride`, ...; past the last, the last one.

    Keeps the `rank + 1` greatest logits sorted in `values`; most logits fail the first test.
    """
    if rank == 0 and stride == 1:
        return _greatest(logits)
    size = 0
    limit = min(rank + 1, logits.size)
    for token in range(first, logits.size, stride):
        logit = logits[token]
        if size == limit and not logit > values[size - 1]:
            continue
        if logit != logit:
            continue
        index = size if size < limit else size - 1
        while index > 0 and values[index - 1] < logit:
            values[index] = values[index - 1]
            tokens[index] = tokens[index - 1]
            index -= 1
        values[index] = logit
        tokens[index] = token
        size = min(size + 1, limit)
    return int(tokens[size - 1]) if size > 0 else 0


@inlined
def _greatest(logits: Floats) -> int:
    """Index of the first greatest logit; NaN is never greatest.

    Sixteen independent lanes let the compiler use vector instructions, which a single running
    maximum of floats does not.
    """
    lanes = np.full(16, -np.inf, np.float32)
    whole = logits.size & ~15
    for start in range(0, whole, 16):
        for lane in range(16):
            logit = logits[start + lane]
            # max() would treat NaN differently, and an if would not become vector code.
            lanes[lane] = logit if logit > lanes[lane] else lanes[lane]  # noqa: FURB136
    best = lanes[0]
    for lane in range(1, 16):
        if lanes[lane] > best:
            best = lanes[lane]
    for token in range(whole, logits.size):
        if logits[token] > best:
            best = logits[token]
    for token in range(logits.size):
        if logits[token] == best:
            return token
    return 0
