"""Kernels of the rank stream: from logits to ranks, to decisions, and back (see `ranks`).

Writing lists decisions (bit, probability) for the arithmetic coder. Fitting uses the same writer
with tables of node numbers in place of probabilities, and counts which node saw which bit; so
fitting cannot drift from coding.

An escaped token is coded by a static code for token ids: a binary tree with one fitted probability
per branching. The token's bits are decided from the highest to the lowest; each decision has its
own 16-bit probability, found by the bits before it. Node 1 is the root, node 2n and 2n + 1 are the
children of n, and the leaf of token t is node 2^depth + t. A branching whose upper side holds no
token of the vocabulary costs no decision, so whatever a corrupt payload says, the token exists.
"""

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import decode_bit, inlined, kernel, open_payload

MAX_VOCAB = 1 << 16


def tree_size(vocab: int) -> int:
    """Return the number of nodes of the tree: the first power of two that holds the vocabulary."""
    return 1 << max(1, (vocab - 1).bit_length())


@kernel
def put_literal(
    bits: coder.Bytes,
    chances: NDArray[np.integer],
    at: int,
    token: int,
    tree: NDArray[np.integer],
    vocab: int,
) -> int:
    """Append the decisions for one token at index `at`; return the next index."""
    node, prefix, weight = 1, 0, tree.size >> 1
    while weight:
        bit = 1 if token & weight else 0
        if prefix + weight < vocab:
            bits[at] = bit
            chances[at] = tree[node]
            at += 1
        prefix += weight * bit
        node = node * 2 + bit
        weight >>= 1
    return at


@kernel
def take_literal(
    state: coder.State, payload: coder.Bytes, tree: NDArray[np.integer], vocab: int
) -> int:
    """Decode one token, always below `vocab`."""
    node, prefix, weight = 1, 0, tree.size >> 1
    while weight:
        bit = 0
        if prefix + weight < vocab:
            bit = decode_bit(state, payload, int(tree[node]))
        prefix += weight * bit
        node = node * 2 + bit
        weight >>= 1
    return prefix


