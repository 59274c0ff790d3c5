"""One ranking out of two: by the vector's cosine and by the terms' BM25 weight.

For the candidates of both searches, each scored by both, exactly:

    score = A * (cosine - lowest) / (highest - lowest) + (1 - A) * weight / highest weight

(convex combination after min-max normalisation: Bruch, Gai & Ingber 2023, eq. 4 and section 4.1;
the lowest possible BM25 weight is known, it is 0, so it need not be looked for). Unlike reciprocal
rank fusion it keeps how far apart two candidates are. ``A`` was chosen on questions that no figure
of docs/reference/search-quality.md uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import numpy as np

from verso_worker.points import Candidates, Hit, best, widened_limit
from verso_worker.space import Space, Vector

DENSE_SHARE = 0.5
"""A: what the vector's cosine counts, in [0, 1]."""

DEPTH = 100
"""Candidates asked of each search at least: the lowest of them is the scale's lower end."""


def depth(limit: int) -> int:
    """Tell how many candidates to ask each search for."""
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
        weights: BM25 weights of those that ``found`` gives none, by id; 0 where there is none.
        limit: most hits to give.
    """
    if not found.ids:
        return []
    cosines = space.cosines(unit, found.stored).astype(np.float64)
    lexical = np.array(
        [score or weights.get(one, 0.0) for one, score in zip(found.ids, found.scores, strict=True)]
    )
    near = (cosines - cosines.min()) / (np.ptp(cosines) or 1.0)
    said = lexical / (lexical.max() or 1.0)
    scores = DENSE_SHARE * near + (1 - DENSE_SHARE) * said
    return best(found, scores.tolist(), limit=limit)
