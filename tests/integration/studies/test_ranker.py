"""A head learns to rank from groups, keeps what it learnt, and is found again."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from studies.quality import ranker
from studies.quality.job import load_recipe
from studies.quality.ranker import Taught
from verso_training.heads import backbone
from verso_training.heads.ranking.groups import Group
from verso_training.heads.scoring import Pair

TINY = Path(__file__).parents[2] / "data" / "artifact-tiny"
GROUPS = [
    Group(f"which worker {verb} {i}?", f"The worker {verb} at {i}.", ("It rains.", "No answer."))
    for i in range(6)
    for verb in ("stopped", "started")
]


def fresh() -> Taught:
    named = load_recipe("relevance")
    score = dataclasses.replace(named.score, start="", epochs=12, max_tokens=32, rate=2e-3)
    score = dataclasses.replace(score, tokens_per_step=256, dropout=0.0, patience=0)
    return ranker.started(dataclasses.replace(named, score=score), TINY)


def margin(taught: Taught) -> float:
    """By how much the right passages are scored above the best wrong ones."""
    right = taught.scores([Pair(one.question, one.right, 1.0) for one in GROUPS])
    wrong = taught.scores([Pair(one.question, text, 0.0) for one in GROUPS for text in one.wrong])
    return float((right - wrong.reshape(len(GROUPS), -1).max(1)).mean())


def test_right_passages_come_to_lead_and_what_was_learnt_is_kept(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    taught = fresh()
    before = margin(taught)
    ranker.teach(taught, GROUPS, folder=tmp_path)
    assert margin(taught) > before + 0.3
    again = fresh()
    ranker.teach(again, [], folder=tmp_path)
    learnt, found = backbone.state(taught.module), backbone.state(again.module)
    assert all(torch.equal(found[name], weight) for name, weight in learnt.items())


def test_narrow_products_give_nearly_the_same_scores() -> None:
    taught = fresh()
    read = [Pair(one.question, one.right, 1.0) for one in GROUPS]
    narrow, wide = taught.scores(read, bfloat16=True), taught.scores(read)
    assert np.abs(narrow - wide).max() < 0.02
