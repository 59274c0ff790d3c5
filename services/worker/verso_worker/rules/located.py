"""Documents whose points have no payload: they are found through the ledger.

A payload takes 144 bytes a point on the disk, however little is in it, and more for its indexes. So
a document with neither metadata nor time has none (``docs/adr/0030-points-without-payload.md``).
The id of its points leads to its bucket, and the bucket holds its name. As it has no field but its
id, a filter depends on that alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from verso_core.jobs import Collection, CollectionKind, Filter
from verso_core.jobs.filters.compiled import compiled, matches
from verso_core.jobs.filters.nodes import ID, AllOf, AnyOf, Exists, Node, Not, OneOf, tests_in
from verso_core.record import Entry, located, point_ids
from verso_worker.rules.reader import Reader

Payload = Mapping[str, Any]
T = TypeVar("T")
_IDS = 1 << 128


def may_have(collection: Collection) -> bool:
    """Whether documents of a collection may be stored without payload; lines are not."""
    return collection.kind is CollectionKind.DOCUMENTS


def named(
    reader: Reader, collection: Collection, points: Mapping[UUID, Payload]
) -> dict[UUID, dict[str, Any]]:
    """Return the payloads of points, each with its document and chunk.

    Those of points without payload are looked up; one whose document is gone stays as it is.
    """
    places = {point: located(point) for point, payload in points.items() if "d" not in payload}
    if not places:
        return {point: dict(payload) for point, payload in points.items()}
    names = reader.documents.names(collection.name, {digest for digest, _ in places.values()})
    found = {}
    for point, payload in points.items():
        digest, chunk = places.get(point, (0, 0))
        own = {"d": names[digest], "n": chunk} if point in places and digest in names else {}
        found[point] = dict(payload) | own
    return found


def passing(
    reader: Reader,
    collection: Collection,
    where: Filter | None,
    *,
    low: int = 0,
    high: int = _IDS,
) -> Iterator[tuple[str, Entry]]:
    """Yield the live documents without payload that a filter passes.

    Those whose points have ids outside of ``low`` and ``high`` may be left out.
    """
    node = compiled(where)
    if not may_have(collection) or node is False:
        return
    if node is not True and not _verdicts(node)[0]:
        return
    ids = None if node is True else _ids(node)
    if ids is not None:
        found = _named(reader, collection, ids)
    else:
        found = _scanned(reader, collection, low, high)
    for document, entry in found:
        if entry.located and matches(where, metadata={}, time=None, id=document):
            yield document, entry


def _scanned(
    reader: Reader, collection: Collection, low: int, high: int
) -> Iterator[tuple[str, Entry]]:
    """Yield the live documents of the buckets whose points have ids within bounds."""
    bits = collection.buckets.bit_length() - 1
    if (low, high) == (0, _IDS) or 1 << bits != collection.buckets:
        yield from reader.scan(collection)
        return
    # The highest bits of an id are the lowest of the hash, which are the bucket's number.
    width = 128 - bits
    for first in range(low >> width, -(-high >> width)):
        bucket = int(f"{first:0{bits}b}"[::-1], 2)
        yield from reader.scan(collection, first=bucket, count=1)


def points(reader: Reader, collection: Collection, where: Filter | None) -> Iterator[UUID]:
    """Yield the points of the live documents without payload that a filter passes.

    For filters by id, which the vector store cannot apply to them.
    """
    for document, entry in passing(reader, collection, where):
        yield from point_ids(collection.name, document, entry)


def parts(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield rows in lists of a size; the last one may be shorter."""
    left = iter(rows)
    while part := list(islice(left, size)):
        yield part


def by_id(where: Filter | None) -> bool:
    """Whether a filter has a test of the document's id."""
    node = compiled(where)
    return not isinstance(node, bool) and any(test.field == ID for test in tests_in(node))


def _named(
    reader: Reader, collection: Collection, ids: Sequence[str]
) -> Iterator[tuple[str, Entry]]:
    for document, entry in reader.live(collection, ids).items():
        if isinstance(entry, Entry):
            yield document, entry


def _ids(node: Node) -> Sequence[str] | None:
    """Return ids among which are those of all documents that pass; None if that takes a scan."""
    if isinstance(node, OneOf) and node.field == ID:
        return [value for value in node.values if isinstance(value, str)]
    if isinstance(node, AllOf):
        return next((ids for part in node.parts if (ids := _ids(part)) is not None), None)
    return None


def _verdicts(node: Node) -> tuple[bool, bool]:
    """Whether a filter may hold, and may not, for a document that has nothing but an id."""
    match node:
        case AllOf(parts) | AnyOf(parts):
            verdicts = [_verdicts(part) for part in parts]
            may = [holds for holds, _ in verdicts]
            may_not = [fails for _, fails in verdicts]
            both = isinstance(node, AllOf)
            return (all(may), any(may_not)) if both else (any(may), all(may_not))
        case Not(part):
            holds, fails = _verdicts(part)
            return fails, holds
        case Exists(field):
            return field == ID, field != ID
        case _:
            return node.field == ID, True
