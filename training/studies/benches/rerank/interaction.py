"""Ways to compare a query with texts in which nothing is trained, beyond the cosine of two vectors.

*Late interaction* compares token by token: each token of the query counts by the token of the text
that is nearest to it (Khattab & Zaharia 2020, eq. 3, here as a mean and by the encoder's own
states, which were not trained for it):

    s(q, t) = 1 / |q| * sum_i max_j cos(q_i, t_j)

*Feedback* asks once more with what was found: by the mean of the first vectors, each weighted by
what the search scored it (Rocchio 1971, without the query and without wrong ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import mean_pool

_TOKENS_PER_BATCH = 4096
_SPECIAL = 2
"""[CLS] and [SEP] stand around every text."""

Array: TypeAlias = NDArray[np.float32]


@torch.inference_mode()
def states(base: Backbone, texts: Sequence[str], *, max_tokens: int) -> list[Array]:
    """Encode texts, each by its tokens, special ones among them. Shapes: (tokens, width)."""
    ids = [base.tokenizer.encode(text).ids for text in texts]
    ids = [[*one[:-1][: max_tokens - 1], one[-1]] for one in ids]
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    found: list[Array] = [np.zeros((0, 0), np.float32)] * len(ids)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * len(ids[order[stop]]) <= _TOKENS_PER_BATCH:
            stop += 1
        batch = order[start:stop]
        tokens = torch.zeros((len(batch), len(ids[batch[-1]])), dtype=torch.int64)
        mask = torch.zeros_like(tokens)
        for row, place in enumerate(batch):
            tokens[row, : len(ids[place])] = torch.tensor(ids[place])
            mask[row, : len(ids[place])] = 1
        hidden = base.bert(input_ids=tokens, attention_mask=mask).last_hidden_state.numpy()
        for row, place in enumerate(batch):
            found[place] = hidden[row, : len(ids[place])].copy()
        start = stop
    return found


def vector(states: Array) -> Array:
    """Return the mean of a text's states: its vector, of an encoder that projects nothing.

    Shape: (tokens, width) to (width,), unit length.
    """
    whole = torch.from_numpy(states[None])
    pooled: Array = mean_pool(whole, torch.ones(whole.shape[:2]))[0].numpy()
    return _unit(pooled)


def late(query: Array, text: Array) -> float:
    """Compare token by token; the query's special tokens do not ask for anything.

    Shapes: (query's tokens, width), (text's tokens, width).
    """
    asking = _unit(query[1 : 1 - _SPECIAL])
    return float((asking @ _unit(text).T).max(axis=1).mean())


def fed_back(scores: Array, vectors: Array, *, first: int) -> Array:
    """Compare vectors with the mean of the first ones.

    Args:
        scores: the search's, best first. Shape: (hits,).
        vectors: of its hits. Shape: (hits, dim), unit length.
        first: how many make the mean.
    """
    middle = scores[:first] @ vectors[:first]
    compared: Array = vectors @ _unit(middle)
    return compared


def _unit(values: Array) -> Array:
    scaled: Array = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return scaled
