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

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import BertModel

from verso_training.heads import backbone, lora, pairs, sequences
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import CrossEncoder, SequenceClassifier
from verso_training.heads.pairs import Pair, PairTokens
from verso_training.heads.rows import RowSplit
from verso_training.heads.selective import Interval
from verso_training.heads.sequences import TextTokens
from verso_training.quality import pairsets
from verso_training.quality.classification import Bench
from verso_training.tasks import sets, steps
from verso_training.tasks.outcome import Arrays, Outcome
from verso_training.tasks.steps import Spent, Task

RANK, ALPHA = 16, 32.0
MAX_TOKENS = 128
EPOCHS = {"sentiment": 2, "duplicates": 1, "similarity": 3}
_REPORTED = ("sentiment_dev", "duplicates_test", "similarity_dev")


class Strategy(StrEnum):
    """How several tasks are trained."""

    FULL = "full"
    LORA = "lora"
    ROUND_ROBIN = "round_robin"
    SEQUENTIAL = "sequential"


def run(bench: Bench, strategy: Strategy, *, seed: int = 0) -> Outcome:
    """Train the three tasks by a strategy and measure them."""
    base = backbone.load(bench.artifact)
    arrays: dict[str, NDArray[np.generic]] = {}
    spent: dict[str, Spent] = {}
    if strategy in (Strategy.FULL, Strategy.LORA):
        for name in EPOCHS:
            base = backbone.load(bench.artifact)
            task = _tasks(bench, base, _encoder(base, strategy), seed=seed)[name]
            rates = steps.LORA if strategy is Strategy.LORA else steps.FULL
            order = steps.one_task(task, seed=seed)
            spent[name] = steps.train(order, rates=rates, seed=seed, title=f"{strategy} {name}")
            arrays |= _measured(bench, base, {name: task.module})
            if strategy is Strategy.LORA and isinstance(task.module, SequenceClassifier):
                # For the students of ``distillation``, which have this adapter as their teacher.
                shown = sentences(bench, base, "train")
                arrays["sentiment_train"] = sequences.outputs(task.module, shown)[0]
    else:
        tasks = _tasks(bench, base, _encoder(base, strategy), seed=seed)
        if strategy is Strategy.ROUND_ROBIN:
            parts = {"together": steps.round_robin([*tasks.values()], seed=seed)}
        else:
            parts = {name: steps.one_task(task, seed=seed) for name, task in tasks.items()}
        for name, order in parts.items():
            spent[name] = steps.train(
                order, rates=steps.FULL, seed=seed, title=f"{strategy} {name}"
            )
        arrays |= _measured(bench, base, {name: task.module for name, task in tasks.items()})
    return Outcome(str(strategy), figures(arrays), arrays, spent)


def _encoder(base: Backbone, strategy: Strategy) -> BertModel:
    if strategy is Strategy.LORA:
        return lora.adapt(base, rank=RANK, alpha=ALPHA)
    base.bert.encoder.requires_grad_(requires_grad=True)
    return base.bert


def _tasks(bench: Bench, base: Backbone, bert: BertModel, *, seed: int) -> dict[str, Task]:
    """The tasks on one encoder, whose weights they share."""
    torch.manual_seed(seed)
    classifier = SequenceClassifier(bert, classes=sets.SENTIMENTS)
    quora, sts = CrossEncoder(bert), CrossEncoder(bert)
    even = torch.ones(sets.SENTIMENTS)
    texts = sentences(bench, base, "train")
    asked = _read_together(base, sets.duplicates(bench.data)[RowSplit.TRAIN])
    alike = _read_together(base, pairsets.stsb(bench.data, "train"))
    made = (
        Task("sentiment", classifier, texts, sequences.losses(classifier, even), sets.SENTIMENTS,
             EPOCHS["sentiment"]),
        Task("duplicates", quora, asked, pairs.losses(quora), 2, EPOCHS["duplicates"]),
        Task("similarity", sts, alike, pairs.losses(sts), 2, EPOCHS["similarity"]),
    )  # fmt: skip
    return {task.name: task for task in made}


