"""What a vector store holds and returns: points, hits, and the fields that filters ask for.

A point's payload is kept small, for it counts as storage:

    d   document id           n   chunk, >= 0
    t   Unix seconds, absent where the document has no time
    s   the same, exact, as text, if ``t`` alone would not return it as it was
    m   the values of each metadata key, nested keys joined by dots; absent where there are none
    j   the metadata as JSON, if ``m`` alone would not return it as it was
    x   1 if the scrub put the point again after its metadata and time were lost, else absent

Metadata must come back as it was and be found by filters, which takes some care (:func:`packed`,
undone by :func:`unpacked`). Qdrant's payload paths cannot hold a quote or a backslash: keys write
them as %22 and %5C. The embedded engine's binding reads ``True`` in a filter as the number 1:
booleans are kept as strings that begin with U+0001. An engine compares integers with a range as
float64: those that float64 may not hold are kept as such strings too. A whole number is kept as an
integer, for an engine looks up integers only. Of other numbers an engine changes some
(:mod:`verso_worker.records.numbers`), and gets the next one that it does not. Null, lists, nested
keys and numbers that were changed make ``j`` necessary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import numpy as np

from verso_core.errors import CollectionUnknown, IdInvalid, VectorInvalid
from verso_core.jobs.filters.nodes import EXACT_BELOW, ID, TIME, path_of
from verso_core.jobs.search import Scale
from verso_core.texts import Scalar, check_metadata, values_of
from verso_worker.records.numbers import kept_number
from verso_worker.records.space import Space, Stored, Vector

TERMS = "terms"
"""Name that the engines know the sparse vectors by; the dense one has none."""

DENSE = ""
"""Name of the dense vector, for engines that need one."""

BATCH = 256
"""Most points in one call to an engine: more would make the call long, fewer gain nothing."""

LOST = "x"
"""Mark of a point whose document's metadata and time are lost."""

CHUNK = "chunk"
"""Field of a chunk's number, for conditions that filters of users cannot name."""

_TRUE, _FALSE, _INTEGER, _MARK = "\x01true", "\x01false", "\x01i", "\x01"
_OWN = {TIME: "t", ID: "d", CHUNK: "n"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}(?:\.[0-9]{1,5})?")
_UNSAFE = re.compile(r'[%"\\]')


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
class Disk:
    """What a vector store's files of a collection take on the disk, bytes; holes are not counted.

    vectors: the dense vectors
    index: the index over them
    words: the sparse vectors and their index
    points: ids, payloads, indexes over payloads, and everything else
    """

    vectors: int = 0
    index: int = 0
    words: int = 0
    points: int = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Size of a collection in a vector store: points, and bytes of their vectors and terms.

    These are of the numbers alone; ``disk`` has everything, where the store says it.
    """

    points: int
    vectors: int
    terms: int
    disk: Disk | None = None

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


Placed = tuple[UUID, dict[str, Any]]
"""A stored point's id and payload."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A point that a search found.

    ``score`` is the cosine to the query, in [-1, 1]; of a search by terms their BM25 weight, >= 0;
    of one by both, what :mod:`verso_worker.records.fusion` makes of the two, in [0, 1]. ``cosine``
    and ``weight`` are the parts of it that the search had. ``scale``, of a search by both,
    is that of its candidates.
    """

    id: UUID
    score: float
    payload: dict[str, Any]
    cosine: float | None = None
    weight: float | None = None
    scale: Scale | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What an engine found, before exact scoring. Shape of ``stored``: (candidates, dim).

    ``scores`` are the engine's own; only those of a search by terms are used.
    """

    ids: list[UUID]
    stored: Stored
    payloads: list[Mapping[str, Any]]
    scores: list[float]


def check_name(name: str) -> str:
    """Check a collection's name, which becomes a folder's, and return it.

    Raises:
        IdInvalid: it is not 1..64 of a-z, 0-9, ``_`` and ``-``, starting with a letter or digit;
            behind it a partition's name has a dot and a number.
    """
    if _NAME.fullmatch(name) is None:
        raise IdInvalid(f"expected a collection name of 1..64 of a-z0-9_-, got {name!r}")
    return name


