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
from pathlib import Path

import numpy as np
import torch

from verso_core import manifest
from verso_training.config import RecipeInvalid
from verso_training.heads import backbone, fitting, lora, rows, sequences, vectors
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Row, RowSplit
from verso_training.heads.sequences import TextTokens
from verso_training.heads.shipping import Provenance, Trained
from verso_training.heads.training import HeadReport, measured, published
from verso_training.heads.vectors import OnProgress, Progress, ShouldStop

_SAMPLES = 12


def train_token_classifier(
    recipe: HeadRecipe,
    examples: Sequence[Row],
    out_dir: Path,
    *,
    artifact: Path,
    provenance: Provenance,
    run: Path,
    on_progress: OnProgress,
    should_stop: ShouldStop,
) -> HeadReport:
    """Train, calibrate, measure and write one classifier of texts.

    Args:
        recipe: Its ``classify`` settings count.
        examples: Labelled texts.
        out_dir: ``models/heads``; the head becomes ``NAME/VERSION`` below it.
        artifact: Whose encoder the head reads.
        provenance: Names and licence of the data; the hash of the rows is filled in.
        run: Folder for checkpoints; one that is there is gone on from.
        on_progress: Called several times a second at most.
        should_stop: Asked between steps.

    Raises:
        TrainingDataInvalid: rows that cannot be trained on.
        RecipeInvalid: rows without texts, or windows longer than the encoder reads.
        HeadInvalid: what was written does not do what was trained.
        Cancelled: ``should_stop`` said so.
        DiskFull: no room for a checkpoint or the new folder.
    """
    config = recipe.classify
    if config.chunk is not None or any(row.text is None for row in examples):
        raise RecipeInvalid("reads: expected texts to read tokens of; a collection gives vectors")
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    checked = rows.check(
        examples,
        dim=manifest.load(artifact).manifest.space.dim,
        tokens=True,
        validation_share=recipe.validation_share,
        test_share=recipe.test_share,
    )
    base = backbone.load(artifact)
    base.check_window(config.max_tokens)
    module = SequenceClassifier(
        lora.adapt(base, rank=config.rank, alpha=config.alpha, dropout=config.dropout),
        classes=len(checked.labels),
        dropout=config.dropout,
    )
    tokens = {
        split: sequences.tokenised(
            [
                (str(row.text), target)
                for row, target in zip(
                    checked.of(split), checked.targets(split).tolist(), strict=True
                )
            ],
            base.tokenizer,
            max_tokens=config.max_tokens,
        )
        for split in RowSplit
    }
    weights = vectors.class_weights(
        checked.targets(RowSplit.TRAIN), classes=len(checked.labels), kind=config.class_weights
    )
    fitting.AdapterRun(
        module,
        _budget(recipe, [len(text.ids) for text in tokens[RowSplit.TRAIN]]),
        main=tokens[RowSplit.TRAIN],
        losses=sequences.losses(module, weights),
        folder=run,
    ).train(
        on_progress=lambda p: on_progress(Progress(p.share, {"loss": p.metrics["loss/class"]})),
        should_stop=should_stop,
    )
    trained = Trained(
        recipe=recipe,
        module=module,
        outputs=("logits", "feature"),
        samples=_samples([text for split in reversed(RowSplit) for text in tokens[split]]),
        provenance=dataclasses.replace(provenance, data_sha256=checked.digest()),
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    found = {split: sequences.outputs(module, tokens[split]) for split in RowSplit}
    return published(
        measured(trained, checked, found),
        checked,
        out_dir,
        artifact=artifact,
        on_progress=on_progress,
    )


def _budget(recipe: HeadRecipe, lengths: Sequence[int]) -> fitting.Budget:
    """Give a budget whose rate has risen after a tenth of the steps: few rows are few steps."""
    budget = fitting.Budget.of(recipe.classify, seed=recipe.seed)
    batches = fitting.plan(lengths, tokens=budget.tokens_per_step, rng=random.Random(0))
    rise = math.ceil(0.1 * budget.epochs * len(batches))
    return dataclasses.replace(budget, warmup_steps=min(budget.warmup_steps, rise))


def _samples(texts: Sequence[TextTokens]) -> list[dict[str, np.ndarray]]:
    """Give the inputs of the golden samples."""
    return [
        {
            "input_ids": np.array(text.ids, np.int64),
            "attention_mask": np.ones(len(text.ids), np.int64),
        }
        for text in texts[:_SAMPLES]
    ]
