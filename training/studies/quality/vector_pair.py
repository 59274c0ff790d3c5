"""The score of two stored vectors, by their cosine or by two layers."""

from __future__ import annotations

from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PairPooling(StrEnum):
    """How two vectors are scored."""

    COSINE = "cosine"
    """s = max(0, u'v), unit vectors: no parameter (Reimers & Gurevych 2019, figure 2)."""
    LAYERS = "layers"
    """s = sigmoid(w_2' gelu(W_1 x + b_1) + b_2), x = sqrt(D) (u, v, |u - v|, sqrt(D) u * v).

    The features are those of InferSent (Conneau et al. 2017, section 3.1).
    """


class VectorPair(nn.Module):
    """The score of two stored vectors: siamese cosine, or pooled and read by two layers."""

    def __init__(self, pooling: PairPooling, *, dim: int, hidden: int = 128) -> None:
        super().__init__()
        self.pooling = pooling
        self.scale = dim**0.5
        if pooling is PairPooling.LAYERS:
            self.hidden = nn.Linear(4 * dim, hidden)
            self.out = nn.Linear(hidden, 1)

    def forward(self, u: Tensor, v: Tensor) -> tuple[Tensor]:
        """Shape: twice (B, D) to (B,), in [0, 1]."""
        if self.pooling is PairPooling.COSINE:
            return ((u * v).sum(-1).clamp(0.0, 1.0),)
        u, v = u * self.scale, v * self.scale
        pooled = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        return (torch.sigmoid(self.out(F.gelu(self.hidden(pooled)))).squeeze(-1),)
