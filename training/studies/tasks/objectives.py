"""Objectives that an encoder and its heads are trained with, one function each.

The publications: BERT (Devlin et al. 2019), Sentence-BERT (Reimers & Gurevych 2019) and the
Decodable Sentence-BERT, whose equation numbers are given as "DSB". Letters: B batch, T tokens, V
vocabulary, D width, C classes. The index vectors of an artifact stay as they are whatever is
trained here: an adapter is a copy of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Masked:
    """A text prepared for masked-language modelling. All of shape (B, T).

    Attributes:
        ids: With [MASK] and random tokens in it.
        hidden: True where [MASK] stands: attention is blocked there as for padding.
        chosen: True where the token was masked or replaced.
    """

    ids: Tensor
    hidden: Tensor
    chosen: Tensor


def mask_tokens(
    ids: Tensor,
    attended: Tensor,
    *,
    mask_id: int,
    vocab: int,
    generator: torch.Generator,
    share: float = 0.15,
) -> Masked:
    """Mask ``share`` of the tokens and replace another ``share`` by random ones (DSB, section 3.2).

    The first token, [CLS], is never touched (DSB, section 2.2). BERT chooses 15 % in all and leaves
    a tenth of them as they are; the publication masks 15 % and replaces 15 %.

    Args:
        ids: Shape: (B, T), int64.
        attended: 1 for a token, 0 for padding. Shape: (B, T).
        mask_id: Id of [MASK].
        vocab: Number of tokens.
        generator: For the choice.
        share: Of each kind.
    """
    draw = torch.rand(ids.shape, generator=generator)
    free = attended.bool().clone()
    free[:, 0] = False
    hidden = free & (draw < share)
    replaced = free & (draw >= share) & (draw < 2 * share)
    noise = torch.randint(0, vocab, ids.shape, generator=generator)
    changed = torch.where(replaced, noise, ids.masked_fill(hidden, mask_id))
    return Masked(changed, hidden, hidden | replaced)


def masked_language_model(
    states: Tensor, embedding: Tensor, *, targets: Tensor, attended: Tensor, chosen: Tensor
) -> Tensor:
    """Predict the true tokens, the masked ones twice over (DSB, eq. 5, 12 and 13).

        L_attn = CE(E h_t, y_t) over all tokens that are not padding            (5)
        L_msk  = CE(E h_t, y_t) over the masked and replaced ones               (12)
        L_mlm  = L_msk + L_attn                                                 (13)

    E is the encoder's own embedding (11). The publication sums over tokens; means are used here, so
    that the rate does not depend on the length of a batch.

    Args:
        states: Shape: (B, T, D).
        embedding: Shape: (V, D).
        targets: The true ids. Shape: (B, T).
        attended: True for tokens. Shape: (B, T), bool.
        chosen: From ``mask_tokens``. Shape: (B, T), bool.
    """
    every = F.cross_entropy(states[attended] @ embedding.t(), targets[attended])
    if not bool(chosen.any()):
        return every
    return every + F.cross_entropy(states[chosen] @ embedding.t(), targets[chosen])


def next_sentence(first: Tensor, layer: nn.Linear, follows: Tensor) -> Tensor:
    """Does the second text follow the first? CE(W h_[CLS], {0, 1}) (DSB, eq. 6).

    Args:
        first: State of [CLS] of a pair. Shape: (B, D).
        layer: D to 2.
        follows: 1 where it does. Shape: (B,), int64.
    """
    return F.cross_entropy(layer(first), follows)


def cosine_mse(u: Tensor, v: Tensor, score: Tensor) -> Tensor:
    """(cos(u, v) - l)^2, the regression objective (Sentence-BERT, section 3; DSB, eq. 9).

    Args:
        u: Shape: (B, D).
        v: Shape: (B, D).
        score: In [-1, 1]. Shape: (B,).
    """
    return F.mse_loss(F.cosine_similarity(u, v), score)


def ranked(u: Tensor, v: Tensor, score: Tensor, *, temperature: float = 0.05) -> Tensor:
    """No pair of a batch shall be closer than one that is more alike.

        L = log(1 + sum over l_i < l_j of exp((cos(u_i, v_i) - cos(u_j, v_j)) / t))

    Only the order of the scores l counts, which is what a rank correlation measures (Su 2022,
    "CoSENT"; Huang et al. 2024, eq. 4).

    Args:
        u: Shape: (B, D).
        v: Shape: (B, D).
        score: Shape: (B,).
        temperature: t.
    """
    cosine = F.cosine_similarity(u, v) / temperature
    gaps = (cosine[:, None] - cosine[None])[score[:, None] < score[None]]
    return torch.logsumexp(torch.cat([gaps.new_zeros(1), gaps]), 0)


def pair_classes(u: Tensor, v: Tensor, layer: nn.Linear, label: Tensor) -> Tensor:
    """CE(W (u, v, |u - v|), label), the classification objective (Sentence-BERT; DSB, eq. 8).

    Args:
        u: Shape: (B, D).
        v: Shape: (B, D).
        layer: 3 D to C.
        label: Shape: (B,), int64.
    """
    return F.cross_entropy(layer(torch.cat([u, v, (u - v).abs()], dim=-1)), label)


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, *, margin: float = 1.0) -> Tensor:
    """max(|a - p| - |a - n| + margin, 0), Euclidean (Sentence-BERT, section 3; DSB, eq. 10).

    Shape of each: (B, D).
    """
    near = (anchor - positive).norm(dim=-1)
    far = (anchor - negative).norm(dim=-1)
    cost: Tensor = (near - far + margin).clamp(min=0.0).mean()
    return cost


def in_batch_contrast(u: Tensor, v: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Each u_i shall find its v_i among all v of the batch.

        L = - mean_i log exp(cos(u_i, v_i) / t) / sum_j exp(cos(u_i, v_j) / t)

    van den Oord et al. 2018, eq. 4, with the other pairs of the batch as negatives (Henderson et
    al. 2017, section 4). Shape: twice (B, D).
    """
    similar = F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).t()
    return F.cross_entropy(similar / temperature, torch.arange(len(u), device=u.device))


