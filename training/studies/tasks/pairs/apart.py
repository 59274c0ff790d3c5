"""Similarity from vectors that are stored apart, with an adapter of its own.

Trained on the pairs of STS-B and on those of SemEval 2012 to 2016 that are not in it; reported on
dev and test of STS-B, and on SICK, which was not trained on. Two recipes: an epoch of the cosine
objective, and two epochs, in full four, with the ranking objective beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import sets, steps, strategies
from studies.tasks.pairs import siamese
from studies.tasks.pairs.siamese import Siamese
from studies.tasks.result import StudyResult
from studies.tasks.steps import Task
from verso_core import manifest
from verso_training.heads import backbone, scoring


@dataclass(frozen=True)
class Recipe:
    """How the adapter is trained, and the study's name."""

    name: str
    epochs: int
    ranking: bool
    full_epochs: int


COSINE = Recipe("apart", 1, ranking=False, full_epochs=1)
RANKED = Recipe("apart-ranked", 2, ranking=True, full_epochs=4)


def weights(bench: Bench, recipe: Recipe) -> Path:
    """Where the adapter is kept."""
    return bench.work / "tasks" / f"{recipe.name}.safetensors"


def run(bench: Bench, recipe: Recipe, *, seed: int = 0) -> StudyResult:
    """Train and measure; the adapter is kept beside the outcome."""
    base = backbone.load(bench.artifact)
    torch.manual_seed(seed)
    module = Siamese(backbone.adapt(base, rank=strategies.RANK, alpha=strategies.ALPHA))
    shown = [*pairsets.stsb(bench.data, "train"), *sets.extra_similarity(bench.data)]
    examples = siamese.tokenised(shown, base.tokenizer)
    losses = siamese.losses(module, ranking=recipe.ranking)
    epochs = bench.length(recipe.epochs, full=recipe.full_epochs)
    task = Task("apart", module, examples, losses, 2, epochs)
    spent = steps.train(steps.one_task(task), rates=steps.LORA, seed=seed, title=recipe.name)
    path = weights(bench, recipe)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(backbone.state(module), path)
    scale = manifest.load(bench.artifact).manifest.space.int8_scale
    figures: dict[str, float] = {}
    arrays: dict[str, NDArray[np.generic]] = {}
    for part, rows in (
        ("dev", pairsets.stsb(bench.data, "dev")),
        ("test", pairsets.stsb(bench.data, "test")),
        ("sick", sets.relatedness(bench.data, "test_annotated")),
    ):
        tokens = siamese.tokenised(rows, base.tokenizer)
        scores = siamese.stored_cosines(module, tokens, scale=scale)
        gold = np.array([row.score for row in rows])
        figures[part] = 100 * scoring.spearman(scores, gold)
        arrays |= {part: scores, f"{part}_gold": gold}
    return StudyResult(recipe.name, figures, arrays, {"adapter": spent})
