"""Similarity of two texts that are encoded apart: the cosine of adapted vectors, stored as int8.

Sentence-BERT's regression objective, (cos(u, v) - l)^2 (Reimers & Gurevych 2019, section 3), on an
adapter of the encoder, with or without a twentieth of the ranking one (``objectives.ranked``). The
index vectors of the artifact stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertModel

from studies.tasks.objectives import cosine_mse, ranked
from verso_training import device
from verso_training.encoder import batches, padded
from verso_training.heads.scoring import Pair
from verso_training.pooling import Pooling, pool

_TOKENS_PER_BATCH = 8192
_RANKING = 0.05


@dataclass(frozen=True)
class Apart:
    """Two texts, each with [CLS] and [SEP], and how alike they are."""

    a: list[int]
    b: list[int]
    score: float

    @property
    def ids(self) -> list[int]:
        """All tokens, which is what the pair costs."""
        return [*self.a, *self.b]


class Siamese(nn.Module):
    """Pooled unit vectors of an adapted encoder."""

    def __init__(self, bert: BertModel, *, pooling: Pooling = Pooling.MEAN) -> None:
        super().__init__()
        self.bert = bert
        self.pooling = pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Shape: twice (B, T) to (B, W)."""
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return F.normalize(pool(states.float(), attention_mask, self.pooling), dim=-1)


def tokenised(pairs: Iterable[Pair], tokenizer: Tokenizer, *, max_tokens: int = 128) -> list[Apart]:
    """Token ids of pairs, each text cut by itself."""

    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer.encode(text).ids
        return found if len(found) <= max_tokens else [*found[: max_tokens - 1], found[-1]]

    return [Apart(ids(pair.a), ids(pair.b), pair.score) for pair in pairs]


def losses(
    module: Siamese, *, ranking: bool = False
) -> Callable[[Sequence[Apart]], Mapping[str, Tensor]]:
    """The loss of a batch; ``ranking`` adds a twentieth of the ranking objective."""

    def of(batch: Sequence[Apart]) -> Mapping[str, Tensor]:
        both = [pair.a for pair in batch] + [pair.b for pair in batch]
        scores = torch.tensor([pair.score for pair in batch])
        ids, mask, score = device.beside(module, (*padded(both), scores))
        u, v = module(ids, mask).chunk(2)
        cost = cosine_mse(u, v, score)
        return {"cosine": cost + _RANKING * ranked(u, v, score) if ranking else cost}

    return of


def stored_cosines(module: Siamese, pairs: Sequence[Apart], *, scale: float) -> NDArray[np.float32]:
    """Cosines of vectors rounded as an int8 space rounds them. Shape: (N,).

    Args:
        module: In evaluation mode.
        pairs: To score.
        scale: Codes a unit.
    """
    texts = [pair.a for pair in pairs] + [pair.b for pair in pairs]
    u, v = np.split(stored(module, texts, scale=scale), 2)
    return np.asarray((u * v).sum(-1))


@torch.inference_mode()
def stored(module: Siamese, texts: Sequence[list[int]], *, scale: float) -> NDArray[np.float32]:
    """Unit vectors of token ids, rounded as an int8 space rounds them. Shape: (N, W)."""
    vectors: list[Tensor] = [torch.empty(0)] * len(texts)
    for rows in batches([len(text) for text in texts], tokens=_TOKENS_PER_BATCH):
        for i, vector in zip(rows, module(*padded([texts[i] for i in rows])), strict=True):
            vectors[i] = vector
    codes = (torch.stack(vectors) * scale).round().clamp(-127, 127)
    found: NDArray[np.float32] = F.normalize(codes, dim=-1).numpy()
    return found
