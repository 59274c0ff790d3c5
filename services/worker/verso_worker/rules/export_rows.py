"""Return stored records with a label from their metadata: the rows that a head is trained on.

For a head that reads vectors nothing is decoded: the rows are the stored vectors, widened. The
portion says which chunks of a document become rows; ``mean`` and no portion mean all of them. For a
head that reads tokens a row is the text of a document, reconstructed as far as such a head reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from verso_core.heads import Portion
from verso_core.jobs import Collection, Result, Slice, train
from verso_core.jobs.train import Rows, RowsItem, RowsParams
from verso_core.record import Entry, point_ids
from verso_worker.records.space import Space
from verso_worker.rules.facets import label_of
from verso_worker.rules.ports.stores import Vectors
from verso_worker.rules.reader import Chunk, Reader

_PAGE = 256
_CHUNKS = 16
"""Most chunks of a text that are reconstructed: far more than the 512 tokens that a head reads."""

Page = Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class _Row:
    """One row: its document, its label, and its part of the blob."""

    document: str
    label: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ExportRows:
    """Reads rows of collections."""

    vectors: Vectors
    reader: Reader

    def run(self, work: Slice[RowsParams, RowsItem], collection: Collection) -> Result[Rows]:
        """Return the rows in ranges of buckets. A record that cannot be read is left out."""
        found = {
            index: self._rows(work.params, item, collection)
            for index, item in work.accepted.items()
        }
        return Result(work.answered(found))

    def _rows(self, asked: RowsParams, item: RowsItem, collection: Collection) -> Rows:
        portion = asked.chunk or Portion.MEAN
        if asked.texts:  # every chunk of a document carries its metadata: the first is enough
            portion = Portion.FIRST
        rows: list[_Row] = []
        for page in self._pages(collection, item):
            marked = self._marked(collection, page, key=asked.label_key, portion=portion)
            wanted = dict([*marked.items()][: item.most - len(rows)])
            if asked.texts:
                rows += self._texts(collection, page, wanted)
            else:
                rows += self._vectors(collection, wanted)
            if len(rows) >= item.most:
                break
        return Rows(
            ids=tuple(row.document for row in rows),
            labels=tuple(row.label for row in rows),
            data=b"".join(row.data for row in rows),
        )

    def _pages(self, collection: Collection, item: RowsItem) -> Iterator[Page]:
        """Yield the live documents of the item's buckets in pages."""
        page: dict[str, Entry] = {}
        for document, entry in self.reader.scan(collection, first=item.first, count=item.count):
            page[document] = entry
            if len(page) >= _PAGE:
                yield page
                page = {}
        if page:
            yield page

    def _marked(
        self, collection: Collection, page: Page, *, key: str, portion: Portion
    ) -> dict[UUID, tuple[str, str]]:
        """Return the document and label of each point that has a label."""
        points = {
            point: document
            for document, entry in page.items()
            for point in portion.chosen(point_ids(collection.name, document, entry))
        }
        payloads = self.vectors.payloads(collection.name, list(points)) if points else {}
        return {
            point: (document, label)
            for point, document in points.items()
            if (label := label_of(payloads.get(point, {}).get("m", {}), key)) is not None
        }

    def _vectors(
        self, collection: Collection, marked: Mapping[UUID, tuple[str, str]]
    ) -> list[_Row]:
        found = self.vectors.get(collection.name, list(marked)) if marked else {}
        known = [point for point in marked if point in found]
        if not known:
            return []
        rows = Space.of(collection).widen(np.stack([found[point] for point in known]))
        return [
            _Row(*marked[point], row.astype("<f4").tobytes())
            for point, row in zip(known, rows, strict=True)
        ]

    def _texts(
        self, collection: Collection, page: Page, marked: Mapping[UUID, tuple[str, str]]
    ) -> list[_Row]:
        chunks = [
            Chunk(document, page[document], index)
            for document, _ in marked.values()
            for index in range(_read(page[document]))
        ]
        read = iter(self.reader.chunks(collection, chunks))
        rows = []
        for document, label in marked.values():
            parts = [next(read) for _ in range(_read(page[document]))]
            sound = [part for part in parts if isinstance(part, bytes)]
            text = b"".join(sound).decode(errors="replace")
            if len(sound) == len(parts) and text:
                row = train.Labelled(text, label)
                rows.append(_Row(document, label, train.pack_rows([row])))
        return rows


def _read(entry: Entry) -> int:
    return min(_CHUNKS, len(entry.records))
