"""Cross-entropy of tied logits without ever holding all logits.

For 6,000 tokens and 8,192 words the logits are 200 MB in float32, and the allocator of a CPU
spends longer handing out such blocks than the matrix products take (measured here: half of a
training step). The loss and its gradients are therefore taken slice by slice in one go, as in the
memory-efficient losses of Wijmans et al. 2024 ("Cut Your Losses"):

    Z = X E^T,  P = softmax(Z),  loss = -mean log P[target]
    dZ = (P - onehot(target)) / N,  dX = dZ E,  dE = dZ^T X
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ROWS, _ROWS_CPU = 16_384, 768
"""Rows of a slice: a GPU wants few large products. 768 rows are 24 MB of float32 logits for 8,192
words, about one L3 cache of a processor."""


class _TiedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
        weight = embedding.to(states.dtype)
        grad_states = torch.empty_like(states)
        grad_embedding = torch.zeros_like(embedding)
        total = torch.zeros((), device=states.device)
        step = _ROWS_CPU if states.device.type == "cpu" else _ROWS
        for start in range(0, len(targets), step):
            rows = slice(start, start + step)
            target = targets[rows, None]
            logits = (states[rows] @ weight.T).float()
            logits -= logits.amax(-1, keepdim=True)
            picked = logits.gather(1, target)
            sums = logits.exp_().sum(-1, keepdim=True)
            total += (sums.log() - picked).sum()
            logits /= sums * len(targets)
            logits.scatter_add_(1, target, torch.full_like(picked, -1.0 / len(targets)))
            slope = logits.to(states.dtype)
            grad_states[rows] = slope @ weight
            grad_embedding += slope.T @ states[rows]
        ctx.save_for_backward(grad_states, grad_embedding)
        return total / len(targets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_states, grad_embedding = ctx.saved_tensors
        return grad_states * grads[0], grad_embedding * grads[0], None


def tied_cross_entropy(states: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of ``states @ embedding.T`` against ``targets``.

    Args:
        states: Shape: (N, W); its dtype is the dtype of the products.
        embedding: Shape: (V, W), float32.
        targets: Shape: (N,), int64, all of them counted.
    """
    return _TiedCrossEntropy.apply(states, embedding, targets)  # type: ignore[no-any-return, no-untyped-call]
