"""Fit the layers on terms: one for each source, and one that tells the sources apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from studies.documents.data import Document, Part
from studies.documents.selection import Watch, score
from verso_training.heads.recipe import ClassWeights
from verso_training.heads.vectors import class_weights

TERMS_L2 = (0.1, 0.01, 0.001)
"""Penalties tried, of one row: the inverse of scikit-learn's C."""
_FEWEST = 2
"""Training rows of a term that counts."""


@dataclass(frozen=True)
class TermSettings:
    """How a layer on terms is fitted: the weights of its classes, and its penalty."""

    kind: ClassWeights
    l2: float


@dataclass(frozen=True)
class TermLayer:
    """A layer on terms. Shapes: (buckets,), (buckets, C), (C,)."""

    idf: Tensor
    table: Tensor
    bias: Tensor


def known_terms(documents: Sequence[Document], *, buckets: int) -> NDArray[np.int64]:
    """Return the id that each bucket belongs to, -1 for none. Shape: (buckets,)."""
    found = np.full(max(1, buckets), -1, np.int64)
    if not buckets:
        return found
    count = Counter(int(term) for one in documents for term in one.terms)
    for term, times in sorted(count.items(), key=lambda row: (row[1], row[0])):
        if times >= _FEWEST:
            found[term % buckets] = term
    return found


def choose_terms(
    train: Part, held_out: Part, *, classes: int, ids: NDArray[np.int64], watch: Watch
) -> tuple[TermLayer, TermSettings]:
    """Return the layer on terms that the held-out rows choose, and how it was fitted."""
    best: tuple[float, TermLayer, TermSettings] | None = None
    for kind in (ClassWeights.SQRT, ClassWeights.BALANCED):
        for l2 in TERMS_L2:
            settings = TermSettings(kind, l2)
            layer = fit_terms(train, settings, classes=classes, ids=ids)
            reached = score(term_logits(layer, held_out, ids=ids).numpy(), held_out.targets)
            watch.step(validation_score=reached)
            if best is None or reached > best[0]:
                best = reached, layer, settings
    assert best is not None
    return best[1], best[2]


def fit_terms(
    train: Part, settings: TermSettings, *, classes: int, ids: NDArray[np.int64]
) -> TermLayer:
    """Fit the layer on terms with these settings."""
    idf = _idf(train.documents, ids=ids)
    x = _words(train.documents, ids=ids, idf=idf)
    fitted = _linear(x, train.targets, classes=classes, kind=settings.kind, l2=settings.l2)
    return TermLayer(idf, *fitted)


def term_logits(layer: TermLayer, part: Part, *, ids: NDArray[np.int64]) -> Tensor:
    """Return the logits of documents. Shape: (N, C)."""
    x = _words(part.documents, ids=ids, idf=layer.idf)
    logits: Tensor = torch.sparse.mm(x, layer.table) + layer.bias
    return logits


def fit_sources(train: Part, sources: Sequence[range], *, ids: NDArray[np.int64]) -> TermLayer:
    """Return the layer that tells the sources apart; zeros where there is one."""
    idf = _idf(train.documents, ids=ids)
    if len(sources) == 1:
        return TermLayer(idf, torch.zeros(len(ids), 1), torch.zeros(1))
    number = np.zeros(sources[-1].stop, np.int64)
    for source, labels in enumerate(sources):
        number[labels.start : labels.stop] = source
    x = _words(train.documents, ids=ids, idf=idf)
    table, bias = _linear(
        x, number[train.targets], classes=len(sources), kind=ClassWeights.BALANCED, l2=0.01
    )
    return TermLayer(idf, table, bias)


def _idf(documents: Sequence[Document], *, ids: NDArray[np.int64]) -> Tensor:
    """Return ln((1 + N) / (1 + df)) + 1 of each bucket; 0 of terms of fewer than ``_FEWEST`` rows.

    Shape: (buckets,).
    """
    count = np.zeros(len(ids))
    for one in documents:
        bucket = one.terms % len(ids)
        count[bucket[ids[bucket] == one.terms]] += 1
    values = np.log((1.0 + len(documents)) / (1.0 + count)) + 1.0
    return torch.from_numpy(np.where(count >= _FEWEST, values, 0.0).astype(np.float32))


def _words(documents: Sequence[Document], *, ids: NDArray[np.int64], idf: Tensor) -> Tensor:
    """Return the terms x of documents as a sparse matrix. Shape: (N, buckets)."""
    rows, columns, values = [], [], []
    scale = idf.numpy()
    for row, one in enumerate(documents):
        bucket = one.terms % len(ids)
        kept = ids[bucket] == one.terms
        bucket = bucket[kept]
        x = np.log1p(one.weights[kept]) * scale[bucket]
        x /= max(1e-6, float(np.sqrt((x * x).sum())))
        rows.append(np.full(len(bucket), row))
        columns.append(bucket)
        values.append(x)
    place = torch.from_numpy(np.stack([np.concatenate(rows), np.concatenate(columns)]))
    found = torch.sparse_coo_tensor(
        place,
        torch.from_numpy(np.concatenate(values)),
        (len(documents), len(ids)),
        check_invariants=True,
    )
    return found.coalesce()


def _linear(
    x: Tensor, targets: NDArray[np.int64], *, classes: int, kind: ClassWeights, l2: float
) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression on a sparse matrix, by L-BFGS; ``l2`` is of one row."""
    y = torch.from_numpy(targets)
    weight = class_weights(targets, classes=classes, kind=kind)
    table = torch.zeros(x.shape[1], classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([table, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(torch.sparse.mm(x, table) + bias, y, weight=weight)
        loss = loss + 0.5 * l2 / len(y) * (table**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return table.detach(), bias.detach()