def unknown(name: str) -> CollectionUnknown:
    """Return the error for a collection that the vector store does not have."""
    return CollectionUnknown(f"no collection named {name!r} in the vector store")


def pack_ids(points: Iterable[UUID]) -> bytes:
    """Return ids of points one after the other, 16 bytes each."""
    return b"".join(point.bytes for point in points)


def unpack_ids(data: bytes) -> list[UUID]:
    """Undo :func:`pack_ids`."""
    return [UUID(bytes=data[at : at + 16]) for at in range(0, len(data), 16)]


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
        MetadataInvalid: a value that an engine refuses or would change: not finite, an integer of
            more than 64 bits, a lone surrogate, or no metadata at all.
    """
    kept: dict[str, Any] = {}
    for key, value in payload.items():
        if key == "t":
            kept |= _kept_time(_size_checked(value))
        elif key != "m":
            kept[key] = _size_checked(value)
        elif check_metadata(value):
            values = values_of(value)
            if values:
                kept[key] = {_escape(path): _filtered(found) for path, found in values.items()}
            if not all(map(_as_it_was, value.values())):
                kept["j"] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return kept


def unpacked(payload: Mapping[str, Any] | None) -> dict[str, Any]:
    """Undo :func:`packed`; ``m`` is always there."""
    given = dict(payload or {})
    whole, time = given.pop("j", None), given.pop("s", None)
    if isinstance(time, str):
        given["t"] = float(time)
    if isinstance(whole, str):
        return given | {"m": json.loads(whole)}
    given["m"] = {unquote(key): _given(value) for key, value in given.get("m", {}).items()}
    return given


def path_in_payload(field: str) -> str:
    """Return where the engines find a filter's field."""
    key = path_of(field)
    return _OWN[field] if key is None else f'm."{_escape(key)}"'


def kept_string(value: str) -> str:
    """Return a string of metadata in the form that the engines store."""
    return _MARK + value if value.startswith(_MARK) else value


def kept_value(value: Scalar) -> str | int | float:
    """Return a scalar of metadata in the form that the engines store."""
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, str):
        return kept_string(value)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < EXACT_BELOW
        return int(value) if whole else kept_number(value)
    return value if abs(value) < EXACT_BELOW else f"{_INTEGER}{value}"


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
    scale: Scale | None = None,
) -> list[Hit]:
    """Return the candidates of the highest scores, best first, equal ones by id.

    Args:
        found: the candidates.
        scores: one for each candidate.
        limit: most hits to return.
        cosines: one for each candidate, of a search by a vector.
        weights: the BM25 weight of each candidate, of a search by terms.
        scale: of a search by both.
    """
    order = sorted(range(len(found.ids)), key=lambda n: (-scores[n], found.ids[n].bytes))
    return [
        Hit(
            found.ids[n],
            scores[n],
            unpacked(found.payloads[n]),
            cosine=None if cosines is None else cosines[n],
            weight=None if weights is None else weights[n],
            scale=scale,
        )
        for n in order[:limit]
    ]


def _escape(key: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", key)


def _filtered(values: Sequence[Scalar]) -> Any:
    kept = list(map(kept_value, values))
    return kept[0] if len(kept) == 1 else kept


def _as_it_was(value: object) -> bool:
    """Whether a value of metadata is given back by what filters see of it."""
    if isinstance(value, str | bool):
        return True
    if not isinstance(value, int | float):
        return False
    kept = kept_value(value)
    return type(kept) is type(value) and kept == value


def _given(value: Scalar) -> Scalar:
    if not isinstance(value, str) or not value.startswith(_MARK):
        return value
    return value == _TRUE if value in (_TRUE, _FALSE) else value.removeprefix(_MARK)


def _kept_time(value: float) -> dict[str, Any]:
    kept = kept_number(float(value))
    return {"t": value} if kept == value else {"t": kept, "s": repr(float(value))}


def _size_checked(value: Any) -> Any:
    check_metadata({"": value})
    return value
