"""Two texts compared in the ways of multi-task minBERT, the encoder fine-tuned. (Its table 1.)

One encoder for each strategy and task, as there:

- *siamese, cosine*: logits of the classes from the cosine of the two pooled vectors (appendix A);
- *siamese, pooled vectors*: softmax of W (u, v, |u - v|) (Reimers & Gurevych 2019, section 3);
- *cross-attention*: the token states of one text look at those of the other (section 3.2);
- *outer layers*: both texts in one window, and only the layers above the frozen encoder learn.

Similarity has six classes, 0 to 5, and is read as their mean under the softmax; duplicates have
two. Cross-attention and outer layers tell a score with soft targets instead. The paper takes the
pooler's [CLS] for the vector of a text; ours is the mean, which the encoder was trained with.
Every strategy has one epoch of STS-B and one of every fourth training pair of Quora, in full ten of
all pairs; the recipe is that of ``studies.tasks.strategies`` and nothing is chosen. STS-B is
Pearson on dev, Quora accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import BertModel

from studies.papers.kept import Figures, Kept, Parts, table
from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import sets, steps, strategies
from studies.tasks.pairs import pair_models, siamese
from studies.tasks.pairs.pair_models import OneWay
from studies.tasks.pairs.siamese import Apart, Siamese
from studies.tasks.steps import Task
from verso_training import device
from verso_training.encoder import batches, padded
from verso_training.heads import backbone, scoring
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import Pair
from verso_training.heads.signals import bootstrap

STUDY = "pair-strategies"
_SHOWN = 4
_FULL_EPOCHS = 10
_TOKENS_PER_BATCH = 8192
_CENTRES = (-0.2, 0.1, 0.4, 0.7)
"""Cosines at which a similarity of 1 to 4 is likeliest (appendix A)."""
Floats = NDArray[np.float64]


class Strategy(StrEnum):
    """How two texts are compared."""

    COSINE = "siamese, cosine"
    POOLED = "siamese, pooled vectors"
    CROSS = "cross-attention"
    OUTER = "outer layers"


@dataclass(frozen=True)
class Comparison:
    """A task on pairs.

    Attributes:
        classes: Labels; scores in [0, 1] are classes / (classes - 1).
        train: Pairs to learn from.
        asked: Pairs that are reported.
        epochs: Over the pairs to learn from.
    """

    name: str
    classes: int
    train: list[Pair]
    asked: list[Pair]
    epochs: int = 1

    def mark(self, told: Floats, gold: Floats) -> float:
        """Return Pearson's correlation, or the accuracy of two classes, in percent."""
        if self.classes == 2:
            return 100 * float(((told >= 0.5) == (gold >= 0.5)).mean())
        return 100 * float(np.corrcoef(told, gold)[0, 1])


class Compared(nn.Module):
    """Class logits of two pooled vectors.

    Args:
        bert: Its states are pooled by their mean.
        classes: Six for similarity, two for duplicates.
        by_cosine: Whether the logits come from the cosine alone, without weights.
    """

    def __init__(self, bert: BertModel, *, classes: int, by_cosine: bool) -> None:
        super().__init__()
        self.bert = bert
        self.pooled = Siamese(bert)
        width = int(bert.config.hidden_size)
        self.out = None if by_cosine else nn.Linear(3 * width, classes)
        self.classes = classes

    def forward(self, a: Sequence[list[int]], b: Sequence[list[int]]) -> Tensor:
        """Return logits of pairs of token ids. Shape: (B, C)."""
        u, v = (self.pooled(*device.beside(self, padded(texts))) for texts in (a, b))
        if self.out is None:
            return cosine_logits((u * v).sum(-1), classes=self.classes)
        # Unit vectors have entries near 1 / sqrt(W): the usual initialisation wants them near 1.
        scale = u.shape[-1] ** 0.5
        logits: Tensor = self.out(torch.cat([u, v, (u - v).abs()], -1) * scale)
        return logits


def cosine_logits(cosine: Tensor, *, classes: int) -> Tensor:
    """Return the logits of classes from a cosine (Yang et al., appendix A).

        two:  [1 - c, c]
        six:  [1 - c, 1 - |c + 0.2|, 1 - |c - 0.1|, 1 - |c - 0.4|, 1 - |c - 0.7|, c]

    Shape: (B,) to (B, C).
    """
    between = [1.0 - (cosine - centre).abs() for centre in _CENTRES] if classes == 6 else []
    return torch.stack([1.0 - cosine, *between, cosine], -1)


