"""A question with the passage that answers it, among passages that do not, and its loss.

Every passage is read together with the question. With z_0 the logit of the right passage and
z_1 ... z_k those of the wrong ones, the loss of a group is

    L = -log(exp z_0 / sum_j exp z_j)

(localised contrastive estimation: Gao, Dai & Callan 2021, eq. 6; the wrong ones are what a search
found first, which is what a ranker is shown). That loss leaves the level of a question's logits
open, and ``/v1/rerank`` returns scores as they are. So the mean cross-entropy of each pair's own
sigmoid is added, with a weight of 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from verso_training import device
from verso_training.heads import scoring
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.scoring import Pair, PairTokens

LEVEL_WEIGHT = 0.3


@dataclass(frozen=True)
class Group:
    """A question, the passage that answers it, and some that do not."""

    question: str
    right: str
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class GroupTokens:
    """A group's pairs, the right one first."""

    pairs: tuple[PairTokens, ...]

    @property
    def ids(self) -> list[int]:
        """Token ids of all pairs, one after the other: a batch is made by their number."""
        return [token for pair in self.pairs for token in pair.ids]


def tokenised(
    groups: Iterable[Group], tokenizer: Tokenizer, *, max_tokens: int
) -> list[GroupTokens]:
    """Token ids of groups."""
    made = []
    for group in groups:
        read = [Pair(group.question, group.right, 1.0)]
        read += [Pair(group.question, passage, 0.0) for passage in group.wrong]
        made.append(GroupTokens(tuple(scoring.tokenised(read, tokenizer, max_tokens=max_tokens))))
    return made


def losses(module: CrossEncoder) -> Callable[[Sequence[GroupTokens]], Mapping[str, Tensor]]:
    """The loss of a batch, for ``fitting.AdapterRun``; products in bfloat16."""

    def of(batch: Sequence[GroupTokens]) -> Mapping[str, Tensor]:
        flat = scoring.collate([pair for group in batch for pair in group.pairs])
        padded = device.batch_beside(module, flat)
        with torch.autocast(device.of(module).type, torch.bfloat16):
            logits = module.logit(padded.ids, padded.mask, padded.types).float()
        return {"rank": loss(logits, padded.scores, sizes=[len(group.pairs) for group in batch])}

    return of


def loss(logits: Tensor, targets: Tensor, *, sizes: Sequence[int]) -> Tensor:
    """The module's loss over groups of some sizes, the right one first. Shape: twice (B,)."""
    ranks = [-F.log_softmax(group, dim=0)[0] for group in torch.split(logits, list(sizes))]
    level = F.binary_cross_entropy_with_logits(logits, targets)
    return torch.stack(ranks).mean() + LEVEL_WEIGHT * level
