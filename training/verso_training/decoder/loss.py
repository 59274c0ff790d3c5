"""Cross-entropy of tied logits without all logits in memory, and held-out quality.

For 6,000 tokens and 8,192 words the logits are 200 MB in float32, and the allocator of a CPU
spends longer handing out such blocks than the matrix products take (measured here: half of a
training step). The loss and its gradients are therefore taken slice by slice in one go, as in the
memory-efficient losses of Wijmans et al. 2024 ("Cut Your Losses"):

    Z = X E^T,  P = softmax(Z),  loss = -mean log P[target]
    dZ = (P - onehot(target)) / N,  dX = dZ E,  dE = dZ^T X

Held-out quality of a decoder: bits per byte and token accuracy, with and without the vector.

Bits per byte is the cross-entropy of all tokens of a text, eos included, in bits, over the text's
UTF-8 bytes: a coder driven by the full distribution would reach it. The distance between the
figure with the vector and the one without is what the vector is worth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from verso_training.data.dataset import PADDING, Dataset, collate, in_order
from verso_training.decoder.model import Decoder

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


_TOKENS_PER_BATCH = 4096

Met = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Quality:
    """Quality on one set of texts."""

    bits_per_byte: float
    token_accuracy: float
    tokens: int
    size_bytes: int


@torch.inference_mode()
def measure(
    decoder: Decoder, dataset: Dataset, *, as_met: Met, device: str, bfloat16: bool
) -> dict[str, Quality]:
    """Measure the quality per source and, under ``all``, together.

    Args:
        as_met: Maps a batch of vectors, shape (B, D), to those the decoder reads: as stored, or
            zeros.
    """
    bits: dict[str, float] = defaultdict(float)
    hits: dict[str, int] = defaultdict(int)
    tokens: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    config = decoder.config
    for indices in in_order(dataset.lengths(), tokens_per_step=_TOKENS_PER_BATCH):
        batch = collate(dataset, indices, bos=config.bos, eos=config.eos).to(device)
        vectors = as_met(batch.vectors)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
            logits = decoder.logits(decoder.teacher_forced(batch.tokens, vectors)).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=PADDING, reduction="none"
        ).reshape(batch.targets.shape)
        right = (logits.argmax(-1) == batch.targets).sum(1)
        counted = (batch.targets != PADDING).sum(1)
        for row, index in enumerate(indices):
            chunk = dataset.chunks[index]
            for key in ("all", chunk.source):
                bits[key] += float(loss[row].sum()) / 0.6931471805599453
                hits[key] += int(right[row])
                tokens[key] += int(counted[row])
                sizes[key] += len(chunk.text.encode("utf-8"))
    return {
        key: Quality(bits[key] / sizes[key], hits[key] / tokens[key], tokens[key], sizes[key])
        for key in sorted(bits)
    }
