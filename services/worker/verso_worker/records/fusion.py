"""One ranking out of two: by the vector's cosine and by the terms' BM25 weight.

For the candidates of both searches, each scored by both, exactly:

    score = A * (cosine - lowest) / (highest - lowest) + (1 - A) * weight / highest weight

(convex combination after min-max normalisation: Bruch, Gai & Ingber 2023, eq. 4 and section 4.1;
the lowest possible BM25 weight is known, it is 0, so it need not be looked for). Unlike reciprocal
rank fusion it keeps how far apart two candidates are. ``A`` is ``DENSE_SHARE``; it was chosen on
questions that no figure of docs/research/search-quality.md uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs.search import DENSE_SHARE, Scale
from verso_worker.records.points import Candidates, Hit, best, widened_limit
from verso_worker.records.space import Space, Vector

DEPTH = 100
"""Candidates asked of each search at least: the lowest of them is the scale's lower end."""


def depth(limit: int) -> int:
    """Return how many candidates to request from each search."""
    return max(DEPTH, widened_limit(limit))


def joined(dense: Candidates, lexical: Candidates) -> Candidates:
    """Join what two searches found, each point once; ``scores`` are those of the terms, 0 if none.

    Shapes of ``stored``: (candidates, dim).
    """
    known = set(lexical.ids)
    extra = [n for n, point in enumerate(dense.ids) if point not in known]
    return Candidates(
        ids=[*lexical.ids, *(dense.ids[n] for n in extra)],
        stored=np.concatenate([lexical.stored, dense.stored[extra]]),
        payloads=[*lexical.payloads, *(dense.payloads[n] for n in extra)],
        scores=[*lexical.scores, *(0.0 for _ in extra)],
    )


def fused(
    space: Space, unit: Vector, *, found: Candidates, weights: Mapping[UUID, float], limit: int
) -> list[Hit]:
    """Rank candidates by both scores, best first, equal ones by id.

    Args:
        space: the collection's.
        unit: the query. Shape: (dim,), of length 1.
        found: the candidates of both searches.
        weights: BM25 weights by id of the candidates without one in ``found``; 0 if missing.
        limit: most hits to return.
    """
    if not found.ids:
        return []
    cosines = space.cosines(unit, found.stored).astype(np.float64)
    lexical = np.array(
        [score or weights.get(one, 0.0) for one, score in zip(found.ids, found.scores, strict=True)]
    )
    near = _spread(cosines)
    said = lexical / (lexical.max() or 1.0)
    scores = DENSE_SHARE * near + (1 - DENSE_SHARE) * said
    return best(
        found,
        scores.tolist(),
        limit=limit,
        cosines=cosines.tolist(),
        weights=lexical.tolist(),
        scale=Scale(
            lowest=float(cosines.min()),
            highest=float(cosines.max()),
            heaviest=float(lexical.max()),
        ),
    )


def reranked(scores: Sequence[float], read: NDArray[np.float32], *, share: float) -> list[int]:
    """Order a search's hits by the search's score and the score of a head that read them.

    Both scores are spread over 0 to 1 first and mixed as above. Return the indices of the hits,
    best first, equal ones in their order.

    Args:
        scores: the search's.
        read: the head's. Shape: (hits,).
        share: weight of the head's scores, in [0, 1]; the search's have the rest.
    """
    if not scores:
        return []
    mixed = (1 - share) * _spread(np.array(scores)) + share * _spread(read.astype(np.float64))
    order: list[int] = np.argsort(-mixed, kind="stable").tolist()
    return order


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread values over 0 to 1; equal ones are 0."""
    spread: NDArray[np.float64] = (values - values.min()) / (np.ptp(values) or 1.0)
    return spread
