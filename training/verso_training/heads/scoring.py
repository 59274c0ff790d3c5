"""Train a head that scores pairs of texts, from scored pairs to a folder that can be served.

The pair is read together by an adapted encoder, or each text through its vector. The loss for a
score y in [0, 1] is the cross-entropy with soft targets,

    L = -y log s - (1 - y) log(1 - s),

whose minimum is at s = y, as for the squared error, but whose gradient does not vanish if s is far
off.

Pairs with the same first text stay in one split, so that no question is both trained on and
measured on. The steps are those of ``vector_classifier.train_head``. A killed run continues from
its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from verso_core.errors import TrainingDataInvalid
from verso_core.jobs.train import Scored, check_pairs
from verso_training import device
from verso_training.encoder import batches, padded
from verso_training.heads import backbone, graph, shipping, signals
from verso_training.heads.backbone import Backbone
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.fitting import Budget
from verso_training.heads.graph import Start, shaped
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.questions import special
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import RowSplit, digest, portions
from verso_training.heads.shipping import Trained


@dataclass(frozen=True)
class Pair:
    """Two texts and their similarity, in [0, 1]."""

    a: str
    b: str
    score: float


@dataclass(frozen=True)
class PairTokens:
    """``[CLS] a [SEP] b [SEP]``; ``second`` is the index of b."""

    ids: list[int]
    second: int
    score: float


def tokenised(pairs: Iterable[Pair], tokenizer: Tokenizer, *, max_tokens: int) -> list[PairTokens]:
    """Token ids of pairs; the longer text is cut first if both do not fit."""
    cls, sep = (special(tokenizer, name) for name in ("[CLS]", "[SEP]"))
    made = []
    for pair in pairs:
        a = tokenizer.encode(pair.a, add_special_tokens=False).ids
        b = tokenizer.encode(pair.b, add_special_tokens=False).ids
        room = max_tokens - 3
        if len(a) + len(b) > room:
            half = room // 2
            a = a[: max(half, room - len(b))]
            b = b[: room - len(a)]
        made.append(PairTokens([cls, *a, sep, *b, sep], len(a) + 2, pair.score))
    return made


@dataclass(frozen=True)
class PairBatch:
    """Pairs padded to the longest. Shape: three times (B, T), and (B,)."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    scores: Tensor


def collate(batch: Sequence[PairTokens]) -> PairBatch:
    """Pad pairs to the longest."""
    ids, mask = padded([pair.ids for pair in batch])
    types = torch.zeros_like(ids)
    for row, pair in enumerate(batch):
        types[row, pair.second : len(pair.ids)] = 1
    return PairBatch(ids, mask, types, torch.tensor([pair.score for pair in batch]))


def losses(module: CrossEncoder) -> Callable[[Sequence[PairTokens]], Mapping[str, Tensor]]:
    """Return the loss of a batch, for ``fitting.AdapterRun``."""

    def of(batch: Sequence[PairTokens]) -> Mapping[str, Tensor]:
        padded = device.batch_beside(module, collate(batch))
        logits = module.logit(padded.ids, padded.mask, padded.types)
        return {"score": F.binary_cross_entropy_with_logits(logits, padded.scores)}

    return of


@torch.inference_mode()
def scores(
    module: CrossEncoder,
    pairs: Sequence[PairTokens],
    *,
    tokens_per_batch: int = 8192,
    bfloat16: bool = False,
) -> NDArray[np.float32]:
    """Return the scores in the order of the pairs. Shape: (N,).

    ``bfloat16`` products are about twice as fast; a served head computes in float32.
    """
    found = np.zeros(len(pairs), np.float32)
    for rows in batches([len(pair.ids) for pair in pairs], tokens=tokens_per_batch):
        batch = collate([pairs[i] for i in rows])
        with torch.autocast(device.of(module).type, torch.bfloat16, enabled=bfloat16):
            logits = module.logit(batch.ids, batch.mask, batch.types)
        found[rows] = torch.sigmoid(logits.float()).numpy()
    return found


def spearman(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Rank correlation (Spearman 1904): Pearson's of the ranks, ties at their mean rank."""
    return float(np.corrcoef(signals.mean_ranks(one), signals.mean_ranks(other))[0, 1])


_FIT = 0.5
"""Two texts fit from this score on."""


def train_scorer(
    recipe: HeadRecipe, scored: Sequence[Scored], context: TrainingContext
) -> HeadReport:
    """Train, measure and write one scorer of pairs that are read together.

    Args:
        recipe: Its ``score`` settings apply.
        scored: Pairs as :func:`verso_core.jobs.train.check_pairs` accepts them.
        context: Of the training.

    Raises:
        RecipeInvalid: windows longer than the encoder reads.
        TrainingDataInvalid: pairs that cannot be trained on.
        HeadInvalid: the written head differs from the trained one, or ``start`` is not a scorer.
        Cancelled: ``context.should_stop`` returned True.
        DiskFull: no room for a checkpoint or the new folder.
    """
    kept, contradicted = _distinct(scored)
    parts = _parts(kept, recipe)
    recipe, base, module = started(recipe, context)
    config = recipe.score
    tokens = {
        part: tokenised(rows, base.tokenizer, max_tokens=config.max_tokens)
        for part, rows in parts.items()
    }
    budget = Budget.of(config, seed=recipe.seed)
    context.train(module, budget, tokens, losses=losses(module), reported="score")
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
        provenance=context.of(digest(parts)),
        card=shipping.scorer(
            figures, notes=_notes(counts, context.start, contradicted=contradicted)
        ),
        metrics=figures | {"test_pairs": float(counts["test"])},
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    return context.published(trained, counts, contradicted=contradicted)


def started(
    recipe: HeadRecipe, context: TrainingContext
) -> tuple[HeadRecipe, Backbone, CrossEncoder]:
    """Return the recipe in the shape of the starting head, the encoder, and what is trained on it.

    Raises:
        RecipeInvalid: windows longer than the encoder reads.
        HeadInvalid: ``context.start`` is not a scorer.
    """
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    config = shaped(recipe.score, context.start)
    base = context.encoder(window=config.max_tokens)
    module = CrossEncoder(
        backbone.adapt(base, rank=config.rank, alpha=config.alpha), dropout=config.dropout
    )
    if context.start is not None:
        context.start.restore(module)
    return dataclasses.replace(recipe, score=config), base, module


def _distinct(scored: Sequence[Scored]) -> tuple[list[Scored], int]:
    """Return each pair once, without pairs of several scores, and the number of those."""
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
    """Spearman's rank correlation, and AUROC of those that fit; times 100, if defined."""
    found = scores(module, tokens)
    gold = np.array([pair.score for pair in tokens], np.float32)
    fit = gold >= _FIT
    figures = {
        "spearman": 100 * spearman(found, gold) if len(set(gold.tolist())) > 1 else math.nan,
        "auroc": 100 * signals.auroc(found[fit], found[~fit])
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
