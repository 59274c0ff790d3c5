"""Held-out quality of a decoder: bits per byte and token accuracy, with and without the vector.

Bits per byte is the cross-entropy of all tokens of a text, eos included, in bits, over the text's
UTF-8 bytes: a coder driven by the full distribution would reach it. The distance between the
figure with the vector and the one without is what the vector is worth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from verso_training import batches
from verso_training.batches import PADDING
from verso_training.dataset import Dataset
from verso_training.model import Decoder

_TOKENS_PER_BATCH = 4096

Met = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Quality:
    """Figures of one set of texts."""

    bits_per_byte: float
    token_accuracy: float
    tokens: int
    size_bytes: int


@torch.inference_mode()
def measure(
    decoder: Decoder, dataset: Dataset, *, as_met: Met, device: str, bfloat16: bool
) -> dict[str, Quality]:
    """Quality per source and, under ``all``, together.

    Args:
        as_met: Makes of a batch of vectors, shape (B, D), what the decoder meets: the same as they
            are stored, or zeros.
    """
    bits: dict[str, float] = defaultdict(float)
    hits: dict[str, int] = defaultdict(int)
    tokens: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    config = decoder.config
    for indices in batches.in_order(dataset.lengths(), tokens_per_step=_TOKENS_PER_BATCH):
        batch = batches.collate(dataset, indices, bos=config.bos, eos=config.eos).to(device)
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
