"""The language of a Qdrant server: queries, filters, settings, and candidates from its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any
from uuid import UUID

from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from verso_core.errors import VectorsUnavailable
from verso_core.jobs import IndexKind, Precision
from verso_core.jobs.filters.nodes import ID, AllOf, Exists, Node, Within
from verso_worker.records.points import (
    DENSE,
    NO_TERMS,
    TERMS,
    Candidates,
    Terms,
    unknown,
)
from verso_worker.records.space import Settings, Space, Vector
from verso_worker.settings import Replication
from verso_worker.stores.filters import Translator
from verso_worker.stores.qdrant.replication import Kept

_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Question:
    """A query of one collection.

    Args:
        client: the client that sends it.
        collection: its name in the server.
        space: space of its vectors.
        where: filter that points must pass; None passes all.
        consistency: replicas that are asked; None leaves it to the server.
    """

    client: QdrantClient
    collection: str
    _: KW_ONLY
    space: Space
    where: models.Filter | None
    consistency: models.ReadConsistency | None = None

    def nearest(self, unit: Vector, *, limit: int) -> Candidates:
        """Return the points nearest to a vector. Shape of ``unit``: (dim,), length 1."""
        answer = self.client.query_points(
            self.collection,
            self.space.query_values(unit).tolist(),
            query_filter=self.where,
            limit=limit,
            search_params=_breadth(limit),
            with_vectors=[DENSE],
            with_payload=True,
            consistency=self.consistency,
        )
        return _candidates(self.space, answer.points)

    def matching(self, terms: Terms | None, *, limit: int) -> Candidates:
        """Return the points whose terms have the highest weight."""
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
            consistency=self.consistency,
        )
        return _candidates(self.space, answer.points)

    def weights(self, terms: Terms, points: Sequence[UUID]) -> dict[UUID, float]:
        """Return the weight of the terms in some points; a point that shares none is left out."""
        if not (terms and points):
            return {}
        answer = self.client.query_points(
            self.collection,
            sparse(terms),
            using=TERMS,
            query_filter=_only(points),
            limit=len(points),
            with_payload=False,
            consistency=self.consistency,
        )
        return {UUID(str(point.id)): point.score for point in answer.points}


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn the library's errors about a collection into Verso's."""
    try:
        yield
    except UnexpectedResponse as exc:
        if exc.status_code == _NOT_FOUND:
            raise unknown(name) from exc
        raise VectorsUnavailable(f"the Qdrant server answered {exc.status_code}") from exc
    except (ApiException, QdrantException) as exc:
        raise VectorsUnavailable(f"no Qdrant server: {type(exc).__name__}") from exc


def alike(values: Vector, *, limit: int) -> list[models.QueryRequest]:
    """Return queries for the ids nearest to each vector. Shape of ``values``: (n, dim)."""
    return [
        models.QueryRequest(
            query=one.tolist(),
            limit=limit,
            params=_breadth(limit),
            with_vector=False,
            with_payload=False,
        )
        for one in values
    ]


def sparse(terms: Terms) -> models.SparseVector:
    """Return terms in the server's form."""
    return models.SparseVector(indices=list(terms.ids), values=list(terms.weights))


def vector_of(values: Vector, terms: Terms) -> Any:
    """Return a point's vectors in the client's form. Shape of ``values``: (dim,)."""
    if not terms:
        return values.tolist()
    return {DENSE: values.tolist(), TERMS: sparse(terms)}


def terms_of(vector: Any) -> Terms:
    """Return a point's terms; a point without terms has no vector of them."""
    kept = vector.get(TERMS) if isinstance(vector, Mapping) else None
    return NO_TERMS if kept is None else Terms(tuple(kept.indices), tuple(kept.values))


class _Language:
    """The server's conditions."""

    def all_of(self, parts: list[models.Condition]) -> models.Condition:
        return models.Filter(must=parts)

    def any_of(self, parts: list[models.Condition]) -> models.Condition:
        return models.Filter(should=parts)

    def none_of(self, parts: list[models.Condition]) -> models.Condition:
        return models.Filter(must_not=parts)

    def strings(self, path: str, values: list[str]) -> models.Condition:
        return models.FieldCondition(key=path, match=models.MatchAny(any=values))

    def integers(self, path: str, values: list[int]) -> models.Condition:
        return models.FieldCondition(key=path, match=models.MatchAny(any=values))

    def within(self, path: str, bounds: Within) -> models.Condition:
        span = models.Range(gte=bounds.gte, gt=bounds.gt, lte=bounds.lte, lt=bounds.lt)
        return models.FieldCondition(key=path, range=span)

    def prefix(self, path: str, prefix: str) -> models.Condition:
        return models.FieldCondition(key=path, match=models.MatchPrefix(prefix=prefix))

    def empty(self, path: str) -> models.Condition:
        return models.IsEmptyCondition(is_empty=models.PayloadField(key=path))


