"""Questions to a Qdrant server, its answers as candidates, and points as it takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any
from uuid import UUID

from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from verso_core.errors import VectorsUnavailable
from verso_worker.records.points import (
    DENSE,
    NO_TERMS,
    TERMS,
    Candidates,
    Condition,
    OneOf,
    Terms,
    unknown,
)
from verso_worker.records.space import Space, Vector

_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one collection.

    Args:
        client: asks.
        collection: its name in the server.
        space: of its vectors.
        where: lets points pass; None all.
        local: the client's own mode, which has no index.
    """

    client: QdrantClient
    collection: str
    _: KW_ONLY
    space: Space
    where: models.Filter | None
    local: bool

    def nearest(self, unit: Vector, *, limit: int) -> Candidates:
        """Return the points nearest to a vector. Shape of ``unit``: (dim,), length 1."""
        answer = self.client.query_points(
            self.collection,
            self.space.query_values(unit).tolist(),
            query_filter=self.where,
            limit=limit,
            search_params=None if self.local else _breadth(limit),
            with_vectors=[DENSE],
            with_payload=True,
        )
        return _candidates(self.space, answer.points)

    def matching(self, terms: Terms | None, *, limit: int) -> Candidates:
        """Return the points whose terms weigh most."""
        if not terms:
            return _candidates(self.space, [])
        answer = self.client.query_points(
            self.collection,
            sparse(terms),
            using=TERMS,
            query_filter=self.where,
            limit=limit,
            with_vectors=[DENSE],
            with_payload=True,
        )
        return _candidates(self.space, answer.points)

    def weights(self, terms: Terms, points: Sequence[UUID]) -> dict[UUID, float]:
        """Weigh the terms of some points; one that shares none is left out."""
        if not (terms and points):
            return {}
        answer = self.client.query_points(
            self.collection,
            sparse(terms),
            using=TERMS,
            query_filter=_only(points),
            limit=len(points),
            with_payload=False,
        )
        return {UUID(str(point.id)): point.score for point in answer.points}


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn the library's errors about a collection into ours."""
    try:
        yield
    except UnexpectedResponse as exc:
        if exc.status_code == _NOT_FOUND:
            raise unknown(name) from exc
        raise VectorsUnavailable(f"the Qdrant server answered {exc.status_code}") from exc
    except (ApiException, QdrantException) as exc:
        raise VectorsUnavailable(f"no Qdrant server: {type(exc).__name__}") from exc


def alike(values: Vector, *, limit: int, local: bool) -> list[models.QueryRequest]:
    """Ask for the ids nearest to each vector. Shape of ``values``: (n, dim)."""
    return [
        models.QueryRequest(
            query=one.tolist(),
            limit=limit,
            params=None if local else _breadth(limit),
            with_vector=False,
            with_payload=False,
        )
        for one in values
    ]


def sparse(terms: Terms) -> models.SparseVector:
    """Return terms as the server takes them."""
    return models.SparseVector(indices=list(terms.ids), values=list(terms.weights))


def vector_of(values: Vector, terms: Terms) -> Any:
    """Return a point's vectors as the client takes them. Shape of ``values``: (dim,)."""
    if not terms:
        return values.tolist()
    return {DENSE: values.tolist(), TERMS: sparse(terms)}


def terms_of(vector: Any) -> Terms:
    """Read a point's terms; a point that has none has no vector of them."""
    kept = vector.get(TERMS) if isinstance(vector, Mapping) else None
    return NO_TERMS if kept is None else Terms(tuple(kept.indices), tuple(kept.values))


def filter_of(wanted: Sequence[Condition]) -> models.Filter | None:
    """Return the filter that lets a point pass if it meets all conditions."""
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


def _breadth(limit: int) -> models.SearchParams:
    """Return how widely an index is searched for so many points."""
    return models.SearchParams(hnsw_ef=max(128, 2 * limit))


def _only(points: Sequence[UUID]) -> models.Filter:
    """Return the filter that lets these points pass."""
    ids: list[Any] = [str(point) for point in points]
    return models.Filter(must=[models.HasIdCondition(has_id=ids)])


def _candidates(space: Space, scored: Sequence[models.ScoredPoint]) -> Candidates:
    """Read the points that a search gave with their dense vectors."""
    vectors: list[Any] = [point.vector for point in scored]
    return Candidates(
        ids=[UUID(str(point.id)) for point in scored],
        stored=space.from_values(vectors),
        payloads=[point.payload or {} for point in scored],
        scores=[point.score for point in scored],
    )
