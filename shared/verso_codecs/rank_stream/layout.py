"""What writer and reader of a rank stream agree on: its nodes, codes and buckets."""

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import inlined

BIN_COUNT = 6
"""Exp-Golomb bins above rank 3; bin b starts at rank 2 + 2^(b+1) and holds 2^(b+1) ranks."""

MAX_RANK = 129
"""Greatest rank that has a code: the end of the last bin."""

SHIFT_COUNT = 8
"""How many shifts of the bucket edges a stream may choose from."""

CLASS_COUNT = 4
"""Classes of the previous position: START, top token, rank 1-3, anything rarer."""

START, TOP, SMALL, RARE = range(CLASS_COUNT)

# Nodes of the rank's decision chain: "is it r?" for r = 0..3, "is it an escape?",
# "is it in a later bin?" for the bins but the last, and one for the first offset bit of each bin.
NODE_ESCAPE = 4
NODE_LATER = 5
NODE_OFFSET = NODE_LATER + BIN_COUNT - 1
NODE_COUNT = NODE_OFFSET + BIN_COUNT

ESCAPE = -1
"""Stands for "no usable rank" wherever ranks are listed."""

NARROW_WIDTHS = (4, 7, 10)
"""Low bits of the token id that a narrowed literal may spell out."""

NARROW_COUNT = len(NARROW_WIDTHS)
NARROW_RANKS = 8
"""Ranks below this, among the tokens that share those bits, have a code."""

EVEN = 1 << 15
"""Probability of a bit that is not modelled."""

GAP_ORDER = 4
MAX_GOLOMB_WIDTH = 20

# Columns of a stream's head, beside its coder state.
SHIFT, REMAINING, EXCEPTION, POSITION, PREVIOUS = range(5)
HEAD_SIZE = 5

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Table = NDArray[np.integer]


@inlined
def is_safe(confidence: float, edges: Floats, shift: float, epsilon: float) -> bool:
    """Whether noise of epsilon moves a confidence over no shifted edge; NaN is not safe."""
    for edge in edges:
        if not abs(confidence - (float(edge) + shift)) > epsilon:
            return False
    return confidence == confidence


@inlined
def bucket_of(confidence: float, edges: Floats, shift: float) -> int:
    """Return how many of the shifted edges a confidence is above."""
    bucket = 0
    for edge in edges:
        bucket += confidence > float(edge) + shift
    return bucket


@inlined
def class_of(rank: int) -> int:
    """Return the class of a position by its rank."""
    if rank == 0:
        return TOP
    return SMALL if 0 < rank < 4 else RARE