_TRANSLATOR = Translator(_Language())


def filter_of(node: Node | bool, *, besides: Sequence[UUID] | None = None) -> models.Filter | None:
    """Return the filter that passes points of which ``node`` holds; None passes all.

    That no point passes is for the caller to know: the server has no word for it.

    Args:
        node: the filter.
        besides: with them it is asked of points with payload alone, and these pass too.
    """
    if isinstance(node, bool):
        return None
    if besides is None:
        return models.Filter(must=[_TRANSLATOR.condition(node)])
    held = _TRANSLATOR.condition(AllOf((node, Exists(ID))))
    return models.Filter(should=[held, _only(besides)])


def _breadth(limit: int) -> models.SearchParams:
    """Return how widely an index is searched for so many points."""
    return models.SearchParams(hnsw_ef=max(128, 2 * limit))


def _only(points: Sequence[UUID]) -> models.Filter:
    """Return the filter that lets these points pass."""
    ids: list[Any] = [str(point) for point in points]
    return models.Filter(must=[models.HasIdCondition(has_id=ids)])


def _candidates(space: Space, scored: Sequence[models.ScoredPoint]) -> Candidates:
    """Return the points of a search with their dense vectors."""
    vectors: list[Any] = [point.vector for point in scored]
    return Candidates(
        ids=[UUID(str(point.id)) for point in scored],
        stored=space.from_values(vectors),
        payloads=[point.payload or {} for point in scored],
        scores=[point.score for point in scored],
    )


SCHEMAS = {
    IndexKind.KEYWORD: models.PayloadSchemaType.KEYWORD,
    # of integers as well: the server's index of integers leaves fractions out
    IndexKind.NUMBER: models.PayloadSchemaType.FLOAT,
}
"""The server's kinds of an index."""

_DENSE_KINDS = {
    Precision.FLOAT16: (models.Distance.DOT, models.Datatype.FLOAT16),
    Precision.INT8: (models.Distance.EUCLID, models.Datatype.UINT8),
    Precision.INT4: (models.Distance.COSINE, models.Datatype.TURBO4),
}


def dense_of(settings: Settings) -> models.VectorParams:
    """Return how the server stores vectors."""
    distance, datatype = _DENSE_KINDS[settings.space.precision]
    return models.VectorParams(
        size=settings.space.dim, distance=distance, datatype=datatype, on_disk=True
    )


def sparse_of(settings: Settings) -> dict[str, models.SparseVectorParams] | None:
    """Return how the server stores terms; None for a collection without terms."""
    if not settings.terms:
        return None
    return {TERMS: models.SparseVectorParams(modifier=models.Modifier.IDF)}


def metadata_of(settings: Settings) -> dict[str, Any]:
    """Return what the server stores beside a collection for every worker that opens it."""
    space = settings.space
    return {
        "precision": space.precision.value,
        "int8_scale": space.int8_scale,
        "terms": settings.terms,
    }


def settings_of(config: models.CollectionConfig) -> Settings | None:
    """Return the settings of a collection that Verso made; None for any other."""
    vectors, kept = config.params.vectors, config.metadata
    if not isinstance(vectors, models.VectorParams) or not kept:
        return None
    space = Space(Precision(kept["precision"]), vectors.size, float(kept["int8_scale"]))
    return Settings(space, terms=bool(kept.get("terms", False)))


def consistency_of(replication: Replication) -> models.ReadConsistency | None:
    """Return how many replicas a read asks, in the client's form; None leaves it to the server."""
    asked = replication.read_consistency
    return models.ReadConsistencyType(asked) if isinstance(asked, str) else asked


def kept_of(params: models.CollectionParams, cluster: models.CollectionClusterInfo) -> Kept:
    """Return how the server keeps a collection; a value that it does not say is 1."""
    active: Counter[int] = Counter()
    replicas = [(shard.shard_id, shard.state) for shard in cluster.local_shards]
    replicas += [(shard.shard_id, shard.state) for shard in cluster.remote_shards]
    for shard_id, state in replicas:
        active[shard_id] += state is models.ReplicaState.ACTIVE
    return Kept(
        factor=params.replication_factor or 1,
        shards=params.shard_number or 1,
        write_consistency=params.write_consistency_factor or 1,
        active=tuple(active.values()),
    )
