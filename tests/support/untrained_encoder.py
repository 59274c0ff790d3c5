"""A small sentence encoder with random weights, in place of the real one.

Texts that share words have similar vectors, which follows from means of random embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import BertConfig, BertModel

from verso_training.encoder import MAX_TOKENS, SentenceEncoder


def untrained(
    texts: Iterable[str], *, dim: int = 384, width: int = 64, seed: int = 0
) -> tuple[SentenceEncoder, Tokenizer]:
    """Build a small encoder with random weights, the same for the same seed, and its WordPiece."""
    tokenizer = _wordpiece(texts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=width,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=width,
            max_position_embeddings=MAX_TOKENS,
        )
        bert = BertModel(config, add_pooling_layer=False)
        # Words must outweigh positions, or all texts of one length look alike.
        nn.init.normal_(bert.embeddings.word_embeddings.weight, std=1.0)
        projection = nn.Linear(width, dim, bias=False)
        nn.init.orthogonal_(projection.weight)
    return SentenceEncoder(bert, projection).eval(), tokenizer


def _wordpiece(texts: Iterable[str], vocab: int = 800) -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ids
    )
    return tokenizer
