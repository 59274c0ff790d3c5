"""Vectors as bytes: float32, little endian."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from verso_core.errors import VectorInvalid


def pack(values: Sequence[float]) -> bytes:
    """Return numbers as float32. Shape: (D,) -> 4 D bytes.

    Raises:
        VectorInvalid: a number is not finite, or outside the range of float32.
    """
    try:
        data = struct.pack(f"<{len(values)}f", *values)
    except (OverflowError, struct.error) as exc:
        raise VectorInvalid("expected numbers within the range of float32") from exc
    if not all(map(math.isfinite, values)):
        raise VectorInvalid("expected finite numbers, got NaN or infinity")
    return data


def unpack(data: bytes) -> list[float]:
    """Return the float32 numbers in bytes. Shape: 4 D bytes -> (D,)."""
    return list(struct.unpack(f"<{len(data) // 4}f", data))
