"""How the vectors of one space are rounded, kept and widened again.

Three forms of one vector:

- *unit*: float32 of length 1, the encoder's output;
- *stored*: what the collection keeps and every patch is coded against, float16 values, int8 codes,
  or bytes of two int4 codes each. Records hash its bytes (:meth:`Space.raw`), backups copy them;
- *values*: the float32 numbers that a Qdrant engine receives and returns. A float16 value stays as
  it is. Qdrant's 8-bit type is unsigned, so an int8 code c becomes c + 128, under Euclidean
  distance, which the same shift of all vectors does not change. Of int4 codes it is the unit vector
  that they stand for (:mod:`verso_worker.records.int4`), under the cosine.

Rounding is a fixed point: ``round(widen(stored)) == stored``. Without it a vector would change each
time it is copied from store to store, and the patch coded against it would no longer read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verso_core.errors import VectorInvalid
from verso_core.jobs import Collection, Precision
from verso_worker.records import int4

CODE_MAX = 127
"""Largest int8 code; -128 is not used, so that the codes are symmetric."""

_SHIFT = CODE_MAX + 1
_DTYPES = {Precision.FLOAT16: "<f2", Precision.INT8: "i1", Precision.INT4: "u1"}
_SHORTEST, _LONGEST = 1e-6, 1e6
"""Lengths of vectors that may be embeddings; another one is damaged, or of something else."""

Vector = NDArray[np.float32]
Stored = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Space:
    """Precision, dimension and scale of a collection's vectors.

    Args:
        precision: float16, int8 with one scale for the whole space, or int4.
        dim: numbers in a vector, > 0; even for int4.
        int8_scale: code = clip(rint(v * scale), -127, 127), > 0; used by int8 alone.
    """

    precision: Precision
    dim: int
    int8_scale: float

    @classmethod
    def of(cls, collection: Collection) -> Space:
        """Return the space of a collection."""
        return cls(collection.precision, collection.dim, collection.int8_scale)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a stored vector's numbers, little endian."""
        return np.dtype(_DTYPES[self.precision])

    @property
    def width(self) -> int:
        """Numbers in a stored vector: the dimension, or half of it where a byte holds two codes."""
        return self.dim // 2 if self.precision is Precision.INT4 else self.dim

    @property
    def size_bytes(self) -> int:
        """Bytes of one stored vector."""
        return self.width * self.dtype.itemsize

    def round(self, vectors: Vector) -> Stored:
        """Round unit vectors to what the collection keeps. Shape: (texts, dim) to (texts, width).

        Raises:
            VectorInvalid: wrong dimension, a number that is not finite, or for int4 a vector that
                is none of a text.
        """
        rows = self._rows(vectors, self.dim).astype(np.float32, copy=False)
        if not np.isfinite(rows).all():
            raise VectorInvalid("expected finite numbers in a vector, got NaN or infinity")
        if self.precision is Precision.FLOAT16:
            return rows.astype(self.dtype)
        if self.precision is Precision.INT4:
            return int4.packed(int4.rounded(rows))
        scaled = np.rint(rows * np.float32(self.int8_scale))
        return np.asarray(np.clip(scaled, -CODE_MAX, CODE_MAX), self.dtype)

    def widen(self, stored: Stored) -> Vector:
        """Return stored vectors as float32. Shape: (texts, width) to (texts, dim)."""
        if self.precision is Precision.INT4:
            return int4.widened(int4.unpacked(stored))
        rows = stored.astype(np.float32)
        if self.precision is Precision.FLOAT16:
            return rows
        return np.divide(rows, np.float32(self.int8_scale))

    def raw(self, stored: Stored) -> bytes:
        """Return stored vectors' bytes, little endian. Shape: (width,) or (texts, width)."""
        return np.ascontiguousarray(stored, self.dtype).tobytes()

    def check(self, stored: Stored) -> Stored:
        """Check stored vectors before anything is done with them. Shape: (texts, width).

        Raises:
            VectorInvalid: wrong type or dimension, a number that is not finite, the code -128, or
                int4 codes that rounding never gives.
        """
        if stored.dtype != self.dtype:
            raise VectorInvalid(f"expected {self.dtype.name} numbers, got {stored.dtype.name}")
        rows = self._rows(stored, self.width)
        if self.precision is Precision.FLOAT16:
            if not np.isfinite(rows).all():
                raise VectorInvalid("expected finite numbers in a vector, got NaN or infinity")
        elif self.precision is Precision.INT4:
            if not int4.settled(int4.unpacked(rows)).all():
                raise VectorInvalid("expected int4 codes that stay when they are stored again")
        elif (rows < -CODE_MAX).any():
            raise VectorInvalid(f"expected codes in -{CODE_MAX}..{CODE_MAX}, got {-_SHIFT}")
        return rows

    def values(self, stored: Stored) -> Vector:
        """Return the engine's form of stored vectors. Shape: (texts, width) to (texts, dim)."""
        if self.precision is Precision.INT4:
            return self.widen(stored)
        rows = stored.astype(np.float32)
        return rows if self.precision is Precision.FLOAT16 else rows + np.float32(_SHIFT)

    def from_values(self, values: ArrayLike) -> Stored:
        """Undo :meth:`values`, exactly. Shape: (texts, dim) to (texts, width)."""
        rows = np.asarray(values, np.float32).reshape(-1, self.dim)
        if self.precision is Precision.INT4:
            return int4.packed(int4.nearest(rows))
        if self.precision is Precision.INT8:
            rows = rows - np.float32(_SHIFT)
        return rows.astype(self.dtype)

    def unit(self, query: Vector) -> Vector:
        """Bring a query to length 1, so that scores are cosines. Shape: (dim,), in and out.

        Raises:
            VectorInvalid: wrong dimension, NaN, infinity, or no direction at all (all zeros).
        """
        row = np.asarray(query, np.float64)
        if row.shape != (self.dim,):
            raise VectorInvalid(f"expected dim {self.dim}, got {row.size}")
        length = float(np.linalg.norm(row))
        if not np.isfinite(length) or length == 0.0:
            raise VectorInvalid("expected a finite query vector that is not all zeros")
        return np.divide(row, length).astype(np.float32)

    def query_values(self, unit: Vector) -> Vector:
        """Return the engine's form of a unit query. Shape: (dim,), in and out."""
        if self.precision is not Precision.INT8:
            return unit
        return np.asarray(self.values(self.round(unit[None]))[0])

    def cosines(self, unit: Vector, stored: Stored) -> Vector:
        """Score stored vectors against a unit query in float32. Shape: (texts,).

        The engine ranks 8-bit codes against a query rounded to 8 bits; scoring its candidates once
        more with the query as it came costs microseconds and wins back that half of the loss.
        """
        if self.precision is Precision.INT4:
            return int4.cosines(unit, int4.unpacked(stored))
        return np.asarray(self.widen(stored) @ unit, np.float32)

    def stored_distance(self, distance: float) -> float:
        """Return the mean cosine distance of two stored vectors of which this was the distance.

        Both are cosine distances, in [0, 2]. Equal vectors stay equal all the same.
        """
        if self.precision is not Precision.INT4:
            return distance
        return 1 - (1 - distance) * int4.KEPT

    def _rows(self, vectors: Stored, width: int) -> Stored:
        if vectors.ndim != 2 or vectors.shape[1] != width:
            raise VectorInvalid(f"expected shape (texts, {width}), got {vectors.shape}")
        return vectors


@dataclass(frozen=True, slots=True)
class Settings:
    """What a collection was made with: its space, and whether it keeps terms beside vectors."""

    space: Space
    terms: bool = False


def read_unit(data: bytes, *, dim: int) -> Vector:
    """Read a vector from float32 little-endian bytes and scale it to unit length.

    Raises:
        VectorInvalid: another dimension, a value that is not finite, or a length that no embedding
            has.
    """
    if len(data) != 4 * dim:
        raise VectorInvalid(f"expected dim {dim}, got {len(data) / 4:g}")
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    if not np.isfinite(vector).all():
        raise VectorInvalid("expected finite values, got NaN or infinity")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not _SHORTEST <= length <= _LONGEST:
        raise VectorInvalid(f"expected a length of {_SHORTEST:g} to {_LONGEST:g}, got {length:g}")
    return (vector / length).astype(np.float32)
