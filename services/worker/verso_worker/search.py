"""Find records: by a text, by a vector, or by another record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verso_core.errors import DocumentUnknown, VersoError, error_body
from verso_core.jobs import Collection, Filter, Item, Result, SearchMode, Slice
from verso_core.record import Entry, point_ids
from verso_worker.items import pass_on, read_vector
from verso_worker.neural import Vector
from verso_worker.points import Hit, Terms
from verso_worker.ports import Lexicon, Models, Vectors
from verso_worker.reader import Chunk, Reader
from verso_worker.space import Space
from verso_worker.timings import Timings


@dataclass(frozen=True, slots=True)
class Search:
    """Finds the live records nearest to a query, and their texts."""

    models: Models
    vectors: Vectors
    reader: Reader
    lexicon: Lexicon

    def run(self, work: Slice, collection: Collection, *, timings: Timings) -> Result:
        """Answer the queries of a slice; an error of one stands in its place."""
        where = work.params.get("filter")
        mode = SearchMode(work.params.get("mode") or SearchMode.DENSE)
        items: list[dict[str, Any]] = [{} for _ in work.items]
        result = Result(items)
        for row, item in enumerate(work.items):
            if not pass_on(item, items, row):
                continue
            try:
                with timings.phase("infer"):
                    query = None if mode is SearchMode.SPARSE else self.query(collection, item)
                    terms = None
                    if mode is not SearchMode.DENSE:
                        terms = self.lexicon.query(item.blob or b"")
            except VersoError as error:
                if error.retryable:
                    raise
                items[row] = {"ok": False, "error": error_body(error)}
                continue
            with timings.phase("store"):
                hits = self.hits(
                    collection,
                    query,
                    terms=terms,
                    limit=int(work.params["limit"]),
                    where=None if where is None else Filter.model_validate(where),
                )
            with timings.phase("restore"):
                found = self._describe(
                    collection, hits, result, with_text=bool(work.params["with_text"])
                )
            items[row] = {"ok": True, "hits": found}
        return result

    def query(self, collection: Collection, item: Item) -> Vector:
        """Give an item's query vector. Shape: (dim,), unit length."""
        if "id" in item.header:
            return self._stored_vector(collection, item)
        if item.header.get("vector"):
            return read_vector(item.blob or b"", dim=collection.dim)
        engine = self.models.writing(collection).recorder.engine
        vector: Vector = engine.encode([item.blob or b""]).vectors[0]
        return vector

    def _stored_vector(self, collection: Collection, item: Item) -> Vector:
        document, chunk = item.header["id"], item.header.get("chunk") or 0
        entry = self.reader.live(collection, [document]).get(document)
        if isinstance(entry, VersoError):
            raise entry
        if entry is None or chunk >= len(entry.records):
            raise DocumentUnknown(f"no record {document!r} chunk {chunk} in {collection.name}")
        point = point_ids(collection.name, document, entry)[chunk]
        stored = self.vectors.get(collection.name, [point]).get(point)
        if stored is None:
            raise DocumentUnknown(f"no vector for {document!r} chunk {chunk}")
        vector: Vector = Space.of(collection).widen(stored[None])[0]
        return vector

    def hits(
        self,
        collection: Collection,
        query: Vector | None,
        *,
        limit: int,
        where: Filter | None,
        terms: Terms | None = None,
    ) -> list[tuple[Hit, Chunk]]:
        """Search by a vector, by terms or both, and keep the hits whose point a live entry names.

        Points of replaced or deleted documents, and of attempts that never committed, may still lie
        in the store. A fifth more than was asked for is fetched, then twice as many, until enough
        hits are live or the store has no more.
        """
        fetch = limit + limit // 5 + 2
        while True:
            hits = self.vectors.search(
                collection.name, query, terms=terms, limit=fetch, where=where
            )
            live = self.reader.live(collection, [hit.payload["d"] for hit in hits])
            kept = []
            for hit in hits:
                document, chunk = hit.payload["d"], hit.payload["n"]
                entry = live.get(document)
                if (
                    isinstance(entry, Entry)
                    and chunk < len(entry.records)
                    and point_ids(collection.name, document, entry)[chunk] == hit.id
                ):
                    kept.append((hit, Chunk(document, entry, chunk)))
            if len(kept) >= limit or len(hits) < fetch:
                return kept[:limit]
            fetch *= 2

    def _describe(
        self,
        collection: Collection,
        hits: Sequence[tuple[Hit, Chunk]],
        result: Result,
        *,
        with_text: bool,
    ) -> list[dict[str, Any]]:
        texts: list[bytes | VersoError | None] = [None] * len(hits)
        if with_text:
            texts = list(self.reader.chunks(collection, [chunk for _, chunk in hits]))
        found = []
        for (hit, chunk), text in zip(hits, texts, strict=True):
            found.append(
                {
                    "id": chunk.document,
                    "chunk": chunk.index,
                    "score": hit.score,
                    "metadata": hit.payload.get("m", {}),
                    "time": hit.payload.get("t"),
                    "blob": result.add_blob(text) if isinstance(text, bytes) else None,
                    "error": error_body(text) if isinstance(text, VersoError) else None,
                }
            )
        return found
