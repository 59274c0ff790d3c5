"""Write the decisions of a record: the stream's head, exceptions, ranks and literals."""

# Compiled with what it imports: 49a842f969abb2c1

from verso_codecs import coder
from verso_codecs.coder import inlined, kernel
from verso_codecs.rank_stream.layout import (
    BIN_COUNT,
    ESCAPE,
    EVEN,
    GAP_ORDER,
    NARROW_COUNT,
    NARROW_RANKS,
    NARROW_WIDTHS,
    NODE_ESCAPE,
    NODE_LATER,
    NODE_OFFSET,
    RARE,
    SHIFT_COUNT,
    START,
    Floats,
    Ints,
    Table,
    bucket_of,
    class_of,
    is_safe,
)
from verso_codecs.rank_stream.literals import put_literal


def decisions_bound(token_count: int) -> int:
    """Return a length that the decisions of a record never exceed."""
    return 64 + 80 * token_count


@inlined
def _unsafe_count(confidence: Floats, edges: Floats, shift: float, epsilon: float) -> int:
    """Count the positions whose confidence lies near one of the shifted edges, or is NaN."""
    count = 0
    for position in range(confidence.size):
        count += not is_safe(float(confidence[position]), edges, shift, epsilon)
    return count


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
    at = _put(bits, chances, at, rank == ESCAPE, int(table[NODE_ESCAPE]))
    if rank == ESCAPE:
        return at
    bin_index = 0
    while bin_index < BIN_COUNT - 1 and rank >= 2 + (1 << (bin_index + 2)):
        at = _put(bits, chances, at, 1, int(table[NODE_LATER + bin_index]))
        bin_index += 1
    if bin_index < BIN_COUNT - 1:
        at = _put(bits, chances, at, 0, int(table[NODE_LATER + bin_index]))
    offset = rank - 2 - (1 << (bin_index + 1))
    at = _put(bits, chances, at, offset >> bin_index, int(table[NODE_OFFSET + bin_index]))
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
    previous = START
    gap_due, last, remaining = fewest > 0, -1, fewest
    for position in range(tokens.size):
        if gap_due:
            following = position
            while is_safe(float(confidence[following]), edges, shift, epsilon):
                following += 1
            at = _put_golomb(bits, chances, at, following - last - 1, GAP_ORDER)
            last, gap_due = following, False
        token = int(tokens[position])
        depth, class_rank = int(rank_rows[1, position]), int(rank_rows[2, position])
        if remaining > 0 and position == last:
            at = _put_narrow(bits, chances, at, token, depth, class_rank, narrow, tree, vocab)
            previous = RARE
            remaining -= 1
            gap_due = remaining > 0
            continue
        bucket = bucket_of(float(confidence[position]), edges, shift)
        rank = int(rank_rows[0, position])
        at = _put_rank(bits, chances, at, rank, rank_table[bucket, previous])
        if rank == ESCAPE:
            at = _put_narrow(bits, chances, at, token, depth, class_rank, narrow, tree, vocab)
        previous = class_of(rank)
    return at
