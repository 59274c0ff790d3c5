"""Draw the records of a collection as a map: their vectors in two dimensions, with colours.

1. Take the records of the first buckets. A bucket holds the documents whose ids have some hash, so
   these are a random sample.
2. Project their vectors on the two directions in which they differ most (PCA; Jolliffe 2002,
   section 1.1).
3. Colour the points by a value of their metadata, or by groups of near vectors: k-means, which
   puts every point into one of few groups. Lists of groups come from ``cluster`` instead.

Of a log collection a point is a statement, which has one vector for all its lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs import Collection, NoItem, Result, Slice
from verso_core.jobs.cluster import Colour, Projected, ProjectedColour, ProjectParams
from verso_core.record import point_ids
from verso_worker.records.space import Space, Vector
from verso_worker.rules.facets import label_of
from verso_worker.rules.ports.outcome import OnProgress
from verso_worker.rules.ports.stores import Vectors
from verso_worker.rules.reader import Chunk, Reader

NONE = -1
"""Colour of a point that has none."""
SHOWN = 12
"""Most values that have a colour of their own: more cannot be told apart."""

_PAGE = 256
_LABEL_CHARACTERS = 120
_DIGITS = 4  # of a coordinate: finer than the pixels of a screen

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Projection:
    """Draws maps of collections."""

    vectors: Vectors
    reader: Reader

    def run(
        self,
        work: Slice[ProjectParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Projected]:
        """Draw a sample of a collection's records.

        Raises:
            Cancelled: by ``on_progress``.
        """
        asked = work.params
        sample = list(islice(self._chunks(collection), asked.limit))
        chunks, vectors = self._stored(collection, sample, on_progress)
        drawn = project(vectors)
        colour, labels = self._coloured(collection, chunks, vectors, asked)
        found = Projected(
            records=self.reader.documents.holdings(collection.name).chunks,
            unread=len(sample) - len(chunks),
            explained=drawn.explained,
            ids=tuple(f"{chunk.document}#{chunk.index}" for chunk in chunks),
            x=drawn.x,
            y=drawn.y,
            colour=tuple(colour.tolist()),
            colours=counted(colour, labels),
        )
        return Result([found])

    def _chunks(self, collection: Collection) -> Iterator[Chunk]:
        for document, entry in self.reader.scan(collection):
            for index in range(len(entry.records)):
                yield Chunk(document, entry, index)

    def _stored(
        self, collection: Collection, sample: Sequence[Chunk], on_progress: OnProgress
    ) -> tuple[list[Chunk], Vector]:
        """Return the records whose vectors are stored, and these. Shape: (records, dim)."""
        space = Space.of(collection)
        there: list[Chunk] = []
        pages = [np.empty((0, space.width), space.dtype)]
        for start in range(0, len(sample), _PAGE):
            on_progress("read", start, len(sample))
            page = sample[start : start + _PAGE]
            points = [_point(collection, chunk) for chunk in page]
            found = self.vectors.get(collection.name, points)
            own = [n for n, point in enumerate(points) if point in found]
            pages += [found[points[n]][None] for n in own]
            there += [page[n] for n in own]
        return there, space.widen(np.concatenate(pages))

    def _coloured(
        self,
        collection: Collection,
        chunks: Sequence[Chunk],
        vectors: Vector,
        asked: ProjectParams,
    ) -> tuple[Numbers, list[str]]:
        if asked.colour is Colour.LABEL:
            return ranked(self._values(collection, chunks, asked.label_key or ""))
        if asked.colour is Colour.NONE or not len(vectors):
            return np.full(len(chunks), NONE, np.int64), []
        colour, middle = groups(vectors, count=asked.groups)
        texts = self.reader.chunks(collection, [chunks[n] for n in middle])
        return colour, [
            shortened(text.decode("utf-8", "replace")) if isinstance(text, bytes) else "unreadable"
            for text in texts
        ]

    def _values(
        self, collection: Collection, chunks: Sequence[Chunk], key: str
    ) -> list[str | None]:
        """Return the value of a metadata key of each record's document: the first of several."""
        values: list[str | None] = []
        for start in range(0, len(chunks), _PAGE):
            points = [_point(collection, chunk) for chunk in chunks[start : start + _PAGE]]
            payloads = self.vectors.payloads(collection.name, points)
            metadata = (payloads.get(point, {}).get("m", {}) for point in points)
            values.extend(label_of(one, key) for one in metadata)
        return values


