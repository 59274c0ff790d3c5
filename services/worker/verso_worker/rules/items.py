"""What every kind does with the items of a slice before and after it works on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from verso_core.errors import VectorInvalid
from verso_core.jobs import Failed, Params, Rejected, Slice
from verso_worker.records.neural import Vector

P = TypeVar("P", bound=Params)
I = TypeVar("I")  # noqa: E741 - an item, beside P


def answered(work: Slice[P, I], found: Mapping[int, Any]) -> list[Any]:
    """Return the results of all items by position; a rejected item keeps its error."""
    return [
        Failed.rejected(item) if isinstance(item, Rejected) else found[index]
        for index, item in enumerate(work.items)
    ]


def read_vector(data: bytes, *, dim: int) -> Vector:
    """Read a vector from float32 little-endian bytes and scale it to unit length.

    Raises:
        VectorInvalid: another dimension, a value that is not finite, or zero length.
    """
    if len(data) != 4 * dim:
        raise VectorInvalid(f"expected dim {dim}, got {len(data) / 4:g}")
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    if not np.isfinite(vector).all():
        raise VectorInvalid("expected finite values, got NaN or infinity")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if length == 0.0:
        raise VectorInvalid("expected a vector with a direction, got zeros")
    return (vector / length).astype(np.float32)
