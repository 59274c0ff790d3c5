"""The words of a text as a sparse vector, for searches that must also match them literally.

BM25 (Robertson & Zaragoza 2009, eq. 3.15) splits into two factors. The one that depends on the
text,

    tf * (k + 1) / (tf + k * (1 - b + b * length / mean length)),

is the weight stored with its point. A query contributes, for a word that occurs in it ``tf`` times,

    tf * (k3 + 1) / (tf + k3);

The vector store computes the inverse document frequency over its collection at query time. So a
text can be weighted without knowledge of its collection, and is not needed afterwards.

Words are split, lowered, stripped of stop words, stemmed and hashed to 31-bit ids by Qdrant's own
implementation, which its server has as well. Bytes that are not UTF-8 separate words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import qdrant_edge as qdrant

from verso_core.errors import VectorInvalid
from verso_worker.records.points import Terms

SATURATION_K = 0.9
LENGTH_B = 0.4
"""Small, because chunks are of similar length, and their mean is not known."""

QUERY_K3 = 8.0
MEAN_LENGTH = 100.0
"""Words of a usual chunk without stop words; a chunk is cut to fill the encoder's window."""


class Bm25:
    """Makes terms; any number of threads may share it.

    Args:
        k: saturation: with a smaller value repetitions of a word count less, >= 0.
        b: how much the words of a long text count less, in [0, 1].
        k3: saturation of the words of a query, > 0.
        mean_length: words of a usual chunk, > 0.
    """

    def __init__(
        self,
        *,
        k: float = SATURATION_K,
        b: float = LENGTH_B,
        k3: float = QUERY_K3,
        mean_length: float = MEAN_LENGTH,
    ) -> None:
        self._texts = qdrant.Bm25(qdrant.Bm25Config(k=k, b=b, avg_len=mean_length))
        # Without the length (b = 0) the text's factor is the query's.
        self._queries = qdrant.Bm25(qdrant.Bm25Config(k=k3, b=0.0))

    def documents(self, texts: Sequence[bytes]) -> list[Terms]:
        """Return the terms of chunks, weighted by their frequency and the chunk's length."""
        return [_terms(self._texts.embed_document(_words(text))) for text in texts]

    def query(self, text: bytes) -> Terms:
        """Return the terms of a query, weighted by their frequency; a query may have none."""
        return _terms(self._queries.embed_document(_words(text)))


def counts(terms: Terms) -> list[int]:
    """Return how often each word occurs in a chunk whose terms :meth:`Bm25.documents` made.

    The length that all weights were divided by is the sum of the counts, so it follows from them:
    with s the sum of w / (k + 1 - w), a count is w * c / (k + 1 - w), where

        c = k * (1 - b) / (1 - k * b * s / mean length).
    """
    ratios = [weight / (SATURATION_K + 1 - weight) for weight in terms.weights]
    by_length = SATURATION_K * LENGTH_B / MEAN_LENGTH
    saturation = SATURATION_K * (1 - LENGTH_B) / (1 - by_length * sum(ratios))
    return [round(saturation * ratio) for ratio in ratios]


def _terms(vector: qdrant.SparseVector) -> Terms:
    return Terms(tuple(vector.indices), tuple(vector.values))


def _words(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def pack_terms(terms: Sequence[Terms]) -> tuple[list[int], list[bytes]]:
    """Return how many terms each point has, and all ids (u32) and weights (f32), little endian."""
    ids = np.array([one for point in terms for one in point.ids], "<u4")
    weights = np.array([one for point in terms for one in point.weights], "<f4")
    return [len(point.ids) for point in terms], [ids.tobytes(), weights.tobytes()]


def unpack_terms(sizes: Sequence[int], blobs: Sequence[bytes]) -> list[Terms]:
    """Undo :func:`pack_terms`.

    Raises:
        VectorInvalid: the blobs are not of the sizes given.
    """
    total = sum(sizes)
    if [len(blob) for blob in blobs] != [4 * total, 4 * total]:
        raise VectorInvalid(f"expected {total} terms, got {[len(blob) // 4 for blob in blobs]}")
    ids = np.frombuffer(blobs[0], "<u4").tolist()
    weights = np.frombuffer(blobs[1], "<f4").tolist()
    found, at = [], 0
    for size in sizes:
        found.append(Terms(tuple(ids[at : at + size]), tuple(weights[at : at + size])))
        at += size
    return found
