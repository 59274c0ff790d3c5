"""The three tasks from stored index vectors alone: nothing of the encoder is trained.

Sentiment by the classifier on vectors; pairs by the cosine of their two vectors, and by two layers
on (u, v, |u - v|, u * v) of them. Validation pairs, and a tenth of the training rows where
there are none, choose layers, penalty, epoch and, by cosine, the threshold; three seeds.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from studies.quality import pairsets
from studies.quality import sets as labelled
from studies.quality.classification import Bench
from studies.quality.vector_pair import PairPooling, VectorPair
from studies.tasks import sets
from studies.tasks.result import StudyResult
from verso_core import manifest
from verso_training.heads import scoring, vectors
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import Pair
from verso_training.heads.vectors import Part

SEEDS = (0, 1, 2)
SHARES = (0.25, 0.5, 1.0)
"""Of the training rows, for the learning curves."""
_EPOCHS, _BATCH, _RATE = 12, 128, 1e-3
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Vectors:
    """Stored vectors of pairs, and their scores. Shape: twice (N, D), and (N,)."""

    u: Tensor
    v: Tensor
    scores: Tensor

    def rows(self, index: Tensor) -> Vectors:
        """Some of them."""
        return Vectors(self.u[index], self.v[index], self.scores[index])


def sentiment(bench: Bench) -> StudyResult:
    """Accuracy on dev by seed."""
    figures = {f"sentiment_{seed}": _sentiment(bench, seed=seed) for seed in SEEDS}
    return StudyResult("frozen-sentiment", figures, {})


def duplicates(bench: Bench) -> StudyResult:
    """Accuracy on the test pairs, by cosine and threshold and by layers and seed."""
    asked = {
        split: stored_pairs(bench, rows, name=f"duplicates-{split}")
        for split, rows in sets.duplicates(bench.data).items()
    }
    held_out, test = asked[RowSplit.VALIDATION], asked[RowSplit.TEST]
    figures = {"duplicates_cosine": _by_threshold(held_out, test)}
    truth = test.scores.numpy() >= 0.5
    arrays: dict[str, NDArray[np.generic]] = {}
    for seed in SEEDS:
        found = _scores(_fitted(asked[RowSplit.TRAIN], held_out, seed=seed), test)
        figures[f"duplicates_layers_{seed}"] = 100 * float(((found >= 0.5) == truth).mean())
        arrays[f"duplicates_test_{seed}"] = found
    return StudyResult("frozen-duplicates", figures, arrays)


def curves(bench: Bench) -> StudyResult:
    """Accuracies of sentiment and duplicates by share of the training rows and by seed."""
    asked = {
        split: stored_pairs(bench, rows, name=f"duplicates-{split}")
        for split, rows in sets.duplicates(bench.data).items()
    }
    train, test = asked[RowSplit.TRAIN], asked[RowSplit.TEST]
    truth = test.scores.numpy() >= 0.5
    figures: dict[str, float] = {}
    for share, seed in itertools.product(SHARES, SEEDS):
        count = round(share * len(train.scores))
        order = torch.randperm(len(train.scores), generator=torch.Generator().manual_seed(0))
        layers = _fitted(train.rows(order[:count]), asked[RowSplit.VALIDATION], seed=seed)
        said = _scores(layers, test) >= 0.5
        figures[f"duplicates_{share}_{seed}"] = 100 * float((said == truth).mean())
        figures[f"sentiment_{share}_{seed}"] = _sentiment(bench, seed=seed, share=share)
    return StudyResult("frozen-curves", figures, {})


def similarity(bench: Bench) -> StudyResult:
    """Correlations on dev and test, by cosine and by layers and seed."""
    alike = {
        part: stored_pairs(bench, pairsets.stsb(bench.data, part), name=f"similarity-{part}")
        for part in ("train", "dev", "test")
    }
    figures: dict[str, float] = {}
    for part in ("dev", "test"):
        figures |= _correlated(_cosine(alike[part]), alike[part], name=f"similarity_{part}_cosine")
    for seed in SEEDS:
        scorer = _fitted(*tenth_out(alike["train"]), seed=seed)
        for part in ("dev", "test"):
            found = _scores(scorer, alike[part])
            figures |= _correlated(found, alike[part], name=f"similarity_{part}_layers_{seed}")
    return StudyResult("frozen-similarity", figures, {})


def _stored(bench: Bench, texts: Sequence[str], *, name: str) -> Floats:
    return labelled.stored_vectors(
        texts,
        artifact=bench.artifact,
        cache=bench.work / "vectors" / name,
        scale=manifest.load(bench.artifact).manifest.space.int8_scale,
    )


def stored_pairs(bench: Bench, rows: Sequence[Pair], *, name: str) -> Vectors:
    """Unit vectors of pairs as they are stored, encoded once and kept under ``name``."""
    found = _stored(bench, [text for row in rows for text in (row.a, row.b)], name=f"task-{name}")
    found /= np.linalg.norm(found, axis=-1, keepdims=True)
    both = torch.from_numpy(found)
    return Vectors(both[::2], both[1::2], torch.tensor([row.score for row in rows]))


def _sentiment(bench: Bench, *, seed: int, share: float = 1.0) -> float:
    """Accuracy on dev, in percent; layers and penalty come from a tenth of the training rows."""
    parts = {}
    for part in ("train", "dev"):
        rows = sets.sentiment(bench.data, part)
        found = _stored(bench, [text for text, _ in rows], name=f"task-sentiment-{part}")
        parts[part] = Part(found, np.array([target for _, target in rows], np.int64))
    train, dev = parts["train"], parts["dev"]
    held = np.arange(len(train.targets)) % 10 == 9
    shown = ~held & (np.random.default_rng(0).random(len(held)) < share)
    tried = []
    for hidden in (0, 64):
        config = replace(ClassifyConfig(), hidden=hidden, class_weights=ClassWeights.NONE)
        model = vectors.fit(
            config,
            train=Part(train.vectors[shown], train.targets[shown]),
            validation=Part(train.vectors[held], train.targets[held]),
            classes=sets.SENTIMENTS,
            seed=seed,
            on_progress=lambda _: None,
            should_stop=lambda: False,
        )
        logits, _ = vectors.outputs(model, train.vectors[held])
        tried.append((float((logits.argmax(-1) == train.targets[held]).mean()), -hidden, model))
    model = max(tried, key=lambda row: row[:2])[2]
    logits, _ = vectors.outputs(model, dev.vectors)
    return 100 * float((logits.argmax(-1) == dev.targets).mean())


def _cosine(pairs_: Vectors) -> Floats:
    found: Floats = (pairs_.u * pairs_.v).sum(-1).numpy()
    return found


def _by_threshold(held_out: Vectors, test: Vectors) -> float:
    """Accuracy on the test pairs with the threshold that is best on the validation pairs."""
    values, truth = _cosine(held_out), held_out.scores.numpy() >= 0.5
    threshold = max(np.unique(values), key=lambda t: float(((values >= t) == truth).mean()))
    right = (_cosine(test) >= threshold) == (test.scores.numpy() >= 0.5)
    return 100 * float(right.mean())


def _correlated(found: Floats, rows: Vectors, *, name: str) -> dict[str, float]:
    gold = rows.scores.numpy()
    return {
        name: 100 * float(np.corrcoef(found, gold)[0, 1]),
        f"{name}_spearman": 100 * scoring.spearman(found, gold),
    }


def tenth_out(rows: Vectors) -> tuple[Vectors, Vectors]:
    """Rows to train on, and every tenth, to choose with."""
    held = torch.arange(len(rows.scores)) % 10 == 9
    return rows.rows(torch.nonzero(~held)[:, 0]), rows.rows(torch.nonzero(held)[:, 0])


def _fitted(train: Vectors, validation: Vectors, *, seed: int) -> VectorPair:
    """Two layers on both vectors, of the epoch that is best on the validation pairs."""
    torch.manual_seed(seed)
    module = VectorPair(PairPooling.LAYERS, dim=train.u.shape[1])
    optimiser = torch.optim.AdamW(module.parameters(), lr=_RATE, weight_decay=0.1)
    best, kept = float("inf"), copy.deepcopy(module)
    for _ in range(_EPOCHS):
        for index in torch.split(torch.randperm(len(train.scores)), _BATCH):
            batch = train.rows(index)
            loss = F.binary_cross_entropy(module(batch.u, batch.v)[0], batch.scores)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            (found,) = module(validation.u, validation.v)
            reached = float(F.binary_cross_entropy(found, validation.scores))
        if reached < best:
            best, kept = reached, copy.deepcopy(module)
    return kept


@torch.inference_mode()
def _scores(module: VectorPair, rows: Vectors) -> Floats:
    found: Floats = module(rows.u, rows.v)[0].numpy()
    return found
