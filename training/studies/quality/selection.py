"""Figures of readers and scorers on questions and pairs that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from verso_training.heads.shipping import percent
from verso_training.heads.signals import Interval

_ROUNDS = 500
QUESTIONS = 300
"""Questions of each ranking that a scorer is measured on."""


def ranked(
    scores: Sequence[NDArray[np.float32]], rankings: Sequence[Ranking]
) -> tuple[float, float]:
    """Mean reciprocal rank of the first right candidate, and how often it is first, in percent."""
    mean, first = with_intervals(scores, rankings)
    return mean.value, first.value


def with_intervals(
    scores: Sequence[NDArray[np.float32]], rankings: Sequence[Ranking]
) -> tuple[Interval, Interval]:
    """Return what ``ranked`` returns, with intervals over the questions."""
    found = places(scores, rankings)

    def mean(values: NDArray[np.float64]) -> Interval:
        return signals.bootstrap(lambda i: 100 * float(values[i].mean()), len(values), rounds=2000)

    return mean(1 / found), mean((found == 1).astype(np.float64))


def places(
    scores: Sequence[NDArray[np.float32]], rankings: Sequence[Ranking]
) -> NDArray[np.float64]:
    """Return the rank of each question's first right candidate, from 1 on. Shape: (N,)."""
    found = []
    for values, ranking in zip(scores, rankings, strict=True):
        order = np.argsort(-values, kind="stable")
        found.append(1 + next(i for i, c in enumerate(order) if int(c) in ranking.right))
    return np.array(found, np.float64)


def scores(
    module: CrossEncoder, base: Backbone, rankings: Sequence[Ranking], *, max_tokens: int
) -> list[NDArray[np.float32]]:
    """Return what a scorer says of each question's candidates."""
    flat = [Pair(r.question, candidate, 0.0) for r in rankings for candidate in r.candidates]
    cuts = np.cumsum([len(r.candidates) for r in rankings])[:-1]
    said = scoring.scores(module, scoring.tokenised(flat, base.tokenizer, max_tokens=max_tokens))
    return np.split(said, cuts)


def reported(data: Path) -> dict[str, list[Ranking]]:
    """The questions that rankings are measured on."""
    return {
        "selqa_dev": pairsets.selqa(data, "dev")[:QUESTIONS],
        "squad_dev": list(pairsets.squad_sentences(data, Part.DEV))[:QUESTIONS],
    }


def scorer(
    module: CrossEncoder, base: Backbone, *, data: Path, max_tokens: int
) -> Mapping[str, Interval]:
    """Ranking of sentences, entailment, and STS-B, which it was not trained on."""

    def said_of(rows: Sequence[Pair]) -> NDArray[np.float32]:
        return scoring.scores(
            module, scoring.tokenised(rows, base.tokenizer, max_tokens=max_tokens)
        )

    figures: dict[str, Interval] = {}
    for name, rankings in reported(data).items():
        figures[f"{name}_mrr"], figures[f"{name}_first"] = with_intervals(
            scores(module, base, rankings, max_tokens=max_tokens), rankings
        )
    snli = pairsets.snli(data, "test")[:2000]
    found, gold = said_of(snli), np.array([pair.score for pair in snli])
    kinds = found[gold == 1.0], found[gold == 0.0]
    figures["snli_auroc"] = _drawn_apart(kinds, lambda *drawn: 100 * signals.auroc(*drawn))
    sts = pairsets.stsb(data, "dev")
    said, truth = said_of(sts), np.array([pair.score for pair in sts])
    figures["stsb_dev_spearman"] = signals.bootstrap(
        lambda i: 100 * scoring.spearman(said[i], truth[i]), len(sts), rounds=_ROUNDS
    )
    return figures


def _drawn_apart(
    kinds: tuple[NDArray[np.float32], NDArray[np.float32]],
    figure: Callable[[NDArray[np.float32], NDArray[np.float32]], float],
) -> Interval:
    """Return a figure of two kinds of pairs, each drawn by itself."""
    rng = np.random.default_rng(0)
    drawn = [figure(*kinds)]
    for _ in range(_ROUNDS):
        one, other = (own[rng.integers(0, len(own), len(own))] for own in kinds)
        drawn.append(figure(one, other))
    return signals.middle(np.array(drawn))


def scorer_card(figures: Mapping[str, Interval]) -> str:
    """Return the figures of a scorer."""
    names = {
        "selqa_dev_mrr": "SelQA dev: mean reciprocal rank of the right sentence",
        "selqa_dev_first": "SelQA dev: right sentence first, %",
        "squad_dev_mrr": "SQuAD dev articles: mean reciprocal rank of the sentence with the answer",
        "squad_dev_first": "SQuAD dev articles: sentence with the answer first, %",
        "snli_auroc": "SNLI test: entailed against contradicted, AUROC",
        "stsb_dev_spearman": "STS-B dev, not trained on: Spearman",
    }
    rows = ["| measured on texts that were not trained on | |", "|---|---:|"]
    rows += [f"| {names[key]} | {percent(one, scale=1.0)} |" for key, one in figures.items()]
    rows += ["", "Brackets are 95 % bootstrap intervals over the questions or pairs."]
    return "\n".join(rows)


def values(figures: Mapping[str, Interval]) -> dict[str, float]:
    """Return the figures of ``head.json``."""
    return {name: one.value for name, one in figures.items()}
