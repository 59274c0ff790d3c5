"""BM25 as the index of words has it, by brute force: k = 1.2, b = 0.75, and lengths of one byte."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from uuid import UUID

from verso_worker.records.points import Terms
from verso_worker.stores.bm25 import counts

K, B = 1.2, 0.75
FILLERS = 100
"""Words that the index adds to each chunk."""

Segment = Mapping[UUID, Terms]
"""Chunks that were committed together, those included that were removed since."""


def weights(segments: Sequence[Segment], query: Terms) -> list[dict[UUID, float]]:
    """Return the weight of a query in the chunks of each segment; of those that share a term."""
    rows = [terms for segment in segments for terms in segment.values()]
    frequency = {term: sum(term in row.ids for row in rows) for term in query.ids}
    mean = sum(_length(row) for row in rows) / max(1, len(rows))
    found = []
    for segment in segments:
        weighed = {}
        for point, terms in segment.items():
            often = dict(zip(terms.ids, counts(terms), strict=True))
            length = K * (1 - B + B * _kept_length(_length(terms)) / mean)
            score = 0.0
            for term, weight in zip(query.ids, query.weights, strict=True):
                df, tf = frequency[term], often.get(term, 0)
                rare = math.log(1 + (len(rows) - df + 0.5) / (df + 0.5))
                score += weight * rare * tf * (K + 1) / (tf + length)
            if score:
                weighed[point] = score
        found.append(weighed)
    return found


def _length(terms: Terms) -> int:
    return FILLERS + sum(counts(terms))


def _kept_length(length: int) -> int:
    """Return a length as it is kept: exact to 40, then in steps that double every eight."""
    kept, step = 40, 2
    while kept + step <= length:
        for _ in range(8):
            if kept + step > length:
                return kept
            kept += step
        step *= 2
    return min(length, kept)
