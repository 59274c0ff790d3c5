"""Mean, first and greatest state as the vector of a text. (Decodable Sentence-BERT, table 1.)

The published table copies six SentEval tasks of Sentence-BERT's, none of which is at hand, for two
differently trained encoders. Here one encoder, which was trained with the mean, is pooled in the
three ways: as it is, and after one epoch of the cosine objective on STS-B's 5,749 training pairs,
by an adapter of rank 16, with the same recipe and seed for all three. All is measured on int8
vectors:

- Spearman of their cosine on STS-B; nothing is chosen.
- Accuracy of logistic regression on SST in two classes, as SentEval probes a vector (Conneau and
  Kiela 2018, section 3): five folds of the training rows choose the penalty, dev is read once. It
  is the nearest to the six, being of the same reviews as MR.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from studies.papers.kept import Figures, Kept, Parts, ends, table, with_interval
from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import sets, steps, strategies
from studies.tasks.pairs import siamese
from studies.tasks.pairs.siamese import Siamese
from studies.tasks.steps import Task
from verso_core import manifest
from verso_training.heads import backbone, scoring, token_classifier
from verso_training.heads.signals import bootstrap
from verso_training.heads.token_classifier import TextTokens
from verso_training.heads.vectors import Part
from verso_training.pooling import Pooling

STUDY = "pooling"
_PARTS = ("dev", "test")
_PROBED = "sst-2"
_PENALTIES = tuple(4.0**n for n in range(-6, 1))
"""Inverse weights of the squared coefficients, of which one is chosen."""
Floats = NDArray[np.float32]


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
        figures |= _alike(part, said, gold)
    labelled = [
        token_classifier.tokenised(
            sets.polarity(bench.data, part), base.tokenizer, max_tokens=strategies.MAX_TOKENS
        )
        for part in ("train", "dev")
    ]
    figures |= _probed(*(_stored(module, rows, scale=scale) for rows in labelled))
    return figures


def _alike(part: str, said: Floats, gold: NDArray[np.float64]) -> Figures:
    found = bootstrap(lambda at: 100 * scoring.spearman(said[at], gold[at]), len(said))
    return ends(part, found)


def _stored(module: Siamese, rows: list[TextTokens], *, scale: float) -> Part:
    """Return vectors and labels; a vector's length becomes that of W numbers near 1."""
    found = siamese.stored(module, [text.ids for text in rows], scale=scale)
    return Part(found * found.shape[1] ** 0.5, np.array([text.target for text in rows]))


def _probed(train: Part, dev: Part) -> Figures:
    """Return the accuracy of logistic regression on the vectors of dev."""
    tried = [
        cross_val_score(_probe(penalty), train.vectors, train.targets, cv=5).mean()
        for penalty in _PENALTIES
    ]
    penalty = _PENALTIES[int(np.argmax(tried))]
    model = _probe(penalty).fit(train.vectors, train.targets)
    right = model.predict(dev.vectors) == dev.targets
    found = bootstrap(lambda at: 100 * float(right[at].mean()), len(right))
    return {"penalty": penalty, **ends(_PROBED, found)}


def _probe(penalty: float) -> LogisticRegression:
    return LogisticRegression(C=penalty, max_iter=2000)


def page(found: Parts) -> str:
    """Return the table."""
    rows = []
    for name, figures in found.items():
        cells = [with_interval(figures, key) for key in (*_PARTS, _PROBED)]
        rows.append([name, *cells, f"{figures['minutes']:.1f}" if "minutes" in figures else ""])
    return table(["pooling", "STS-B dev", "STS-B test", "SST-2 dev", "minutes"], rows)
