"""The vector space as it is stored: float16 or int8, and how training imitates it.

int8 stores c = clip(round(v * scale), -127, 127) and gives c / scale back. One scale serves all
vectors; it is fixed once, so that 127 / scale is the 99.99th percentile of |v|.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verso_training.config import Precision

_PERCENTILE = 99.99
_SAMPLE_ROWS = 20_000


def int8_scale(vectors: NDArray[np.float16]) -> float:
    """The scale for vectors like these. Shape: (rows, D)."""
    step = max(1, len(vectors) // _SAMPLE_ROWS)
    sample = np.abs(np.asarray(vectors[::step], np.float32))
    return float(127.0 / np.percentile(sample, _PERCENTILE))


def round_int8(vectors: Tensor, scale: float) -> Tensor:
    """What int8 storage gives back. Shape: (B, D), float32."""
    return (vectors * scale).round().clamp(-127, 127) / scale


def stored(vectors: Tensor, precision: Precision, *, scale: float) -> Tensor:
    """What a store of one precision gives back; float16 where it is mixed. Shape: (B, D)."""
    match precision:
        case Precision.FLOAT16 | Precision.MIXED:
            return vectors.half().float()
        case Precision.INT8:
            return round_int8(vectors, scale)
        case Precision.BIT:
            return torch.where(vectors < 0, -1.0, 1.0) / math.sqrt(vectors.shape[1])


def disturb(
    vectors: Tensor,
    *,
    scale: float,
    noise: float,
    dropout: float,
    precision: Precision = Precision.MIXED,
) -> Tensor:
    """Vectors as a decoder may meet them.

    Rows are rounded as the store will round them; a Gaussian vector of norm about ``noise`` stands
    for other kernels and quantised encoders; a ``dropout`` share becomes zero.

    Args:
        vectors: Unit vectors. Shape: (B, D), float32.
        scale: Of the int8 space.
        noise: Norm of the disturbance, the vector's being 1.
        dropout: Share of rows without a vector.
        precision: Mixed rounds half of the rows to float16 and half to int8.
    """
    batch, dim = vectors.shape
    device = vectors.device
    noisy = vectors + torch.randn_like(vectors) * (noise * dim**-0.5)
    rounded = stored(noisy, precision, scale=scale)
    if precision is Precision.MIXED:
        coarse = torch.rand(batch, 1, device=device) < 0.5
        rounded = torch.where(coarse, round_int8(noisy, scale), rounded)
    dropped = torch.rand(batch, 1, device=device) < dropout
    return rounded.masked_fill(dropped, 0.0)
