"""The vector store on a Qdrant server, or in the client library's own local mode.

Implements :class:`verso_worker.ports.Vectors`. Both forms give back what they were given: a server
keeps the space's datatype, local mode keeps float32, of which every float16 number and every 8-bit
code is one.

What a put promises here is what the store behind it promises. A server acknowledges once the write
is in its log and applied: a killed server loses nothing, a power cut may, unless it replicates.
Of the payload only the time is indexed; which metadata is, its operator decides (``m."key"``).
Local mode commits each point to SQLite; it is for tests and small trials, and searches one by one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from verso_core.errors import CollectionExists, VectorsUnavailable
from verso_core.jobs import Filter, Precision
from verso_worker.points import (
    BATCH,
    Candidates,
    Condition,
    Hit,
    OneOf,
    Point,
    check_name,
    conditions,
    impossible,
    packed,
    ranked,
    stacked,
    unknown,
    unpacked,
    widened_limit,
)
from verso_worker.space import Space, Stored, Vector

PREFIX = "verso-"
"""What the names of our collections begin with, in a server that may hold others."""

TIMEOUT_S = 60

_NOT_FOUND = 404
_CONFLICT = 409
_KINDS = {
    Precision.FLOAT16: (models.Distance.DOT, models.Datatype.FLOAT16),
    Precision.INT8: (models.Distance.EUCLID, models.Datatype.UINT8),
}


class QdrantVectors:
    """The adapter; any number of threads may share it.

    Args:
        client: the library's client, closed by :meth:`close`.
        local: the client is in local mode, which bears one call at a time.
        prefix: put before every collection's name.
    """

    def __init__(self, client: QdrantClient, *, local: bool = False, prefix: str = PREFIX) -> None:
        self._client = client
        self._prefix = prefix
        self._local = local
        self._turn: contextlib.AbstractContextManager[Any] = (
            threading.RLock() if local else contextlib.nullcontext()
        )

    @classmethod
    def server(cls, url: str, *, api_key: str | None = None, prefix: str = PREFIX) -> QdrantVectors:
        """Use a server; nothing is called yet."""
        client = QdrantClient(
            url=url, api_key=api_key, timeout=TIMEOUT_S, check_compatibility=False
        )
        return cls(client, prefix=prefix)

    @classmethod
    def local(cls, folder: Path | None, *, prefix: str = PREFIX) -> QdrantVectors:
        """Use local mode, in a folder or (None) in memory only.

        Raises:
            VectorsUnavailable: another process has the folder open.
        """
        try:
            client = (
                QdrantClient(":memory:")
                if folder is None
                else QdrantClient(path=str(folder), force_disable_check_same_thread=True)
            )
        except RuntimeError as exc:
            raise VectorsUnavailable(f"vector folder {folder} is held by another process") from exc
        return cls(client, local=True, prefix=prefix)

    def close(self) -> None:
        """Close the connections, or the folder."""
        self._client.close()

    def create(self, name: str, *, dim: int, precision: Precision, int8_scale: float) -> None:
        """Make a collection; one that exists with the same settings is left as it is.

        Raises:
            CollectionExists: one exists with other settings.
            IdInvalid: the name breaks the naming rules.
        """
        wanted = Space(precision, dim, int8_scale)
        distance, datatype = _KINDS[precision]
        with self._calling(check_name(name)):
            if not self._client.collection_exists(self._prefix + name):
                try:
                    self._client.create_collection(
                        self._prefix + name,
                        vectors_config=models.VectorParams(
                            size=dim, distance=distance, datatype=datatype, on_disk=True
                        ),
                        metadata={"precision": precision.value, "int8_scale": int8_scale},
                    )
                    if not self._local:
                        self._client.create_payload_index(
                            self._prefix + name, "t", models.PayloadSchemaType.FLOAT, wait=True
                        )
                except UnexpectedResponse as exc:
                    if exc.status_code != _CONFLICT:  # someone else has just made it
                        raise
            there = self._space(name)
        if there != wanted:
            raise CollectionExists(f"expected {name!r} with {wanted}, got {there}")

    def drop(self, name: str) -> None:
        """Remove a collection and its points; one that does not exist is no error."""
        with self._calling(name):
            if self._client.collection_exists(self._prefix + name):
                self._client.delete_collection(self._prefix + name)

    def names(self) -> list[str]:
        """Name the collections."""
        with self._calling("*"):
            found = self._client.get_collections().collections
        return sorted(
            one.name.removeprefix(self._prefix)
            for one in found
            if one.name.startswith(self._prefix)
        )

    def put(self, name: str, points: Sequence[Point]) -> None:
        """Store points; the store has acknowledged them when this returns.

        Raises:
            CollectionUnknown: there is no such collection.
            VectorInvalid: a vector is not one of the collection's space; nothing was stored.
            MetadataInvalid: a payload holds what the store would change; nothing was stored.
        """
        if not points:
            return
        with self._calling(name):
            space = self._space(name)
            values = space.values(space.check(stacked(points)))
            structs = [
                models.PointStruct(
                    id=str(point.id), vector=value.tolist(), payload=packed(point.payload)
                )
                for point, value in zip(points, values, strict=True)
            ]
            for start in range(0, len(structs), BATCH):
                batch = structs[start : start + BATCH]
                self._client.upsert(self._prefix + name, batch, wait=True)

    def get(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Stored]:
        """Give the stored vectors of the points that exist. Shape of each: (dim,).

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            space = self._space(name)
            records = self._client.retrieve(
                self._prefix + name,
                [str(one) for one in ids],
                with_vectors=True,
                with_payload=False,
            )
        vectors: list[Any] = [record.vector for record in records]
        rows = space.from_values(vectors)
        return {UUID(str(record.id)): row for record, row in zip(records, rows, strict=True)}

    def payloads(self, name: str, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Give the payloads of the points that exist.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            self._space(name)
            records = self._client.retrieve(self._prefix + name, [str(one) for one in ids])
        return {UUID(str(record.id)): unpacked(record.payload) for record in records}

    def remove(self, name: str, ids: Sequence[UUID]) -> None:
        """Remove points; ids that do not exist are ignored.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            self._space(name)
            for start in range(0, len(ids), BATCH):
                batch: list[Any] = [str(one) for one in ids[start : start + BATCH]]
                self._client.delete(
                    self._prefix + name, models.PointIdsList(points=batch), wait=True
                )

    def search(self, name: str, query: Vector, *, limit: int, where: Filter | None) -> list[Hit]:
        """Give the nearest points, nearest first. Shape of ``query``: (dim,).

        Raises:
            CollectionUnknown: there is no such collection.
            VectorInvalid: the query has another dimension, is not finite or has no direction.
        """
        wanted = conditions(where)
        with self._calling(name):
            space = self._space(name)
            unit = space.unit(query)
            if impossible(wanted):
                return []
            wide = widened_limit(limit)
            scored = self._client.query_points(
                self._prefix + name,
                space.query_values(unit).tolist(),
                query_filter=_filter(wanted),
                limit=wide,
                search_params=None if self._local else _search_params(wide),
                with_vectors=True,
                with_payload=True,
            ).points
        vectors: list[Any] = [point.vector for point in scored]
        found = Candidates(
            ids=[UUID(str(point.id)) for point in scored],
            stored=space.from_values(vectors),
            payloads=[point.payload or {} for point in scored],
        )
        return ranked(space, unit, found=found, limit=limit)

    def count(self, name: str) -> int:
        """Count a collection's points.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            self._space(name)
            return self._client.count(self._prefix + name, exact=True).count

    def size_bytes(self, name: str) -> int:
        """Tell what the vectors take: points times the bytes of one.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            return self._space(name).size_bytes * self.count(name)

    def _space(self, name: str) -> Space:
        """Ask the store for a collection's settings, each time: another worker may change them."""
        if not self._client.collection_exists(self._prefix + name):
            raise unknown(name)
        config = self._client.get_collection(self._prefix + name).config
        vectors = config.params.vectors
        kept = config.metadata
        if not isinstance(vectors, models.VectorParams) or not kept:
            raise VectorsUnavailable(f"collection {self._prefix + name!r} was not made by Verso")
        return Space(Precision(kept["precision"]), vectors.size, float(kept["int8_scale"]))

    @contextlib.contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        """Turn the library's errors into ours."""
        try:
            with self._turn:
                yield
        except UnexpectedResponse as exc:
            if exc.status_code == _NOT_FOUND:
                raise unknown(name) from exc
            raise VectorsUnavailable(f"the Qdrant server answered {exc.status_code}") from exc
        except (ApiException, QdrantException) as exc:
            raise VectorsUnavailable(f"no Qdrant server: {type(exc).__name__}") from exc


def _search_params(wide: int) -> models.SearchParams:
    return models.SearchParams(hnsw_ef=max(128, 2 * wide))


def _filter(wanted: Sequence[Condition]) -> models.Filter | None:
    if not wanted:
        return None
    return models.Filter(must=[_condition(condition) for condition in wanted])


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
