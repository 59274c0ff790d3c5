"""How a collection finds its points by their terms: one class for each place where these lie.

New collections have an index of their own (:mod:`~verso_worker.stores.edge.words`). Those that an
earlier release made keep sparse vectors in the engine until a migration writes them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import qdrant_edge as qdrant

from verso_core.errors import VectorsUnavailable
from verso_worker.records.points import (
    DENSE,
    NO_TERMS,
    TERM_BYTES,
    TERMS,
    Candidates,
    Terms,
)
from verso_worker.records.space import Space, Vector
from verso_worker.stores.edge.query import among, candidates, matching, sparse, uuid, weighing
from verso_worker.stores.edge.shard import Files
from verso_worker.stores.edge.words import Words

_SAMPLE = 1000  # points whose terms are counted for a collection's size
_LOOKED_AT = 256  # hits at least, before it is asked which points pass a filter
_FEW = 10_000  # points that pass a filter and are weighed rather than looked for
_WIDER = 4  # times as many hits are looked at where a filter has left too few


@dataclass(frozen=True, slots=True)
class Prepared:
    """Points that were checked, as the engine takes them, and their terms."""

    points: list[qdrant.Point]
    terms: Mapping[UUID, Terms]


class NoTerms:
    """A collection that keeps no terms or has no files yet.

    Args:
        space: the collection's.
    """

    def __init__(self, space: Space) -> None:
        self._space = space

    def vector(self, values: Vector, terms: Terms) -> Any:
        """Return a point's vectors as the engine takes them. Shape of ``values``: (dim,)."""
        del terms
        return values

    def put(self, points: Mapping[UUID, Terms]) -> None:
        """Set the terms of points that the engine has taken."""

    def remove(self, ids: Sequence[UUID]) -> None:
        """Remove the terms of points that the engine has removed."""

    def log(self) -> None:
        """Bring all changes to the disk, before the engine brings its own there."""

    def flushed(self) -> None:
        """Show all changes to later searches: the engine has them on the disk."""

    def end_merges(self) -> None:
        """Leave the files alone until the next commit, so that they may be copied."""

    @property
    def spare_bytes(self) -> int:
        """Bytes that the files may take beside themselves for a while."""
        return 0

    def matching(
        self,
        edge: Files,
        terms: Terms,
        *,
        limit: int,
        where: qdrant.Filter | None,
        passing: Sequence[UUID] | None = None,
    ) -> Candidates:
        """Return the points of the highest weight, best first, and perhaps a few more.

        Args:
            edge: the collection's files.
            terms: those of the query.
            limit: points that are wanted.
            where: the filter that they pass.
            passing: all points that pass it, if the caller knows them.
        """
        del edge, terms, limit, where, passing
        return candidates(self._space, [])

    def weights(self, edge: Files, terms: Terms, points: Sequence[UUID]) -> dict[UUID, float]:
        """Return the weight of terms in points; of those that share one."""
        del edge, terms, points
        return {}

    def terms(self, edge: Files, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points whose terms can be given back."""
        del edge, ids
        return {}

    def differing(self, edge: Files, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms."""
        del edge, expected
        return set()

    def having(self, words: Sequence[int]) -> list[int] | None:
        """Return how many points have each word; None where it is not known."""
        del words
        return None

    def size_bytes(self, edge: Files, points: int) -> int:
        """Return the bytes of all points' terms."""
        del edge, points
        return 0


class SparseTerms(NoTerms):
    """Terms as sparse vectors of the engine."""

    def vector(self, values: Vector, terms: Terms) -> Any:
        """Return a point's vectors as the engine takes them. Shape of ``values``: (dim,)."""
        return {DENSE: values, TERMS: sparse(terms)} if terms else values

    def matching(
        self,
        edge: Files,
        terms: Terms,
        *,
        limit: int,
        where: qdrant.Filter | None,
        passing: Sequence[UUID] | None = None,
    ) -> Candidates:
        """Return the points of the highest weight, best first."""
        del passing
        found = edge.query(matching(terms, limit=limit, where=where)) if terms else []
        return candidates(self._space, found)

    def weights(self, edge: Files, terms: Terms, points: Sequence[UUID]) -> dict[UUID, float]:
        """Return the weight of terms in points; of those that share one."""
        found = edge.query(weighing(terms, points)) if terms and points else []
        return {uuid(point.id): point.score for point in found}

    def terms(self, edge: Files, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points that exist."""
        return {uuid(one.id): _terms(one.vector) for one in edge.retrieve([*ids], False, [TERMS])}

    def differing(self, edge: Files, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms."""
        found = self.terms(edge, list(expected))
        return {point for point, terms in expected.items() if found.get(point) != terms}

    def size_bytes(self, edge: Files, points: int) -> int:
        """Return the bytes of all points' terms, by those of some."""
        request = qdrant.ScrollRequest(limit=_SAMPLE, with_payload=False, with_vector=[TERMS])
        sample = [_terms(record.vector) for record in edge.scroll(request)[0]]
        mean = sum(len(terms.ids) for terms in sample) / max(1, len(sample))
        return round(TERM_BYTES * points * mean)


class IndexedTerms(NoTerms):
    """Terms in an index beside the engine.

    A hit whose point a removal takes away meanwhile is dropped. Only a collection whose index was
    lost has points without their terms; it does not answer until all are back.

    Args:
        space: the collection's.
        words: the index.
    """

    def __init__(self, space: Space, words: Words) -> None:
        super().__init__(space)
        self._words = words
        self._whole = not words.lost

    def put(self, points: Mapping[UUID, Terms]) -> None:
        """Set the terms of points that the engine has taken."""
        self._words.put(points)

    def remove(self, ids: Sequence[UUID]) -> None:
        """Remove the terms of points that the engine has removed."""
        self._words.remove(ids)

    def log(self) -> None:
        """Bring all changes to the disk, before the engine brings its own there."""
        self._words.log()

    def flushed(self) -> None:
        """Show all changes to later searches: the engine has them on the disk."""
        self._words.flushed()

    def end_merges(self) -> None:
        """Wait for the merges of the index, so that its files may be copied."""
        self._words.end_merges()

    @property
    def spare_bytes(self) -> int:
        """Bytes that merges may take: the old files stay until the new one is written."""
        return self._words.size_bytes

    def matching(
        self,
        edge: Files,
        terms: Terms,
        *,
        limit: int,
        where: qdrant.Filter | None,
        passing: Sequence[UUID] | None = None,
    ) -> Candidates:
        """Return the points of the highest weight, best first, and perhaps a few more.

        Where too few of the best hits pass the filter, all points that pass it are weighed; if they
        are many, more hits are looked at instead.
        """
        if not terms:
            return candidates(self._space, [])
        self._check_whole(edge)
        if passing is not None:
            return self._best_of(edge, terms, passing, limit=limit)
        wanted = limit if where is None else max(_LOOKED_AT, 2 * limit)
        asked = where is None
        while True:
            hits = self._words.best(terms, wanted)
            found = self._passing(edge, dict(hits), where, most=limit)
            if len(found.ids) >= limit or len(hits) < wanted:
                return found
            if where is not None and not asked:
                asked, few = True, _few(edge, where)
                if few is not None:
                    return self._best_of(edge, terms, few, limit=limit)
            wanted *= _WIDER

    def _best_of(
        self, edge: Files, terms: Terms, points: Sequence[UUID], *, limit: int
    ) -> Candidates:
        """Return those of some points that have the highest weight, best first."""
        return self._passing(edge, self._words.weigh(terms, points), None, most=limit)

    def weights(self, edge: Files, terms: Terms, points: Sequence[UUID]) -> dict[UUID, float]:
        """Return the weight of terms in points; of those that share one."""
        del edge
        return self._words.weigh(terms, points)

    def differing(self, edge: Files, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms."""
        del edge
        return self._words.differing(expected)

    def having(self, words: Sequence[int]) -> list[int] | None:
        """Return how many points have each word."""
        return [self._words.having(word) for word in words]

    def size_bytes(self, edge: Files, points: int) -> int:
        """Return the bytes of the index."""
        del edge, points
        return self._words.size_bytes

    def _passing(
        self, edge: Files, hits: Mapping[UUID, float], where: qdrant.Filter | None, *, most: int
    ) -> Candidates:
        """Return the best hits that are points and pass a filter, best first.

        Where there is no filter ``most`` at most; else all that pass, which are known together.
        """
        ranked = sorted(hits, key=lambda point: (-hits[point], point.bytes))
        if not ranked:
            return candidates(self._space, [])
        if where is not None:
            records, _ = edge.scroll(among(ranked, where))
        else:
            records = edge.retrieve([*ranked[:most]], True, [DENSE])
            if len(records) < min(most, len(ranked)):  # a removal took one away meanwhile
                records = edge.retrieve([*ranked], True, [DENSE])
        rows = {uuid(record.id): record for record in records if record.vector}
        ids = [point for point in ranked if point in rows]
        vectors: list[Any] = [rows[point].vector for point in ids]
        return Candidates(
            ids=ids,
            stored=self._space.from_values(vectors),
            payloads=[rows[point].payload or {} for point in ids],
            scores=[hits[point] for point in ids],
        )

    def _check_whole(self, edge: Files) -> None:
        """Check that the index has not lost terms.

        Raises:
            VectorsUnavailable: it has.
        """
        if self._whole:
            return
        there, points = self._words.count, edge.info().points_count
        if there < points:
            raise VectorsUnavailable(
                f"expected the words of {points} points, got those of {there}: "
                "the others were lost, and a scrub of the collection puts them again"
            )
        self._words.all_found()
        self._whole = True


def _few(edge: Files, where: qdrant.Filter) -> list[UUID] | None:
    """Return the points that pass a filter; None if they are many.

    The engine's estimate of their number is no help: it says half of all for most filters.
    """
    request = qdrant.ScrollRequest(
        limit=_FEW + 1, filter=where, with_payload=False, with_vector=False
    )
    found = [uuid(record.id) for record in edge.scroll(request)[0]]
    return found if len(found) <= _FEW else None


def _terms(vector: Any) -> Terms:
    """Read a point's terms; a point that has none has no vector of them."""
    kept = vector.get(TERMS) if isinstance(vector, Mapping) else None
    return NO_TERMS if kept is None else Terms(tuple(kept.indices), tuple(kept.values))
