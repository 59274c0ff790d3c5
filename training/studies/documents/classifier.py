"""Train a classifier of documents, from labelled texts to a folder that can be served.

The steps are those of ``vector_classifier``: rows are checked, the layers fitted (``documents``),
calibrated on validation rows, measured on test rows, and written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from studies.documents.data import Document, Part
from studies.documents.fitting import HeldOut, fit
from studies.documents.model import outputs
from verso_core.heads import Reads, Task
from verso_training.config import RecipeInvalid
from verso_training.heads.confidence import Outputs
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Checked, Row, RowSplit
from verso_training.heads.shipping import Trained
from verso_training.heads.vector_classifier import measured
from verso_training.heads.vectors import OnProgress

Reader = Callable[[Sequence[str]], Sequence[Document]]
"""Returns what a head reads of texts, as a worker stores them."""

_GOLDEN_TERMS = 120
"""Golden samples are short documents: they are run at every start of a worker."""


def train_document_head(
    recipe: HeadRecipe, examples: Sequence[Row], context: TrainingContext, *, read: Reader
) -> HeadReport:
    """Train, calibrate, measure and write one classifier of documents.

    Args:
        recipe: Its ``classify`` settings apply.
        examples: Labelled texts.
        context: Of the training.
        read: Reads the texts.

    Raises:
        TrainingDataInvalid: rows that cannot be trained on.
        RecipeInvalid: a recipe of another task.
        Cancelled: ``context.should_stop`` returned True.
        DiskFull: no room for the new folder.
        HeadInvalid: the written head differs from the trained one.
    """
    if recipe.task is not Task.CLASSIFY or recipe.reads is not Reads.DOCUMENT:
        raise RecipeInvalid(
            f"expected a classifier of documents, got {recipe.task} on {recipe.reads}"
        )
    torch.set_num_threads(recipe.threads)
    checked = context.checked(recipe, examples)
    part = {split: _part(checked, split, read) for split in RowSplit}
    model, said = fit(
        recipe.classify,
        train=part[RowSplit.TRAIN],
        validation=part[RowSplit.VALIDATION],
        labels=checked.labels,
        seed=recipe.seed,
        on_progress=context.on_progress,
        should_stop=context.should_stop,
    )
    encoded = {split: one.encoded() for split, one in part.items()}
    trained = Trained(
        recipe=recipe,
        module=model,
        outputs=("logits", "feature"),
        samples=[one.inputs() for one in _samples(encoded)],
        provenance=context.of(checked.digest()),
    )
    # Signals of a vector's place need one; rows of the other splits are measured all the same.
    shown = {**part, RowSplit.TRAIN: encoded[RowSplit.TRAIN]}
    found = {split: outputs(model, shown[split].documents) for split in RowSplit}
    has_vectors = iter([len(one.vectors) > 0 for one in part[RowSplit.TRAIN].documents])
    kept = tuple(
        row for row in checked.rows if row.split is not RowSplit.TRAIN or next(has_vectors)
    )
    return context.published(
        measured(
            trained,
            replace(checked, rows=kept),
            found,
            extra={},
            held_out=None if said is None else said.outputs,
        ),
        checked.counts(),
        contradicted=checked.contradicted,
        dropped_labels=checked.dropped_labels,
    )


def validated(
    recipe: HeadRecipe, checked: Checked, on_progress: OnProgress, *, read: Reader
) -> HeldOut:
    """Return what is said of validation rows, and of rows of folds by layers not fitted on them."""
    validation = _part(checked, RowSplit.VALIDATION, read)
    model, said = fit(
        recipe.classify,
        train=_part(checked, RowSplit.TRAIN, read),
        validation=validation,
        labels=checked.labels,
        seed=recipe.seed,
        on_progress=on_progress,
        should_stop=lambda: False,
    )
    if said is not None:
        return said
    logits, features = outputs(model, validation.documents)
    return HeldOut(Outputs(logits, features, validation.targets), np.arange(len(validation)))


def _part(checked: Checked, split: RowSplit, read: Reader) -> Part:
    rows = checked.of(split)
    return Part(
        read([str(row.text) for row in rows]), checked.targets(split), [row.fold for row in rows]
    )


def _samples(part: dict[RowSplit, Part]) -> list[Document]:
    """Return short documents, those of several chunks first."""
    pool = [one for split in reversed(RowSplit) for one in part[split].documents]
    short = [one for one in pool if len(one.terms) <= _GOLDEN_TERMS] or pool
    several = [one for one in short if len(one.vectors) == 2][:4]
    single = [one for one in short if len(one.vectors) == 1]
    return [*several, *single, *pool][:12]
