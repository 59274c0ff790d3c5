"""Score pairs of texts: read together by an adapted encoder, or each through its vector.

The loss for a score y in [0, 1] is the cross-entropy with soft targets,

    L = -y log s - (1 - y) log(1 - s),

whose minimum is at s = y, as for the squared error, but whose gradient does not vanish where s is
far off. Sentence-BERT's regression objective is ``objectives.cosine_mse``.
"""

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
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.squad import special


@dataclass(frozen=True)
class Pair:
    """Two texts and how alike they are, in [0, 1]."""

    a: str
    b: str
    score: float


@dataclass(frozen=True)
class PairTokens:
    """``[CLS] a [SEP] b [SEP]``; ``second`` is where b begins."""

    ids: list[int]
    second: int
    score: float


def tokenised(pairs: Iterable[Pair], tokenizer: Tokenizer, *, max_tokens: int) -> list[PairTokens]:
    """Token ids of pairs; the longer text is cut first where both do not fit."""
    cls, sep = (special(tokenizer, name) for name in ("[CLS]", "[SEP]"))
    made = []
    for pair in pairs:
        a = tokenizer.encode(pair.a, add_special_tokens=False).ids
        b = tokenizer.encode(pair.b, add_special_tokens=False).ids
        room = max_tokens - 3
        if len(a) + len(b) > room:
            half = room // 2
            a = a[: max(half, room - len(b))]
            b = b[: room - len(a)]
        made.append(PairTokens([cls, *a, sep, *b, sep], len(a) + 2, pair.score))
    return made


@dataclass(frozen=True)
class PairBatch:
    """Pairs padded to the longest. Shape: three times (B, T), and (B,)."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    scores: Tensor


def collate(batch: Sequence[PairTokens]) -> PairBatch:
    """Pad pairs to the longest."""
    shape = (len(batch), max(len(pair.ids) for pair in batch))
    ids, mask, types = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    for row, pair in enumerate(batch):
        length = len(pair.ids)
        ids[row, :length] = torch.tensor(pair.ids)
        mask[row, :length] = 1
        types[row, pair.second : length] = 1
    return PairBatch(ids, mask, types, torch.tensor([pair.score for pair in batch]))


def losses(module: CrossEncoder) -> Callable[[Sequence[PairTokens]], Mapping[str, Tensor]]:
    """The loss of a batch, for ``fitting.AdapterRun``."""

    def of(batch: Sequence[PairTokens]) -> Mapping[str, Tensor]:
        padded = places.batch_beside(module, collate(batch))
        logits = module.logit(padded.ids, padded.mask, padded.types)
        return {"score": F.binary_cross_entropy_with_logits(logits, padded.scores)}

    return of


@torch.inference_mode()
def scores(
    module: CrossEncoder,
    pairs: Sequence[PairTokens],
    *,
    tokens_per_batch: int = 8192,
    bfloat16: bool = False,
) -> NDArray[np.float32]:
    """Scores in the order of the pairs. Shape: (N,).

    With ``bfloat16`` products are: about twice as fast, where a served head computes in float32.
    """
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].ids))
    found = np.zeros(len(pairs), np.float32)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * len(pairs[order[stop]].ids) <= (
            tokens_per_batch
        ):
            stop += 1
        batch = collate([pairs[i] for i in order[start:stop]])
        with torch.autocast(places.of(module).type, torch.bfloat16, enabled=bfloat16):
            logits = module.logit(batch.ids, batch.mask, batch.types)
        found[order[start:stop]] = torch.sigmoid(logits.float()).numpy()
        start = stop
    return found


def spearman(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Rank correlation (Spearman 1904): Pearson's of the ranks, ties at their mean rank."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2.0)[inverse]
    return ranks
