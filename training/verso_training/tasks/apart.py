"""Similarity from vectors that are stored apart, with an adapter of its own.

Trained on the pairs of STS-B and on those of SemEval 2012 to 2016 that are not in it; reported on
dev and test of STS-B, and on SICK, which was not trained on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verso_core import manifest
from verso_training.heads import backbone, lora, pairs
from verso_training.quality import pairsets
from verso_training.quality.classification import Bench
from verso_training.tasks import sets, siamese, steps, strategies
from verso_training.tasks.outcome import Outcome
from verso_training.tasks.siamese import Siamese
from verso_training.tasks.steps import Task

EPOCHS = 1


def run(bench: Bench, *, seed: int = 0) -> Outcome:
    """Train and measure."""
    base = backbone.load(bench.artifact)
    module = Siamese(lora.adapt(base, rank=strategies.RANK, alpha=strategies.ALPHA))
    shown = [*pairsets.stsb(bench.data, "train"), *sets.extra_similarity(bench.data)]
    examples = siamese.tokenised(shown, base.tokenizer)
    task = Task("apart", module, examples, siamese.losses(module), 2, EPOCHS)
    spent = steps.train(steps.one_task(task), rates=steps.LORA, seed=seed, title=task.name)
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
        figures[part] = 100 * pairs.spearman(scores, gold)
        arrays |= {part: scores, f"{part}_gold": gold}
    return Outcome("apart", figures, arrays, {"adapter": spent})