def losses(module: Compared) -> Callable[[Sequence[Apart]], Mapping[str, Tensor]]:
    """Return the cross-entropy of a batch's classes."""

    def of(batch: Sequence[Apart]) -> Mapping[str, Tensor]:
        logits = module([pair.a for pair in batch], [pair.b for pair in batch])
        classes = torch.tensor([round(pair.score * (module.classes - 1)) for pair in batch])
        (labels,) = device.beside(module, [classes])
        return {"class": F.cross_entropy(logits.float(), labels)}

    return of


@torch.inference_mode()
def told(module: Compared, rows: Sequence[Apart]) -> Floats:
    """Return the mean class under the softmax, in [0, 1]. Shape: (N,)."""
    values = torch.linspace(0.0, 1.0, module.classes)
    found = np.zeros(len(rows))
    for chosen in batches([len(row.ids) for row in rows], tokens=_TOKENS_PER_BATCH):
        logits = module([rows[i].a for i in chosen], [rows[i].b for i in chosen])
        found[chosen] = (logits.softmax(-1) @ values).numpy()
    return found


def run(bench: Bench) -> Parts:
    """Train and measure every strategy on both tasks."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {
        f"{strategy}, {task}": kept.of(
            f"{strategy}, {task}", partial(_measured, bench, strategy, make)
        )
        for task, make in (("STS-B", similarity), ("Quora", duplicates))
        for strategy in Strategy
    }


def similarity(bench: Bench) -> Comparison:
    """Return STS-B: training pairs, and dev."""
    train, dev = (pairsets.stsb(bench.data, part) for part in ("train", "dev"))
    return Comparison("STS-B", 6, train, dev, bench.length(1, full=_FULL_EPOCHS))


def duplicates(bench: Bench) -> Comparison:
    """Return Quora: every fourth training pair, in full all, and test."""
    parts = sets.duplicates(bench.data)
    shown = parts[RowSplit.TRAIN][:: bench.length(_SHOWN, full=1)]
    epochs = bench.length(1, full=_FULL_EPOCHS)
    return Comparison("Quora", 2, shown, parts[RowSplit.TEST], epochs)


def _measured(bench: Bench, strategy: Strategy, make: Callable[[Bench], Comparison]) -> Figures:
    base, about = backbone.load(bench.artifact), make(bench)
    torch.manual_seed(0)
    base.bert.encoder.requires_grad_(requires_grad=strategy is not Strategy.OUTER)
    task, answer = prepared(base, strategy, about)
    spent = steps.train(steps.one_task(task), rates=steps.FULL, seed=0, title=f"{strategy}")
    gold = np.array([pair.score for pair in about.asked], np.float64)
    said = answer()
    found = bootstrap(lambda at: about.mark(said[at], gold[at]), len(gold))
    return {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "steps": spent.steps,
        "minutes": spent.cpu_s / 60,
    }


def prepared(
    base: Backbone, strategy: Strategy, about: Comparison
) -> tuple[Task, Callable[[], Floats]]:
    """Return a task to train, and what tells its scores afterwards."""
    if strategy is Strategy.OUTER:
        reads = partial(
            scoring.tokenised, tokenizer=base.tokenizer, max_tokens=strategies.MAX_TOKENS
        )
        together = CrossEncoder(base.bert)
        read, cost = reads(about.train), scoring.losses(together)
        task = Task(about.name, together, read, cost, 2, about.epochs)
        return task, lambda: scoring.scores(together, reads(about.asked)).astype(np.float64)
    shown, asked = (siamese.tokenised(rows, base.tokenizer) for rows in (about.train, about.asked))
    if strategy is Strategy.CROSS:
        crossed = OneWay(base.bert)
        task = Task(about.name, crossed, shown, pair_models.losses(crossed), 2, about.epochs)
        return task, lambda: _sigmoid(pair_models.scores(crossed, asked))
    module = Compared(base.bert, classes=about.classes, by_cosine=strategy is Strategy.COSINE)
    task = Task(about.name, module, shown, losses(module), about.classes, about.epochs)
    return task, lambda: told(module, asked)


def _sigmoid(logits: NDArray[np.float32]) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    return found


def page(found: Parts) -> str:
    """Return the table."""
    rows = [
        [
            name,
            f"{f['value']:.1f} [{f['low']:.1f}, {f['high']:.1f}]",
            f"{f['steps']:,.0f}",
            f"{f['minutes']:.1f}",
        ]
        for name, f in found.items()
    ]
    return table(["strategy, task", "Pearson or accuracy", "steps", "minutes"], rows)
