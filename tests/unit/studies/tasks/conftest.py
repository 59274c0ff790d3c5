"""A transformer small enough to train in a test."""

import pytest
import torch
from transformers import BertConfig, BertModel


@pytest.fixture
def bert() -> BertModel:
    """Return one of two layers without dropout, nothing of which is trained."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    model.requires_grad_(requires_grad=False)
    model.train(mode=False)
    return model
