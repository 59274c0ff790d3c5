"""The vector store on a Qdrant server.

A put is as durable as the server makes it. A server acknowledges a write that is in its log and
applied: it survives the end of the server's process, but without replication maybe not a power cut.
A cluster acknowledges it when the collection's write consistency factor of replicas have it. If
fewer can be reached it answers an error, which is raised as one that is worth another attempt: a
point's id and bytes are the same each time, so what some replicas already have does no harm.
The time in the payload is indexed, and the metadata that the collection declares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from verso_core import tracing
from verso_core.errors import CollectionExists, VectorsUnavailable
from verso_core.jobs import Filter, IndexKind, Precision
from verso_core.jobs.filters.nodes import METADATA, Node
from verso_worker.records.fusion import depth, fused, joined
from verso_worker.records.points import (
    BATCH,
    DENSE,
    NO_TERMS,
    TERMS,
    Hit,
    Placed,
    Point,
    Sizes,
    Terms,
    best,
    check_name,
    packed,
    path_in_payload,
    ranked,
    stacked,
    unpacked,
    widened_limit,
)
from verso_worker.records.space import Settings, Space, Stored, Vector
from verso_worker.settings import Replication
from verso_worker.stores import points_file
from verso_worker.stores.filters import node_of
from verso_worker.stores.qdrant.query import (
    SCHEMAS,
    Question,
    alike,
    consistency_of,
    dense_of,
    filter_of,
    kept_of,
    metadata_of,
    settings_of,
    sparse_of,
    terms_of,
    translated,
    vector_of,
)
from verso_worker.stores.qdrant.replication import differences

PREFIX = "verso-"
"""Prefix of the names of Verso's collections, in a server that may hold others."""

TIMEOUT_S = 60

_SAMPLE = 1000  # points whose terms are counted for a collection's size
_CONFLICT = 409
_AS_THE_SERVER_SAYS = Replication()


