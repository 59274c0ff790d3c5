"""Unit vectors in 4 bits a dimension: 192 bytes for 384 numbers, and a byte for the step.

The numbers of a unit vector of D dimensions are nearly normal with variance 1/D. The best uniform
quantiser of a normal variable with 16 levels has steps of 0.335 standard deviations (Max 1960,
table II). A vector with some large numbers does better with longer steps: the one of eight with the
least error is taken. No vector has to come back as it was, only to be found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verso_worker.records.space import Vector

_STEP = 0.335
_LONGER = 1.25
_STEPS = 8
_LEVELS = 16


def pack(units: Vector) -> list[bytes]:
    """Return unit vectors as bytes. Shape: (n, D), D even."""
    found = []
    for unit in np.asarray(units, np.float32):
        levels = [_level(unit, step) for step in range(_STEPS)]
        errors = [
            float(np.square(unit - _number(level, step, len(unit))).sum())
            for step, level in enumerate(levels)
        ]
        best = int(np.argmin(errors))
        codes = levels[best].astype(np.uint8)
        found.append(bytes([best]) + (codes[0::2] | codes[1::2] << 4).tobytes())
    return found


def unpack(rows: list[bytes], dim: int) -> Vector:
    """Return packed vectors with length 1. Shape: (n, dim)."""
    data = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), 1 + dim // 2)
    levels = np.empty((len(rows), dim), np.float32)
    levels[:, 0::2], levels[:, 1::2] = data[:, 1:] & 15, data[:, 1:] >> 4
    vectors = levels - np.float32((_LEVELS - 1) / 2)  # the step does not matter to a direction
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vector = np.divide(vectors, lengths).astype(np.float32)
    return unit


def size_bytes(dim: int) -> int:
    """Return the size of a packed vector."""
    return 1 + dim // 2


def _width(step: int, dim: int) -> float:
    return float(_STEP * _LONGER**step / np.sqrt(dim))


def _level(unit: Vector, step: int) -> NDArray[np.float32]:
    levels = np.floor(unit / np.float32(_width(step, len(unit)))) + _LEVELS // 2
    clipped: NDArray[np.float32] = np.clip(levels, 0, _LEVELS - 1).astype(np.float32)
    return clipped


def _number(level: NDArray[np.float32], step: int, dim: int) -> Vector:
    middle = (level - np.float32((_LEVELS - 1) / 2)) * np.float32(_width(step, dim))
    number: Vector = middle.astype(np.float32)
    return number
