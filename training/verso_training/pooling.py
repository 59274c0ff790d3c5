"""How the states of a text's tokens become one vector (Reimers & Gurevych 2019, section 3)."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor


class Pooling(StrEnum):
    """Which vector stands for a text: the mean of its states, the first, or each greatest."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"


def pool(states: Tensor, attention_mask: Tensor, pooling: Pooling) -> Tensor:
    """Pool the states of tokens.

    Args:
        states: of the tokens. Shape: (batch, tokens, width), float32.
        attention_mask: 1 for a token, 0 for padding. Shape: (batch, tokens), int64.
        pooling: how.

    Returns:
        One vector a text. Shape: (batch, width), float32.
    """
    mask = attention_mask.unsqueeze(-1).to(torch.float32)
    match pooling:
        case Pooling.MEAN:
            return (states * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        case Pooling.CLS:
            return states[:, 0]
        case Pooling.MAX:
            return states.masked_fill(mask == 0, torch.finfo(torch.float32).min).amax(1)
