"""Questions to a Qdrant server, and its answers as candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from qdrant_client import models

from verso_worker.points import NO_TERMS, TERMS, Candidates, Condition, OneOf, Terms
from verso_worker.space import Space


def search_params(limit: int) -> models.SearchParams:
    """Give how widely an index is searched for so many points."""
    return models.SearchParams(hnsw_ef=max(128, 2 * limit))


def candidates(space: Space, scored: Sequence[models.ScoredPoint]) -> Candidates:
    """Read the points that a search gave with their dense vectors."""
    vectors: list[Any] = [point.vector for point in scored]
    return Candidates(
        ids=[UUID(str(point.id)) for point in scored],
        stored=space.from_values(vectors),
        payloads=[point.payload or {} for point in scored],
        scores=[point.score for point in scored],
    )


def sparse(terms: Terms) -> models.SparseVector:
    """Give terms as the server takes them."""
    return models.SparseVector(indices=list(terms.ids), values=list(terms.weights))


def terms_of(vector: Any) -> Terms:
    """Read a point's terms; a point that has none has no vector of them."""
    kept = vector.get(TERMS) if isinstance(vector, Mapping) else None
    return NO_TERMS if kept is None else Terms(tuple(kept.indices), tuple(kept.values))


def only(points: Sequence[UUID]) -> models.Filter:
    """Give the filter that lets these points pass."""
    ids: list[Any] = [str(point) for point in points]
    return models.Filter(must=[models.HasIdCondition(has_id=ids)])


def filter_of(wanted: Sequence[Condition]) -> models.Filter | None:
    """Give the filter that lets a point pass if it meets all conditions."""
    if not wanted:
        return None
    return models.Filter(must=[_condition(one) for one in wanted])


def _condition(condition: Condition) -> models.Condition:
    if not isinstance(condition, OneOf):
        span = models.Range(gte=condition.gte, lt=condition.lt)
        return models.FieldCondition(key=condition.path, range=span)
    choices: list[models.Condition] = [
        models.FieldCondition(key=condition.path, match=models.MatchValue(value=value))
        for value in condition.exact
    ]
    choices += [
        models.FieldCondition(key=condition.path, range=models.Range(gte=number, lte=number))
        for number in condition.numbers
    ]
    return models.Filter(should=choices)
