"""A change of a question's vector that is learnt from questions with their passages.

With q the question's vector and v a passage's, both of length 1,

    s = cos(q + q A B, v),        A in R^(D x r), B in R^(r x D), B at zero at the start,

and the loss is that of the right passage among all that were found for any question,
-log(exp(s_+ / t) / sum exp(s / t)) (van den Oord et al. 2018, eq. 4). Nothing reads a text: the
stored vectors stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from verso_training.heads.ranking.groups import Group
from verso_training.heads.scoring import Pair

_RANK = 64
_TEMPERATURE = 0.05
_RATE = 3e-4
_EPOCHS = 40
_QUESTIONS = 30
Vectors = Mapping[str, NDArray[np.float32]]


class QueryMap(nn.Module):
    """The change. Shape: (B, D) to (B, D), of length 1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(dim, _RANK) * dim**-0.5)
        self.b = nn.Parameter(torch.zeros(_RANK, dim))

    def forward(self, questions: Tensor) -> Tensor:
        return F.normalize(questions + questions @ self.a @ self.b, dim=1)


@dataclass(frozen=True)
class Turned:
    """Scores by a map and the vectors of the texts, by text."""

    map: QueryMap
    vectors: Vectors

    @torch.inference_mode()
    def scores(self, read: Sequence[Pair]) -> NDArray[np.float32]:
        """Cosines. Shape: (N,)."""
        questions = self.map(_stacked([pair.a for pair in read], self.vectors))
        passages = _stacked([pair.b for pair in read], self.vectors)
        found: NDArray[np.float32] = (questions * passages).sum(1).numpy()
        return found


def learnt(groups: Sequence[Group], vectors: Vectors, *, held_out: Sequence[Group]) -> Turned:
    """Learn a map; that of the epoch stays whose loss on ``held_out`` is lowest."""
    torch.manual_seed(0)
    rng = random.Random(0)
    texts = [text for one in (*groups, *held_out) for text in (one.right, *one.wrong)]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    pool = _stacked(list(places), vectors)
    module = QueryMap(pool.shape[1])
    optimiser = torch.optim.AdamW(module.parameters(), lr=_RATE, weight_decay=0.1)
    lowest, best = float("inf"), dict(module.state_dict())
    for _ in range(_EPOCHS):
        order = rng.sample(list(groups), len(groups))
        for start in range(0, len(order), _QUESTIONS):
            some = order[start : start + _QUESTIONS]
            asked = F.dropout(_stacked([one.question for one in some], vectors), 0.1)
            loss = _loss(module(asked), some, pool, places)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
        with torch.no_grad():
            asked = _stacked([one.question for one in held_out], vectors)
            judged = float(_loss(module(asked), held_out, pool, places))
        if judged < lowest:
            lowest = judged
            best = {name: held.clone() for name, held in module.state_dict().items()}
    module.load_state_dict(best)
    return Turned(module, vectors)


def _loss(
    asked: Tensor, groups: Sequence[Group], pool: Tensor, places: Mapping[str, int]
) -> Tensor:
    targets = torch.tensor([places[one.right] for one in groups])
    return F.cross_entropy(asked @ pool.T / _TEMPERATURE, targets)


def _stacked(texts: Sequence[str], vectors: Vectors) -> Tensor:
    return F.normalize(torch.from_numpy(np.stack([vectors[text] for text in texts])), dim=1)
