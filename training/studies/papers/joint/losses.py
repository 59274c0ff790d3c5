"""Losses of vectors. Letters in shapes: B texts, D dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from verso_training.config import TrainConfig
from verso_training.decoder.train import disturb


def similarity(new: Tensor, old: Tensor) -> Tensor:
    """Return how far the cosines of all pairs are from those of the old space.

        L_sim = sum over i != j of (v_i . v_j - u_i . u_j)^2 / (B (B - 1))

    The space may turn as a whole: search reads nothing but cosines.

    Args:
        new: Unit vectors v. Shape: (B, D).
        old: Unit vectors u of the same texts. Shape: (B, D).
    """
    gaps = new @ new.T - old @ old.T
    apart = ~torch.eye(len(new), dtype=torch.bool, device=new.device)
    return gaps[apart].square().mean()


def as_stored(vectors: Tensor, config: TrainConfig, *, scale: float) -> Tensor:
    """Return vectors as the decoder reads them: rounded, noisy, some of them zero.

    Rounding has no gradient; it is passed on as if nothing had been rounded (straight-through,
    Bengio et al. 2013), and stops at vectors that are zero.

    Args:
        vectors: Unit vectors. Shape: (B, D).
        config: Has noise, dropout and precision.
        scale: Of the int8 space.
    """
    fixed = vectors.detach()
    read = disturb(
        fixed,
        scale=scale,
        noise=config.vector_noise,
        dropout=config.vector_dropout,
        precision=config.vector_precision,
    )
    kept = read.any(dim=1, keepdim=True).float()
    return read + kept * (vectors - fixed)
