"""Vectors of four bits a dimension: the points that Qdrant's Turbo4 stores without a change.

The engine keeps a vector as codes of four bits (TurboQuant, Zandieh et al. 2025, arXiv:2504.19874):

1. Scale it to length sqrt(D) and rotate it, so that each of the D numbers is about normal.
2. Replace each number by the nearest of 16 levels, the best ones for a normal variable (Max 1960,
   table I).

It returns the levels, rotated back, and does not promise their last bits, which processors that sum
in another order may change. So Verso keeps the codes, not the numbers: to read is to rotate the
numbers and take the nearest levels, from which they are far less distant than from the next ones.

Scaled to length sqrt(D) again, a row of levels moves by the factor sqrt(D) / length; for a text's
vector that is within a few percent of 1. Step 2 is repeated until no number moves to another level
by it: then storing what was read stores the same codes (:func:`settled`).

The rotation is the engine's, on which all vectors that it ever stored depend (qdrant-edge-py 0.9,
``lib/quantization/src/turboquant/rotation.rs``): four times a Walsh-Hadamard transform of blocks
whose sizes are powers of two, the largest that fits first; between them Fisher-Yates permutations
by the generator of Knuth's MMIX with three fixed seeds. Here it is a matrix of whole multiples of
2 ** -20, so that products with levels are exact and widened vectors the same on every processor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import VectorInvalid

Codes = NDArray[np.uint8]
Numbers = NDArray[np.float64]

_UNIT = 10_000
"""Levels are whole multiples of 1 / 10,000, so that sums of their squares are exact."""

_HALF = (1284, 3881, 6568, 9424, 12562, 16181, 20690, 27326)
_LEVELS = np.array([-level for level in reversed(_HALF)] + list(_HALF), np.float64)
_BOUNDS = (_LEVELS[:-1] + _LEVELS[1:]) / (2 * _UNIT)
KEPT = 0.9905
"""Share of two vectors' cosine that is left between what is kept of both: 1 less the mean squared
error of 16 levels for a normal variable, 0.0095 (Max 1960, table I). Texts show the same."""

_MARGIN = 1e-3  # by which a number may move, as a share of it, without changing its code
_ROUNDS = 16

_STEP = 1 << 20  # of the rotation's numbers
_SEEDS = (654605292835415893, 8636605637963351413, 1775280196666917949)
_FACTOR, _INCREMENT = 6364136223846793005, 1442695040888963407  # Knuth's MMIX
_WORD = 1 << 64


def rounded(vectors: NDArray[Any]) -> Codes:
    """Return the codes of vectors. Shape: (n, D) to (n, D), each in 0..15.

    Raises:
        VectorInvalid: one has no direction, or no codes that stay when they are stored again.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if not lengths.all():
        raise VectorInvalid("expected a vector that is not all zeros")
    codes = nearest(vectors)
    for _ in range(_ROUNDS):
        again = _coded(_scaled(codes))
        if np.array_equal(again, codes):
            break
        codes = again
    if not settled(codes).all():
        raise VectorInvalid("expected an embedding, got a vector of few different numbers")
    return codes


def settled(codes: Codes) -> NDArray[np.bool_]:
    """Whether storing what is read of each row stores the same codes. Shape: (n, D) to (n,)."""
    numbers = _scaled(codes)
    low, high = _coded(numbers * (1 - _MARGIN)), _coded(numbers * (1 + _MARGIN))
    found: NDArray[np.bool_] = ((low == codes) & (high == codes)).all(axis=1)
    return found


def widened(codes: Codes) -> NDArray[np.float32]:
    """Return the unit vectors of codes, the same on every processor. Shape: (n, D), in and out."""
    levels = _LEVELS[codes]
    rows = levels @ _rotation(codes.shape[1]).T  # whole numbers below 2 ** 53: exact in any order
    return (rows / (_STEP * _lengths(levels))).astype(np.float32)


def cosines(unit: NDArray[Any], codes: Codes) -> NDArray[np.float32]:
    """Return the cosines of a unit vector to the vectors of codes. Shape: (D,), (n, D) to (n,)."""
    levels = _LEVELS[codes]
    found = levels @ (unit.astype(np.float64) @ _rotation(len(unit)))
    return (found / (_STEP * _lengths(levels)[:, 0])).astype(np.float32)


def nearest(vectors: NDArray[Any]) -> Codes:
    """Return the codes nearest to vectors of any length. Shape: (n, D), in and out."""
    rows = (vectors.astype(np.float32) @ _rotation32(vectors.shape[1])).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    with np.errstate(all="ignore"):  # numbers of a damaged store get some code
        return _coded(rows * (np.sqrt(rows.shape[1]) / lengths))


def packed(codes: Codes) -> Codes:
    """Return two codes a byte, the first in the low bits. Shape: (n, D) to (n, D / 2)."""
    return codes[:, 0::2] | np.left_shift(codes[:, 1::2], np.uint8(4))


def unpacked(stored: Codes) -> Codes:
    """Undo :func:`packed`. Shape: (n, D / 2) to (n, D)."""
    codes = np.empty((len(stored), 2 * stored.shape[1]), np.uint8)
    codes[:, 0::2], codes[:, 1::2] = stored & 15, stored >> 4
    return codes


def _coded(numbers: Numbers) -> Codes:
    return np.searchsorted(_BOUNDS, numbers).astype(np.uint8)


def _scaled(codes: Codes) -> Numbers:
    """Return the levels of codes as a row of length sqrt(D). Shape: (n, D), in and out."""
    levels = _LEVELS[codes]
    found: Numbers = levels * (np.sqrt(codes.shape[1]) / _lengths(levels))
    return found


def _lengths(levels: Numbers) -> Numbers:
    """Return the lengths of rows of levels. Shape: (n, D) to (n, 1)."""
    found: Numbers = np.sqrt(np.square(levels).sum(axis=1, keepdims=True))
    return found


@lru_cache(maxsize=8)
def _rotation(dim: int) -> Numbers:
    """Return the matrix that rotates rows from the right, times 2 ** 20. Shape: (D, D)."""
    rows = _transformed(np.eye(dim))
    for seed in _SEEDS:
        rows = _transformed(rows[:, _order(seed, dim)])
    found: Numbers = np.rint(rows * _STEP)
    found.setflags(write=False)
    return found


@lru_cache(maxsize=8)
def _rotation32(dim: int) -> NDArray[np.float32]:
    """Return the same matrix for products that need not be exact. Shape: (D, D)."""
    return (_rotation(dim) / _STEP).astype(np.float32)


def _transformed(rows: Numbers) -> Numbers:
    """Transform each block of a row (Walsh-Hadamard). Shape: (n, D), in and out."""
    found = np.empty_like(rows)
    start, dim = 0, rows.shape[1]
    while start < dim:
        size = 1 << (dim - start).bit_length() - 1
        part, width = rows[:, start : start + size], 1
        while width < size:
            first, second = np.moveaxis(part.reshape(len(part), -1, 2, width), 2, 0)
            part = np.stack([first + second, first - second], axis=2).reshape(len(part), size)
            width *= 2
        found[:, start : start + size] = part / np.sqrt(size)
        start += size
    return found


def _order(seed: int, dim: int) -> NDArray[np.intp]:
    """Return a Fisher-Yates permutation by the high half of a linear congruential generator."""
    order, state = list(range(dim)), seed
    for last in range(dim - 1, 0, -1):
        state = (state * _FACTOR + _INCREMENT) % _WORD
        other = (state >> 32) % (last + 1)
        order[last], order[other] = order[other], order[last]
    return np.array(order)
