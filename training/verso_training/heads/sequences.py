"""Classify texts with an adapted encoder: the paper's Sequence Classification head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from verso_training.heads import places
from verso_training.heads.modules import SequenceClassifier


@dataclass(frozen=True)
class TextTokens:
    """A text's token ids with [CLS] and [SEP], and its label's number."""

    ids: list[int]
    target: int


def tokenised(
    texts: Iterable[tuple[str, int]], tokenizer: Tokenizer, *, max_tokens: int
) -> list[TextTokens]:
    """Token ids of texts; long ones are cut, [SEP] stays."""
    made = []
    for text, target in texts:
        ids: list[int] = tokenizer.encode(text).ids
        if len(ids) > max_tokens:
            ids = [*ids[: max_tokens - 1], ids[-1]]
        made.append(TextTokens(ids, target))
    return made


def collate(batch: Sequence[TextTokens]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and targets. Shape: twice (B, T), and (B,)."""
    shape = (len(batch), max(len(text.ids) for text in batch))
    ids, mask = (torch.zeros(shape, dtype=torch.int64) for _ in range(2))
    for row, text in enumerate(batch):
        ids[row, : len(text.ids)] = torch.tensor(text.ids)
        mask[row, : len(text.ids)] = 1
    return ids, mask, torch.tensor([text.target for text in batch])


def losses(
    module: SequenceClassifier, weights: Tensor
) -> Callable[[Sequence[TextTokens]], Mapping[str, Tensor]]:
    """The weighted cross-entropy of a batch, for ``fitting.AdapterRun``."""

    def of(batch: Sequence[TextTokens]) -> Mapping[str, Tensor]:
        ids, mask, targets, weight = places.beside(module, (*collate(batch), weights))
        return {"class": F.cross_entropy(module(ids, mask)[0], targets, weight=weight)}

    return of


@torch.inference_mode()
def outputs(
    module: SequenceClassifier, texts: Sequence[TextTokens], *, tokens_per_batch: int = 8192
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits and features in the order of the texts. Shape: (N, C) and (N, F)."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].ids))
    logits: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(texts)
    features = list(logits)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * len(texts[order[stop]].ids) <= (
            tokens_per_batch
        ):
            stop += 1
        ids, mask, _ = collate([texts[i] for i in order[start:stop]])
        for i, z, f in zip(order[start:stop], *module(ids, mask), strict=True):
            logits[i], features[i] = z.numpy(), f.numpy()
        start = stop
    return np.stack(logits), np.stack(features)
