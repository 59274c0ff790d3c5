"""Code token ids by a binary tree with one fitted probability for each branching.

The token's bits are decided from the highest to the lowest; each decision has its own 16-bit
probability, found by the bits before it. Node 1 is the root, node 2n and 2n + 1 are the children
of n, and the leaf of token t is node 2^depth + t. A branching whose upper side holds no token of
the vocabulary costs no decision, so whatever a corrupt payload says, the token exists.
"""

# Compiled with what it imports: c0576e86391c2049

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import decode_bit, kernel

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
