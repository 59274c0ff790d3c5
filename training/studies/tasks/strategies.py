"""Three tasks and one encoder: each alone, together, one after another, by adapters.

The tasks of multi-task minBERT: sentiment (SST-5, accuracy), duplicate questions (Quora, accuracy)
and similarity (STS-B, Pearson), pairs read together as there. Every strategy does the same number
of steps in all:

- ``full``: a fine-tuned copy of the encoder for each task;
- ``lora``: one encoder, an adapter for each task;
- ``round_robin``: one fine-tuned encoder, tasks drawn by annealed sampling;
- ``sequential``: one fine-tuned encoder, one task after the other.

The embeddings are frozen throughout, and the recipes are fixed: nothing is chosen on what is
reported.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn
from transformers import BertModel

from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import sets, steps
from studies.tasks.result import Arrays, StudyResult
from studies.tasks.steps import Task
from verso_training.heads import backbone, scoring, token_classifier
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import CrossEncoder, SequenceClassifier
from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import Pair, PairTokens
from verso_training.heads.signals import Interval
from verso_training.heads.token_classifier import TextTokens

RANK, ALPHA = 16, 32.0
MAX_TOKENS = 128
EPOCHS = {"sentiment": 2, "duplicates": 1, "similarity": 3}
FULL_EPOCHS = {"sentiment": 4, "duplicates": 3, "similarity": 6}
REPORTED = {
    "sentiment_dev": "sentiment",
    "duplicates_test": "duplicates",
    "similarity_dev": "similarity_dev",
}
"""The figure that each reported array gives."""
Rows = Mapping[str, NDArray[np.int64]]
"""Numbers of rows, by array."""


class Strategy(StrEnum):
    """How several tasks are trained."""

    FULL = "full"
    LORA = "lora"
    ROUND_ROBIN = "round_robin"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Alone:
    """One task trained by itself.

    Attributes:
        name: Of the task.
        seed: For the order of rows, and for layers that start at random.
        share: Of the training rows, the first in an order that is shuffled once.
    """

    strategy: Strategy
    name: str
    seed: int = 0
    share: float = 1.0

    @property
    def study(self) -> str:
        """Its name: what differs from the usual stands behind it."""
        odd = (
            f"seed-{self.seed}" if self.seed else "",
            f"rows-{self.share:.0%}".removesuffix("%") if self.share < 1.0 else "",
        )
        return "-".join([self.strategy, self.name, *filter(None, odd)])


def alone(bench: Bench, one: Alone) -> StudyResult:
    """Train one task by itself and measure it; its own weights are kept beside the outcome."""
    base = backbone.load(bench.artifact)
    torch.manual_seed(one.seed)
    task = task_of(bench, base, encoder_of(base, one.strategy), name=one.name, seed=one.seed)
    shuffled = random.Random(0).sample(task.examples, round(one.share * len(task.examples)))
    shown = task.examples if one.share == 1.0 else shuffled
    task = replace(task, examples=shown)
    rates = steps.LORA if one.strategy is Strategy.LORA else steps.FULL
    spent = steps.train(steps.one_task(task), rates=rates, seed=one.seed, title=one.study)
    arrays = measured(bench, base, task)
    if one.strategy is Strategy.LORA:
        path = weights(bench, one.study)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(backbone.state(task.module), path)
    return StudyResult(one.study, figures(arrays), arrays, {one.name: spent})


def together(bench: Bench, strategy: Strategy, *, seed: int = 0) -> StudyResult:
    """Train the three tasks on one encoder and measure them."""
    base = backbone.load(bench.artifact)
    bert = encoder_of(base, strategy)
    tasks = [task_of(bench, base, bert, name=name, seed=seed) for name in EPOCHS]
    if strategy is Strategy.ROUND_ROBIN:
        parts = {"together": steps.round_robin(tasks, seed=seed)}
    else:
        parts = {task.name: steps.one_task(task) for task in tasks}
    spent = {
        name: steps.train(order, rates=steps.FULL, seed=seed, title=f"{strategy} {name}")
        for name, order in parts.items()
    }
    arrays: dict[str, NDArray[np.generic]] = {}
    for task in tasks:
        arrays |= measured(bench, base, task)
    return StudyResult(str(strategy), figures(arrays), arrays, spent)


def weights(bench: Bench, study: str) -> Path:
    """Where a study's adapter is kept."""
    return bench.work / "tasks" / f"{study}.safetensors"


def joined(strategy: Strategy, found: Mapping[str, StudyResult]) -> StudyResult | None:
    """What was found of a strategy: one outcome, or those of its tasks taken together."""
    if strategy not in (Strategy.FULL, Strategy.LORA):
        return found.get(strategy)
    parts = [found[f"{strategy}-{name}"] for name in EPOCHS if f"{strategy}-{name}" in found]
    if not parts:
        return None
    arrays = {key: values for part in parts for key, values in part.arrays.items()}
    spent = {key: values for part in parts for key, values in part.spent.items()}
    one = parts[0]
    return StudyResult(str(strategy), figures(arrays), arrays, spent, one.machine, one.date)


def encoder_of(base: Backbone, strategy: Strategy) -> BertModel:
    if strategy is Strategy.LORA:
        return backbone.adapt(base, rank=RANK, alpha=ALPHA)
    base.bert.encoder.requires_grad_(requires_grad=True)
    return base.bert