def self_generation(logits: Tensor, targets: Tensor, *, padding: int) -> Tensor:
    """Cross-entropy of each next token of the text itself, given its vector (DSB, section 3.2).

    Args:
        logits: Row t was computed from the tokens before t. Shape: (B, T, V).
        targets: Tokens and the end token. Shape: (B, T).
        padding: The target that does not count.
    """
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=padding)


class OneWayAttention(nn.Module):
    """A pair's score from one-way cross-attention: the tokens of a look at those of b.

        z = W_2 gelu(W_1 mean_t( h^a_t + softmax(q(h^a_t) k(h^b)') v(h^b) ))

    Half of a cross-encoder's exchange at the price of encoding each text once: the states of b can
    be kept. Multi-task minBERT compares such pair heads with cosine and pooling.
    """

    def __init__(self, width: int, *, heads: int = 4) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, a: Tensor, b: Tensor, *, mask_a: Tensor, mask_b: Tensor) -> Tensor:
        """A logit for each pair.

        Args:
            a: Token states. Shape: (B, T, D).
            b: Token states. Shape: (B, S, D).
            mask_a: 1 for a token. Shape: (B, T).
            mask_b: 1 for a token. Shape: (B, S).
        """
        seen, _ = self.attention(a, b, b, key_padding_mask=~mask_b.bool(), need_weights=False)
        weight = mask_a.unsqueeze(-1).to(a.dtype)
        pooled = ((a + seen) * weight).sum(1) / weight.sum(1)
        logits: Tensor = self.out(F.gelu(self.hidden(pooled))).squeeze(-1)
        return logits
