"""Heads of pairs on an encoder that stays as it is."""

import numpy as np
import pytest
import torch
from transformers import BertModel

from studies.tasks import steps
from studies.tasks.pairs import pair_models
from studies.tasks.pairs.pair_models import OneWay
from studies.tasks.pairs.siamese import Apart
from studies.tasks.steps import Task

SEP = 1


def test_padding_beside_a_longer_pair_changes_no_score(bert: BertModel) -> None:
    module = OneWay(bert).eval()
    rows = [Apart([0, 5, SEP], [0, 7, SEP], 1.0), Apart([0, *range(5, 20), SEP], [0, 9, SEP], 0.0)]
    together = pair_models.scores(module, rows)
    apart = np.concatenate([pair_models.scores(module, [row]) for row in rows])
    assert together == pytest.approx(apart, abs=1e-5)


def test_one_way_attention_learns_with_the_encoder_as_it_is(bert: BertModel) -> None:
    before = bert.embeddings.word_embeddings.weight.clone()
    rows = [Apart([0, a, SEP], [0, 3, SEP], float(a > 15)) for a in [5, 9, 20, 25] * 64]
    module = OneWay(bert)
    task = Task("one", module, rows, pair_models.losses(module), 2, 8, tokens_per_step=96)
    steps.train(steps.one_task(task), rates=steps.LORA, seed=0, title="one")
    gold = np.array([row.score for row in rows])
    assert np.corrcoef(pair_models.scores(module, rows), gold)[0, 1] > 0.8
    assert torch.equal(bert.embeddings.word_embeddings.weight, before)
