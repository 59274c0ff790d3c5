"""Train a classifier that reads tokens: an adapter of the encoder and two layers on its states.

It serves classes that a stored vector does not separate. The index vectors do not change: the
adapter belongs to the head. Rows, splits, calibration and report are those of
``vector_classifier.train_head``. A killed run continues from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from verso_training import device
from verso_training.config import RecipeInvalid
from verso_training.encoder import batches, padded
from verso_training.heads import backbone, fitting, vectors
from verso_training.heads.backbone import Backbone
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.fitting import Budget
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Checked, Row, RowSplit
from verso_training.heads.shipping import Trained
from verso_training.heads.vector_classifier import (
    Extra,
    as_stored,
    held_out_signals,
    measured,
)


@dataclass(frozen=True)
class TextTokens:
    """A text's token ids with [CLS] and [SEP], and its label's number."""

    ids: list[int]
    target: int


def tokenised(
    texts: Iterable[tuple[str, int]], tokenizer: Tokenizer, *, max_tokens: int
) -> list[TextTokens]:
    """Return token ids of texts; long ones are cut, [SEP] stays."""
    made = []
    for text, target in texts:
        ids: list[int] = tokenizer.encode(text).ids
        if len(ids) > max_tokens:
            ids = [*ids[: max_tokens - 1], ids[-1]]
        made.append(TextTokens(ids, target))
    return made


def collate(batch: Sequence[TextTokens]) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and targets. Shape: twice (B, T), and (B,)."""
    targets = torch.tensor([text.target for text in batch])
    return (*padded([text.ids for text in batch]), targets)


def losses(
    module: SequenceClassifier, weights: Tensor
) -> Callable[[Sequence[TextTokens]], Mapping[str, Tensor]]:
    """Return the weighted cross-entropy of a batch, for ``fitting.AdapterRun``."""

    def of(batch: Sequence[TextTokens]) -> Mapping[str, Tensor]:
        ids, mask, targets, weight = device.beside(module, (*collate(batch), weights))
        return {"class": F.cross_entropy(module(ids, mask)[0], targets, weight=weight)}

    return of


@torch.inference_mode()
def outputs(
    module: SequenceClassifier, texts: Sequence[TextTokens], *, tokens_per_batch: int = 8192
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return logits and features in the order of the texts. Shape: (N, C) and (N, F)."""
    logits: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(texts)
    features = list(logits)
    for chosen in batches([len(text.ids) for text in texts], tokens=tokens_per_batch):
        ids, mask, _ = collate([texts[i] for i in chosen])
        for i, z, f in zip(chosen, *module(ids, mask), strict=True):
            logits[i], features[i] = z.numpy(), f.numpy()
    return np.stack(logits), np.stack(features)


_SAMPLES = 12


def train_token_classifier(
    recipe: HeadRecipe, examples: Sequence[Row], context: TrainingContext
) -> HeadReport:
    """Train, calibrate, measure and write one classifier of texts.

    Args:
        recipe: Its ``classify`` settings apply.
        examples: Labelled texts.
        context: Of the training.

    Raises:
        TrainingDataInvalid: rows that cannot be trained on.
        RecipeInvalid: rows without texts, or windows longer than the encoder reads.
        HeadInvalid: the written head differs from the trained one.
        Cancelled: ``context.should_stop`` returned True.
        DiskFull: no room for a checkpoint or the new folder.
    """
    config = recipe.classify
    if config.chunk is not None:
        raise RecipeInvalid("classify.chunk: expected none, for whole texts are read")
    if any(row.text is None for row in examples):
        raise RecipeInvalid("reads: expected texts to read tokens of, got vectors")
    checked = context.checked(recipe, examples)
    base = context.encoder(window=config.max_tokens)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    module = SequenceClassifier(
        backbone.adapt(base, rank=config.rank, alpha=config.alpha, dropout=config.dropout),
        classes=len(checked.labels),
        dropout=config.dropout,
    )
    tokens = _tokens(checked, base, max_tokens=config.max_tokens)
    weights = vectors.class_weights(
        checked.targets(RowSplit.TRAIN), classes=len(checked.labels), kind=config.class_weights
    )
    budget = _budget(recipe, [len(text.ids) for text in tokens[RowSplit.TRAIN]])
    context.train(module, budget, tokens, losses=losses(module, weights), reported="class")
    trained = Trained(
        recipe=recipe,
        module=module,
        outputs=("logits", "feature"),
        samples=_samples([text for split in reversed(RowSplit) for text in tokens[split]]),
        provenance=context.of(checked.digest()),
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    found = {split: outputs(module, tokens[split]) for split in RowSplit}
    return context.published(
        measured(trained, checked, found, extra=_signals(recipe, checked, context)),
        checked.counts(),
        contradicted=checked.contradicted,
        dropped_labels=checked.dropped_labels,
    )


def _signals(recipe: HeadRecipe, checked: Checked, context: TrainingContext) -> Extra:
    if not recipe.classify.decoder:
        return {}
    stored = as_stored(checked.rows, context)
    return held_out_signals(recipe, checked, stored, artifact=context.artifact)


def _tokens(
    checked: Checked, base: Backbone, *, max_tokens: int
) -> dict[RowSplit, list[TextTokens]]:
    """Return the token ids of each split's rows."""
    made = {}
    for split in RowSplit:
        targets = checked.targets(split).tolist()
        texts = [
            (str(row.text), target) for row, target in zip(checked.of(split), targets, strict=True)
        ]
        made[split] = tokenised(texts, base.tokenizer, max_tokens=max_tokens)
    return made


def _budget(recipe: HeadRecipe, lengths: Sequence[int]) -> Budget:
    """Return a budget with a warm-up of a tenth of the steps, since few rows make few steps."""
    budget = Budget.of(recipe.classify, seed=recipe.seed)
    batches = fitting.plan(lengths, tokens=budget.tokens_per_step, rng=random.Random(0))
    rise = math.ceil(0.1 * budget.epochs * len(batches))
    return dataclasses.replace(budget, warmup_steps=min(budget.warmup_steps, rise))


def _samples(texts: Sequence[TextTokens]) -> list[dict[str, np.ndarray]]:
    """Return the inputs of the golden samples."""
    return [
        {
            "input_ids": np.array(text.ids, np.int64),
            "attention_mask": np.ones(len(text.ids), np.int64),
        }
        for text in texts[:_SAMPLES]
    ]
