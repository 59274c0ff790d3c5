"""Documents as a classifier reads them: one, a padded batch, and a part with labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Document:
    """What a head reads of a text: see ``verso_core.heads``.

    Attributes:
        vectors: Of its chunks; of none, it trains the layer on terms alone. Shape: (K, D), float32.
        terms: Ids. Shape: (M,), int64.
        weights: Of the terms. Shape: (M,), float32.
    """

    vectors: NDArray[np.float32]
    terms: NDArray[np.int64]
    weights: NDArray[np.float32]

    def inputs(self) -> dict[str, NDArray[np.generic]]:
        """Return the inputs of a graph, without the batch axis; one term of no weight at least."""
        vectors = self.vectors
        if not len(vectors):
            vectors = np.zeros((1, vectors.shape[1]), np.float32)
        return {
            "vectors": vectors,
            "mask": np.ones(len(vectors), np.float32),
            "terms": self.terms if len(self.terms) else np.zeros(1, np.int64),
            "weights": self.weights if len(self.terms) else np.zeros(1, np.float32),
        }


@dataclass(frozen=True)
class Batch:
    """Padded documents. Shapes: (B, K, D), (B, K), and twice (B, M)."""

    vectors: Tensor
    mask: Tensor
    terms: Tensor
    weights: Tensor

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Batch:
        """Pad documents to the longest."""
        rows = [one.inputs() for one in documents]

        def padded(name: str) -> Tensor:
            longest = max(len(row[name]) for row in rows)
            wide = [
                np.pad(row[name], [(0, longest - len(row[name]))] + [(0, 0)] * (row[name].ndim - 1))
                for row in rows
            ]
            return torch.from_numpy(np.stack(wide))

        return cls(padded("vectors"), padded("mask"), padded("terms"), padded("weights"))


@dataclass(frozen=True)
class Part:
    """Documents and their label numbers.

    Attributes:
        folds: Of each document; empty: none has one.
    """

    documents: Sequence[Document]
    targets: NDArray[np.int64]
    folds: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.documents)

    def __add__(self, other: Part) -> Part:
        folds = [one for part in (self, other) for one in part.folds or [None] * len(part)]
        targets = np.concatenate([self.targets, other.targets])
        return Part([*self.documents, *other.documents], targets, folds)

    def of(self, labels: range) -> Part:
        """Return the documents with these labels, numbered from 0."""
        found = self.take([i for i, target in enumerate(self.targets) if target in labels])
        return Part(found.documents, found.targets - labels.start, found.folds)

    def encoded(self) -> Part:
        """Return the documents that have vectors."""
        return self.take([i for i, one in enumerate(self.documents) if len(one.vectors)])

    def take(self, rows: Sequence[int]) -> Part:
        """Return some of the documents."""
        return Part(
            [self.documents[i] for i in rows],
            self.targets[np.array(rows, np.int64)],
            [self.folds[i] for i in rows] if self.folds else (),
        )


def batches(documents: Sequence[Document], *, size: int = 64) -> Iterable[Batch]:
    """Yield padded batches of documents, in their order."""
    for start in range(0, len(documents), size):
        yield Batch.of(documents[start : start + size])
