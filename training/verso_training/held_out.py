"""Held-out texts for publication: some to fit tables on, others to report figures from.

Both come from validation documents, which no weight was trained on. A hash of the document's key
decides between the two, so that no document serves both.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from verso_training import chunks
from verso_training.sources import Chunk, Document, Split

_SEED = 11


@dataclass(frozen=True)
class HeldOut:
    """Chunks of documents that were not trained on."""

    fitting: list[Chunk]
    reporting: list[Chunk]


def draw(documents: Iterable[Document], *, fit_chunks: int, report_chunks: int) -> HeldOut:
    """At most ``fit_chunks`` and ``report_chunks`` per source."""
    pools: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        if document.split is Split.VALIDATION:
            digest = hashlib.sha256(b"report:" + document.key.encode("utf-8")).digest()
            pools[digest[0] % 2].append(document)
    return HeldOut(_limited(pools[0], fit_chunks), _limited(pools[1], report_chunks))


def _limited(pool: list[Document], count: int) -> list[Chunk]:
    # Twice the longest chunks are enough bytes for any draw of ``count``.
    budgets = {document.source: 1000 * count for document in pool}
    taken: Counter[str] = Counter()
    kept = []
    for chunk in chunks.draw(pool, budgets=budgets, rng=random.Random(_SEED)):
        taken[chunk.source] += 1
        if taken[chunk.source] <= count:
            kept.append(chunk)
    return kept
