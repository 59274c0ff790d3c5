"""The layers of a head, in the shapes that a head's graph has (``verso_core.heads``).

Every module here is what is trained and what is exported: its forward takes the graph's inputs in
their order and gives the graph's outputs.
"""

from __future__ import annotations

from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertModel

from verso_training.heads.spans import SpanHead


def mean_pool(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the token states that are not padding (Reimers & Gurevych 2019, section 3).

    Shape: (B, T, W) and (B, T) to (B, W).
    """
    weight = mask.unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class VectorClassifier(nn.Module):
    """Classes from a stored vector: one linear layer, or two with the hidden one as feature.

        z = W u sqrt(D) + b,    or    z = W_2 gelu(W_1 u sqrt(D) + b_1) + b_2

    Multinomial logistic regression on a frozen encoder's vector, as SentEval probes one (Conneau &
    Kiela 2018, section 3). A unit vector of width D has entries near 1 / sqrt(D); it is multiplied
    by sqrt(D) first, so that the usual initialisation and rates fit.
    """

    def __init__(self, *, dim: int, classes: int, hidden: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.scale = dim**0.5
        self.hidden = nn.Linear(dim, hidden) if hidden else None
        self.out = nn.Linear(hidden or dim, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, vector: Tensor) -> tuple[Tensor, ...]:
        """Logits, and the feature of a hidden layer. Shape: (B, D) to (B, C), (B, F)."""
        x = vector * self.scale
        if self.hidden is None:
            return (self.out(self.dropout(x)),)
        feature = F.gelu(self.hidden(self.dropout(x)))
        return self.out(self.dropout(feature)), feature


class SequenceClassifier(nn.Module):
    """The paper's Sequence Classification head: mean pooling and two linear layers.

    Decodable Sentence-BERT, section 3.2 and table 2 (two linears): z = W_2 gelu(W_1 u), u the
    mean of the token states (eq. 7). The feature is gelu(W_1 u).
    """

    def __init__(self, bert: BertModel, *, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        width = bert.config.hidden_size
        self.bert = bert
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and feature. Shape: twice (B, T) to (B, C) and (B, W)."""
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        pooled = self.dropout(mean_pool(states, attention_mask))
        feature = F.gelu(self.hidden(pooled))
        return self.out(self.dropout(feature)), feature


class CrossEncoder(nn.Module):
    """The score of a pair read together: ``[CLS] a [SEP] b [SEP]``, mean pooled, two linears.

        s = sigmoid(w_2' gelu(W_1 mean_t h_t + b_1) + b_2)

    Devlin et al. 2019, section 4.1, for regression; with the mean instead of [CLS], because the
    encoder was trained to hold a text's meaning in its mean.
    """

    def __init__(self, bert: BertModel, *, dropout: float = 0.1) -> None:
        super().__init__()
        width = bert.config.hidden_size
        self.bert = bert
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        self.dropout = nn.Dropout(dropout)

    def logit(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Before the sigmoid. Shape: three times (B, T) to (B,)."""
        states = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        pooled = self.dropout(mean_pool(states, attention_mask))
        return self.out(self.dropout(F.gelu(self.hidden(pooled)))).squeeze(-1)  # type: ignore[no-any-return]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor]:
        """A score in (0, 1): how alike the two texts are. Shape: three times (B, T) to (B,)."""
        return (torch.sigmoid(self.logit(input_ids, attention_mask, token_type_ids)),)


class PairPooling(StrEnum):
    """How the score of two vectors is made."""

    COSINE = "cosine"
    """s = max(0, u'v), unit vectors: no parameter (Reimers & Gurevych 2019, figure 2)."""
    LAYERS = "layers"
    """s = sigmoid(w_2' gelu(W_1 x + b_1) + b_2), x = sqrt(D) (u, v, |u - v|, sqrt(D) u * v).

    The features are those of InferSent (Conneau et al. 2017, section 3.1).
    """


class VectorPair(nn.Module):
    """The score of two stored vectors: siamese cosine, or pooled and read by two layers."""

    def __init__(self, pooling: PairPooling, *, dim: int, hidden: int = 128) -> None:
        super().__init__()
        self.pooling = pooling
        self.scale = dim**0.5
        if pooling is PairPooling.LAYERS:
            self.hidden = nn.Linear(4 * dim, hidden)
            self.out = nn.Linear(hidden, 1)

    def forward(self, u: Tensor, v: Tensor) -> tuple[Tensor]:
        """Shape: twice (B, D) to (B,), in [0, 1]."""
        if self.pooling is PairPooling.COSINE:
            return ((u * v).sum(-1).clamp(0.0, 1.0),)
        u, v = u * self.scale, v * self.scale
        pooled = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        return (torch.sigmoid(self.out(F.gelu(self.hidden(pooled)))).squeeze(-1),)


class SpanReader(nn.Module):
    """An adapted encoder with one span head: what is exported for answers."""

    def __init__(self, bert: BertModel, head: SpanHead) -> None:
        super().__init__()
        self.bert = bert
        self.head = head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Start and end logits. Shape: three times (B, T) to twice (B, T)."""
        states = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        start, end = self.head(states)
        return start, end
