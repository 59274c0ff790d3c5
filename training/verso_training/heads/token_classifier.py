"""Train a classifier that reads tokens: an adapter of the encoder, and two layers behind it.

For what a stored vector does not tell apart. The index vectors stay as they are: the adapter is the
head's own. Rows, splits, calibration and report are those of ``training.train_head``; a run that is
killed goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import numpy as np
import torch

from verso_core import manifest
from verso_training.config import RecipeInvalid
from verso_training.heads import fitting, lora, rows, sequences, vectors
from verso_training.heads.backbone import Backbone
from verso_training.heads.fitting import Budget
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Checked, Row, RowSplit
from verso_training.heads.sequences import TextTokens
from verso_training.heads.shipping import Trained
from verso_training.heads.training import (
    Extra,
    HeadReport,
    as_stored,
    held_out_signals,
    measured,
)
from verso_training.heads.workplace import Workplace

_SAMPLES = 12


def train_token_classifier(
    recipe: HeadRecipe, examples: Sequence[Row], place: Workplace
) -> HeadReport:
    """Train, calibrate, measure and write one classifier of texts.

    Args:
        recipe: Its ``classify`` settings count.
        examples: Labelled texts.
        place: Where.

    Raises:
        TrainingDataInvalid: rows that cannot be trained on.
        RecipeInvalid: rows without texts, or windows longer than the encoder reads.
        HeadInvalid: what was written does not do what was trained.
        Cancelled: ``place.should_stop`` said so.
        DiskFull: no room for a checkpoint or the new folder.
    """
    config = recipe.classify
    checked = _checked(recipe, examples, place)
    base = place.encoder(window=config.max_tokens)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    module = SequenceClassifier(
        lora.adapt(base, rank=config.rank, alpha=config.alpha, dropout=config.dropout),
        classes=len(checked.labels),
        dropout=config.dropout,
    )
    tokens = _tokens(checked, base, max_tokens=config.max_tokens)
    weights = vectors.class_weights(
        checked.targets(RowSplit.TRAIN), classes=len(checked.labels), kind=config.class_weights
    )
    budget = _budget(recipe, [len(text.ids) for text in tokens[RowSplit.TRAIN]])
    place.train(module, budget, tokens, losses=sequences.losses(module, weights), told="class")
    trained = Trained(
        recipe=recipe,
        module=module,
        outputs=("logits", "feature"),
        samples=_samples([text for split in reversed(RowSplit) for text in tokens[split]]),
        provenance=place.of(checked.digest()),
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    found = {split: sequences.outputs(module, tokens[split]) for split in RowSplit}
    return place.published(
        measured(trained, checked, found, extra=_signals(recipe, checked, place)),
        {str(split): len(checked.of(split)) for split in RowSplit},
        contradicted=checked.contradicted,
        dropped_labels=checked.dropped_labels,
    )


def _checked(recipe: HeadRecipe, examples: Sequence[Row], place: Workplace) -> Checked:
    if recipe.classify.chunk is not None:
        raise RecipeInvalid("classify.chunk: expected none, for whole texts are read")
    if any(row.text is None for row in examples):
        raise RecipeInvalid("reads: expected texts to read tokens of, got vectors")
    return rows.check(
        examples,
        dim=manifest.load(place.artifact).manifest.space.dim,
        tokens=True,
        validation_share=recipe.validation_share,
        test_share=recipe.test_share,
    )


def _signals(recipe: HeadRecipe, checked: Checked, place: Workplace) -> Extra:
    if not recipe.classify.decoder:
        return {}
    stored = as_stored(checked.rows, artifact=place.artifact, should_stop=place.should_stop)
    return held_out_signals(recipe, checked, stored, artifact=place.artifact)


def _tokens(
    checked: Checked, base: Backbone, *, max_tokens: int
) -> dict[RowSplit, list[TextTokens]]:
    """The rows of each split as the encoder reads them."""
    made = {}
    for split in RowSplit:
        targets = checked.targets(split).tolist()
        texts = [
            (str(row.text), target) for row, target in zip(checked.of(split), targets, strict=True)
        ]
        made[split] = sequences.tokenised(texts, base.tokenizer, max_tokens=max_tokens)
    return made


def _budget(recipe: HeadRecipe, lengths: Sequence[int]) -> Budget:
    """Return a budget whose rate has risen after a tenth of the steps: few rows are few steps."""
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