def sentences(bench: Bench, base: Backbone, part: str) -> list[TextTokens]:
    """SST-5 as tokens."""
    rows = sets.sentiment(bench.data, part)
    return sequences.tokenised(rows, base.tokenizer, max_tokens=MAX_TOKENS)


def _read_together(base: Backbone, rows: list[Pair]) -> list[PairTokens]:
    return pairs.tokenised(rows, base.tokenizer, max_tokens=MAX_TOKENS)


def _measured(bench: Bench, base: Backbone, modules: Mapping[str, nn.Module]) -> Arrays:
    """Predictions and targets of each task's reported rows."""
    found: dict[str, NDArray[np.generic]] = {}
    if isinstance(classifier := modules.get("sentiment"), SequenceClassifier):
        texts = sentences(bench, base, "dev")
        found["sentiment_dev"] = sequences.outputs(classifier, texts)[0]
        found["sentiment_dev_gold"] = np.array([text.target for text in texts])
    if isinstance(scorer := modules.get("duplicates"), CrossEncoder):
        rows = sets.duplicates(bench.data)[RowSplit.TEST]
        found |= _scored(scorer, base, rows, name="duplicates_test")
    if isinstance(scorer := modules.get("similarity"), CrossEncoder):
        for part in ("dev", "test"):
            rows = pairsets.stsb(bench.data, part)
            found |= _scored(scorer, base, rows, name=f"similarity_{part}")
    return found


def _scored(module: CrossEncoder, base: Backbone, rows: list[Pair], *, name: str) -> Arrays:
    return {
        name: pairs.scores(module, _read_together(base, rows)),
        f"{name}_gold": np.array([row.score for row in rows]),
    }


def figures(arrays: Arrays) -> dict[str, float]:
    """Accuracies, correlations and their mean as the paper takes it, in percent."""
    sentiment = arrays["sentiment_dev"].argmax(-1) == arrays["sentiment_dev_gold"]
    asked, truth = (
        np.asarray(arrays[name], np.float64) >= 0.5
        for name in ("duplicates_test", "duplicates_test_gold")
    )
    found = {
        "sentiment": 100 * float(sentiment.mean()),
        "duplicates": 100 * float((asked == truth).mean()),
        "duplicates_f1": 100 * 2 * float((asked & truth).sum()) / float(asked.sum() + truth.sum()),
    }
    for part in ("dev", "test"):
        scores = np.asarray(arrays[f"similarity_{part}"], np.float64)
        gold = np.asarray(arrays[f"similarity_{part}_gold"], np.float64)
        found[f"similarity_{part}"] = 100 * float(np.corrcoef(scores, gold)[0, 1])
        found[f"similarity_{part}_spearman"] = 100 * pairs.spearman(scores, gold)
    parts = ("sentiment", "duplicates", "similarity_dev")
    return found | {"mean": float(np.mean([found[name] for name in parts]))}


def difference(one: Arrays, other: Arrays, *, rounds: int = 500) -> Interval:
    """By how much the mean of ``one`` exceeds that of ``other``, the rows resampled together."""
    rng = np.random.default_rng(0)

    def gap(rows: Mapping[str, NDArray[np.int64]]) -> float:
        found = [figures(_resampled(arrays, rows))["mean"] for arrays in (one, other)]
        return found[0] - found[1]

    count = {name: len(one[name]) for name in _REPORTED}
    drawn = [gap({name: rng.integers(0, n, n) for name, n in count.items()}) for _ in range(rounds)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    whole = gap({name: np.arange(n) for name, n in count.items()})
    return Interval(whole, float(low), float(high))


def _resampled(arrays: Arrays, rows: Mapping[str, NDArray[np.int64]]) -> dict[str, Any]:
    found: dict[str, Any] = dict(arrays)
    for name, index in rows.items():
        for key in (name, f"{name}_gold"):
            found[key] = arrays[key][index]
    return found