def task_of(bench: Bench, base: Backbone, bert: BertModel, *, name: str, seed: int) -> Task:
    """A task on an encoder, which it may share with others."""
    torch.manual_seed(seed)
    epochs = bench.length(EPOCHS[name], full=FULL_EPOCHS[name])
    if name == "sentiment":
        module = SequenceClassifier(bert, classes=sets.SENTIMENTS)
        losses = token_classifier.losses(module, torch.ones(sets.SENTIMENTS))
        texts = sentences(bench, base, "train")
        return Task(name, module, texts, losses, sets.SENTIMENTS, epochs)
    shown = {
        "duplicates": lambda: sets.duplicates(bench.data)[RowSplit.TRAIN],
        "similarity": lambda: pairsets.stsb(bench.data, "train"),
    }[name]()
    scorer = CrossEncoder(bert)
    return Task(name, scorer, read_together(base, shown), scoring.losses(scorer), 2, epochs)


def sentences(bench: Bench, base: Backbone, part: str) -> list[TextTokens]:
    """SST-5 as tokens."""
    rows = sets.sentiment(bench.data, part)
    return token_classifier.tokenised(rows, base.tokenizer, max_tokens=MAX_TOKENS)


def read_together(base: Backbone, rows: list[Pair]) -> list[PairTokens]:
    """Pairs as tokens, both texts in one window."""
    return scoring.tokenised(rows, base.tokenizer, max_tokens=MAX_TOKENS)


def measured(bench: Bench, base: Backbone, task: Task) -> dict[str, NDArray[np.generic]]:
    """Predictions and targets of a task's reported rows."""
    if task.name == "sentiment":
        return told(task.module, sentences(bench, base, "dev"), name="sentiment_dev")
    if task.name == "duplicates":
        asked = read_together(base, sets.duplicates(bench.data)[RowSplit.TEST])
        return told(task.module, asked, name="duplicates_test")
    found: dict[str, NDArray[np.generic]] = {}
    for part in ("dev", "test"):
        alike = read_together(base, pairsets.stsb(bench.data, part))
        found |= told(task.module, alike, name=f"similarity_{part}")
    return found


def told(module: nn.Module, rows: Sequence[Any], *, name: str) -> dict[str, NDArray[np.generic]]:
    """Predictions and targets of tokenised rows."""
    if isinstance(module, SequenceClassifier):
        said = token_classifier.outputs(module, rows)[0]
        return {name: said, f"{name}_gold": np.array([row.target for row in rows])}
    assert isinstance(module, CrossEncoder)
    gold = np.array([row.score for row in rows])
    return {name: scoring.scores(module, rows), f"{name}_gold": gold}


def figures(arrays: Arrays) -> dict[str, float]:
    """Accuracies and correlations of what is there, in percent; with all, their mean as
    published."""
    found: dict[str, float] = {}
    if "sentiment_dev" in arrays:
        right = arrays["sentiment_dev"].argmax(-1) == arrays["sentiment_dev_gold"]
        found["sentiment"] = 100 * float(right.mean())
    if "duplicates_test" in arrays:
        said, truth = (
            np.asarray(arrays[name], np.float64) >= 0.5
            for name in ("duplicates_test", "duplicates_test_gold")
        )
        found["duplicates"] = 100 * float((said == truth).mean())
        found["duplicates_f1"] = 200 * float((said & truth).sum()) / float(said.sum() + truth.sum())
    for part in ("dev", "test"):
        if f"similarity_{part}" in arrays:
            scores = np.asarray(arrays[f"similarity_{part}"], np.float64)
            gold = np.asarray(arrays[f"similarity_{part}_gold"], np.float64)
            found[f"similarity_{part}"] = 100 * float(np.corrcoef(scores, gold)[0, 1])
            found[f"similarity_{part}_spearman"] = 100 * scoring.spearman(scores, gold)
    parts = [found[name] for name in ("sentiment", "duplicates", "similarity_dev") if name in found]
    return found | ({"mean": float(np.mean(parts))} if len(parts) == 3 else {})


def intervals(arrays: Arrays, *, rounds: int = 500) -> dict[str, float]:
    """Return both ends of the 95 % bootstrap intervals: those of NAME as NAME/low and NAME/high."""
    drawn = [figures(_resampled(arrays, rows)) for rows in _draws(arrays, rounds)]
    names = [name for array, name in REPORTED.items() if array in arrays]
    names += ["mean"] if len(names) == len(REPORTED) else []
    found: dict[str, float] = {}
    for name in names:
        low, high = np.percentile([one[name] for one in drawn], [2.5, 97.5])
        found |= {f"{name}/low": float(low), f"{name}/high": float(high)}
    return found


def difference(one: Arrays, other: Arrays, *, rounds: int = 500) -> Interval:
    """By how much the mean of ``one`` exceeds that of ``other``, the rows resampled together."""

    def gap(rows: Rows) -> float:
        found = [figures(_resampled(arrays, rows))["mean"] for arrays in (one, other)]
        return found[0] - found[1]

    drawn = [gap(rows) for rows in _draws(one, rounds)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Interval(gap({}), float(low), float(high))


def _draws(arrays: Arrays, rounds: int) -> Iterator[Rows]:
    """Yield, for each round, the rows that are drawn of every reported array."""
    rng = np.random.default_rng(0)
    count = {name: len(arrays[name]) for name in REPORTED if name in arrays}
    for _ in range(rounds):
        yield {name: rng.integers(0, n, n) for name, n in count.items()}


def _resampled(arrays: Arrays, rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = dict(arrays)
    for name, index in rows.items():
        for key in (name, f"{name}_gold"):
            found[key] = arrays[key][index]
    return found
