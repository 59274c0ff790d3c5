"""What a vector store holds and returns: points, hits, and the conditions of a filter.

A point's payload is kept small, for it counts as storage:

    d   document id           n   chunk, >= 0
    t   Unix seconds, absent where the document has no time
    m   metadata, a flat object of scalars, absent where it is empty
    x   1 if the scrub put the point again after its metadata and time were lost, else absent

What users write into ``m`` must come back as it was and be found by filters, which takes two
escapes (:func:`packed`, undone by :func:`unpacked`). Qdrant's payload paths cannot hold a quote or
a backslash: keys write them as %22 and %5C. The embedded engine's binding reads ``True`` in a
filter as the number 1: booleans are kept as strings that begin with U+0001.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import numpy as np

from verso_core.errors import CollectionUnknown, IdInvalid, MetadataInvalid, VectorInvalid
from verso_core.jobs import Filter
from verso_core.texts import Scalar
from verso_worker.records.space import Space, Stored, Vector

TERMS = "terms"
"""Name that the engines know the sparse vectors by; the dense one has none."""

DENSE = ""
"""Name of the dense vector, for engines that need one."""

BATCH = 256
"""Most points in one call to an engine: more would make the call long, fewer gain nothing."""

LOST = "x"
"""Mark of a point whose document's metadata and time are lost."""

_TRUE, _FALSE, _MARK = "\x01true", "\x01false", "\x01"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_UNSAFE = re.compile(r'[%"\\]')
_INTEGER_MAX = (1 << 63) - 1  # what an engine keeps as an integer; larger ones it would round
_EXACT_MAX = 1 << 53  # larger integers are not all float64 numbers, so no range may compare them


@dataclass(frozen=True, slots=True)
class Terms:
    """The words of a chunk or of a query, as a sparse vector: ascending ids, and their weights.

    An id is a 31-bit hash of a word's stem, so no vocabulary is stored.
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.ids)


NO_TERMS = Terms((), ())

TERM_BYTES = 8
"""Bytes of one term: an id and a float32 weight."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Size of a collection in a vector store: points, and bytes of their vectors and terms.

    The store's own data (index, log) is not included.
    """

    points: int
    vectors: int
    terms: int

    @classmethod
    def estimate(cls, points: int, *, vector_bytes: int, sample: Sequence[Terms]) -> Sizes:
        """Return the size of many points, with their terms estimated from some points' terms.

        Ids are hashes, so the first points in their order are a fair sample.
        """
        mean = sum(len(terms.ids) for terms in sample) / max(1, len(sample))
        return cls(points, points * vector_bytes, round(TERM_BYTES * points * mean))


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A chunk's vector on its way into a store. Shape of ``stored``: (dim,).

    ``terms`` are kept only by a collection that has them.
    """

    id: UUID
    stored: Stored
    payload: Mapping[str, Any]
    terms: Terms = NO_TERMS


@dataclass(frozen=True, slots=True)
class Hit:
    """A point that a search found.

    ``score`` is the cosine to the query, in [-1, 1]; of a search by terms their BM25 weight, >= 0;
    of one by both, what :mod:`verso_worker.records.fusion` makes of the two, in [0, 1]. ``cosine``
    and ``weight`` are the parts of it that the search had.
    """

    id: UUID
    score: float
    payload: dict[str, Any]
    cosine: float | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What an engine found, before exact scoring. Shape of ``stored``: (candidates, dim).

    ``scores`` are the engine's own; only those of a search by terms are used.
    """

    ids: list[UUID]
    stored: Stored
    payloads: list[Mapping[str, Any]]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field at ``path`` equals one of ``exact`` (by type) or of ``numbers`` (by value)."""

    path: str
    exact: tuple[str | int, ...]
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """The number at ``path`` is >= ``gte`` and < ``lt``, where these are given."""

    path: str
    gte: float | None
    lt: float | None


Condition = OneOf | Within


def check_name(name: str) -> str:
    """Check a collection's name, which becomes a folder's, and return it.

    Raises:
        IdInvalid: it is not 1..64 of a-z, 0-9, ``_`` and ``-``, starting with a letter or digit.
    """
    if _NAME.fullmatch(name) is None:
        raise IdInvalid(f"expected a collection name of 1..64 of a-z0-9_-, got {name!r}")
    return name


def unknown(name: str) -> CollectionUnknown:
    """Return the error for a collection that the vector store does not have."""
    return CollectionUnknown(f"no collection named {name!r} in the vector store")


