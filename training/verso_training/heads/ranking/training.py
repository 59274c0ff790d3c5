"""Train a head that ranks passages, from groups to a folder that can be served.

The steps are those of :func:`verso_training.heads.scoring.train_scorer`, with the loss of
``groups``. Groups of the same question stay in one split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verso_core.errors import TrainingDataInvalid
from verso_core.heads import TextUnit
from verso_core.jobs.train import Grouped, check_groups
from verso_training.heads import graph, scoring, shipping, signals
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.fitting import Budget
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.ranking import groups
from verso_training.heads.ranking.groups import Group, GroupTokens
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import RowSplit, digest, portions
from verso_training.heads.shipping import Trained


def train_ranker(
    recipe: HeadRecipe, grouped: Sequence[Grouped], context: TrainingContext
) -> HeadReport:
    """Train, measure and write one head that reads a question with a passage.

    Args:
        recipe: Its ``score`` settings apply.
        grouped: Groups as :func:`verso_core.jobs.train.check_groups` accepts them.
        context: Of the training.

    Raises:
        RecipeInvalid: windows longer than the encoder reads.
        TrainingDataInvalid: groups that cannot be trained on.
        HeadInvalid: the written head differs from the trained one, or ``start`` is not a scorer.
        Cancelled: ``context.should_stop`` returned True.
        DiskFull: no room for a checkpoint or the new folder.
    """
    check_groups(grouped)
    parts = _parts(grouped, recipe)
    score = dataclasses.replace(recipe.score, text_unit=TextUnit.PASSAGE)
    recipe, base, module = scoring.started(dataclasses.replace(recipe, score=score), context)
    config = recipe.score
    tokens = {
        part: groups.tokenised(rows, base.tokenizer, max_tokens=config.max_tokens)
        for part, rows in parts.items()
    }
    budget = Budget.of(config, seed=recipe.seed)
    context.train(module, budget, tokens, losses=groups.losses(module), reported="rank")
    figures = {
        f"{part}_{name}": value
        for part in (RowSplit.VALIDATION, RowSplit.TEST)
        for name, value in _figures(module, tokens[part]).items()
    }
    counts = {str(part): len(parts[part]) for part in RowSplit}
    notes = [
        f"Begun {'afresh' if context.start is None else f'from {context.start.name}'}.",
        f"Groups: {', '.join(f'{n} {part}' for part, n in counts.items())}; split by question.",
        "MRR: mean reciprocal rank of the right passage in its group.",
    ]
    trained = Trained(
        recipe=recipe,
        module=module,
        outputs=("score",),
        samples=graph.golden_pairs(
            (pair.ids, pair.second)
            for part in reversed(RowSplit)
            for group in tokens[part]
            for pair in group.pairs
        ),
        provenance=context.of(digest(parts)),
        card=shipping.scorer(figures, notes=notes),
        metrics=figures | {"test_groups": float(counts["test"])},
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    return context.published(trained, counts, contradicted=0)


def _parts(grouped: Sequence[Grouped], recipe: HeadRecipe) -> dict[RowSplit, list[Group]]:
    """Return groups of one right passage each, by split."""
    free = [group for group in grouped if group.split is None]
    shares = portions(
        [group.question.encode() for group in free],
        validation_share=recipe.validation_share,
        test_share=recipe.test_share,
    )
    split = {id(group): part for group, part in zip(free, shares, strict=True)}
    parts: dict[RowSplit, list[Group]] = {part: [] for part in RowSplit}
    for group in grouped:
        part = split[id(group)] if group.split is None else RowSplit(group.split)
        parts[part] += [Group(group.question, right, group.wrong) for right in group.right]
    for part, rows in parts.items():
        if not rows:
            raise TrainingDataInvalid(f"expected groups for {part}, got none")
    return parts


def _figures(module: CrossEncoder, tokens: Sequence[GroupTokens]) -> Mapping[str, float]:
    """Mean reciprocal rank of the right passage, and AUROC against the wrong ones; times 100."""
    found = scoring.scores(module, [pair for group in tokens for pair in group.pairs])
    starts = np.cumsum([0, *(len(group.pairs) for group in tokens[:-1])])
    right = found[starts]
    places = [1 + int((row[1:] >= row[0]).sum()) for row in np.split(found, starts[1:])]
    return {
        "mrr": 100 * float(np.mean(1 / np.array(places))),
        "auroc": 100 * signals.auroc(right, np.delete(found, starts)),
    }
