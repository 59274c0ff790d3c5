"""Mean, first and greatest state as the vector of a text. (Decodable Sentence-BERT, table 1.)

The published table is Sentence-BERT's mean of six SentEval tasks, none of which is at hand, for two
differently trained encoders. Here one encoder, which was trained with the mean, is pooled in the
three ways: as it is, and after one epoch of the cosine objective on STS-B's 5,749 training pairs,
by an adapter of rank 16, with the same recipe and seed for all three. Spearman of the cosine of
int8 vectors; nothing is chosen.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from studies.papers.kept import Figures, Kept, Parts, ends, table, with_interval
from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import steps, strategies
from studies.tasks.pairs import siamese
from studies.tasks.pairs.siamese import Siamese
from studies.tasks.steps import Task
from verso_core import manifest
from verso_training.heads import backbone, scoring
from verso_training.heads.signals import bootstrap
from verso_training.pooling import Pooling

STUDY = "pooling"
_PARTS = ("dev", "test")


def run(bench: Bench) -> Parts:
    """Measure each pooling, untrained and trained."""
    kept = Kept(bench.work / "papers" / STUDY)
    found: dict[str, Figures] = {}
    for trained in (False, True):
        for pooling in Pooling:
            name = f"{pooling}, {'one epoch' if trained else 'as it is'}"
            found[name] = kept.of(name, partial(_measured, bench, pooling, trained=trained))
    return found


def _measured(bench: Bench, pooling: Pooling, *, trained: bool) -> Figures:
    base = backbone.load(bench.artifact)
    figures: dict[str, float] = {}
    bert = base.bert
    if trained:
        torch.manual_seed(0)
        bert = backbone.adapt(base, rank=strategies.RANK, alpha=strategies.ALPHA)
    module = Siamese(bert, pooling=pooling).eval()
    if trained:
        examples = siamese.tokenised(pairsets.stsb(bench.data, "train"), base.tokenizer)
        task = Task(str(pooling), module, examples, siamese.losses(module), 2, 1)
        spent = steps.train(steps.one_task(task), rates=steps.LORA, seed=0, title=str(pooling))
        figures["minutes"] = spent.cpu_s / 60
    scale = manifest.load(bench.artifact).manifest.space.int8_scale
    for part in _PARTS:
        rows = pairsets.stsb(bench.data, part)
        tokens = siamese.tokenised(rows, base.tokenizer)
        said = siamese.stored_cosines(module, tokens, scale=scale)
        gold = np.array([row.score for row in rows])
        figures |= _with_interval(part, said, gold)
    return figures


def _with_interval(part: str, said: np.ndarray, gold: np.ndarray) -> Figures:
    found = bootstrap(lambda at: 100 * scoring.spearman(said[at], gold[at]), len(said))
    return ends(part, found)


def page(found: Parts) -> str:
    """Return the table."""
    rows = []
    for name, figures in found.items():
        cells = [with_interval(figures, part) for part in _PARTS]
        rows.append([name, *cells, f"{figures['minutes']:.1f}" if "minutes" in figures else ""])
    return table(["pooling", "STS-B dev", "STS-B test", "minutes"], rows)
