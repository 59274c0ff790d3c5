"""What the worker does for each kind of job: the rules, and nothing of where they run.

The pipeline turns a slice into an outcome: a result with one object for each item, and the writes
that the ledger commits together with it. It knows no queue, no store and no runtime; they stand
behind the protocols of :mod:`verso_worker.ports` and :mod:`verso_worker.records`.

An error of one item stands in that item's place and its neighbours go on. What is raised here
concerns the slice as a whole: it is tried again if the error says that this can help.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from verso_core.errors import (
    CollectionExists,
    CollectionUnknown,
    DocumentUnknown,
    PatchCorrupt,
    RequestInvalid,
    VectorInvalid,
    VersoError,
    error_body,
)
from verso_core.jobs import (
    Collection,
    CollectionRequest,
    Filter,
    Item,
    Kind,
    Result,
    Slice,
)
from verso_core.record import Entry, Flag, point_ids
from verso_worker.ingest import Ingest
from verso_worker.neural import Vector
from verso_worker.points import Hit
from verso_worker.ports import Documents, Models, Outcome, Vectors, Verdict
from verso_worker.reader import Chunk, Reader
from verso_worker.scrub import COUNTED, Scrub
from verso_worker.space import Space
from verso_worker.timings import Timings

DEFAULT_COLLECTION = "default"


class Pipeline:
    """Runs slices against the stores and the models it is given.

    Args:
        models: the loaded artifacts.
        vectors: the vector store.
        documents: entries and collections.
        buckets: number of buckets of a new collection.
    """

    def __init__(
        self, models: Models, vectors: Vectors, documents: Documents, *, buckets: int = 4096
    ) -> None:
        self._models = models
        self._vectors = vectors
        self._documents = documents
        self._buckets = buckets
        self._reader = Reader(models, vectors, documents)
        self._ingest = Ingest(models, vectors, documents, self._reader)
        self._scrub = Scrub(models, vectors, documents, self._reader, self._ingest, self.collect)

    def run(self, work: Slice, *, seq: int) -> Outcome:
        """Do a slice's work.

        Args:
            work: the slice.
            seq: its job's sequence number: of two writes of a document the later one wins.

        Raises:
            VersoError: the slice as a whole could not be done.
        """
        timings = Timings()
        match work.kind:
            case Kind.EMBED:
                outcome = Outcome(self.embed([work])[0])
            case Kind.INGEST:
                outcome = self._ingest.run(work, self._collection(work), seq=seq, timings=timings)
            case Kind.SEARCH:
                outcome = Outcome(self._search(work, timings))
            case Kind.RECONSTRUCT:
                outcome = Outcome(self._reconstruct(work, timings))
            case Kind.DELETE:
                outcome = self._delete(work)
            case Kind.COLLECTION_CREATE:
                outcome = Outcome(Result([{"ok": True} | self.create_collection(work.params)]))
            case Kind.COLLECTION_DELETE:
                outcome = Outcome(self._delete_collection(work))
            case Kind.STATS:
                outcome = Outcome(self._stats(work))
            case Kind.SCRUB:
                outcome = Outcome(self._scrub_buckets(work))
            case _:
                raise RequestInvalid(f"expected a kind that workers do, got {work.kind}")
        outcome.result.timings_ms.update(timings.spent)
        return outcome

    def verify(self, work: Slice, *, seq: int) -> Verdict:
        """Judge from the stores alone whether an ingested slice can be given back.

        A collection that is gone has nothing left to verify.
        """
        try:
            collection = self._collection(work)
        except CollectionUnknown:
            return Verdict([], [])
        return self._ingest.verify(work, collection, seq=seq)

    def collect(self, collection: str, document: str, entry: bytes) -> None:
        """Remove the points of an entry that was replaced or deleted, but none still in use."""
        known = self._documents.collections().get(collection)
        if known is None:
            return
        live = self._reader.live(known, [document]).get(document)
        kept = set(point_ids(collection, document, live)) if isinstance(live, Entry) else set()
        try:
            old = set(point_ids(collection, document, Entry.unpack(entry)))
        except PatchCorrupt:  # it no longer says which points were its own: they stay, unseen
            return
        self._vectors.remove(collection, sorted(old - kept))

    def _collection(self, work: Slice, *, param: str = "collection") -> Collection:
        name = str(work.params[param])
        collection = self._documents.collections().get(name)
        if collection is None:
            raise CollectionUnknown(f"no collection {name!r}")
        return collection

    def embed(self, works: Sequence[Slice]) -> list[Result]:
        """Do the work of embed slices in one call of the engine; a result for each, in order.

        Raises:
            VersoError: the call failed; the slices may still be done one by one.
        """
        results = [Result([{} for _ in work.items]) for work in works]
        places = [
            (result, row, item)
            for work, result in zip(works, results, strict=True)
            for row, item in enumerate(work.items)
            if _pass_on(item, result.items, row)
        ]
        if not places:
            return results
        timings = Timings()
        with timings.phase("infer"):
            engine = self._models.current().recorder.engine
            encoded = engine.encode([item.blob or b"" for _, _, item in places])
        vectors = encoded.vectors.astype("<f4", copy=False)
        for (result, row, _), vector, tokens in zip(places, vectors, encoded.tokens, strict=True):
            result.items[row] = {
                "ok": True,
                "tokens": tokens,
                "blob": result.add_blob(vector.tobytes()),
            }
        for result in results:
            result.timings_ms.update(timings.spent)
        return results

    def _search(self, work: Slice, timings: Timings) -> Result:
        collection = self._collection(work)
        where = work.params.get("filter")
        items: list[dict[str, Any]] = [{} for _ in work.items]
        result = Result(items)
        for row, item in enumerate(work.items):
            if not _pass_on(item, items, row):
                continue
            try:
                with timings.phase("infer"):
                    query = self._query(collection, item)
            except VersoError as error:
                if error.retryable:
                    raise
                items[row] = {"ok": False, "error": error_body(error)}
                continue
            with timings.phase("store"):
                hits = self._live_hits(
                    collection,
                    query,
                    limit=int(work.params["limit"]),
                    where=None if where is None else Filter.model_validate(where),
                )
            with timings.phase("restore"):
                found = self._describe_hits(
                    collection, hits, result, with_text=bool(work.params["with_text"])
                )
            items[row] = {"ok": True, "hits": found}
        return result

    def _query(self, collection: Collection, item: Item) -> Vector:
        """Give an item's query vector. Shape: (dim,), unit length."""
        if "id" in item.header:
            return self._stored_vector(collection, item)
        if item.header.get("vector"):
            return _vector(item.blob or b"", dim=collection.dim)
        engine = self._models.writing(collection).recorder.engine
        vector: Vector = engine.encode([item.blob or b""]).vectors[0]
        return vector

    def _stored_vector(self, collection: Collection, item: Item) -> Vector:
        document, chunk = item.header["id"], item.header.get("chunk") or 0
        entry = self._reader.live(collection, [document]).get(document)
        if isinstance(entry, VersoError):
            raise entry
        if entry is None or chunk >= len(entry.records):
            raise DocumentUnknown(f"no record {document!r} chunk {chunk} in {collection.name}")
        point = point_ids(collection.name, document, entry)[chunk]
        stored = self._vectors.get(collection.name, [point]).get(point)
        if stored is None:
            raise DocumentUnknown(f"no vector for {document!r} chunk {chunk}")
        vector: Vector = Space.of(collection).widen(stored[None])[0]
        return vector

    def _live_hits(
        self, collection: Collection, query: Vector, *, limit: int, where: Filter | None
    ) -> list[tuple[Hit, Chunk]]:
        """Search, and keep the hits whose point a live entry names.

        Points of replaced or deleted documents, and of attempts that never committed, may still lie
        in the store. A fifth more than was asked for is fetched, then twice as many, until enough
        hits are live or the store has no more.
        """
        fetch = limit + limit // 5 + 2
        while True:
            hits = self._vectors.search(collection.name, query, limit=fetch, where=where)
            live = self._reader.live(collection, [hit.payload["d"] for hit in hits])
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

    def _describe_hits(
        self,
        collection: Collection,
        hits: Sequence[tuple[Hit, Chunk]],
        result: Result,
        *,
        with_text: bool,
    ) -> list[dict[str, Any]]:
        texts: list[bytes | VersoError | None] = [None] * len(hits)
        if with_text:
            texts = list(self._reader.chunks(collection, [chunk for _, chunk in hits]))
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

    def _reconstruct(self, work: Slice, timings: Timings) -> Result:
        items: list[dict[str, Any]] = [{} for _ in work.items]
        result = Result(items)
        rows = [row for row, item in enumerate(work.items) if _pass_on(item, items, row)]
        bare = [row for row in rows if work.items[row].header.get("vector")]
        named = [row for row in rows if not work.items[row].header.get("vector")]
        with timings.phase("restore"):
            if named:
                self._restore(work, named, result)
            for row in bare:
                items[row] = self._guess(work.items[row], result)
        return result

    def _restore(self, work: Slice, rows: Sequence[int], result: Result) -> None:
        """Read documents, or single chunks of them, exactly."""
        collection = self._collection(work)
        whole = [row for row in rows if work.items[row].header.get("chunk") is None]
        texts = self._reader.texts(collection, [work.items[row].header["id"] for row in whole])
        single = [row for row in rows if work.items[row].header.get("chunk") is not None]
        chunks = self._single_chunks(collection, [work.items[row] for row in single])
        found: dict[int, tuple[Entry, bytes] | VersoError] = {
            row: texts[work.items[row].header["id"]] for row in whole
        }
        found |= dict(zip(single, chunks, strict=True))
        payloads = self._first_payloads(collection, work, found)
        for row, text in found.items():
            header = work.items[row].header
            about = {"id": header["id"], "chunk": header.get("chunk")}
            if isinstance(text, VersoError):
                result.items[row] = {"ok": False, "error": error_body(text)} | about
                continue
            payload = payloads.get(row, {})
            result.items[row] = about | {
                "ok": True,
                "exact": True,
                "chunks": len(text[0].records),
                "blob": result.add_blob(text[1]),
                "metadata": payload.get("m", {}),
                "time": payload.get("t"),
            }

    def _single_chunks(
        self, collection: Collection, items: Sequence[Item]
    ) -> list[tuple[Entry, bytes] | VersoError]:
        live = self._reader.live(collection, [item.header["id"] for item in items])
        found: list[tuple[Entry, bytes] | VersoError] = []
        wanted: list[tuple[int, Chunk]] = []
        for place, item in enumerate(items):
            document, chunk = item.header["id"], int(item.header["chunk"])
            entry = live.get(document)
            if isinstance(entry, VersoError):
                found.append(entry)
            elif entry is None or chunk >= len(entry.records):
                found.append(DocumentUnknown(f"no record {document}#{chunk}"))
            else:
                found.append(DocumentUnknown("not read"))
                wanted.append((place, Chunk(document, entry, chunk)))
        texts = self._reader.chunks(collection, [chunk for _, chunk in wanted])
        for (place, chunk_of), text in zip(wanted, texts, strict=True):
            found[place] = text if isinstance(text, VersoError) else (chunk_of.entry, text)
        return found

    def _first_payloads(
        self,
        collection: Collection,
        work: Slice,
        found: dict[int, tuple[Entry, bytes] | VersoError],
    ) -> dict[int, dict[str, Any]]:
        """Give what was stored beside each found document: its metadata and time."""
        points = {}
        for row, text in found.items():
            if not isinstance(text, VersoError) and text[0].records:
                document = work.items[row].header["id"]
                points[row] = point_ids(collection.name, document, text[0])[0]
        payloads = self._vectors.payloads(collection.name, list(points.values())) if points else {}
        return {row: payloads[point] for row, point in points.items() if point in payloads}

    def _guess(self, item: Item, result: Result) -> dict[str, Any]:
        model = self._models.current()
        try:
            vector = _vector(item.blob or b"", dim=model.dim)
        except VectorInvalid as error:
            return {"ok": False, "error": error_body(error)}
        [guess] = model.recorder.engine.guess(
            vector[None], beam=int(item.header["beam"]), max_tokens=int(item.header["max_tokens"])
        )
        return {
            "ok": True,
            "exact": False,
            "blob": result.add_blob(guess.text),
            "confidence": guess.confidence,
            "log_probability": guess.log_probability,
        }

    def _delete(self, work: Slice) -> Outcome:
        collection = self._collection(work)
        items: list[dict[str, Any]] = [{} for _ in work.items]
        rows = [row for row, item in enumerate(work.items) if _pass_on(item, items, row)]
        ids = [work.items[row].header["id"] for row in rows]
        live = self._reader.live(collection, ids)
        for row, document in zip(rows, ids, strict=True):
            items[row] = {"ok": True, "id": document, "deleted": document in live}
        # A document that is not there yet may be on its way in: the tombstone is left anyway.
        return Outcome(Result(items), deletes=list(dict.fromkeys(ids)))

    def create_collection(self, params: dict[str, Any]) -> dict[str, Any]:
        """Make a collection in the current artifact's space, or find the same one made before.

        Raises:
            CollectionExists: there is one of this name with other settings.
        """
        request = CollectionRequest.model_validate(params)
        known = self._documents.collections().get(request.name)
        if known is not None:
            return _same(known, request)
        model = self._models.current()
        wanted = Collection(
            name=request.name,
            precision=request.precision,
            text_policy=request.text_policy,
            space=model.space,
            dim=model.dim,
            int8_scale=model.int8_scale,
            artifacts=(model.codec,),
            buckets=self._buckets,
            checksum_key=secrets.token_hex(16),
            created=datetime.now(UTC),
        )
        self._vectors.create(
            wanted.name,
            dim=wanted.dim,
            precision=wanted.precision,
            int8_scale=wanted.int8_scale,
        )
        return _same(self._documents.collection_put(wanted), request)

    def _delete_collection(self, work: Slice) -> Result:
        collection = self._collection(work, param="name")
        # Pointers first: a crash in between leaves orphan points, never pointers to nothing.
        self._documents.collection_delete(collection.name)
        self._vectors.drop(collection.name)
        return Result([{"ok": True, "name": collection.name}])

    def _stats(self, work: Slice) -> Result:
        collection = self._collection(work, param="name")
        counts: Counter[str] = Counter()
        records: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for _, data in self._documents.entries(collection.name):
            try:
                entry = Entry.unpack(data)
            except PatchCorrupt:
                counts["unreadable"] += 1
                continue
            if entry.flags & Flag.DELETED:
                continue
            counts["documents"] += 1
            counts["chunks"] += len(entry.records)
            counts["bytes_text"] += entry.size_bytes
            counts["bytes_entries"] += len(data)
            counts["verified"] += bool(entry.flags & Flag.VERIFIED)
            for record in entry.records:
                records[record.codec.name.lower()] += 1
                sizes[record.codec.name.lower()] += 1 + len(record.payload)
        item = public(collection) | {
            "ok": True,
            **{name: counts[name] for name in _COUNTS},
            "bytes_patches": sizes.total(),
            "bytes_vectors": self._vectors.size_bytes(collection.name),
            "points": self._vectors.count(collection.name),
            "codecs": {name: {"records": records[name], "bytes": sizes[name]} for name in records},
        }
        return Result([item])

    def _scrub_buckets(self, work: Slice) -> Result:
        """Scrub a range of buckets; in a collection that is gone there is nothing to scrub."""
        name, [item] = str(work.params["collection"]), work.items
        first, count = int(item.header["first"]), int(item.header["count"])
        try:
            found = self._scrub.run(
                self._collection(work),
                first=first,
                count=count,
                spend_s=float(item.header["spend_s"]),
            )
        except CollectionUnknown:
            if name in self._documents.collections():
                raise  # the vector store has lost it, which is not the same
            return Result(
                [{"ok": True, "buckets": count} | dict.fromkeys(COUNTED, 0) | {"ids": []}]
            )
        return Result([{"ok": True} | found])


