"""Queries of the embedded engine, and its answers as candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import qdrant_edge as qdrant

from verso_worker.records.points import DENSE, TERMS, Candidates, Condition, OneOf, Terms
from verso_worker.records.space import Space, Vector


def nearest(
    values: Vector, *, limit: int, where: qdrant.Filter | None, bare: bool = False
) -> qdrant.QueryRequest:
    """Return a query for the points nearest to a vector in the form of ``Space.query_values``.

    With ``bare`` only their ids are returned.
    """
    return qdrant.QueryRequest(
        limit=limit,
        query=qdrant.Query.Nearest(values.tolist()),
        filter=where,
        params=qdrant.SearchParams(hnsw_ef=max(128, 2 * limit)),
        with_vector=False if bare else [DENSE],
        with_payload=not bare,
    )


def matching(terms: Terms, *, limit: int, where: qdrant.Filter | None) -> qdrant.QueryRequest:
    """Return a query for the points whose terms have the highest weight."""
    return qdrant.QueryRequest(
        limit=limit,
        query=qdrant.Query.Nearest(sparse(terms), using=TERMS),
        filter=where,
        with_vector=[DENSE],
        with_payload=True,
    )


def weighing(terms: Terms, points: Sequence[UUID]) -> qdrant.QueryRequest:
    """Return a query for the weight of terms in some points; it finds points that share one."""
    return qdrant.QueryRequest(
        limit=len(points),
        query=qdrant.Query.Nearest(sparse(terms), using=TERMS),
        filter=qdrant.Filter(must=[qdrant.HasIdCondition(set(points))]),
        with_vector=False,
        with_payload=False,
    )


def candidates(space: Space, scored: Sequence[qdrant.ScoredPoint]) -> Candidates:
    """Return the points that :func:`nearest` or :func:`matching` found."""
    vectors: list[Any] = [point.vector for point in scored]
    return Candidates(
        ids=[uuid(point.id) for point in scored],
        stored=space.from_values(vectors),
        payloads=[point.payload or {} for point in scored],
        scores=[point.score for point in scored],
    )


def sparse(terms: Terms) -> qdrant.SparseVector:
    """Return terms in the engine's form."""
    return qdrant.SparseVector(list(terms.ids), list(terms.weights))


def filter_of(wanted: Sequence[Condition]) -> qdrant.Filter | None:
    """Return the filter that passes points that meet all conditions."""
    if not wanted:
        return None
    return qdrant.Filter(must=[_condition(one) for one in wanted])


def uuid(point: qdrant.PointId) -> UUID:
    """Return a point's id; all ids of Verso are UUIDs."""
    return point if isinstance(point, UUID) else UUID(str(point))


def _condition(one: Condition) -> qdrant.ConditionType:
    if not isinstance(one, OneOf):
        span = qdrant.RangeFloat(gte=one.gte, lt=one.lt)
        return qdrant.FieldCondition(one.path, range=span)
    choices: list[qdrant.ConditionType] = [
        qdrant.FieldCondition(one.path, match=qdrant.MatchValue(value)) for value in one.exact
    ]
    choices += [
        qdrant.FieldCondition(one.path, range=qdrant.RangeFloat(gte=number, lte=number))
        for number in one.numbers
    ]
    return qdrant.Filter(should=choices)
