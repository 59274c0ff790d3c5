"""Queries of the embedded engine, and its answers as candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import qdrant_edge as qdrant

from verso_core.jobs.filters.nodes import ID, AllOf, Exists, Node, Within
from verso_worker.records.points import DENSE, TERMS, Candidates, Terms
from verso_worker.records.space import Space, Vector
from verso_worker.stores.filters import Translator


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


def among(points: Sequence[UUID], where: qdrant.Filter) -> qdrant.ScrollRequest:
    """Return a request for those of some points that pass a filter."""
    return qdrant.ScrollRequest(
        limit=len(points),
        filter=qdrant.Filter(must=[qdrant.HasIdCondition(set(points)), where]),
        with_payload=True,
        with_vector=[DENSE],
    )


def following(
    start: UUID | None,
    *,
    limit: int,
    where: qdrant.Filter | None,
    order: qdrant.OrderBy | None = None,
) -> qdrant.ScrollRequest:
    """Return a request for points with their payloads, by their ids from ``start`` on."""
    return qdrant.ScrollRequest(
        offset=start,
        limit=limit,
        filter=where,
        order_by=order,
        with_payload=True,
        with_vector=False,
    )


def timed(start: float | None, *, descending: bool) -> qdrant.OrderBy:
    """Return an order by time, from ``start`` on."""
    direction = qdrant.Direction.Desc if descending else qdrant.Direction.Asc
    return qdrant.OrderBy("t", direction, start)


def candidates(space: Space, scored: Sequence[qdrant.ScoredPoint]) -> Candidates:
    """Return the points that :func:`nearest` or :func:`matching` found.

    One whose vector is lost is left out, as the engine does where it looks at the vectors.
    """
    points = [point for point in scored if point.vector]
    vectors: list[Any] = [point.vector for point in points]
    return Candidates(
        ids=[uuid(point.id) for point in points],
        stored=space.from_values(vectors),
        payloads=[point.payload or {} for point in points],
        scores=[point.score for point in points],
    )


def sparse(terms: Terms) -> qdrant.SparseVector:
    """Return terms in the engine's form."""
    return qdrant.SparseVector(list(terms.ids), list(terms.weights))


class _Language:
    """The engine's conditions."""

    def all_of(self, parts: list[qdrant.ConditionType]) -> qdrant.ConditionType:
        return qdrant.Filter(must=parts)

    def any_of(self, parts: list[qdrant.ConditionType]) -> qdrant.ConditionType:
        return qdrant.Filter(should=parts)

    def none_of(self, parts: list[qdrant.ConditionType]) -> qdrant.ConditionType:
        return qdrant.Filter(must_not=parts)

    def strings(self, path: str, values: list[str]) -> qdrant.ConditionType:
        return qdrant.FieldCondition(path, match=qdrant.MatchAny(values))

    def integers(self, path: str, values: list[int]) -> qdrant.ConditionType:
        return qdrant.FieldCondition(path, match=qdrant.MatchAny(values))

    def within(self, path: str, bounds: Within) -> qdrant.ConditionType:
        span = qdrant.RangeFloat(gte=bounds.gte, gt=bounds.gt, lte=bounds.lte, lt=bounds.lt)
        return qdrant.FieldCondition(path, range=span)

    def prefix(self, path: str, prefix: str) -> qdrant.ConditionType:
        return qdrant.FieldCondition(path, match=qdrant.MatchPrefix(prefix))

    def empty(self, path: str) -> qdrant.ConditionType:
        return qdrant.IsEmptyCondition(path)


_TRANSLATOR = Translator(_Language())


def filter_of(node: Node | bool, *, besides: Sequence[UUID] | None = None) -> qdrant.Filter | None:
    """Return the filter that passes points of which ``node`` holds; None passes all.

    That no point passes is for the caller to know: the engine has no word for it.

    Args:
        node: the filter.
        besides: with them it is asked of points with payload alone, and these pass too.
    """
    if isinstance(node, bool):
        return None
    if besides is None:
        return qdrant.Filter(must=[_TRANSLATOR.condition(node)])
    held = _TRANSLATOR.condition(AllOf((node, Exists(ID))))
    return qdrant.Filter(should=[held, qdrant.HasIdCondition(set(besides))])


def uuid(point: qdrant.PointId) -> UUID:
    """Return a point's id; all ids of Verso are UUIDs."""
    return point if isinstance(point, UUID) else UUID(str(point))
