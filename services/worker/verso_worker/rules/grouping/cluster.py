"""Group a collection's records: by their vectors, or as log lines by their templates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from sys import intern
from uuid import UUID

import numpy as np

from verso_core.errors import RequestInvalid, VersoError
from verso_core.jobs import Collection, NoItem, Result, Slice
from verso_core.jobs.cluster import (
    MAX_RECORDS,
    Clustered,
    ClusterParams,
    Group,
    Member,
    Method,
)
from verso_core.jobs.models import text_field
from verso_core.record import point_ids
from verso_worker.records.space import Space, Stored
from verso_worker.rules.grouping import by_pairs
from verso_worker.rules.grouping.by_pairs import ALONE, Labels, central
from verso_worker.rules.grouping.messages import messages
from verso_worker.rules.grouping.statements import statements_of
from verso_worker.rules.ports.outcome import OnProgress
from verso_worker.rules.ports.stores import Ask, Vectors
from verso_worker.rules.reader import Chunk, Reader

PAIRS = 10_000
"""Most records whose pairs are all compared; for more a graph of near records is made."""

_PAGE = 256
_LINE_CHUNKS = 8  # of a longer line the beginning tells which statement wrote it


@dataclass(frozen=True, slots=True)
class _Member:
    """A live record, and its document's time; None for a document without a time."""

    chunk: Chunk
    time: float | None

    @property
    def name(self) -> str:
        """The record's id."""
        return f"{self.chunk.document}#{self.chunk.index}"


