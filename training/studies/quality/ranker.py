"""The ``relevance`` head: how well a passage of a search's hits answers a question.

It starts from the published ``pairs`` head, which was trained on single sentences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from studies.quality import passages, selection
from studies.quality.job import Job, command, digest
from studies.quality.pairsets import Ranking
from studies.quality.squad import Part
from verso_core import heads, manifest, registry
from verso_core.heads import Head
from verso_training.heads import backbone, fitting, graph, scoring, shipping
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.ranking import groups as ranking
from verso_training.heads.ranking.groups import Group
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.scoring import Pair
from verso_training.heads.shipping import Provenance, Trained
from verso_training.heads.vectors import OnProgress, ShouldStop

_QUESTIONS = 100
_AMONG = 10
_NAMES = {
    "selqa_dev_words_mrr": "SelQA dev, ten sections: mean reciprocal rank of the right, by words",
    "selqa_dev_mrr": "the same, by this head",
    "squad_dev_words_mrr": "SQuAD dev articles, ten paragraphs: that of the right one by words",
    "squad_dev_mrr": "the same, by this head",
}


@dataclass(frozen=True)
class Taught:
    """A trained ranker that is not written yet.

    Attributes:
        recipe: With the settings as they were lived by.
        base: The encoder below ``module``.
    """

    recipe: HeadRecipe
    module: CrossEncoder
    base: Backbone

    def scores(self, read: Sequence[Pair], *, bfloat16: bool = False) -> NDArray[np.float32]:
        """How well each passage answers its question, in [0, 1]. Shape: (N,)."""
        tokens = scoring.tokenised(
            read, self.base.tokenizer, max_tokens=self.recipe.score.max_tokens
        )
        return scoring.scores(self.module, tokens, bfloat16=bfloat16)


def train(recipe: HeadRecipe, job: Job) -> Head:
    """Train, measure and write the head.

    Raises:
        HeadUnknown: the head that it goes on from is not published.
    """
    groups = passages.shippable(job.data, **recipe.data, seed=recipe.seed)
    taught = started(recipe, job.artifact)
    teach(
        taught,
        groups,
        folder=job.work / "runs" / recipe.name,
        on_progress=job.on_progress,
        should_stop=job.should_stop,
    )
    figures = _figures(taught, job.data)
    config = taught.recipe.score
    golden = scoring.tokenised(
        [Pair(group.question, group.right, 1.0) for group in groups],
        taught.base.tokenizer,
        max_tokens=config.max_tokens,
    )
    trained = Trained(
        recipe=taught.recipe,
        module=taught.module,
        outputs=("score",),
        samples=graph.golden_pairs((pair.ids, pair.second) for pair in golden),
        provenance=Provenance(passages.DATA, passages.LICENCE, command(recipe), digest(groups)),
        card=_card(figures, groups=len(groups), start=config.start),
        metrics=figures,
        sources=taught.base.sources,
        max_tokens=config.max_tokens,
    )
    return heads.load(shipping.publish(trained, artifact=job.artifact, out_dir=job.out_dir)).head


def started(recipe: HeadRecipe, artifact: Path) -> Taught:
    """Start from the published head that the recipe names, or from the encoder.

    Raises:
        HeadUnknown: it is not published.
    """
    base = backbone.load(artifact)
    before = None
    if recipe.score.start:
        folder = registry.head(artifact.parent, recipe.score.start)
        before = graph.load(folder, space=manifest.load(artifact).manifest.space.id)
    config = graph.shaped(recipe.score, before)
    torch.manual_seed(recipe.seed)
    module = CrossEncoder(
        backbone.adapt(base, rank=config.rank, alpha=config.alpha, dropout=config.dropout),
        dropout=config.dropout,
    )
    if before is not None:
        before.restore(module)
    module.eval()
    return Taught(dataclasses.replace(recipe, score=config), module, base)


def teach(
    taught: Taught,
    groups: Sequence[Group],
    *,
    folder: Path,
    held_out: Sequence[Group] = (),
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
) -> None:
    """Train on groups, or take the weights of a training that ended in the same folder.

    Args:
        folder: For checkpoints and the weights.
        held_out: The weights stay of the epoch that is best on these.
    """
    recipe, module = taught.recipe, taught.module
    kept = folder / "taught.safetensors"
    if not kept.exists():
        main, judged = (
            ranking.tokenised(some, taught.base.tokenizer, max_tokens=recipe.score.max_tokens)
            for some in (groups, held_out)
        )
        fitting.AdapterRun(
            module,
            fitting.Budget.of(recipe.score, seed=recipe.seed),
            main=main,
            held_out=judged,
            losses=ranking.losses(module),
            folder=folder,
        ).train(on_progress=on_progress, should_stop=should_stop)
        save_file(backbone.state(module), kept)
    backbone.restore(module, load_file(kept))
    module.eval()


def _figures(taught: Taught, data: Path) -> dict[str, float]:
    """Where the right passage stands among those nearest by words, by words and by the head."""
    figures = {}
    for name, asked in {
        "selqa_dev": passages.selqa(data, "dev"),
        "squad_dev": passages.squad_asked(data, Part.DEV),
    }.items():
        shown = [
            Ranking(one.question, tuple(near[:_AMONG]), frozenset({near.index(one.passage)}))
            for one, near in passages.nearest(asked)
            if one.passage in near[:_AMONG]
        ]
        shown = shown[:: max(1, len(shown) // _QUESTIONS)][:_QUESTIONS]
        flat = [Pair(row.question, text, 0.0) for row in shown for text in row.candidates]
        found = taught.scores(flat).reshape(len(shown), -1)
        by_words = [-np.arange(found.shape[1], dtype=np.float32)] * len(shown)
        figures[f"{name}_words_mrr"], _ = selection.ranked(by_words, shown)
        figures[f"{name}_mrr"], _ = selection.ranked(list(found), shown)
    return figures


def _card(figures: Mapping[str, float], *, groups: int, start: str) -> str:
    rows = [
        f"Begun {f'from {start}' if start else 'afresh'}; {groups} questions, each",
        "with its passage and wrong ones that a search finds.",
        "",
        "| measured on texts that were not trained on | |",
        "|---|---:|",
    ]
    return "\n".join(
        [*rows, *(f"| {_NAMES[key]} | {value:.1f} |" for key, value in figures.items())]
    )