class QdrantVectors:
    """A client of a Qdrant server; any number of threads may share it.

    Implements :class:`verso_worker.rules.ports.stores.Vectors`, which says what each method raises.

    Args:
        client: the library's client, closed by :meth:`close`.
        prefix: prefix of every collection's name in the server.
        replication: how a cluster keeps and reads points.
    """

    def __init__(
        self,
        client: QdrantClient,
        *,
        prefix: str = PREFIX,
        replication: Replication = _AS_THE_SERVER_SAYS,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._replication = replication
        self._consistency = consistency_of(replication)

    @classmethod
    def server(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        prefix: str = PREFIX,
        replication: Replication = _AS_THE_SERVER_SAYS,
    ) -> QdrantVectors:
        """Return a client of a server; it does not connect yet."""
        client = QdrantClient(
            url=url, api_key=api_key, timeout=TIMEOUT_S, check_compatibility=False
        )
        return cls(client, prefix=prefix, replication=replication)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def create(
        self, name: str, *, dim: int, precision: Precision, int8_scale: float, terms: bool = False
    ) -> None:
        """Create a collection; one that exists with the same settings is left as it is.

        Raises:
            CollectionExists: there is one with other settings.
        """
        wanted = Settings(Space(precision, dim, int8_scale), terms)
        with self._calling(check_name(name)):
            if not self._client.collection_exists(self._prefix + name):
                try:
                    self._client.create_collection(
                        self._prefix + name,
                        vectors_config=dense_of(wanted),
                        sparse_vectors_config=sparse_of(wanted),
                        metadata=metadata_of(wanted),
                        shard_number=self._replication.shards,
                        replication_factor=self._replication.factor,
                        write_consistency_factor=self._replication.write_consistency,
                    )
                except UnexpectedResponse as exc:
                    if exc.status_code != _CONFLICT:  # someone else has just made it
                        raise
            there = self._settings(name)
            if there != wanted:
                raise CollectionExists(f"expected {name!r} with {wanted}, got {there}")
            # Of one that exists, too: its maker may have ended before. An order by time needs it.
            self._client.create_payload_index(
                self._prefix + name, "t", models.PayloadSchemaType.FLOAT, wait=True
            )

    def drop(self, name: str) -> None:
        """Remove a collection and its points; one that does not exist is no error."""
        with self._calling(name):
            if self._client.collection_exists(self._prefix + name):
                self._client.delete_collection(self._prefix + name)

    def mend(
        self,
        name: str,
        *,
        dim: int,
        precision: Precision,
        int8_scale: float,
        terms: bool = False,
        points: bool,
    ) -> bool:
        """Do nothing: what a server has lost is for its operator to restore."""
        del name, dim, precision, int8_scale, terms, points
        return False

    def note_scrubbed(self, name: str, *, chunks: int, whole: bool = True) -> None:
        """Do nothing: the server keeps no such count."""

    def missing(self, name: str) -> int:
        """Return 0: the server keeps no such count."""
        del name
        return 0

    def names(self) -> list[str]:
        """Return the names of the collections."""
        with self._calling("*"):
            found = self._client.get_collections().collections
        return sorted(
            one.name.removeprefix(self._prefix)
            for one in found
            if one.name.startswith(self._prefix)
        )

    def differences(self, name: str) -> list[str]:
        """Return in what a collection's replicas differ from what is asked; empty if in nothing.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            params = self._client.get_collection(self._prefix + name).config.params
            cluster = self._client.collection_cluster_info(self._prefix + name)
        return differences(self._replication, kept_of(params, cluster))

    def put(self, name: str, points: Sequence[Point]) -> None:
        """Store points; the server has acknowledged them when this returns."""
        if not points:
            return
        with self._calling(name):
            settings = self._settings(name)
            values = settings.space.values(settings.space.check(stacked(points)))
            structs = [
                models.PointStruct(
                    id=str(point.id),
                    vector=vector_of(value, point.terms if settings.terms else NO_TERMS),
                    payload=packed(point.payload),
                )
                for point, value in zip(points, values, strict=True)
            ]
            for start in range(0, len(structs), BATCH):
                batch = structs[start : start + BATCH]
                self._client.upsert(self._prefix + name, batch, wait=True)

    def get(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Stored]:
        """Return the stored vectors of the points that exist. Shape of each: (dim,)."""
        with self._calling(name):
            space = self._space(name)
            records = self._client.retrieve(
                self._prefix + name,
                [str(one) for one in ids],
                with_vectors=[DENSE],
                with_payload=False,
                consistency=self._consistency,
            )
        vectors: list[Any] = [record.vector for record in records]
        rows = space.from_values(vectors)
        return {UUID(str(record.id)): row for record, row in zip(records, rows, strict=True)}

    def payloads(self, name: str, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return the payloads of the points that exist."""
        with self._calling(name):
            self._space(name)
            records = self._client.retrieve(
                self._prefix + name, [str(one) for one in ids], consistency=self._consistency
            )
        return {UUID(str(record.id)): unpacked(record.payload) for record in records}

    def terms(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points that exist; empty for a collection without terms."""
        with self._calling(name):
            if not self._settings(name).terms:
                return {}
            records = self._client.retrieve(
                self._prefix + name,
                [str(one) for one in ids],
                with_vectors=[TERMS],
                with_payload=False,
                consistency=self._consistency,
            )
        return {UUID(str(record.id)): terms_of(record.vector) for record in records}

    def differing(self, name: str, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms; none of a collection without terms."""
        with self._calling(name):
            if not self._settings(name).terms:
                return set()
        found = self.terms(name, list(expected))
        return {point for point, terms in expected.items() if found.get(point, NO_TERMS) != terms}

    def having(self, name: str, words: Sequence[int]) -> dict[int, int] | None:
        """Return None: the server does not tell how many points have a word."""
        del name, words
        return None

    def remove(self, name: str, ids: Sequence[UUID]) -> None:
        """Remove points; ids that do not exist are ignored."""
        with self._calling(name):
            self._space(name)
            for start in range(0, len(ids), BATCH):
                batch: list[Any] = [str(one) for one in ids[start : start + BATCH]]
                self._client.delete(
                    self._prefix + name, models.PointIdsList(points=batch), wait=True
                )

    def search(
        self,
        name: str,
        query: Vector | None,
        *,
        limit: int,
        where: Filter | None,
        terms: Terms | None = None,
        besides: Sequence[UUID] | None = None,
    ) -> list[Hit]:
        """Return the best points, best first, by vector, by terms, or by both if both are given."""
        passing = node_of(where)
        with self._calling(name):
            space = self._space(name)
            unit = None if query is None else space.unit(query)
            if passing is False or (unit is None and not terms):
                return []
            ask = Question(
                self._client,
                self._prefix + name,
                space=space,
                where=filter_of(passing, besides=besides),
                consistency=self._consistency,
            )
            if unit is None:
                found = ask.matching(terms, limit=limit)
                return best(found, found.scores, limit=limit, weights=found.scores)
            if terms is None:
                found = ask.nearest(unit, limit=widened_limit(limit))
                return ranked(space, unit, found=found, limit=limit)
            near = ask.nearest(unit, limit=depth(limit))
            said = ask.matching(terms, limit=depth(limit))
            found = joined(near, said)
            weights = ask.weights(terms, found.ids[len(said.ids) :])
        return fused(space, unit, found=found, weights=weights, limit=limit)

    def neighbours(self, name: str, rows: Stored, *, limit: int) -> list[list[UUID]]:
        """Return the points nearest to each stored vector, itself included. Shape: (n, dim)."""
        with self._calling(name):
            space = self._space(name)
            values = space.values(space.check(rows))
            asked = alike(values, limit=limit)
            answers = self._client.query_batch_points(
                self._prefix + name, asked, consistency=self._consistency
            )
        return [[UUID(str(point.id)) for point in answer.points] for answer in answers]

    def count(self, name: str, *, where: Filter | None = None, first: bool = False) -> int:
        """Count a collection's points that pass the filter; with ``first`` only first chunks.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        passing = node_of(where, first=first)
        with self._calling(name):
            self._space(name)
            if passing is False:
                return 0
            chosen = filter_of(passing)
            return self._client.count(self._prefix + name, chosen, exact=True).count

    def index(self, name: str, fields: Mapping[str, IndexKind]) -> None:
        """Index metadata fields; the server builds an index behind its answer.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        with self._calling(name):
            self._space(name)
            for key, kind in fields.items():
                path = path_in_payload(METADATA + key)
                self._client.create_payload_index(self._prefix + name, path, SCHEMAS[kind])

    def copy(self, name: str, folder: Path) -> int:
        """Write a collection's points into a new folder and return their number.

        Points are never changed, so the copy has all points that existed at its start, whatever is
        written meanwhile."""
        with self._calling(name):
            settings = self._settings(name)
        return points_file.write(folder, settings, self._pages(name))

    def page(
        self,
        name: str,
        start: UUID,
        *,
        limit: int,
        where: Filter | None = None,
        first: bool = False,
    ) -> list[Placed]:
        """Return points with their payloads, by ascending id from ``start`` on.

        Only those that pass the filter; with ``first`` only first chunks.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        passing = node_of(where, first=first)
        return self._scrolled(name, passing, limit=limit, offset=str(start))

    def by_time(
        self,
        name: str,
        start: float | None,
        *,
        descending: bool,
        limit: int,
        where: Filter | None = None,
    ) -> list[Placed]:
        """Return first chunks that have a time, ordered by it, from ``start`` on (inclusive).

        The order of points of one time is the store's own.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        direction = models.Direction.DESC if descending else models.Direction.ASC
        order = models.OrderBy(key="t", direction=direction, start_from=start)
        return self._scrolled(name, node_of(where, first=True), limit=limit, order_by=order)

    def _scrolled(
        self, name: str, passing: Node | bool, *, limit: int, **place: Any
    ) -> list[Placed]:
        with self._calling(name):
            self._space(name)
            if passing is False:
                return []
            records, _ = self._client.scroll(
                self._prefix + name,
                scroll_filter=filter_of(passing),
                limit=limit,
                with_payload=True,
                with_vectors=False,
                consistency=self._consistency,
                **place,
            )
        return [(UUID(str(record.id)), unpacked(record.payload)) for record in records]

    def _pages(self, name: str) -> Iterator[list[Point]]:
        offset: Any = None
        while True:
            with self._calling(name):
                records, offset = self._client.scroll(
                    self._prefix + name,
                    limit=BATCH,
                    offset=offset,
                    with_payload=False,
                    with_vectors=False,
                    consistency=self._consistency,
                )
            ids = [UUID(str(record.id)) for record in records]
            payloads, terms = self.payloads(name, ids), self.terms(name, ids)
            yield [
                Point(point, row, payloads.get(point, {}), terms.get(point, NO_TERMS))
                for point, row in self.get(name, ids).items()
            ]
            if offset is None:
                return

    def sizes(self, name: str) -> Sizes:
        """Return what a collection has in this store."""
        records: Sequence[models.Record] = []
        with self._calling(name):
            settings, points = self._settings(name), self.count(name)
            if settings.terms:
                records, _ = self._client.scroll(
                    self._prefix + name,
                    limit=_SAMPLE,
                    with_payload=False,
                    with_vectors=[TERMS],
                    consistency=self._consistency,
                )
        sample = [terms_of(record.vector) for record in records]
        return Sizes.estimate(points, vector_bytes=settings.space.size_bytes, sample=sample)

    def _space(self, name: str) -> Space:
        return self._settings(name).space

    def _settings(self, name: str) -> Settings:
        """Return a collection's settings, read each time: another worker may change them.

        One call: the server's 404 says that there is no such collection.
        """
        config = self._client.get_collection(self._prefix + name).config
        found = settings_of(config)
        if found is None:
            raise VectorsUnavailable(f"collection {self._prefix + name!r} was not made by Verso")
        return found

    @contextlib.contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        """Turn the library's errors into Verso's, and trace the call as one span."""
        with tracing.inner("qdrant"), translated(name):
            yield