_COUNTS = ("documents", "chunks", "bytes_text", "bytes_entries", "verified", "unreadable")


def public(collection: Collection) -> dict[str, Any]:
    """Describe a collection to its users; the checksum key is not for them."""
    return collection.model_dump(mode="json", exclude={"checksum_key"})


def _same(known: Collection, request: CollectionRequest) -> dict[str, Any]:
    if (known.precision, known.text_policy) != (request.precision, request.text_policy):
        raise CollectionExists(
            f"{known.name!r} exists with precision {known.precision}, text policy "
            f"{known.text_policy}"
        )
    return public(known)


def _pass_on(item: Item, items: list[dict[str, Any]], row: int) -> bool:
    """Tell whether an item is to be worked on; one that the gateway rejected keeps its error."""
    if item.rejected is None:
        return True
    items[row] = {"ok": False, "error": item.rejected}
    return False


def _vector(data: bytes, *, dim: int) -> Vector:
    """Read a vector from float32 little-endian bytes and scale it to unit length.

    Raises:
        VectorInvalid: another dimension, a value that is not finite, or no length.
    """
    if len(data) != 4 * dim:
        raise VectorInvalid(f"expected dim {dim}, got {len(data) / 4:g}")
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    if not np.isfinite(vector).all():
        raise VectorInvalid("expected finite values, got NaN or infinity")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if length == 0.0:
        raise VectorInvalid("expected a vector with a direction, got zeros")
    return (vector / length).astype(np.float32)
