"""Fitting of the rank stream's tables by counting (see `ranks`).

1. Bucket edges: from a grid of candidates (quantiles of the confidence), dynamic programming
   chooses those with the least entropy of the rank symbols, exactly.
2. Probabilities: the records are written with node numbers in place of probabilities, and each
   node's bits are counted. Rare contexts lean on broader ones: (bucket, class) on its bucket, the
   bucket on all.
3. The literal tree: how often each token escaped, smoothed with how often it occurs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import ONE
from verso_codecs.rank_stream.layout import (
    BIN_COUNT,
    CLASS_COUNT,
    ESCAPE,
    NARROW_COUNT,
    NARROW_RANKS,
    NODE_COUNT,
    SHIFT_COUNT,
    Floats,
    Ints,
)
from verso_codecs.rank_stream.writing import decisions_bound, put_stream

_CANDIDATES = 64
_PRIOR = 12.0
"""Weight of the broader context, in events."""

_UNIGRAM_WEIGHT = 0.1
_FLOOR_WEIGHT = 0.05

Counts = NDArray[np.float64]


def fit_edges(confidence: Floats, ranks: Ints, bucket_count: int) -> Floats:
    """Choose up to `bucket_count - 1` edges that leave the ranks the least entropy.

    confidence, ranks: Shape: (events,); of all records one after the other
    Returns: Shape: (edges,), float32, ascending; fewer when the confidence has few values
    """
    known = np.isfinite(confidence)
    confidence, symbols = confidence[known], _symbols(ranks[known])
    if confidence.size == 0:
        return np.empty(0, np.float32)
    steps = np.unique(np.quantile(confidence, np.linspace(0.0, 1.0, _CANDIDATES + 1)))
    cuts = (steps[1:] + steps[:-1]) / 2
    cell = np.searchsorted(cuts, confidence)
    histogram = np.zeros((cuts.size + 1, int(symbols.max()) + 1))
    np.add.at(histogram, (cell, symbols), 1.0)
    return _best_cuts(histogram, cuts, bucket_count).astype(np.float32)


def _symbols(ranks: Ints) -> Ints:
    """Map ranks to the classes that the entropy is about: 0, 1, 2, 3, each bin, escape."""
    bins = np.floor(np.log2(np.maximum(ranks - 2, 1))).astype(np.int32) + 3
    usable = np.where(ranks < 4, ranks, bins)
    return np.where(ranks == ESCAPE, 3 + BIN_COUNT + 1, usable).astype(np.int32)


def _best_cuts(histogram: Counts, cuts: Counts, bucket_count: int) -> Counts:
    """Split the cells into at most `bucket_count` runs of least total entropy.

    histogram: Shape: (cells, symbols); cuts: Shape: (cells - 1,), between neighbouring cells
    """
    cell_count = histogram.shape[0]
    sums = np.concatenate([np.zeros((1, histogram.shape[1])), histogram.cumsum(axis=0)])
    run = sums[None, :, :] - sums[:, None, :]  # (from, to, symbols)
    total = run.sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        price = -np.where(run > 0, run * np.log2(run / total), 0.0).sum(axis=2)
    # Every further bucket must also pay for learning its probabilities.
    price += 2.0 * np.log2(histogram.sum() + 1.0)
    price[np.tril_indices(cell_count + 1)] = np.inf
    best = price[0].copy()
    origins: list[NDArray[np.intp]] = []
    for _ in range(bucket_count - 1):
        paths = best[:, None] + price
        origin = paths.argmin(axis=0)
        improved = np.minimum(best, paths.min(axis=0))
        origins.append(np.where(paths.min(axis=0) < best, origin, -1))
        best = improved
    chosen: list[float] = []
    end = cell_count
    for origin in reversed(origins):
        if origin[end] > 0:
            end = int(origin[end])
            chosen.append(float(cuts[end - 1]))
    return np.array(sorted(chosen))


def count_nodes(
    records: Sequence[tuple[Ints, Floats, Ints]],
    edges: Floats,
    *,
    shift_step: float,
    confidence_epsilon: float,
) -> tuple[Counts, Counts, Counts, Counts]:
    """Count the bits seen at every node while writing the records.

    records: (rank_rows, confidence, tokens) of each
    Returns: counts of the shift, exception, narrow and rank nodes. Shapes: (SHIFT_COUNT - 1, 2),
        (1, 2), (NARROW_COUNT, NARROW_RANKS, 2), (buckets, CLASS_COUNT, NODE_COUNT, 2); the last
        axis is the bit
    """
    rank_shape = (edges.size + 1, CLASS_COUNT, NODE_COUNT)
    narrow_shape = (NARROW_COUNT, NARROW_RANKS)
    ends = np.cumsum([SHIFT_COUNT - 1, 1, NARROW_COUNT * NARROW_RANKS])
    total = int(ends[-1] + np.prod(rank_shape))
    names = np.arange(ONE, ONE + total, dtype=np.int32)  # beyond all probabilities
    shifts, exceptions, narrow, ranks = np.split(names, ends)
    counts = np.zeros((total, 2))
    silent_tree = np.zeros(2, np.int32)  # literals have a fit of their own
    for rank_rows, confidence, tokens in records:
        bound = decisions_bound(tokens.size)
        bits, nodes = np.empty(bound, np.uint8), np.empty(bound, np.int32)
        length = put_stream(
            rank_rows,
            confidence,
            tokens,
            edges,
            shift_step,
            shifts,
            exceptions,
            ranks.reshape(rank_shape),
            narrow.reshape(narrow_shape),
            silent_tree,
            2,
            confidence_epsilon,
            bits,
            nodes,
        )
        seen = nodes[:length] >= ONE
        np.add.at(counts, (nodes[:length][seen] - ONE, bits[:length][seen]), 1.0)
    parts = np.split(counts, ends)
    return (
        parts[0],
        parts[1],
        parts[2].reshape(*narrow_shape, 2),
        parts[3].reshape(*rank_shape, 2),
    )


def smoothed(counts: Counts) -> NDArray[np.uint16]:
    """Turn counts into probabilities with half an event of each bit added.

    counts: Shape: (..., 2)
    """
    return coder.probability(counts[..., 1] + 0.5, counts.sum(axis=-1) + 1.0)


def rank_probabilities(counts: Counts) -> NDArray[np.uint16]:
    """Turn rank counts into probabilities, rare contexts leaning on broader ones.

    counts: Shape: (buckets, CLASS_COUNT, NODE_COUNT, 2)
    Returns: Shape: (buckets, CLASS_COUNT, NODE_COUNT), uint16
    """
    whole = counts.sum(axis=(0, 1)) + 0.5  # (NODE_COUNT, 2)
    chance = whole[:, 1] / whole.sum(axis=1)
    for part in (counts.sum(axis=1)[:, None], counts):
        chance = (part[..., 1] + _PRIOR * chance) / (part.sum(axis=-1) + _PRIOR)
    return coder.probability(chance, 1.0)


def literal_weights(ranks: Ints, tokens: Ints, vocab: int) -> Counts:
    """Weigh tokens by how often they escaped and, less, by how often they occur.

    ranks, tokens: Shape: (events,)
    Returns: Shape: (vocab,), all > 0
    """
    escaped = np.bincount(tokens[ranks == ESCAPE], minlength=vocab)
    present = np.bincount(tokens, minlength=vocab)
    return escaped + _UNIGRAM_WEIGHT * present + _FLOOR_WEIGHT
