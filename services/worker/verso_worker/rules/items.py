"""What every kind does with an item of a slice before it works on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from verso_core.errors import VectorInvalid
from verso_core.jobs import Item
from verso_worker.records.neural import Vector


def is_accepted(item: Item, items: list[dict[str, Any]], row: int) -> bool:
    """Whether an item is to be worked on; one that the gateway rejected keeps its error."""
    if item.rejected is None:
        return True
    items[row] = {"ok": False, "error": item.rejected}
    return False


def read_vector(data: bytes, *, dim: int) -> Vector:
    """Read a vector from float32 little-endian bytes and scale it to unit length.

    Raises:
        VectorInvalid: another dimension, a value that is not finite, or no length.
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
