"""Find the ranks of tokens among logits, where noise could not change them."""

# Compiled with what it imports: bc108ebd2715dbbd

from verso_codecs.coder import inlined, kernel
from verso_codecs.rank_stream.layout import (
    ESCAPE,
    MAX_RANK,
    NARROW_COUNT,
    NARROW_RANKS,
    NARROW_WIDTHS,
    Floats,
    Ints,
)


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