def fit_tree(weights: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Turn token weights into the probabilities of the tree's branchings.

    weights: Shape: (vocab,), all > 0, in proportion to how often each token is to be coded
    Returns: Shape: (tree_size(vocab),), uint16; entry 0 is unused
    """
    size = tree_size(weights.size)
    tree = np.ones(size, np.uint16)
    level = np.zeros(size)
    level[: weights.size] = weights
    while level.size > 1:
        lower, upper = level[0::2], level[1::2]
        level = lower + upper
        chance = coder.probability(upper, np.where(level > 0, level, 1.0))
        tree[level.size : 2 * level.size] = chance
    return tree


BIN_COUNT = 6
"""Exp-Golomb bins above rank 3; bin b starts at rank 2 + 2^(b+1) and holds 2^(b+1) ranks."""

MAX_RANK = 129
"""Greatest rank that has a code: the end of the last bin."""

SHIFT_COUNT = 8
"""How many shifts of the bucket edges a stream may choose from."""

CLASS_COUNT = 4
"""Classes of the previous position: START, top token, rank 1-3, anything rarer."""

_START, _TOP, _SMALL, _RARE = range(CLASS_COUNT)

# Nodes of the rank's decision chain: "is it r?" for r = 0..3, "is it an escape?",
# "is it in a later bin?" for the bins but the last, and one for the first offset bit of each bin.
_NODE_ESCAPE = 4
_NODE_LATER = 5
_NODE_OFFSET = _NODE_LATER + BIN_COUNT - 1
NODE_COUNT = _NODE_OFFSET + BIN_COUNT

ESCAPE = -1
"""Stands for "no usable rank" wherever ranks are listed."""

NARROW_WIDTHS = (4, 7, 10)
"""Low bits of the token id that a narrowed literal may spell out."""

NARROW_COUNT = len(NARROW_WIDTHS)
NARROW_RANKS = 8
"""Ranks below this, among the tokens that share those bits, have a code."""

EVEN = 1 << 15
"""Probability of a bit that is not modelled."""

_GAP_ORDER = 4
_MAX_GOLOMB_WIDTH = 20

# Columns of a stream's head, beside its coder state.
_SHIFT, _REMAINING, _EXCEPTION, _POSITION, _PREVIOUS = range(5)
HEAD_SIZE = 5

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Table = NDArray[np.integer]


def decisions_bound(token_count: int) -> int:
    """Return a length that the decisions of a record never exceed."""
    return 64 + 80 * token_count


@inlined
def _rank_of(logits: Floats, target: int, epsilon: float) -> int:
    """Return the target's rank in one row, or ESCAPE when noise could change it or it is too great.

    Counting against three thresholds needs no branches and treats NaN as "never greater"; a
    target that is NaN counts no equal at all and escapes.
    """
    centre = float(logits[target])
    upper, lower = centre + epsilon, centre - epsilon
    greater, surely_greater, not_smaller = 0, 0, 0
    for token in range(logits.size):
        logit = float(logits[token])
        greater += logit > centre
        surely_greater += logit > upper
        not_smaller += logit >= lower
    if surely_greater != greater or not_smaller != greater + 1 or greater > MAX_RANK:
        return ESCAPE
    return greater


@inlined
def _rank_in_class(logits: Floats, target: int, epsilon: float, stride: int) -> int:
    """As `_rank_of`, but only among the tokens that equal the target modulo `stride`."""
    centre = float(logits[target])
    upper, lower = centre + epsilon, centre - epsilon
    greater, surely_greater, not_smaller = 0, 0, 0
    for token in range(target % stride, logits.size, stride):
        logit = float(logits[token])
        greater += logit > centre
        surely_greater += logit > upper
        not_smaller += logit >= lower
    if surely_greater != greater or not_smaller != greater + 1 or greater >= NARROW_RANKS:
        return ESCAPE
    return greater


@kernel
def ranks_of(logits: Floats, targets: Ints, epsilon: float, rank_rows: Ints) -> None:
    """Fill in the rank, the depth and the rank at that depth of every target.

    rank_rows: Shape: (3, tokens)
    """
    for position in range(targets.size):
        row, target = logits[position], int(targets[position])
        rank_rows[0, position] = _rank_of(row, target, epsilon)
        rank_rows[1, position] = NARROW_COUNT
        rank_rows[2, position] = 0
        for depth in range(NARROW_COUNT):
            rank = _rank_in_class(row, target, epsilon, 1 << NARROW_WIDTHS[depth])
            if rank != ESCAPE:
                rank_rows[1, position] = depth
                rank_rows[2, position] = rank
                break


@inlined
def _unsafe_count(confidence: Floats, edges: Floats, shift: float, epsilon: float) -> int:
    """Count the positions whose confidence lies near one of the shifted edges, or is NaN."""
    count = 0
    for position in range(confidence.size):
        count += not _is_safe(float(confidence[position]), edges, shift, epsilon)
    return count


@inlined
def _is_safe(confidence: float, edges: Floats, shift: float, epsilon: float) -> bool:
    for edge in edges:
        if not abs(confidence - (float(edge) + shift)) > epsilon:
            return False
    return confidence == confidence


@inlined
def _bucket_of(confidence: float, edges: Floats, shift: float) -> int:
    bucket = 0
    for edge in edges:
        bucket += confidence > float(edge) + shift
    return bucket


@inlined
def _class_of(rank: int) -> int:
    if rank == 0:
        return _TOP
    return _SMALL if 0 < rank < 4 else _RARE


@inlined
def _put(bits: coder.Bytes, chances: Table, at: int, bit: int, chance: int) -> int:
    bits[at] = bit
    chances[at] = chance
    return at + 1


@inlined
def _put_even(bits: coder.Bytes, chances: Table, at: int, value: int, width: int) -> int:
    for shift in range(width - 1, -1, -1):
        at = _put(bits, chances, at, (value >> shift) & 1, EVEN)
    return at


@inlined
def _put_golomb(bits: coder.Bytes, chances: Table, at: int, value: int, order: int) -> int:
    """Exp-Golomb code of a value >= 0 with even odds (Teuhola 1978), of the given order."""
    value += 1 << order
    width = order
    while value >> (width + 1):
        at = _put(bits, chances, at, 1, EVEN)
        width += 1
    at = _put(bits, chances, at, 0, EVEN)
    return _put_even(bits, chances, at, value - (1 << width), width)


@inlined
def _put_rank(bits: coder.Bytes, chances: Table, at: int, rank: int, table: Table) -> int:
    for candidate in range(4):
        at = _put(bits, chances, at, rank == candidate, int(table[candidate]))
        if rank == candidate:
            return at
    at = _put(bits, chances, at, rank == ESCAPE, int(table[_NODE_ESCAPE]))
    if rank == ESCAPE:
        return at
    bin_index = 0
    while bin_index < BIN_COUNT - 1 and rank >= 2 + (1 << (bin_index + 2)):
        at = _put(bits, chances, at, 1, int(table[_NODE_LATER + bin_index]))
        bin_index += 1
    if bin_index < BIN_COUNT - 1:
        at = _put(bits, chances, at, 0, int(table[_NODE_LATER + bin_index]))
    offset = rank - 2 - (1 << (bin_index + 1))
    at = _put(bits, chances, at, offset >> bin_index, int(table[_NODE_OFFSET + bin_index]))
    return _put_even(bits, chances, at, offset & ((1 << bin_index) - 1), bin_index)


@inlined
def _put_narrow(
    bits: coder.Bytes,
    chances: Table,
    at: int,
    token: int,
    depth: int,
    rank: int,
    narrow: Table,
    tree: Table,
    vocab: int,
) -> int:
    """Write a token without its rank: some low bits and a rank among those that share them."""
    for level in range(NARROW_COUNT):
        at = _put(bits, chances, at, depth == level, int(narrow[level, 0]))
        if depth == level:
            width = NARROW_WIDTHS[level]
            at = _put_even(bits, chances, at, token & ((1 << width) - 1), width)
            return put_literal(bits, chances, at, rank, narrow[level], NARROW_RANKS)
    return put_literal(bits, chances, at, token, tree, vocab)


@inlined
def _best_shift(
    confidence: Floats, edges: Floats, shift_step: float, epsilon: float
) -> tuple[int, int]:
    """Return the first shift that leaves the fewest positions unsafe, and their number."""
    chosen, fewest = 0, _unsafe_count(confidence, edges, 0.0, epsilon)
    for candidate in range(1, SHIFT_COUNT):
        if fewest > 0:
            count = _unsafe_count(confidence, edges, candidate * shift_step, epsilon)
            if count < fewest:
                chosen, fewest = candidate, count
    return chosen, fewest


@inlined
def _put_head(
    bits: coder.Bytes,
    chances: Table,
    shift: int,
    exceptions: int,
    shift_table: Table,
    exception_table: Table,
) -> int:
    at = 0
    for candidate in range(shift):
        at = _put(bits, chances, at, 1, int(shift_table[candidate]))
    if shift < SHIFT_COUNT - 1:
        at = _put(bits, chances, at, 0, int(shift_table[shift]))
    at = _put(bits, chances, at, exceptions > 0, int(exception_table[0]))
    if exceptions > 0:
        at = _put_golomb(bits, chances, at, exceptions - 1, 0)
    return at


@kernel
def put_stream(
    rank_rows: Ints,
    confidence: Floats,
    tokens: Ints,
    edges: Floats,
    shift_step: float,
    shift_table: Table,
    exception_table: Table,
    rank_table: Table,
    narrow: Table,
    tree: Table,
    vocab: int,
    epsilon: float,
    bits: coder.Bytes,
    chances: Table,
) -> int:
    """Write all decisions of one record; return their number."""
    chosen, fewest = _best_shift(confidence, edges, shift_step, epsilon)
    shift = chosen * shift_step
    at = _put_head(bits, chances, chosen, fewest, shift_table, exception_table)
    previous = _START
    gap_due, last, remaining = fewest > 0, -1, fewest
    for position in range(tokens.size):
        if gap_due:
            following = position
            while _is_safe(float(confidence[following]), edges, shift, epsilon):
                following += 1
            at = _put_golomb(bits, chances, at, following - last - 1, _GAP_ORDER)
            last, gap_due = following, False
        token = int(tokens[position])
        depth, class_rank = int(rank_rows[1, position]), int(rank_rows[2, position])
        if remaining > 0 and position == last:
            at = _put_narrow(bits, chances, at, token, depth, class_rank, narrow, tree, vocab)
            previous = _RARE
            remaining -= 1
            gap_due = remaining > 0
            continue
        bucket = _bucket_of(float(confidence[position]), edges, shift)
        rank = int(rank_rows[0, position])
        at = _put_rank(bits, chances, at, rank, rank_table[bucket, previous])
        if rank == ESCAPE:
            at = _put_narrow(bits, chances, at, token, depth, class_rank, narrow, tree, vocab)
        previous = _class_of(rank)
    return at


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
    while width < _MAX_GOLOMB_WIDTH and decode_bit(state, payload, EVEN):
        width += 1
    return _take_even(state, payload, width) + (1 << width) - (1 << order)


@inlined
def _take_rank(state: coder.State, payload: coder.Bytes, table: Table) -> int:
    for candidate in range(4):
        if decode_bit(state, payload, int(table[candidate])):
            return candidate
    if decode_bit(state, payload, int(table[_NODE_ESCAPE])):
        return ESCAPE
    bin_index = 0
    while bin_index < BIN_COUNT - 1 and decode_bit(
        state, payload, int(table[_NODE_LATER + bin_index])
    ):
        bin_index += 1
    offset = decode_bit(state, payload, int(table[_NODE_OFFSET + bin_index])) << bin_index
    offset += _take_even(state, payload, bin_index)
    return 2 + (1 << (bin_index + 1)) + offset


@inlined
def _take_gap(state: coder.State, payload: coder.Bytes, head: coder.State) -> None:
    head[_EXCEPTION] += 1 + _take_golomb(state, payload, _GAP_ORDER)


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
        head[_SHIFT] = shift
        head[_REMAINING] = 0
        head[_EXCEPTION] = -1
        head[_POSITION] = 0
        head[_PREVIOUS] = _START
        if decode_bit(state, payload, int(exception_table[0])):
            head[_REMAINING] = 1 + _take_golomb(state, payload, 0)
            _take_gap(state, payload, head)


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
    values = np.empty(MAX_RANK + 1, np.float32)
    tokens = np.empty(MAX_RANK + 1, np.int32)
    for index in range(rows.size):
        state, head = states[rows[index]], heads[rows[index]]
        if head[_REMAINING] > 0 and head[_POSITION] == head[_EXCEPTION]:
            out[index] = _take_narrow(state, payload, logits[index], narrow, tree, values, tokens)
            head[_PREVIOUS] = _RARE
            head[_REMAINING] -= 1
            if head[_REMAINING] > 0:
                _take_gap(state, payload, head)
        else:
            shift = int(head[_SHIFT]) * shift_step
            bucket = _bucket_of(float(confidence[index]), edges, shift)
            rank = _take_rank(state, payload, rank_table[bucket, head[_PREVIOUS]])
            if rank == ESCAPE:
                out[index] = _take_narrow(
                    state, payload, logits[index], narrow, tree, values, tokens
                )
            else:
                out[index] = _ranked(logits[index], rank, np.int64(0), np.int64(1), values, tokens)
            head[_PREVIOUS] = _class_of(rank)
        head[_POSITION] += 1
