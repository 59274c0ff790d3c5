"""One collection on the disk of the shard process: a Qdrant Edge shard and its settings.

    collection.json    dimension, precision, scale, and whether terms are kept
    edge/              the engine's own files, 130 kB on the disk without a point; made by the first
    words/             the index of its points' terms, made with them

Many collections never get a point: one of logs has them only for lines that are kept one by one.
:mod:`~verso_worker.stores.edge.settings` says how a crash meanwhile is told from a loss of files.

Terms are on the disk before the engine's flush of their points, in a log of changes or in the
index. What a crash leaves of a change that was not acknowledged is set right at the next opening
(:meth:`~verso_worker.stores.edge.words.Words.recover`): each point has terms, and no others exist.

Written without the engine's write-ahead log. The log makes an update survive a crash before its
flush, but nothing is acknowledged before its flush here, and the log takes three times the bytes of
the vectors (it keeps them as float32, in pieces of 32 MB).

Any number of threads may read. One thread at a time writes: the committer's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as qdrant

from verso_core import files
from verso_core.errors import VectorsUnavailable
from verso_core.jobs import Filter, IndexKind
from verso_core.jobs.filters.nodes import METADATA, Node
from verso_worker.ipc.server import check_caller
from verso_worker.records.fusion import depth, fused, joined
from verso_worker.records.points import (
    BATCH,
    DENSE,
    Disk,
    Hit,
    Placed,
    Sizes,
    Terms,
    best,
    path_in_payload,
    ranked,
    unpacked,
    widened_limit,
)
from verso_worker.records.space import Settings, Stored, Vector
from verso_worker.stores.edge.damage import LostPoints
from verso_worker.stores.edge.fields import FilteredFields
from verso_worker.stores.edge.lexical import IndexedTerms, NoTerms, Prepared, SparseTerms
from verso_worker.stores.edge.optimise import Runner
from verso_worker.stores.edge.query import candidates, filter_of, following, nearest, timed, uuid
from verso_worker.stores.edge.settings import (
    ENGINE_NAME,
    SCHEMAS,
    TIMES,
    Description,
    clear,
    disk_parts,
    engine_config,
    has_graph,
    index_times,
    read_description,
    write_description,
)
from verso_worker.stores.edge.shard import Info, OpenShard
from verso_worker.stores.edge.words import WORDS_NAME, Words, Writers, opened
from verso_worker.stores.filters import node_of

_FOLDERS = (ENGINE_NAME, WORDS_NAME)
_SAMPLE = 1000  # points of which it is asked whether they have a payload
_REMOVED_SHARE = 0.2  # of a collection's points, before their room is won back
_FIELDS_ABOVE = 2000  # points; a filter reads payloads one by one at about 3 us each
_INDEXED_NOW = 20_000  # points; an index over them takes 0.4 s
_REMOVED_MIN = 1000  # the engine's own vacuum does nothing below this
_OPEN_MIN = 2000  # points; a closed segment has files of 150 kB
_OPEN_SHARE = 0.25  # of a collection's points, before their segment is closed


@dataclass(slots=True)
class _Changes:
    """What has changed since the last run of the optimiser."""

    removed: int = 0
    plain_after: int = 0
    graph_tried: int = 0


class EdgeCollection:
    """One collection.

    Args:
        folder: its folder, made by :meth:`create`.
        index_above: points searched one by one before an index is built over them.
        writers: the open writers of indexes of terms in this process.

    Raises:
        VectorsDamaged: the folder cannot be opened.
        VectorsUnavailable: this process may not open it, or not now.
    """

    def __init__(self, folder: Path, *, index_above: int, writers: Writers | None = None) -> None:
        described = read_description(folder)
        self.name = folder.name
        self.settings = described.settings
        self.space = self.settings.space
        self._folder = folder
        self._index_above = index_above
        self._writers = Writers() if writers is None else writers
        self._changes = _Changes()
        self._fields = FilteredFields()
        self._planned = described.planned
        self._sparse = self.settings.terms and described.sparse
        if self._planned is not None:
            clear(folder, _FOLDERS)
        self._shard = OpenShard(folder / ENGINE_NAME, folder.name, made=self._planned is None)
        self._lexical = NoTerms(self.space) if self._planned is not None else self._opened_terms()
        self._graph = has_graph(folder)
        self.lost = LostPoints(folder)
        if not self.empty:
            with self._shard.using() as edge:
                index_times(edge)

    @staticmethod
    def create(folder: Path, settings: Settings) -> None:
        """Make the folder of an empty collection, on the disk when this returns."""
        folder.mkdir(parents=True)
        write_description(folder, Description(settings, planned=TIMES))

    @property
    def empty(self) -> bool:
        """Whether the collection never had a point on the disk, so that it has no files for any."""
        return self._planned is not None

    def _opened_terms(self) -> NoTerms:
        if not self.settings.terms:
            return NoTerms(self.space)
        if self._sparse:
            return SparseTerms(self.space)
        words = opened(self._folder / WORDS_NAME, self._writers)
        words.recover(self._existing)
        return IndexedTerms(self.space, words)

    def _existing(self, ids: Sequence[UUID]) -> set[UUID]:
        with self._shard.reading() as edge:
            return {uuid(record.id) for record in edge.retrieve([*ids], False, False)}

    def prepare(
        self,
        ids: Sequence[UUID],
        rows: Stored,
        *,
        payloads: Sequence[dict[str, Any]],
        terms: Sequence[Terms],
    ) -> Prepared:
        """Check vectors and make the engine's points of them. Shape of ``rows``: (points, dim).

        Terms are left out where the collection keeps none.

        The engine accepts NaN, and applies a batch with one wrong dimension in part, so nothing may
        reach it unchecked.

        Raises:
            VectorInvalid: the space does not hold such vectors.
        """
        values = self.space.values(self.space.check(rows))
        points = [
            qdrant.Point(point, self._lexical.vector(value, words), payload)
            for point, value, payload, words in zip(ids, values, payloads, terms, strict=True)
        ]
        return Prepared(points, dict(zip(ids, terms, strict=True)))

    def put(self, prepared: Prepared) -> None:
        """Apply prepared points; they are safe after :meth:`flush`.

        Raises:
            OSError: the files for the first points could not be made.
        """
        if self._planned is not None and not self._shard.made:
            self._make_files(self._planned)
        with self._shard.using() as edge:
            for start in range(0, len(prepared.points), BATCH):
                batch = prepared.points[start : start + BATCH]
                edge.update(qdrant.UpdateOperation.upsert_points(batch))
        self._lexical.put(prepared.terms)

    def remove(self, ids: Sequence[UUID]) -> None:
        """Apply a removal; it is safe after :meth:`flush`."""
        if not self._shard.made:
            return
        with self._shard.using() as edge:
            for start in range(0, len(ids), BATCH):
                batch: list[qdrant.PointId] = list(ids[start : start + BATCH])
                edge.update(qdrant.UpdateOperation.delete_points(batch))
        self._lexical.remove(ids)
        self._changes.removed += len(ids)

    def flush(self) -> None:
        """Bring all applied writes to the disk."""
        self._lexical.log()
        with self._shard.using() as edge:
            edge.flush()
        if self._planned is not None and self._shard.made:
            write_description(self._folder, Description(self.settings, planned=None))
            self._planned = None
        self._lexical.flushed()

    def _make_files(self, planned: Mapping[str, IndexKind]) -> None:
        """Make and open the engine's files; until a flush the folder does not count on them."""
        clear(self._folder, _FOLDERS)
        place = self._folder / ENGINE_NAME
        place.mkdir()
        edge = qdrant.EdgeShard.create(str(place), engine_config(self.space))
        for field, kind in planned.items():
            edge.update(qdrant.UpdateOperation.create_field_index(field, SCHEMAS[kind]))
        edge.flush()
        edge.close()
        if self.settings.terms:
            words = Words(self._folder / WORDS_NAME, self._writers)
            self._lexical = IndexedTerms(self.space, words)
        for path in [*self._folder.rglob("*"), self._folder]:
            files.sync(path)
        self._shard.open()
        self._fields.indexed(planned)

    def get(self, ids: Sequence[UUID]) -> tuple[list[UUID], Stored]:
        """Return the points that exist and their stored vectors. Shape: (found, dim)."""
        with self._shard.reading() as edge:
            found = edge.retrieve(list(ids), False, [DENSE])
        # One whose vector is lost has an empty mapping.
        records = [record for record in found if record.vector]
        vectors: list[Any] = [record.vector for record in records]
        return [uuid(record.id) for record in records], self.space.from_values(vectors)

    def terms(self, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points whose terms can be given back."""
        with self._shard.reading() as edge:
            return self._lexical.terms(edge, ids)

    def differing(self, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms; none where no terms are kept."""
        with self._shard.reading() as edge:
            return self._lexical.differing(edge, expected)

    def having(self, words: Sequence[int]) -> list[int] | None:
        """Return how many points have each word; None where the engine keeps them."""
        return self._lexical.having(words)

    def payloads(self, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return the payloads of the points that exist."""
        with self._shard.reading() as edge:
            records = edge.retrieve(list(ids), True, False)
        return {uuid(record.id): unpacked(record.payload) for record in records}

    def page(self, start: UUID, *, limit: int, passing: Node | bool) -> list[Placed]:
        """Return points with their payloads, by ascending id from ``start`` on."""
        if passing is False:
            return []
        if passing is not True:
            self.lost.check()
        self._fields.note(passing)
        return self._scrolled(following(start, limit=limit, where=filter_of(passing)))

    def by_time(
        self, start: float | None, *, descending: bool, limit: int, passing: Node | bool
    ) -> list[Placed]:
        """Return points that have a time, ordered by it, from ``start`` on."""
        if passing is False:
            return []
        self.lost.check()
        self._fields.note(passing)
        order = timed(start, descending=descending)
        return self._scrolled(following(None, limit=limit, where=filter_of(passing), order=order))

    def _scrolled(self, request: qdrant.ScrollRequest) -> list[Placed]:
        with self._shard.reading() as edge:
            records, _ = edge.scroll(request)
        return [(uuid(record.id), unpacked(record.payload)) for record in records]

    def search(
        self,
        query: Vector | None,
        *,
        terms: Terms | None,
        limit: int,
        where: Filter | None,
        besides: Sequence[UUID] | None = None,
    ) -> list[Hit]:
        """Return the best points, best first: by vector, by terms, or by both where both are given.

        Shape of ``query``: (dim,). ``besides``: as in ``rules.ports.stores.Vectors``.

        Raises:
            VectorInvalid: the query has another dimension or no direction.
            VectorsDamaged: points were lost, or files cannot be read.
        """
        self.lost.check()
        unit = None if query is None else self.space.unit(query)
        passing = node_of(where)
        if passing is False or (unit is None and not terms):
            return []
        self._fields.note(passing)
        chosen = filter_of(passing, besides=besides)
        if unit is None:
            assert terms is not None
            with self._shard.reading() as edge:
                found = self._lexical.matching(edge, terms, limit=limit, where=chosen)
            return best(found, found.scores, limit=limit, weights=found.scores)
        values = self.space.query_values(unit)
        if terms is None:
            request = nearest(values, limit=widened_limit(limit), where=chosen)
            with self._shard.reading() as edge:
                scored = edge.query(request)
            return ranked(self.space, unit, found=candidates(self.space, scored), limit=limit)
        wide = depth(limit)
        with self._shard.reading() as edge:
            near = edge.query(nearest(values, limit=wide, where=chosen))
            # Without a graph a search looks at every point, so it has found all that pass.
            every = len(near) < wide and not self._graph
            known = [uuid(point.id) for point in near] if every else None
            said = self._lexical.matching(edge, terms, limit=wide, where=chosen, passing=known)
            found = joined(candidates(self.space, near), said)
            weights = self._lexical.weights(edge, terms, found.ids[len(said.ids) :])
        return fused(self.space, unit, found=found, weights=weights, limit=limit)

    def neighbours(self, rows: Stored, *, limit: int) -> list[list[UUID]]:
        """Return the points nearest to each stored vector, as the engine ranks them.

        Shape of ``rows``: (n, dim). One question after the other, so that others come in between.

        Raises:
            VectorInvalid: the rows are not of the collection's space.
            VectorsDamaged: points were lost, or files cannot be read.
        """
        self.lost.check()
        found: list[list[UUID]] = []
        for values in self.space.values(self.space.check(rows)):
            check_caller()
            with self._shard.reading() as edge:
                near = edge.query(nearest(values, limit=limit, where=None, bare=True))
            found.append([uuid(point.id) for point in near])
        return found

    def count(self, passing: Node | bool = True) -> int:
        """Return the number of points, from the engine's statistics if all pass.

        Its exact count reads each.
        """
        if passing is False:
            return 0
        if passing is not True:
            self.lost.check()
        self._fields.note(passing)
        with self._shard.reading() as edge:
            if passing is True:
                return edge.info().points_count
            return edge.count(qdrant.CountRequest(exact=True, filter=filter_of(passing)))

    def index(self, fields: Mapping[str, IndexKind]) -> None:
        """Index fields now, or in a quiet moment where it would stop other calls for long."""
        wanted = {path_in_payload(METADATA + key): kind for key, kind in fields.items()}
        if self._planned is not None and not self._shard.made:
            wanted |= self._planned
            write_description(self._folder, Description(self.settings, wanted))
            self._planned = wanted
            return
        with self._shard.using() as edge:
            info = edge.info()
            # The engine leaves quotes out of a path that needs none.
            there = {path.replace('"', "") for path in info.payload_schema}
            wanted = {p: kind for p, kind in wanted.items() if p.replace('"', "") not in there}
            if info.points_count > _INDEXED_NOW:
                self._fields.want(wanted)
                return
            for path, kind in wanted.items():
                edge.update(qdrant.UpdateOperation.create_field_index(path, SCHEMAS[kind]))
        self._fields.indexed(wanted)

    def sizes(self) -> Sizes:
        """Return what the collection has here."""
        with self._shard.reading() as edge:
            points = edge.info().points_count
            terms = self._lexical.size_bytes(edge, points)
        disk = Disk(**disk_parts(self._folder, words=WORDS_NAME))
        return Sizes(points, points * self.space.size_bytes, terms, disk)

    def copy(self, folder: Path) -> int:
        """Copy the files and return the number of points in them.

        Call it while no write is running: the engine changes its files in place, and all
        acknowledged writes have been flushed.

        Raises:
            VectorsUnavailable: the copy failed; the folder is to be thrown away.
        """
        self.end_merges()
        with self._shard.using() as edge:
            try:
                files.copy_tree(self._folder, folder)
            except OSError as exc:
                fault = type(exc).__name__
                raise VectorsUnavailable(f"collection {self.name!r} not copied: {fault}") from exc
            return edge.count(qdrant.CountRequest(exact=True))

    def close(self) -> None:
        """Wait for the calls under way and release the files; later calls find no collection."""
        self._shard.close()
        self.end_merges()

    def end_merges(self) -> None:
        """Let nothing change the files until the next write."""
        self._lexical.end_merges()

    def needs_optimising(self) -> bool:
        """Whether an index or a vacuum is worth the time for which the collection is closed."""
        if self.empty:
            return False
        with self._shard.reading() as edge:
            info = edge.info()
        plain = self._plain(info) - self._changes.plain_after
        if not self._graph:
            points = info.points_count
            if points - self._changes.graph_tried > self._index_above:
                return True
            if plain > max(_OPEN_MIN, _OPEN_SHARE * points) and self._bare():
                return True
        many = max(_REMOVED_MIN, _REMOVED_SHARE * info.points_count)
        slow = bool(self._fields.wanted) and info.points_count > _FIELDS_ABOVE
        return plain > self._index_above or self._changes.removed > many or slow

    def optimise(self, optimiser: Runner) -> bool:
        """Index and vacuum the files in a process of its own; calls wait meanwhile.

        The engine holds the interpreter lock while it optimises (20,000 points: 7-14 s), which
        would stop the calls for every other collection as well. Return False if it failed.

        Raises:
            VectorsDamaged: the folder cannot be opened again.
        """
        fields = self._fields.wanted
        few = self.count() <= self._index_above
        only_close = few and not self._graph and self._bare()
        # Segments that were closed before are below the threshold, and get their graph together.
        above = self._index_above if self._graph or few else _OPEN_MIN
        self._shard.release()
        done = optimiser.run(
            self._folder,
            index_above=0 if only_close else min(above, self._index_above),
            graph=not only_close,
            fields=fields,
        )
        self._fields.indexed(fields)
        self._changes = _Changes()
        info = self._shard.open()
        self._graph = has_graph(self._folder)
        self._changes.plain_after = self._plain(info)
        self._changes.graph_tried = 0 if only_close else info.points_count
        return done

    def _bare(self) -> bool:
        """Whether closing segments saves bytes: most points have no payload.

        An open segment takes 144 bytes a point for payloads, also of points that have none. To
        close one makes an index of sparse vectors larger by more.
        """
        if self._sparse:
            return False
        request = qdrant.ScrollRequest(limit=_SAMPLE, with_payload=True, with_vector=False)
        with self._shard.reading() as edge:
            records, _ = edge.scroll(request)
        return 2 * sum(not record.payload for record in records) > len(records)

    def _plain(self, info: Info) -> int:
        """Count points without an index; sparse vectors count as indexed from the start."""
        vectors = 2 if self._sparse else 1
        return vectors * info.points_count - info.indexed_vectors_count

    @property
    def spare_bytes(self) -> int:
        """Bytes that a write may set off beside its own, for a while."""
        return self._lexical.spare_bytes

    def used_bytes(self) -> int:
        """Return what the files take on the disk, bytes."""
        return files.used_bytes(self._folder)
