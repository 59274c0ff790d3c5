"""Train a head that scores pairs, from scored texts to a folder that can be served.

Pairs of one first text stay together, so that no question is trained on and measured on. The
steps are those of ``training.train_head``; a run that is killed goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from verso_core.errors import TrainingDataInvalid
from verso_core.jobs.train import Scored, check_pairs
from verso_training.heads import cards, graph, lora, pairs, selective
from verso_training.heads.fitting import Budget
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.pairs import Pair, PairTokens
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import RowSplit, portions
from verso_training.heads.shipping import Trained
from verso_training.heads.start import Start, shaped
from verso_training.heads.training import HeadReport
from verso_training.heads.workplace import Workplace

_FIT = 0.5
"""A score from here on says that two texts fit."""


def train_scorer(recipe: HeadRecipe, scored: Sequence[Scored], place: Workplace) -> HeadReport:
    """Train, measure and write one scorer of pairs that are read together.

    Args:
        recipe: Its ``score`` settings count.
        scored: Pairs as :func:`verso_core.jobs.train.check_pairs` lets them pass.
        place: Where.

    Raises:
        RecipeInvalid: windows longer than the encoder reads.
        TrainingDataInvalid: pairs that cannot be trained on.
        HeadInvalid: what was written does not do what was trained, or ``start`` is no such head.
        Cancelled: ``place.should_stop`` said so.
        DiskFull: no room for a checkpoint or the new folder.
    """
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    config = shaped(recipe.score, place.start)
    recipe = dataclasses.replace(recipe, score=config)
    kept, contradicted = _distinct(scored)
    parts = _parts(kept, recipe)
    base = place.encoder(window=config.max_tokens)
    module = CrossEncoder(
        lora.adapt(base, rank=config.rank, alpha=config.alpha), dropout=config.dropout
    )
    if place.start is not None:
        place.start.restore(module)
    tokens = {
        part: pairs.tokenised(rows, base.tokenizer, max_tokens=config.max_tokens)
        for part, rows in parts.items()
    }
    budget = Budget.of(config, seed=recipe.seed)
    place.train(module, budget, tokens, losses=pairs.losses(module), told="score")
    figures = {
        f"{part}_{name}": value
        for part in (RowSplit.VALIDATION, RowSplit.TEST)
        for name, value in _figures(module, tokens[part]).items()
    }
    counts = {str(part): len(parts[part]) for part in RowSplit}
    trained = Trained(
        recipe=recipe,
        module=module,
        outputs=("score",),
        samples=graph.golden_pairs(
            (pair.ids, pair.second) for part in reversed(RowSplit) for pair in tokens[part]
        ),
        provenance=place.of(_digest(parts)),
        card=cards.scorer(figures, notes=_notes(counts, place.start, contradicted=contradicted)),
        metrics=figures | {"test_pairs": float(counts["test"])},
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    return place.published(trained, counts, contradicted=contradicted)


def _distinct(scored: Sequence[Scored]) -> tuple[list[Scored], int]:
    """Each pair once, without those that have several scores; and how many those were."""
    check_pairs(scored)
    scores: dict[tuple[str, str], set[float]] = defaultdict(set)
    for pair in scored:
        scores[pair.text_1, pair.text_2].add(pair.score)
    first = {(pair.text_1, pair.text_2): pair for pair in reversed(scored)}
    kept = [
        pair
        for pair in scored
        if len(scores[key := (pair.text_1, pair.text_2)]) == 1 and first[key] is pair
    ]
    return kept, sum(len(found) > 1 for found in scores.values())


def _parts(scored: Sequence[Scored], recipe: HeadRecipe) -> dict[RowSplit, list[Pair]]:
    free = [pair for pair in scored if pair.split is None]
    shares = portions(
        [pair.text_1.encode() for pair in free],
        validation_share=recipe.validation_share,
        test_share=recipe.test_share,
    )
    split = {id(pair): part for pair, part in zip(free, shares, strict=True)}
    parts: dict[RowSplit, list[Pair]] = {part: [] for part in RowSplit}
    for pair in scored:
        part = split[id(pair)] if pair.split is None else RowSplit(pair.split)
        parts[part].append(Pair(pair.text_1, pair.text_2, pair.score))
    for part, rows in parts.items():
        if not rows:
            raise TrainingDataInvalid(f"expected pairs for {part}, got none")
    return parts


def _figures(module: CrossEncoder, tokens: Sequence[PairTokens]) -> dict[str, float]:
    """Spearman's rank correlation, and AUROC of those that fit; times 100, where they exist."""
    found = pairs.scores(module, tokens)
    gold = np.array([pair.score for pair in tokens], np.float32)
    fit = gold >= _FIT
    figures = {
        "spearman": 100 * pairs.spearman(found, gold) if len(set(gold.tolist())) > 1 else math.nan,
        "auroc": 100 * selective.auroc(found[fit], found[~fit])
        if 0 < fit.sum() < len(fit)
        else math.nan,
    }
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _notes(counts: Mapping[str, int], start: Start | None, *, contradicted: int) -> list[str]:
    notes = [
        f"Begun {'afresh' if start is None else f'from {start.name}'}.",
        f"Pairs: {', '.join(f'{n} {part}' for part, n in counts.items())}; split by first text.",
    ]
    if contradicted:
        notes.append(f"Dropped, with several scores: {contradicted}.")
    return notes


def _digest(parts: dict[RowSplit, list[Pair]]) -> str:
    """SHA-256 over the pairs and their parts: the data a head was made of."""
    total = hashlib.sha256()
    for part, rows in parts.items():
        for row in rows:
            total.update(f"{part}\0{row!r}\0".encode())
    return total.hexdigest()
