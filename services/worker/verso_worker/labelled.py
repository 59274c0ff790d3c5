"""Give stored vectors with a label from their metadata: what a head is trained on.

Nothing is decoded: the vectors are those a classifier will read, as stored and widened. A document
of several chunks gives a row for each that speaks for it; ``mean`` and nothing said are all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verso_core.errors import PatchCorrupt
from verso_core.heads import Portion
from verso_core.jobs import Collection, Item, Result, Slice
from verso_core.record import Entry, Flag, point_ids
from verso_worker.ports import Documents, Vectors
from verso_worker.space import Space

_PAGE = 256


@dataclass(frozen=True, slots=True)
class Labelled:
    """Reads rows of collections."""

    vectors: Vectors
    documents: Documents

    def run(self, work: Slice, collection: Collection) -> Result:
        """Give the rows in ranges of buckets.

        Each item names ``first`` and ``count`` buckets and the ``most`` rows wanted; its result
        has ``ids``, ``labels`` (strings) and a blob. Shape of the blob: (rows, dim), float32,
        little endian.
        """
        result = Result([])
        key = str(work.params["label_key"])
        portion = Portion(work.params.get("chunk") or Portion.MEAN)
        for item in work.items:
            ids, labels, rows = self._range(collection, key, item, portion)
            data = np.concatenate(rows).astype("<f4").tobytes() if rows else b""
            result.items.append(
                {"ok": True, "ids": ids, "labels": labels, "blob": result.add_blob(data)}
            )
        return result

    def _range(
        self, collection: Collection, key: str, item: Item, portion: Portion
    ) -> tuple[list[str], list[str], list[Any]]:
        ids: list[str] = []
        labels: list[str] = []
        rows: list[Any] = []
        most = int(item.header["most"])
        space = Space.of(collection)
        page: list[tuple[str, Entry]] = []

        def take() -> None:
            points = {
                point: document
                for document, entry in page
                for point in portion.chosen(point_ids(collection.name, document, entry))
            }
            page.clear()
            payloads = self.vectors.payloads(collection.name, list(points)) if points else {}
            wanted = [p for p in points if key in payloads.get(p, {}).get("m", {})]
            found = self.vectors.get(collection.name, wanted) if wanted else {}
            wanted = [p for p in wanted if p in found][: most - len(ids)]
            if wanted:
                rows.append(space.widen(np.stack([found[p] for p in wanted])))
                ids.extend(points[p] for p in wanted)
                labels.extend(_label(payloads[p]["m"][key]) for p in wanted)

        first, count = int(item.header["first"]), int(item.header["count"])
        for document, data in self.documents.entries(collection.name, first=first, count=count):
            try:
                entry = Entry.unpack(data)
            except PatchCorrupt:
                continue
            if not entry.flags & Flag.DELETED:
                page.append((document, entry))
            if len(page) >= _PAGE:
                take()
            if len(ids) >= most:
                break
        take()
        return ids, labels, rows


def _label(value: object) -> str:
    """Give a metadata value as a label: the way JSON writes it, a string as it is."""
    return str(value).lower() if isinstance(value, bool) else str(value)