@dataclass(frozen=True, slots=True)
class _Group:
    """Records that belong together; ``shown`` are indices into ``members``."""

    members: list[_Member]
    shown: list[int]
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """Groups records."""

    vectors: Vectors
    reader: Reader
    pairs: int = PAIRS

    def run(
        self,
        work: Slice[ClusterParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Clustered]:
        """Group the records of a collection, and describe the largest groups.

        ``on_progress`` receives the progress with a large collection.

        Raises:
            RequestInvalid: the collection has more records than MAX_RECORDS.
            Cancelled: by ``on_progress``.
        """
        asked = work.params
        chunks = list(self._live(collection))
        if asked.method is Method.TEMPLATES:
            groups, alone, unread = self._by_template(collection, chunks, asked)
        else:
            groups, alone, unread = self._by_vector(collection, chunks, asked, on_progress)
        groups.sort(key=lambda group: (-len(group.members), group.template or ""))
        found = Clustered(
            records=sum(len(group.members) for group in groups) + alone + unread,
            clusters=len(groups),
            alone=alone,
            unread=unread,
            groups=tuple(self._describe(collection, one, asked) for one in groups[: asked.limit]),
        )
        return Result([found])

    def _live(self, collection: Collection) -> Iterator[Chunk]:
        seen = count(1)
        for document, entry in self.reader.scan(collection):
            for index in range(len(entry.records)):
                if next(seen) > MAX_RECORDS:
                    raise RequestInvalid(
                        f"expected at most {MAX_RECORDS} records in a collection, got more"
                    )
                yield Chunk(document, entry, index)

    def _members(self, collection: Collection, chunks: Sequence[Chunk]) -> list[_Member]:
        points = [_point(collection, chunk) for chunk in chunks]
        payloads = self.vectors.payloads(collection.name, points)
        return [
            _Member(chunk, payloads.get(point, {}).get("t"))
            for chunk, point in zip(chunks, points, strict=True)
        ]

    def _by_vector(
        self,
        collection: Collection,
        chunks: Sequence[Chunk],
        asked: ClusterParams,
        on_progress: OnProgress,
    ) -> tuple[list[_Group], int, int]:
        space = Space.of(collection)
        members, points, stored = self._stored(collection, chunks, space)
        if len(members) <= self.pairs:
            labels = _of_pairs(space, stored, asked)
        else:
            numbers = {point: number for number, point in enumerate(points)}

            def ask(rows: Stored, limit: int) -> list[list[int]]:
                found = self.vectors.neighbours(collection.name, rows, limit=limit)
                return [[numbers.get(one, -1) for one in near] for near in found]

            labels = _of_graph(space, stored, ask, asked=asked, on_progress=on_progress)
        own: dict[int, list[int]] = defaultdict(list)
        for row, label in enumerate(labels.tolist()):
            own[label].append(row)
        alone = len(own.pop(ALONE, []))
        groups = [
            _Group(
                [members[n] for n in rows],
                central(space.widen(stored[rows]), count=asked.representatives),
            )
            for rows in own.values()
        ]
        return groups, alone, len(chunks) - len(members)

    def _stored(
        self, collection: Collection, chunks: Sequence[Chunk], space: Space
    ) -> tuple[list[_Member], list[UUID], Stored]:
        """Return the records whose vectors are stored, their points and vectors.

        Shape of the vectors: (records, dim).
        """
        members: list[_Member] = []
        points: list[UUID] = []
        pages = [np.empty((0, space.width), space.dtype)]
        for page in _pages(chunks):
            wanted = [_point(collection, chunk) for chunk in page]
            stored = self.vectors.get(collection.name, wanted)
            there = [n for n, point in enumerate(wanted) if point in stored]
            pages += [stored[wanted[n]][None] for n in there]
            points += [wanted[n] for n in there]
            members += self._members(collection, [page[n] for n in there])
        return members, points, np.concatenate(pages)

    def _by_template(
        self, collection: Collection, chunks: Sequence[Chunk], asked: ClusterParams
    ) -> tuple[list[_Group], int, int]:
        read: list[_Member] = []
        told: list[str] = []
        for page in _pages_of_lines(chunks):
            lines = _lines(page, self.reader.chunks(collection, page))
            read += self._members(collection, [first for first, _ in lines])
            told += map(intern, messages([line for _, line in lines]))
        own: dict[str, list[_Member]] = defaultdict(list)
        for member, template in zip(read, statements_of(told), strict=True):
            own[template].append(member)
        shown = range(asked.representatives)
        groups = [_Group(one, list(shown[: len(one)]), template) for template, one in own.items()]
        return groups, 0, sum(chunk.index == 0 for chunk in chunks) - len(read)

    def _describe(self, collection: Collection, group: _Group, asked: ClusterParams) -> Group:
        times = [member.time for member in group.members if member.time is not None]
        chosen = [group.members[n] for n in group.shown]
        texts = self.reader.chunks(collection, [member.chunk for member in chosen])
        first = min(times, default=None)
        return Group(
            size=len(group.members),
            template=group.template,
            first_seen=first,
            last_seen=max(times, default=None),
            new=None if asked.since is None or first is None else first >= asked.since,
            representatives=tuple(
                _shown(member, text) for member, text in zip(chosen, texts, strict=True)
            ),
        )


def _shown(member: _Member, text: bytes | VersoError) -> Member:
    fields = text_field(text) if isinstance(text, bytes) else {}
    return Member.model_validate({"id": member.name, "time": member.time, **fields})


def _of_pairs(space: Space, stored: Stored, asked: ClusterParams) -> Labels:
    vectors = space.widen(stored)
    if asked.method is Method.HDBSCAN:
        return by_pairs.by_stability(
            vectors, min_size=asked.min_size, min_samples=asked.min_samples
        )
    eps = space.stored_distance(asked.eps)
    return by_pairs.by_density(vectors, eps=eps, min_samples=asked.min_samples)


def _of_graph(
    space: Space, stored: Stored, ask: Ask, *, asked: ClusterParams, on_progress: OnProgress
) -> Labels:
    # Imported here: scipy takes long to import, and few workers ever need it.
    from verso_worker.rules.grouping.by_graph import by_density, by_stability
    from verso_worker.rules.grouping.neighbours import NEAREST, Nodes, graph_of

    nearest = max(NEAREST, asked.min_samples)
    graph = graph_of(Nodes.of(space, stored), ask, nearest=nearest, on_progress=on_progress)
    if asked.method is Method.HDBSCAN:
        return by_stability(
            graph, min_size=asked.min_size, min_samples=asked.min_samples, on_progress=on_progress
        )
    eps = space.stored_distance(asked.eps)
    return by_density(graph, eps=eps, min_samples=asked.min_samples, on_progress=on_progress)


def _pages(chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
    for start in range(0, len(chunks), _PAGE):
        yield chunks[start : start + _PAGE]


def _pages_of_lines(chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
    """Yield the chunks of whole documents, but not those far behind a line's beginning."""
    page: list[Chunk] = []
    for chunk in chunks:
        if chunk.index == 0 and len(page) >= _PAGE:
            yield page
            page = []
        if chunk.index < _LINE_CHUNKS:
            page.append(chunk)
    if page:
        yield page


def _lines(
    chunks: Sequence[Chunk], texts: Sequence[bytes | VersoError]
) -> list[tuple[Chunk, bytes]]:
    """Return the first chunk and the text of each document of which every chunk was read."""
    lines = []
    both = zip(chunks, texts, strict=True)
    for _, own in groupby(both, key=lambda one: one[0].document):
        rows = list(own)
        parts = [text for _, text in rows if isinstance(text, bytes)]
        if len(parts) == len(rows):
            lines.append((rows[0][0], b"".join(parts)))
    return lines


def _point(collection: Collection, chunk: Chunk) -> UUID:
    return point_ids(collection.name, chunk.document, chunk.entry)[chunk.index]
