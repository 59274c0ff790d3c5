"""Remove points that no entry names: those of cancelled slices and of attempts that died.

No search shows them, but they take room. The scrub comes by their ids as it comes by the buckets:
ids are hashes, so a range of buckets has its like share of ids. A point goes only where all of this
holds:

1. The document that its payload names has no live entry, or one that names other points.
2. It was noted as such in an earlier pass, and a whole pass over every entry since has not struck
   it off. So not even a point whose payload is damaged goes while a record needs its vector.
3. Every slice that was accepted when it was noted had ended before that pass began; and the pass is
   at least :data:`AGE_S` old. So nobody is about to commit it.
4. No backup is being taken, the ledger is not halted, the collection is not being migrated.

After it is gone the entries are looked up once more, and a point that one names now is put back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from verso_core.errors import CollectionUnknown
from verso_core.jobs import Collection
from verso_core.record import Entry, point_ids
from verso_worker.records.points import BATCH, NO_TERMS, Point
from verso_worker.rules.ports import Documents, Vectors
from verso_worker.rules.reader import Reader

AGE_S = 3600.0
"""Least age of the pass that has not found them, seconds: 360 leases."""

_IDS = 1 << 128
Found = tuple[UUID, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OrphanCollector:
    """Looks for orphans, and removes them when they have been orphans for long enough."""

    vectors: Vectors
    documents: Documents
    reader: Reader
    age_s: float = AGE_S

    def run(self, collection: Collection, *, first: int, count: int) -> int:
        """Sweep the ids that correspond to a range of buckets; give how many points went."""
        low = first * _IDS // collection.buckets
        high = min(first + count, collection.buckets) * _IDS // collection.buckets
        gone = 0
        with contextlib.suppress(CollectionUnknown):  # the store has lost it: its documents say so
            for page in self._pages(collection.name, low, high):
                gone += self._sweep(collection, page)
        return gone

    def _sweep(self, collection: Collection, page: Sequence[Found]) -> int:
        loose = self._loose(collection, page)
        due = set(self.documents.orphans(collection.name, loose, age_s=self.age_s) if loose else [])
        told = {point: payload for point, payload in page if point in due}
        return self._remove(collection, told) if told else 0

    def strike(self, collection: Collection, points: Sequence[UUID]) -> None:
        """Note that entries name these points."""
        self.documents.orphans_forget(collection.name, points)

    def _pages(self, name: str, low: int, high: int) -> Iterator[list[Found]]:
        while low < high:
            page = self.vectors.page(name, UUID(int=low), limit=BATCH)
            inside = [row for row in page if row[0].int < high]
            if inside:
                yield inside
            if len(inside) < BATCH:
                return
            low = inside[-1][0].int + 1

    def _loose(self, collection: Collection, page: Sequence[Found]) -> list[UUID]:
        """Return the points of a page that no entry names, as far as their payloads say whose."""
        documents = {point: str(payload.get("d")) for point, payload in page}
        live = self.reader.live(collection, documents.values())
        named: set[UUID] = set()
        for document, entry in live.items():
            if isinstance(entry, Entry):
                named.update(point_ids(collection.name, document, entry))
            else:  # it does not say which points are its own
                named.update(point for point, own in documents.items() if own == document)
        return [point for point in documents if point not in named]

    def _remove(self, collection: Collection, told: dict[UUID, dict[str, Any]]) -> int:
        ids = list(told)
        stored = self.vectors.get(collection.name, ids)
        terms = self.vectors.terms(collection.name, ids)
        self.vectors.remove(collection.name, ids)
        still = set(self._loose(collection, list(told.items())))
        back = [
            Point(point, stored[point], told[point], terms.get(point, NO_TERMS))
            for point in ids
            if point not in still and point in stored
        ]
        self.vectors.put(collection.name, back)
        self.documents.orphans_forget(collection.name, ids)
        return len(still)
