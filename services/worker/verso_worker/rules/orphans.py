"""Remove orphans: points that no entry names, left by cancelled slices and failed attempts.

No search shows them, but they take space. A step of the scrub checks a range of buckets and the
corresponding range of point ids; ids are hashes, so both hold the same share of a collection. A
point is removed only if all of these hold:

1. The document that its payload names has no live entry, or an entry that names other points.
2. An earlier pass recorded it as an orphan, and a whole pass over all entries since then found no
   entry that names it. So a point with a damaged payload stays while a record needs its vector.
3. All slices that were accepted when it was recorded had ended before that pass began, and the pass
   is at least :data:`AGE_S` old. So no worker is about to commit an entry that names it.
4. No backup is being taken, the ledger is not read-only, and the collection is not being migrated.

After the removal the entries are read again, and a point that one of them names now is put back;
where the store does not give terms back, first without them and then with those of its text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from verso_core.errors import CollectionUnknown, PatchCorrupt, VersoError
from verso_core.jobs import Collection
from verso_core.record import Entry, point_ids
from verso_worker.records.points import BATCH, NO_TERMS, Point
from verso_worker.rules import located
from verso_worker.rules.ports.stores import Documents, Lexicon, Vectors
from verso_worker.rules.reader import Chunk, Reader

AGE_S = 3600.0
"""Least age of the pass in which no entry named a point, seconds: 360 leases."""

_IDS = 1 << 128
Found = tuple[UUID, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OrphanCollector:
    """Removes points: those of discarded entries, and orphans that an earlier pass recorded."""

    vectors: Vectors
    documents: Documents
    reader: Reader
    lexicon: Lexicon
    age_s: float = AGE_S

    def discard(self, name: str, document: str, entry: bytes) -> None:
        """Remove the points of an entry that was replaced or deleted, except those still in use.

        The collection is named by its own name; one that is deleted has no points left.
        """
        try:
            known = self.documents.collection(name)
        except CollectionUnknown:
            return
        live = self.reader.live(known, [document]).get(document)
        kept = set(point_ids(name, document, live)) if isinstance(live, Entry) else set()
        try:
            old = set(point_ids(name, document, Entry.unpack(entry)))
        except PatchCorrupt:  # its points are not known any more: no search shows them
            return
        self.vectors.remove(name, sorted(old - kept))

    def run(self, collection: Collection, *, first: int, count: int) -> int:
        """Remove the orphans of a range of buckets; return their number."""
        low = first * _IDS // collection.buckets
        high = min(first + count, collection.buckets) * _IDS // collection.buckets
        removed = 0
        # The store may have lost the collection; the scrub of its documents reports that.
        with contextlib.suppress(CollectionUnknown):
            for page in self._pages(collection.name, low, high):
                unnamed = self._unnamed(collection, page)
                if unnamed:
                    due = self.documents.orphans(collection.name, unnamed, age_s=self.age_s)
                    removed += self._remove(collection, dict(page), due)
        return removed

    def _pages(self, name: str, low: int, high: int) -> Iterator[list[Found]]:
        while low < high:
            page = self.vectors.page(name, UUID(int=low), limit=BATCH)
            inside = [row for row in page if row[0].int < high]
            if inside:
                yield inside
            if len(inside) < BATCH:
                return
            low = inside[-1][0].int + 1

    def _unnamed(self, collection: Collection, page: Sequence[Found]) -> list[UUID]:
        """Return the points of a page that the entries of their documents do not name."""
        names = located.named(self.reader, collection, dict(page))
        documents = {point: str(payload.get("d")) for point, payload in names.items()}
        live = self.reader.live(collection, documents.values())
        named: set[UUID] = set()
        for document, entry in live.items():
            if isinstance(entry, Entry) and not entry.damaged:
                named.update(point_ids(collection.name, document, entry))
            else:  # a damaged entry does not say which points are its own
                named.update(point for point, own in documents.items() if own == document)
        return [point for point in documents if point not in named]

    def _remove(
        self, collection: Collection, payloads: Mapping[UUID, dict[str, Any]], ids: Sequence[UUID]
    ) -> int:
        """Remove points, put those back that an entry names by now, and count the others."""
        if not ids:
            return 0
        stored = self.vectors.get(collection.name, ids)
        terms = self.vectors.terms(collection.name, ids)
        self.vectors.remove(collection.name, ids)
        gone = set(self._unnamed(collection, [(point, payloads[point]) for point in ids]))
        back = [
            Point(point, stored[point], payloads[point], terms.get(point, NO_TERMS))
            for point in ids
            if point not in gone and point in stored
        ]
        self.vectors.put(collection.name, back)
        bare = {point.id: point for point in back if point.id not in terms}
        chunks = self._chunks(collection, bare)
        self.vectors.put(
            collection.name,
            [
                replace(bare[point], terms=words)
                for point, words in self.reader.terms(collection, chunks, self.lexicon).items()
                if not isinstance(words, VersoError)  # the scrub reports it
            ],
        )
        self.documents.orphans_forget(collection.name, ids)
        return len(gone)

    def _chunks(self, collection: Collection, points: Mapping[UUID, Point]) -> dict[UUID, Chunk]:
        """Return the chunks that points are of."""
        payloads = {point: one.payload for point, one in points.items()}
        names = located.named(self.reader, collection, payloads)
        live = self.reader.live(collection, [str(one.get("d")) for one in names.values()])
        return {
            point: Chunk(document, entry, n)
            for document, entry in live.items()
            if isinstance(entry, Entry)
            for n, point in enumerate(point_ids(collection.name, document, entry))
            if point in points
        }
