"""The layers of a classifier of documents, and what they say of some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from studies.documents.data import Document, batches


class ChunkReader(nn.Module):
    """Logits of one source's labels from the vectors of the chunks, or of the first alone."""

    def __init__(self, *, dim: int, classes: int, hidden: int, whole: bool = True) -> None:
        super().__init__()
        self.scale = dim**0.5
        self.query = nn.Parameter(torch.zeros(1, dim)) if whole else None
        wide = 3 * dim if whole else dim
        self.hidden = nn.Linear(wide, hidden) if hidden else None
        self.out = nn.Linear(hidden or wide, classes)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Shape: (B, K, D) and (B, K) to (B, C)."""
        x = vectors[:, 0] * self.scale
        if self.query is not None:
            x = torch.cat([x, self._others(vectors, mask, self.query) * self.scale], dim=-1)
        if self.hidden is not None:
            x = F.gelu(self.hidden(x))
        logits: Tensor = self.out(x)
        return logits

    def _others(self, vectors: Tensor, mask: Tensor, query: Tensor) -> Tensor:
        """What the query looks for, and the end. Shape: (B, 2 D)."""
        score = (vectors * query).sum(-1) * self.scale + (mask - 1.0) * 1e4
        attention = score.softmax(-1)
        after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=-1)
        weight = torch.stack([attention, mask - after], dim=1)  # (B, 2, K)
        read = (weight.unsqueeze(-1) * vectors.unsqueeze(1)).sum(2)  # (B, 2, D)
        return read.flatten(1)


class DocumentClassifier(nn.Module):
    """Logits of all labels; the module of a head that reads documents.

    Attributes:
        sizes: Labels of each source, in the order of the labels.
    """

    def __init__(
        self, readers: Sequence[ChunkReader], *, sizes: Sequence[int], buckets: int
    ) -> None:
        super().__init__()
        self.readers = nn.ModuleList(readers)
        self.sizes = tuple(sizes)
        self.buckets = buckets
        rows, columns = max(1, buckets), sum(sizes) + len(sizes)
        self.table = nn.Parameter(torch.zeros(rows, columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        # Of each source, and of all together, which tells the sources apart.
        self.idf = nn.Parameter(torch.zeros(rows, len(sizes) + 1))
        self.ids: Tensor
        self.register_buffer("ids", torch.full((rows,), -1, dtype=torch.int64))
        self.mix = nn.Parameter(torch.ones(2, len(sizes)))

    def words(self, terms: Tensor, weights: Tensor) -> list[Tensor]:
        """Logits of each source's labels, and of the sources. Shape: twice (B, M) to (B, C_s)."""
        widths = [*self.sizes, len(self.sizes)]
        bias = torch.split(self.bias, widths)
        if not self.buckets:
            return [one.expand(len(terms), -1) for one in bias]
        bucket = terms % self.buckets
        known = torch.log1p(weights) * (self.ids[bucket] == terms)
        found = []
        for one, idf, table in zip(
            bias, self.idf.unbind(-1), torch.split(self.table, widths, dim=-1), strict=True
        ):
            x = known * idf[bucket]
            x = x / (x * x).sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
            found.append((x.unsqueeze(-1) * table[bucket]).sum(1) + one)
        return found

    def forward(
        self, vectors: Tensor, mask: Tensor, terms: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits, and the mean of the vectors as feature. Shape: (B, C) and (B, D)."""
        words = self.words(terms, weights)
        sources = words[-1].log_softmax(-1)
        found = []
        for number, reader in enumerate(self.readers):
            read = reader(vectors, mask).log_softmax(-1) * self.mix[0, number]
            if self.buckets:
                read = read + words[number].log_softmax(-1) * self.mix[1, number]
            found.append(read.log_softmax(-1) + sources[:, number : number + 1])
        mean = (vectors * mask.unsqueeze(-1)).sum(1)
        feature = mean / (mean * mean).sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
        return torch.cat(found, dim=-1), feature


@torch.inference_mode()
def outputs(
    model: DocumentClassifier, documents: Sequence[Document]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return logits and features, in the order of the documents. Shape: (N, C) and (N, D)."""
    logits, features = [], []
    for batch in batches(documents):
        found = model(batch.vectors, batch.mask, batch.terms, batch.weights)
        logits.append(found[0].numpy())
        features.append(found[1].numpy())
    return np.concatenate(logits), np.concatenate(features)