@dataclass(frozen=True, slots=True)
class Drawn:
    """Points of a map, and the share of the variance that each direction shows."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    explained: tuple[float, ...]


def project(vectors: Vector) -> Drawn:
    """Project vectors on their first two principal components. Shape: (records, dim).

    A component's sign is chosen so that its largest weight is positive: the same vectors make the
    same map.
    """
    rows = vectors.astype(np.float64)
    if len(rows) < 2 or rows.shape[1] < 2:
        zeros = (0.0,) * len(rows)
        return Drawn(zeros, zeros, (0.0, 0.0))
    rows -= rows.mean(axis=0)
    variances, components = np.linalg.eigh(rows.T @ rows / len(rows))  # ascending
    first = components[:, [-1, -2]]
    first = first * np.sign(first[np.abs(first).argmax(axis=0), [0, 1]])
    placed = np.round(rows @ first, _DIGITS)
    whole = float(variances.sum())
    shares = [float(one) / whole if whole > 0 else 0.0 for one in variances[[-1, -2]]]
    return Drawn(
        tuple(placed[:, 0].tolist()),
        tuple(placed[:, 1].tolist()),
        tuple(round(max(0.0, share), _DIGITS) for share in shares),
    )


def groups(vectors: Vector, *, count: int) -> tuple[Numbers, list[int]]:
    """Group vectors by k-means, the largest group first.

    Args:
        vectors: of unit length. Shape: (records, dim).
        count: of groups, at most.

    Returns:
        The group of each vector, and of each group the vector nearest to its mean.
    """
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0))
    model = KMeans(n_clusters=min(count, distinct), n_init=1, random_state=0)
    # of vectors that differ in their last bits alone k-means finds fewer groups, and leaves gaps
    used, found, sizes = np.unique(
        model.fit_predict(vectors), return_inverse=True, return_counts=True
    )
    order = np.argsort(-sizes, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    labels = place[found]
    middle = []
    for number in range(len(order)):
        own = np.flatnonzero(labels == number)
        centre = model.cluster_centers_[used[order[number]]]
        middle.append(int(own[np.argmin(((vectors[own] - centre) ** 2).sum(axis=1))]))
    return labels, middle


def ranked(values: Sequence[str | None]) -> tuple[Numbers, list[str]]:
    """Number values by how frequent they are; those past ``SHOWN`` get no colour."""
    counts = Counter(value for value in values if value is not None)
    labels = [value for value, _ in counts.most_common(SHOWN)]
    number: dict[str | None, int] = {value: n for n, value in enumerate(labels)}
    return np.array([number.get(value, NONE) for value in values], np.int64), labels


def counted(colour: Numbers, labels: Sequence[str]) -> tuple[ProjectedColour, ...]:
    """Return what each colour stands for, with the number of its points."""
    points = np.bincount(colour[colour != NONE], minlength=len(labels)).tolist()
    return tuple(
        ProjectedColour(label=label, points=count)
        for label, count in zip(labels, points, strict=True)
    )


def shortened(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text[: 4 * _LABEL_CHARACTERS].split())
    return line if len(line) <= _LABEL_CHARACTERS else line[: _LABEL_CHARACTERS - 1] + "…"


def _point(collection: Collection, chunk: Chunk) -> UUID:
    return point_ids(collection.name, chunk.document, chunk.entry)[chunk.index]
