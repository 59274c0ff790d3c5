"""The layers of a head, in the shapes of a head's graph (``verso_core.heads``).

Every module is trained and exported as it is: its forward takes the graph's inputs in their order
and returns the graph's outputs.

An answer is a span of the text (Devlin et al. 2019, section 4.2): with token states h_t, start and
end logits are s_t = S h_t and e_t = E h_t; the probability of a start is softmax(s)_t; the score of
the answer t..u is s_t + e_u, and "no answer" scores s_0 + e_0, the position of [CLS] (section 4.3).
An answer is returned if

    max_{t <= u} s_t + e_u  >  s_0 + e_0 + tau,

tau being tuned on a split that is not reported. Preite 2020 (section 6.1) replaces the one linear
layer by deeper ones; its widths are for states of 768 and are scaled to the encoder's here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from verso_training.heads.recipe import SpanLayers

if TYPE_CHECKING:
    from transformers import BertModel

NEGATIVE = -1e4
"""Minus infinity among logits, in the range of float16."""


class SpanHead(nn.Module):
    """Start and end logits of every token."""

    def __init__(self, layers: SpanLayers, *, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        widths = {
            SpanLayers.VANILLA: (),
            SpanLayers.TANH_2: (width // 2,),
            SpanLayers.GELU_2: (width // 3,),
            SpanLayers.RELU_2_SKIP: (width,),
            SpanLayers.RELU_4: (width * 4 // 3, width, width * 25 // 96),
            SpanLayers.GELU_4_SKIP: (width * 4 // 3, width, width // 2),
        }[layers]
        self.layers = layers
        self.hidden = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip((width, *widths), widths, strict=False)
        )
        self.out = nn.Linear((width, *widths)[-1], 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the start and of the end. Shape: (B, T, W) to twice (B, T)."""
        x = states
        for number, layer in enumerate(self.hidden):
            if self.layers is SpanLayers.GELU_4_SKIP and number == 2:
                x = x + states
            x = self._activation(layer(x))
            if self.layers is SpanLayers.RELU_2_SKIP:
                x = x + states
            elif self.layers is not SpanLayers.VANILLA:
                x = self.dropout(x)
        start, end = self.out(x).unbind(-1)
        return start, end

    def _activation(self, x: Tensor) -> Tensor:
        if self.layers is SpanLayers.TANH_2:
            return x.tanh()
        if self.layers in (SpanLayers.GELU_2, SpanLayers.GELU_4_SKIP):
            return F.gelu(x)
        return F.relu(x)


def span_loss(start: Tensor, end: Tensor, *, starts: Tensor, ends: Tensor, mask: Tensor) -> Tensor:
    """Negative log probability that the start, and the end, is at one of the right positions.

        L = -1/2 sum_B [ log sum_{t in S} softmax(s)_t + log sum_{u in E} softmax(e)_u ] / B

    With one right position each this is the cross-entropy of Devlin et al. 2019. The data give the
    first occurrence of an answer only, so every occurrence counts as right (Clark & Gardner 2018,
    section 3.2: the summed objective).

    Args:
        start: Logits. Shape: (B, T).
        end: Logits. Shape: (B, T).
        starts: True at right positions; [CLS] for "no answer". Shape: (B, T), bool.
        ends: Likewise. Shape: (B, T), bool.
        mask: True where a span may start or end. Shape: (B, T), bool.
    """
    total = start.new_zeros(())
    for logits, right in ((start, starts), (end, ends)):
        masked = logits.masked_fill(~mask, NEGATIVE)
        chosen = masked.masked_fill(~right, NEGATIVE)
        total = total + (masked.logsumexp(-1) - chosen.logsumexp(-1)).mean()
    return total / 2


@dataclass(frozen=True)
class Span:
    """A span in a window and its score.

    Attributes:
        start: First token.
        end: Last token.
        score: s_start + e_end.
    """

    start: int
    end: int
    score: float


def best_spans(
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    *,
    allowed: NDArray[np.bool_],
    count: int = 1,
    longest: int = 30,
) -> list[Span]:
    """Return the highest scoring spans of a window, best first, at most ``longest`` tokens each.

    Args:
        start: Logits. Shape: (T,).
        end: Logits. Shape: (T,).
        allowed: True for the tokens of the context. Shape: (T,).
        count: How many to return.
        longest: In tokens.
    """
    s = np.where(allowed, start, NEGATIVE)
    e = np.where(allowed, end, NEGATIVE)
    scores = s[:, None] + e[None, :]
    positions = np.arange(len(s))
    length = positions[None, :] - positions[:, None]
    scores = np.where((length >= 0) & (length < longest), scores, 2 * NEGATIVE)
    order = np.argsort(scores, axis=None)[::-1][:count]
    found = [(int(i // len(s)), int(i % len(s))) for i in order]
    return [Span(a, b, float(scores[a, b])) for a, b in found if allowed[a] and allowed[b]]


def mean_pool(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the token states that are not padding (Reimers & Gurevych 2019, section
    3).

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
    """A sequence classification head: mean pooling and two linear layers.

    z = W_2 gelu(W_1 u), u the
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
    encoder was trained with mean pooling.
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
        """A score in (0, 1): the similarity of the two texts. Shape: three times (B, T) to (B,)."""
        return (torch.sigmoid(self.logit(input_ids, attention_mask, token_type_ids)),)


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
