"""A group's loss is that of the equation, and its right passage comes first."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from verso_training.heads.ranking import groups
from verso_training.heads.ranking.groups import LEVEL_WEIGHT, Group

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "who", "wrote", "it", "she", "did", "rain", "fell"]


def test_the_loss_is_that_of_its_equation() -> None:
    rng = np.random.default_rng(0)
    sizes = [4, 2, 3]
    logits = rng.normal(size=sum(sizes)) * 3
    targets = np.zeros(sum(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    targets[starts] = 1.0
    ranks = [
        np.log(np.exp(logits[at : at + size]).sum()) - logits[at]
        for at, size in zip(starts, sizes, strict=True)
    ]
    score = 1 / (1 + np.exp(-logits))
    level = -(targets * np.log(score) + (1 - targets) * np.log(1 - score)).mean()
    found = groups.loss(torch.tensor(logits), torch.tensor(targets), sizes=sizes)
    assert float(found) == pytest.approx(np.mean(ranks) + LEVEL_WEIGHT * level, rel=1e-9)


def test_a_group_is_read_with_its_right_passage_first() -> None:
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    group = Group("who wrote it", "she did", ("rain fell", "it fell"))
    [found] = groups.tokenised([group], tokenizer, max_tokens=12)
    assert [pair.score for pair in found.pairs] == [1.0, 0.0, 0.0]
    assert found.pairs[0].ids == [1, 4, 5, 6, 2, 7, 8, 2]
    assert found.ids == [token for pair in found.pairs for token in pair.ids]
