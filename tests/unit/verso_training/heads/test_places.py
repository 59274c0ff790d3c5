"""Batches follow their module to another device; PyTorch's "meta" device stands for a GPU.

It computes shapes only, and refuses to mix its tensors with those of the processor as a GPU does.
"""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from verso_training.heads import pairs, places, sequences
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import CrossEncoder, SequenceClassifier
from verso_training.heads.pairs import PairTokens
from verso_training.heads.reader import Reader
from verso_training.heads.recipe import AnswerConfig
from verso_training.heads.sequences import TextTokens
from verso_training.heads.squad import Window


class Encoder(nn.Module):
    """Stands for the transformer, which looks into its mask: there are no values to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.config = BertConfig(hidden_size=12)
        self.words = nn.Embedding(50, 12)
        self.encoder = nn.Sequential(nn.Linear(12, 12))

    def forward(self, input_ids: Tensor, **_: Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=self.encoder(self.words(input_ids)))


@pytest.fixture
def bert() -> BertModel:
    return cast("BertModel", Encoder())


def test_a_classifier_is_trained_where_it_is(bert: BertModel) -> None:
    module = SequenceClassifier(bert, classes=3).to("meta")
    found = sequences.losses(module, torch.ones(3))([TextTokens([2, 7, 3], 1)])
    assert found["class"].device == places.of(module) == torch.device("meta")


def test_a_scorer_is_trained_where_it_is(bert: BertModel) -> None:
    module = CrossEncoder(bert).to("meta")
    found = pairs.losses(module)([PairTokens([2, 7, 3, 8, 3], 3, 0.5)])
    assert found["score"].device == places.of(module) == torch.device("meta")


def test_a_reader_is_trained_where_it_is(bert: BertModel) -> None:
    base = Backbone(bert, Tokenizer(WordLevel()), {})
    module = Reader(base, AnswerConfig(rank=2, alpha=4.0)).to("meta")
    window = Window(0, [2, 7, 3, 8, 9, 3], 3, [(0, 1), (2, 3)], [3], [4])
    [loss] = module.losses([window]).values()
    assert loss.device == places.of(module) == torch.device("meta")


def test_without_a_gpu_it_is_the_processor() -> None:
    if not torch.cuda.is_available():
        assert places.fastest() == places.PROCESSOR
