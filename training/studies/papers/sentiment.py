"""Sentiment in two classes: SST-2 and film reviews. (Preite 2020, tables 5.1 and 5.2, and GLUE's
table in the lecture.)

- *SST-2*: the sentences of SST without the neutral ones. Dev is GLUE's, 872 sentences; GLUE trains
  on 67,000 phrases of the trees, of which the 6,920 whole sentences are at hand.
- *CFIMDB*: 1,707 reviews, and 245 for dev, in the place of IMDb's 50,000; cut at 128 and at 256
  tokens.

Two layers read the mean of the encoder's states. An adapter of rank 16 learns, or the whole encoder
but its embeddings, on nine tenths of the training rows for three epochs, in full six. The other
tenth chooses the epoch whose weights are reported on dev.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from studies.papers.kept import Figures, Kept, Parts, ends, table, with_interval
from studies.quality.classification import Bench
from studies.tasks import sets, steps, strategies
from studies.tasks.steps import Task
from studies.tasks.strategies import Strategy
from verso_training.heads import backbone, token_classifier
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.signals import bootstrap
from verso_training.heads.token_classifier import TextTokens

STUDY = "sentiment"
CLASSES = 2
_EPOCHS, _FULL_EPOCHS = 3, 6
_WAYS = {
    "adapter": (Strategy.LORA, steps.LORA),
    "fine-tuned": (Strategy.FULL, steps.FULL),
}


@dataclass(frozen=True)
class Texts:
    """A set of labelled texts.

    Attributes:
        read: Returns the texts of a part, ``train`` or ``dev``, with their labels, 0 or 1.
        max_tokens: What is read of each.
    """

    read: Callable[[Path, str], list[tuple[str, int]]]
    max_tokens: int


SETS = {
    "SST-2": Texts(sets.polarity, strategies.MAX_TOKENS),
    "CFIMDB, 128 tokens": Texts(sets.reviews, 128),
    "CFIMDB, 256 tokens": Texts(sets.reviews, 256),
}


def run(bench: Bench) -> Parts:
    """Train and measure both ways on each set."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {
        f"{name}, {way}": kept.of(f"{name}, {way}", partial(_measured, bench, SETS[name], way))
        for name, way in itertools.product(SETS, _WAYS)
    }


def _measured(bench: Bench, texts: Texts, way: str) -> Figures:
    train, dev = (_tokens(bench, texts, part) for part in ("train", "dev"))
    held = train[9::10]
    shown = [text for number, text in enumerate(train) if number % 10 != 9]
    strategy, rates = _WAYS[way]
    torch.manual_seed(0)
    bert = strategies.encoder_of(backbone.load(bench.artifact), strategy)
    module = SequenceClassifier(bert, classes=CLASSES)
    epochs = bench.length(_EPOCHS, full=_FULL_EPOCHS)
    losses = token_classifier.losses(module, torch.ones(CLASSES))
    order = steps.one_task(Task(way, module, shown, losses, CLASSES, epochs))
    tried: list[float] = []
    said: list[NDArray[np.bool_]] = []

    def read() -> None:
        tried.append(100 * float(_right(module, held).mean()))
        said.append(_right(module, dev))

    watched = {epoch * len(order) // epochs: read for epoch in range(1, epochs + 1)}
    spent = steps.train(order, rates=rates, seed=0, title=f"{STUDY}, {way}", watched=watched)
    best = int(np.argmax(tried))
    accuracy = bootstrap(lambda at: 100 * float(said[best][at].mean()), len(dev))
    return {
        "rows": len(shown),
        "asked": len(dev),
        "epochs": best + 1,
        **{f"held out/{epoch}": value for epoch, value in enumerate(tried, 1)},
        **ends("accuracy", accuracy),
        "minutes": spent.cpu_s / 60,
    }


def _tokens(bench: Bench, texts: Texts, part: str) -> list[TextTokens]:
    tokenizer = backbone.load(bench.artifact).tokenizer
    rows = texts.read(bench.data, part)
    return token_classifier.tokenised(rows, tokenizer, max_tokens=texts.max_tokens)


def _right(module: SequenceClassifier, texts: list[TextTokens]) -> NDArray[np.bool_]:
    """Return whether each text's class is told. Shape: (N,)."""
    said = token_classifier.outputs(module, texts)[0].argmax(-1)
    right: NDArray[np.bool_] = said == np.array([text.target for text in texts])
    return right


def page(found: Parts) -> str:
    """Return the table."""
    rows = []
    for name, figures in found.items():
        tried = [f"{figures[key]:.1f}" for key in figures if key.startswith("held out/")]
        counts = [f"{figures[key]:,.0f}" for key in ("rows", "asked", "epochs")]
        accuracy = with_interval(figures, "accuracy")
        rows.append([name, *counts, ", ".join(tried), accuracy, f"{figures['minutes']:.1f}"])
    columns = ["set, what learns", "trained on", "asked", "epochs", "held out", "accuracy"]
    return table([*columns, "minutes"], rows)
