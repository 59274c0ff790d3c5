"""One collection on the disk of the shard process: a Qdrant Edge shard and its settings.

    collection.json    dimension, precision and scale; written once
    edge/              the engine's own files

Written without the engine's write-ahead log. The log makes an update survive a crash before its
flush, but nothing is acknowledged before its flush here, and the log takes three times the bytes of
the vectors (it keeps them as float32, in pieces of 32 MB).

Any number of threads may read. One thread at a time writes: the committer's.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import qdrant_edge as qdrant

from verso_core.errors import VectorsUnavailable
from verso_core.jobs import Filter, Precision
from verso_worker.points import (
    BATCH,
    Candidates,
    Condition,
    Hit,
    OneOf,
    conditions,
    impossible,
    ranked,
    unknown,
    unpacked,
    widened_limit,
)
from verso_worker.space import Space, Stored, Vector

SETTINGS_NAME = "collection.json"
ENGINE_NAME = "edge"
AWAY_S = 30.0
"""Seconds a call waits for a collection that is being optimised."""

_FORMAT = 1
_REMOVED_SHARE = 0.2  # of a collection's points, before their room is won back
_FIELDS_ABOVE = 2000  # points; a filter reads payloads one by one at about 3 us each
_FIELDS_MAX = 16  # fields indexed for a collection: their names come from users
_REMOVED_MIN = 1000  # the engine's own vacuum does nothing below this


class FieldKind(StrEnum):
    """What an index over a payload field is asked for."""

    KEYWORD = "keyword"
    FLOAT = "float"


class Optimiser(Protocol):
    """Optimises the files of a collection that nobody has open."""

    def run(self, folder: Path, *, index_above: int, fields: Mapping[str, FieldKind]) -> bool:
        """Index payload fields and segments of more points than ``index_above``, win room back.

        False where it failed; the files then hold what they held before.
        """
        ...


@dataclass(slots=True)
class _Wear:
    """What makes optimising worth while, since the last time it was tried."""

    removed: int = 0
    plain_after: int = 0
    fields: dict[str, FieldKind] = field(default_factory=dict)  # filtered by, without an index


class EdgeCollection:
    """One collection.

    Args:
        folder: where it lies, made by :meth:`create`.
        index_above: points searched one by one before an index is built over them.

    Raises:
        VectorsUnavailable: the folder cannot be opened.
    """

    def __init__(self, folder: Path, *, index_above: int) -> None:
        self.name = folder.name
        self.space = read_settings(folder)
        self._folder = folder
        self._index_above = index_above
        self._wear = _Wear()
        self._tried: set[str] = set()
        self._gate = threading.Condition()
        self._users = 0
        self._closed = False
        self._edge: qdrant.EdgeShard | None = self._load()

    @staticmethod
    def create(folder: Path, space: Space) -> None:
        """Make the files of an empty collection, on the disk when this returns."""
        (folder / ENGINE_NAME).mkdir(parents=True)
        edge = qdrant.EdgeShard.create(str(folder / ENGINE_NAME), engine_config(space))
        edge.update(qdrant.UpdateOperation.create_field_index("t", qdrant.PayloadSchemaType.Float))
        edge.flush()
        edge.close()
        settings = {
            "format": _FORMAT,
            "dim": space.dim,
            "precision": space.precision.value,
            "int8_scale": space.int8_scale,
        }
        (folder / SETTINGS_NAME).write_text(json.dumps(settings) + "\n")
        for path in [*folder.rglob("*"), folder]:
            sync(path)

    def prepare(
        self, ids: Sequence[UUID], rows: Stored, *, payloads: Sequence[dict[str, Any]]
    ) -> list[qdrant.Point]:
        """Check vectors and make the engine's points of them. Shape of ``rows``: (points, dim).

        The engine accepts NaN, and applies a batch with one wrong dimension in part, so nothing may
        reach it unchecked.

        Raises:
            VectorInvalid: the space does not hold such vectors.
        """
        values = self.space.values(self.space.check(rows))
        return [
            qdrant.Point(point, value, payload)
            for point, value, payload in zip(ids, values, payloads, strict=True)
        ]

    def put(self, points: Sequence[qdrant.Point]) -> None:
        """Apply prepared points; they are safe after :meth:`flush`."""
        with self._using() as edge:
            for start in range(0, len(points), BATCH):
                batch = list(points[start : start + BATCH])
                edge.update(qdrant.UpdateOperation.upsert_points(batch))

    def remove(self, ids: Sequence[UUID]) -> None:
        """Apply a removal; it is safe after :meth:`flush`."""
        with self._using() as edge:
            for start in range(0, len(ids), BATCH):
                batch: list[qdrant.PointId] = list(ids[start : start + BATCH])
                edge.update(qdrant.UpdateOperation.delete_points(batch))
        self._wear.removed += len(ids)

    def flush(self) -> None:
        """Bring what was applied to the disk."""
        with self._using() as edge:
            edge.flush()

    def get(self, ids: Sequence[UUID]) -> tuple[list[UUID], Stored]:
        """Give the points that exist and their stored vectors. Shape: (found, dim)."""
        with self._using() as edge:
            records = edge.retrieve(list(ids), False, True)
        vectors: list[Any] = [record.vector for record in records]
        return [_uuid(record.id) for record in records], self.space.from_values(vectors)

    def payloads(self, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Give the payloads of the points that exist."""
        with self._using() as edge:
            records = edge.retrieve(list(ids), True, False)
        return {_uuid(record.id): unpacked(record.payload) for record in records}

    def search(self, query: Vector, *, limit: int, where: Filter | None) -> list[Hit]:
        """Give the nearest points, nearest first. Shape of ``query``: (dim,).

        Raises:
            VectorInvalid: the query has another dimension or no direction.
        """
        unit = self.space.unit(query)
        wanted = conditions(where)
        if impossible(wanted):
            return []
        self._note_fields(wanted)
        wide = widened_limit(limit)
        request = qdrant.QueryRequest(
            limit=wide,
            query=qdrant.Query.Nearest(self.space.query_values(unit).tolist()),
            filter=_filter(wanted),
            params=qdrant.SearchParams(hnsw_ef=max(128, 2 * wide)),
            with_vector=True,
            with_payload=True,
        )
        with self._using() as edge:
            scored = edge.query(request)
        vectors: list[Any] = [point.vector for point in scored]
        found = Candidates(
            ids=[_uuid(point.id) for point in scored],
            stored=self.space.from_values(vectors),
            payloads=[point.payload or {} for point in scored],
        )
        return ranked(self.space, unit, found=found, limit=limit)

    def count(self) -> int:
        """Count the points."""
        with self._using() as edge:
            return edge.count(qdrant.CountRequest(exact=True))

    def close(self) -> None:
        """Wait for the calls under way and release the files; later calls find no collection."""
        with self._gate:
            self._closed = True
        self._take_away()

    def worn(self) -> bool:
        """Tell whether an index, or a vacuum, is worth the time the collection is away for it."""
        with self._using() as edge:
            info = edge.info()
        plain = info.points_count - info.indexed_vectors_count - self._wear.plain_after
        many = max(_REMOVED_MIN, _REMOVED_SHARE * info.points_count)
        slow = bool(self._wear.fields) and info.points_count > _FIELDS_ABOVE
        return plain > self._index_above or self._wear.removed > many or slow

    def optimise(self, optimiser: Optimiser) -> bool:
        """Index and vacuum the files in a process of its own; calls wait until they are back.

        The engine holds the interpreter lock while it optimises (20,000 points: 7-14 s), which
        would stop the calls for every other collection as well. False where it failed.

        Raises:
            VectorsUnavailable: the folder cannot be opened again.
        """
        fields = dict(self._wear.fields)
        self._take_away()
        done = optimiser.run(self._folder, index_above=self._index_above, fields=fields)
        edge = self._load()
        info = edge.info()
        self._tried |= fields.keys()
        self._wear = _Wear(plain_after=info.points_count - info.indexed_vectors_count)
        with self._gate:
            self._edge = edge
            self._gate.notify_all()
        return done

    def _note_fields(self, wanted: Sequence[Condition]) -> None:
        """Remember by which metadata a search filters, so that it is indexed in a quiet moment."""
        room = _FIELDS_MAX - len(self._tried) - len(self._wear.fields)
        for condition in wanted:
            if isinstance(condition, OneOf) and condition.path not in self._tried and room > 0:
                kind = FieldKind.FLOAT if condition.numbers else FieldKind.KEYWORD
                self._wear.fields.setdefault(condition.path, kind)

    def used_bytes(self) -> int:
        """Tell what the files take on the disk, bytes."""
        return sum(512 * path.lstat().st_blocks for path in self._folder.rglob("*"))

    def _load(self) -> qdrant.EdgeShard:
        try:
            return qdrant.EdgeShard.load(str(self._folder / ENGINE_NAME))
        except Exception as exc:
            raise VectorsUnavailable(f"collection {self.name!r} cannot be opened: {exc}") from exc

    def _take_away(self) -> None:
        with self._gate:
            edge, self._edge = self._edge, None
            self._gate.notify_all()
            # The engine refuses to close under a call ("Already borrowed").
            self._gate.wait_for(lambda: self._users == 0)
        if edge is not None:
            edge.close()

    @contextmanager
    def _using(self) -> Iterator[qdrant.EdgeShard]:
        with self._gate:
            self._gate.wait_for(lambda: self._closed or self._edge is not None, AWAY_S)
            if self._closed:
                raise unknown(self.name)
            edge = self._edge
            if edge is None:
                raise VectorsUnavailable(f"collection {self.name!r} is being optimised")
            self._users += 1
        try:
            yield edge
        finally:
            with self._gate:
                self._users -= 1
                self._gate.notify_all()


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk (fsync(2))."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def engine_config(space: Space, *, index_above: int | None = None) -> qdrant.EdgeConfig:
    """Give the engine's settings for a space.

    Args:
        space: precision and dimension.
        index_above: index segments of more points than this; None leaves what a folder has.
    """
    # Unit vectors under dot product, not cosine: a cosine collection normalises what it is given
    # once more and would not give the same bytes back.
    distance, datatype = qdrant.Distance.Dot, qdrant.VectorStorageDatatype.Float16
    if space.precision is Precision.INT8:
        distance, datatype = qdrant.Distance.Euclid, qdrant.VectorStorageDatatype.Uint8
    optimizers = None
    if index_above is not None:
        kib = max(1, index_above * space.size_bytes // 1024)
        optimizers = qdrant.EdgeOptimizersConfig(indexing_threshold=kib)
    return qdrant.EdgeConfig(
        vectors=qdrant.EdgeVectorParams(size=space.dim, distance=distance, datatype=datatype),
        optimizers=optimizers,
        wal_enabled=False,
    )


def read_settings(folder: Path) -> Space:
    """Read how a collection was made.

    Raises:
        VectorsUnavailable: the folder is not one of a collection.
    """
    try:
        settings: Mapping[str, Any] = json.loads((folder / SETTINGS_NAME).read_text())
        if settings["format"] != _FORMAT:
            raise VectorsUnavailable(
                f"expected collection format {_FORMAT} in {folder}, got {settings['format']}"
            )
        return Space(
            Precision(settings["precision"]), settings["dim"], float(settings["int8_scale"])
        )
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise VectorsUnavailable(f"expected {SETTINGS_NAME} in {folder}, got {exc}") from exc


def _filter(wanted: Sequence[Condition]) -> qdrant.Filter | None:
    if not wanted:
        return None
    return qdrant.Filter(must=[_condition(condition) for condition in wanted])


def _condition(condition: Condition) -> qdrant.ConditionType:
    if not isinstance(condition, OneOf):
        span = qdrant.RangeFloat(gte=condition.gte, lt=condition.lt)
        return qdrant.FieldCondition(condition.path, range=span)
    choices: list[qdrant.ConditionType] = [
        qdrant.FieldCondition(condition.path, match=qdrant.MatchValue(value))
        for value in condition.exact
    ]
    choices += [
        qdrant.FieldCondition(condition.path, range=qdrant.RangeFloat(gte=number, lte=number))
        for number in condition.numbers
    ]
    return qdrant.Filter(should=choices)


def _uuid(point: qdrant.PointId) -> UUID:
    return point if isinstance(point, UUID) else UUID(str(point))
