"""Each pair objective on a linear map of the stored vectors, and nothing else.

    u' = W u,    W in R^(D x D), from the identity on

The encoder stays as it is, so that a row is seconds and only the objective differs: those of
Sentence-BERT (Reimers & Gurevych 2019, section 3), the ranking one and the in-batch contrast of
``heads.objectives``. STS-B's training pairs are shown; a tenth of them chooses the epoch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from studies.papers.kept import Figures, ends
from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import frozen, objectives
from studies.tasks.frozen import Vectors
from studies.tasks.result import StudyResult
from verso_training.heads import scoring, signals

STUDY = "frozen-objectives"
_EPOCHS, _BATCH, _RATE = 8, 64, 3e-4
_CLASSES = 6
"""STS-B's scores, rounded: 0 to 5."""
_ALIKE = 0.8
"""Least score of a pair whose texts are taken for each other's partners."""
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of mapped vectors u and v, and scores. Shape: (B, D) twice, (B,)."""


class Mapped(nn.Module):
    """The map, and the classes that one objective reads from it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.map.weight)
        self.classes = nn.Linear(3 * dim, _CLASSES)

    def losses(self) -> dict[str, Loss]:
        """The objectives by what the page calls them."""
        return {
            "cosine, squared distance to the score": objectives.cosine_mse,
            "order of the cosines": objectives.ranked,
            "classes over u, v and what they differ by": self._classified,
            "triplets": _triplets,
            "contrast within a batch": _contrasted,
        }

    def scores(self, rows: Vectors) -> frozen.Floats:
        """Cosines of the mapped pairs. Shape: (N,)."""
        with torch.inference_mode():
            u, v = self.map(rows.u), self.map(rows.v)
            found: frozen.Floats = torch.cosine_similarity(u, v).numpy()
        return found

    def _classified(self, u: Tensor, v: Tensor, score: Tensor) -> Tensor:
        label = ((_CLASSES - 1) * score).round().long()
        return objectives.pair_classes(u, v, self.classes, label)


def run(bench: Bench) -> StudyResult:
    """Train a map with each objective and seed; Spearman's correlation on dev and test."""
    shown, held = frozen.tenth_out(
        frozen.stored_pairs(bench, pairsets.stsb(bench.data, "train"), name="similarity-train")
    )
    reported = {
        part: frozen.stored_pairs(bench, pairsets.stsb(bench.data, part), name=f"similarity-{part}")
        for part in ("dev", "test")
    }
    figures: dict[str, float] = {}
    for name in Mapped(shown.u.shape[1]).losses():
        best = [fitted(name, shown, held=held, seed=seed) for seed in frozen.SEEDS]
        for part, rows in reported.items():
            figures |= {f"{name}_{part}_{s}": _spearman(best[s], rows) for s in frozen.SEEDS}
            figures |= _mean(best, rows, name=f"{name}_{part}_mean")
    return StudyResult(STUDY, figures, {})


def _mean(models: Sequence[Mapped], rows: Vectors, *, name: str) -> Figures:
    """Return the mean correlation of the seeds with its interval over the pairs."""
    gold = np.asarray(rows.scores)
    said = [model.scores(rows) for model in models]

    def mean(at: NDArray[np.int64]) -> float:
        return 100 * float(np.mean([scoring.spearman(one[at], gold[at]) for one in said]))

    return ends(name, signals.bootstrap(mean, len(gold)))


def fitted(name: str, shown: Vectors, *, held: Vectors, seed: int) -> Mapped:
    """The map of the epoch that is best on the held-out pairs; before the first it is none."""
    torch.manual_seed(seed)
    model = Mapped(shown.u.shape[1])
    loss = model.losses()[name]
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.0)
    best, kept = _spearman(model, held), copy.deepcopy(model)
    for _ in range(_EPOCHS):
        for index in torch.split(torch.randperm(len(shown.scores)), _BATCH):
            batch = shown.rows(index)
            cost = loss(model.map(batch.u), model.map(batch.v), batch.scores)
            optimiser.zero_grad()
            cost.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if (reached := _spearman(model, held)) > best:
            best, kept = reached, copy.deepcopy(model)
    return kept


def _triplets(u: Tensor, v: Tensor, score: Tensor) -> Tensor:
    """Return triplets: similar texts, with the partner of another pair as the negative."""
    u, v = _alike(u, v, score)
    return objectives.triplet(u, v, v.roll(1, 0), margin=0.2)


def _contrasted(u: Tensor, v: Tensor, score: Tensor) -> Tensor:
    return objectives.in_batch_contrast(*_alike(u, v, score))


def _alike(u: Tensor, v: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Return the similar pairs; of fewer than two, the two most similar."""
    fewest = min(_ALIKE, float(score.topk(min(2, len(score))).values[-1]))
    return u[score >= fewest], v[score >= fewest]


def _spearman(model: Mapped, rows: Vectors) -> float:
    """In percent; 0 where all pairs are alike as much, which have no order."""
    if len(set(rows.scores.tolist())) < 2:
        return 0.0
    return 100 * scoring.spearman(model.scores(rows), np.asarray(rows.scores))