def stacked(points: Sequence[Point]) -> Stored:
    """Join the vectors of points. Shape: (points, dim), for at least one point.

    Raises:
        VectorInvalid: they differ in shape or type among themselves.
    """
    first = points[0].stored
    for point in points:
        if point.stored.ndim != 1 or point.stored.shape != first.shape:
            raise VectorInvalid(f"expected shape {first.shape}, got {point.stored.shape}")
        if point.stored.dtype != first.dtype:
            raise VectorInvalid(f"expected {first.dtype.name}, got {point.stored.dtype.name}")
    return np.stack([point.stored for point in points])


def packed(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload in the form that the engines store.

    Raises:
        MetadataInvalid: a value that an engine refuses or would change: no scalar, not finite, an
            integer of more than 64 bits, a lone surrogate.
    """
    kept: dict[str, Any] = {}
    for key, value in payload.items():
        if key == "m":
            if value:
                kept[key] = {_escape(_encodable(k)): _kept(v) for k, v in value.items()}
        else:
            kept[key] = _scalar(value)
    return kept


def unpacked(payload: Mapping[str, Any] | None) -> dict[str, Any]:
    """Undo :func:`packed`; ``m`` is always there."""
    given = dict(payload or {})
    given["m"] = {unquote(key): _given(value) for key, value in given.get("m", {}).items()}
    return given


def conditions(where: Filter | None) -> list[Condition]:
    """Turn a filter into conditions that must all hold. A OneOf with no values holds nowhere."""
    if where is None:
        return []
    found: list[Condition] = [
        _one_of(f'm."{_escape(key)}"', value if isinstance(value, list) else [value])
        for key, value in where.metadata.items()
    ]
    if where.time_gte is not None or where.time_lt is not None:
        found.append(Within("t", where.time_gte, where.time_lt))
    return found


def impossible(wanted: Sequence[Condition]) -> bool:
    """Whether no point can pass; an engine would read an empty choice as no condition."""
    return any(isinstance(c, OneOf) and not (c.exact or c.numbers) for c in wanted)


def widened_limit(limit: int) -> int:
    """Return how many candidates to request so that exact scoring finds the best points."""
    return limit + 16 + min(limit, 48)


def ranked(space: Space, unit: Vector, *, found: Candidates, limit: int) -> list[Hit]:
    """Score candidates exactly and return the best, nearest first, equal ones by id.

    Args:
        space: the collection's.
        unit: the query. Shape: (dim,), of length 1.
        found: the engine's candidates.
        limit: most hits to return.
    """
    if not found.ids:
        return []
    cosines = space.cosines(unit, found.stored).tolist()
    return best(found, cosines, limit=limit, cosines=cosines)


def best(
    found: Candidates,
    scores: Sequence[float],
    *,
    limit: int,
    cosines: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> list[Hit]:
    """Return the candidates of the highest scores, best first, equal ones by id.

    Args:
        found: the candidates.
        scores: one for each candidate.
        limit: most hits to return.
        cosines: one for each candidate, of a search by a vector.
        weights: the BM25 weight of each candidate, of a search by terms.
    """
    order = sorted(range(len(found.ids)), key=lambda n: (-scores[n], found.ids[n].bytes))
    return [
        Hit(
            found.ids[n],
            scores[n],
            unpacked(found.payloads[n]),
            cosine=None if cosines is None else cosines[n],
            weight=None if weights is None else weights[n],
        )
        for n in order[:limit]
    ]


def _one_of(path: str, wanted: Sequence[Scalar]) -> OneOf:
    """Sort wanted values: 2 and 2.0 are the same number, but True is not 1."""
    exact: list[str | int] = []
    numbers: list[float] = []
    for value in wanted:
        if isinstance(value, bool | str):
            exact.append(_marked(value))
        elif isinstance(value, float) or abs(value) <= _EXACT_MAX:
            numbers.append(float(value))
        elif abs(value) <= _INTEGER_MAX:
            exact.append(value)
    return OneOf(path, tuple(exact), tuple(numbers))


def _escape(key: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", key)


def _marked(value: str | bool) -> str:
    if isinstance(value, str):
        return _MARK + value if value.startswith(_MARK) else value
    return _TRUE if value else _FALSE


def _kept(value: Scalar) -> Scalar:
    checked = _scalar(value)
    return _marked(checked) if isinstance(checked, str | bool) else checked


def _given(value: Scalar) -> Scalar:
    if not isinstance(value, str) or not value.startswith(_MARK):
        return value
    return value == _TRUE if value in (_TRUE, _FALSE) else value.removeprefix(_MARK)


def _scalar(value: Scalar) -> Scalar:
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise MetadataInvalid(f"expected finite numbers, got {value}")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _INTEGER_MAX:
        raise MetadataInvalid("expected integers of at most 64 bits, signed")
    if not isinstance(value, int | float):
        raise MetadataInvalid(f"expected scalars, got {type(value).__name__}")
    return value


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise MetadataInvalid("expected metadata without lone surrogates") from exc
    return text
