"""Figures of readers and scorers on questions and pairs that they were not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.quality import pairsets
from studies.quality.pairsets import Ranking
from studies.quality.squad import Part
from verso_training.heads import scoring, signals
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.scoring import Pair

QUESTIONS = 300
"""Questions of each ranking that a scorer is measured on."""


def ranked(
    scores: Sequence[NDArray[np.float32]], rankings: Sequence[Ranking]
) -> tuple[float, float]:
    """Mean reciprocal rank of the first right candidate, and how often it is first, in percent."""
    places = []
    for values, ranking in zip(scores, rankings, strict=True):
        order = np.argsort(-values, kind="stable")
        places.append(1 + next(i for i, c in enumerate(order) if int(c) in ranking.right))
    found = np.array(places, np.float64)
    return 100 * float((1 / found).mean()), 100 * float((found == 1).mean())


def reported(data: Path) -> dict[str, list[Ranking]]:
    """The questions that rankings are measured on."""
    return {
        "selqa_dev": pairsets.selqa(data, "dev")[:QUESTIONS],
        "squad_dev": list(pairsets.squad_sentences(data, Part.DEV))[:QUESTIONS],
    }


def scorer(
    module: CrossEncoder, base: Backbone, *, data: Path, max_tokens: int
) -> Mapping[str, float]:
    """Ranking of sentences, entailment, and STS-B, which it was not trained on."""

    def scores(rows: Sequence[Pair]) -> NDArray[np.float32]:
        return scoring.scores(
            module, scoring.tokenised(rows, base.tokenizer, max_tokens=max_tokens)
        )

    figures = {}
    for name, rankings in reported(data).items():
        flat = [Pair(r.question, candidate, 0.0) for r in rankings for candidate in r.candidates]
        cuts = np.cumsum([len(r.candidates) for r in rankings])[:-1]
        figures[f"{name}_mrr"], figures[f"{name}_first"] = ranked(
            np.split(scores(flat), cuts), rankings
        )
    snli = pairsets.snli(data, "test")[:2000]
    found, gold = scores(snli), np.array([pair.score for pair in snli])
    figures["snli_auroc"] = 100 * signals.auroc(found[gold == 1.0], found[gold == 0.0])
    sts = pairsets.stsb(data, "dev")
    figures["stsb_dev_spearman"] = 100 * scoring.spearman(
        scores(sts), np.array([pair.score for pair in sts])
    )
    return figures


def scorer_card(figures: Mapping[str, float]) -> str:
    """The figures of a scorer."""
    names = {
        "selqa_dev_mrr": "SelQA dev: mean reciprocal rank of the right sentence",
        "selqa_dev_first": "SelQA dev: right sentence first, %",
        "squad_dev_mrr": "SQuAD dev articles: mean reciprocal rank of the sentence with the answer",
        "squad_dev_first": "SQuAD dev articles: sentence with the answer first, %",
        "snli_auroc": "SNLI test: entailed against contradicted, AUROC",
        "stsb_dev_spearman": "STS-B dev, not trained on: Spearman",
    }
    rows = ["| measured on texts that were not trained on | |", "|---|---:|"]
    rows += [f"| {names[key]} | {value:.1f} |" for key, value in figures.items()]
    return "\n".join(rows)
