"""What the worker does for each kind of job: the rules, and nothing of where they run.

The pipeline turns a slice into an outcome: a result with one object for each item, and the writes
that the ledger commits together with it. It knows no queue, no store and no runtime; they stand
behind the protocols of :mod:`verso_worker.rules.ports` and :mod:`verso_worker.records.recorder`.

An error of one item stands in that item's place and its neighbours go on. What is raised here
concerns the slice as a whole: it is tried again if the error says that this can help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verso_core.errors import (
    CollectionUnknown,
    PatchCorrupt,
    RequestInvalid,
)
from verso_core.jobs import (
    Collection,
    Kind,
    Result,
    Slice,
)
from verso_core.record import Entry, point_ids
from verso_core.registry import Channel
from verso_worker.records.outputs import Timings
from verso_worker.rules.answer import Answer
from verso_worker.rules.classify import Classify
from verso_worker.rules.cluster import Cluster
from verso_worker.rules.collections import Collections
from verso_worker.rules.export_rows import ExportRows
from verso_worker.rules.head_ports import Heads, NoHeads
from verso_worker.rules.ingest import Ingest
from verso_worker.rules.items import is_accepted
from verso_worker.rules.migrate import Migrate, Migrations, describe
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.orphans import OrphanCollector
from verso_worker.rules.ports import (
    Documents,
    Lexicon,
    Models,
    OnProgress,
    SliceOutcome,
    Vectors,
    Verdict,
    no_progress,
)
from verso_worker.rules.reader import Reader
from verso_worker.rules.reconstruct import Reconstruct
from verso_worker.rules.score import Score
from verso_worker.rules.scrub import COUNTED, Scrub
from verso_worker.rules.search import Search
from verso_worker.rules.text_cache import TextCache

DEFAULT_COLLECTION = "default"


class Pipeline:
    """Runs slices against the stores and the models it is given.

    Args:
        models: the loaded artifacts.
        vectors: the vector store.
        documents: entries and collections.
        migrations: moves of collections to another artifact.
        lexicon: finds words, for collections that are searched by them as well.
        buckets: number of buckets of a new collection.
        releases: changes which models are served; None where that cannot be asked for.
        heads: what classifies, answers and scores; without them such jobs fail as head_unknown.
        hot: texts that were read lately; without it every read is of the stores.
    """

    def __init__(
        self,
        models: Models,
        vectors: Vectors,
        documents: Documents,
        *,
        migrations: Migrations,
        lexicon: Lexicon,
        buckets: int = 4096,
        releases: ModelOperations | None = None,
        heads: Heads | None = None,
        hot: TextCache | None = None,
    ) -> None:
        self._models = models
        self._vectors = vectors
        self._documents = documents
        self._releases = releases
        self._reader = Reader(models, vectors, documents)
        self._labelled = ExportRows(vectors, documents, self._reader)
        reads = replace(self._reader, hot=hot)
        self._collections = Collections(models, vectors, documents, buckets)
        self._clusters = Cluster(vectors, documents, reads)
        heads = heads or NoHeads()
        self._heads = heads
        self._pairing = Score(heads)
        self._search = Search(models, vectors, reads, lexicon, self._pairing)
        self._classify = Classify(vectors, reads, heads)
        self._answer = Answer(reads, self._search, heads)
        self._restore = Reconstruct(models, vectors, reads)
        self._ingest = Ingest(models, vectors, documents, self._reader, lexicon)
        self._migrate = Migrate(models, vectors, documents, migrations, self._reader, self._ingest)
        sweep = OrphanCollector(vectors, documents, self._reader)
        self._scrub = Scrub(
            models, vectors, documents, self._reader, self._ingest, self.collect, sweep
        )

    def run(self, work: Slice, *, seq: int, tell: OnProgress = no_progress) -> SliceOutcome:
        """Do a slice's work.

        Args:
            work: the slice.
            seq: its job's sequence number: of two writes of a document the later one wins.
            tell: is told how far work is that takes minutes, and may end it.

        Raises:
            VersoError: the slice as a whole could not be done.
        """
        timings = Timings()
        match work.kind:
            case Kind.EMBED:
                outcome = SliceOutcome(self.embed([work])[0])
            case Kind.INGEST:
                outcome = self._ingest.run(work, self._collection(work), seq=seq, timings=timings)
            case Kind.CLUSTER | Kind.ROWS:
                outcome = SliceOutcome(self._look(work, tell))
            case Kind.RECONSTRUCT:
                outcome = SliceOutcome(self._reconstruct(work, timings))
            case Kind.DELETE:
                outcome = self._delete(work)
            case Kind.COLLECTION_CREATE | Kind.COLLECTION_DELETE | Kind.STATS | Kind.MIGRATE:
                outcome = SliceOutcome(self._manage(work, seq=seq))
            case Kind.SCRUB:
                outcome = SliceOutcome(self._scrub_buckets(work))
            case Kind.MODELS if self._releases is not None:
                outcome = SliceOutcome(self._releases.run(work))
            case Kind.SEARCH | Kind.CLASSIFY | Kind.ANSWER | Kind.SCORE | Kind.HEADS:
                outcome = SliceOutcome(self._ask(work, job=str(seq), timings=timings))
            case _:
                raise RequestInvalid(f"expected a kind that workers do, got {work.kind}")
        outcome.result.timings_ms.update(timings.spent)
        return outcome

    def _look(self, work: Slice, tell: OnProgress) -> Result:
        """Answer from what one collection holds."""
        collection = self._collection(work)
        if work.kind is Kind.CLUSTER:
            return self._clusters.run(work, collection, tell=tell)
        return self._labelled.run(work, collection)

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
        """Remove the points of an entry that was replaced or deleted, but none still in use.

        Of no document: all that is left of a collection that was deleted.
        """
        if not document:
            self._collections.clear(collection)
            return
        try:
            known = self._documents.collection(collection)
        except CollectionUnknown:
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
            if is_accepted(item, result.items, row)
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

    def create_collection(self, params: dict[str, Any]) -> dict[str, Any]:
        """Make a collection, or find the same one made before.

        Raises:
            CollectionExists: there is one of this name with other settings.
        """
        return self._collections.create(params)

    def _ask(self, work: Slice, *, job: str, timings: Timings) -> Result:
        """Do what only reads and may need a head; the job chooses the head's channel."""

        def do(job: str | None) -> Result:
            match work.kind:
                case Kind.SEARCH:
                    collection = self._collection(work)
                    return self._search.run(work, collection, job=job, timings=timings)
                case Kind.CLASSIFY:
                    named = self._collection_if_any(work)
                    return self._classify.run(work, named, job=job, timings=timings)
                case Kind.ANSWER:
                    named = self._collection_if_any(work)
                    return self._answer.run(work, named, job=job, timings=timings)
                case _:
                    return self._pairing.run(work, job=job, timings=timings)

        if work.kind is not Kind.HEADS:
            return self._heads.run_job(work.params, do, job=job)
        return self._about_heads(work)

    def _about_heads(self, work: Slice) -> Result:
        """Describe all heads, or give the report of one."""
        result = Result([])
        if (name := work.params.get("report")) is None:
            result.items.append({"ok": True, "heads": self._heads.states()})
            return result
        version, card = self._heads.report(str(name), Channel(work.params["channel"]))
        item = {"head": name, "version": version, "blob": result.add_blob(card)}
        result.items.append({"ok": True} | item)
        return result

    def _reconstruct(self, work: Slice, timings: Timings) -> Result:
        return self._restore.run(work, self._collection_if_any(work), timings=timings)

    def _collection_if_any(self, work: Slice) -> Collection | None:
        return None if work.params.get("collection") is None else self._collection(work)

    def _delete(self, work: Slice) -> SliceOutcome:
        collection = self._collection(work)
        items: list[dict[str, Any]] = [{} for _ in work.items]
        rows = [row for row, item in enumerate(work.items) if is_accepted(item, items, row)]
        ids = [work.items[row].header["id"] for row in rows]
        live = self._reader.live(collection, ids)
        for row, document in zip(rows, ids, strict=True):
            items[row] = {"ok": True, "id": document, "deleted": document in live}
        # A document that is not there yet may be on its way in: the tombstone is left anyway.
        deletes = list(dict.fromkeys(ids))
        return SliceOutcome(Result(items), deletes=deletes, collection=collection.name)

    def _manage(self, work: Slice, *, seq: int) -> Result:
        """Make, delete, describe or migrate a collection."""
        match work.kind:
            case Kind.COLLECTION_CREATE:
                return Result([{"ok": True} | self.create_collection(work.params)])
            case Kind.COLLECTION_DELETE:
                return self._collections.delete(str(work.params["name"]), by=seq)
            case Kind.MIGRATE:
                return self._migration(work)
            case _:
                return self._stats(work)

    def _stats(self, work: Slice) -> Result:
        result = self._collections.stats(self._collection(work, param="name"))
        result.items[0]["name"] = str(work.params["name"])
        return result

    def _migration(self, work: Slice) -> Result:
        """Begin a migration, do a step of it, or remove what it left."""
        name, [item] = str(work.params["collection"]), work.items
        match str(work.params["step"]):
            case "begin":
                found = describe(self._migrate.begin(name, str(item.header["artifact"])))
            case "remove":
                found = describe(self._migrate.remove(name))
            case _:
                found = self._migrate.step(
                    name,
                    first=int(item.header["first"]),
                    count=int(item.header["count"]),
                    spend_s=float(item.header["spend_s"]),
                )
        return Result([{"ok": True} | found])

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
                since=item.header.get("since"),
            )
        except CollectionUnknown:
            if name in self._documents.collections():
                raise  # the vector store has lost it, which is not the same
            return Result(
                [{"ok": True, "buckets": count} | dict.fromkeys(COUNTED, 0) | {"ids": []}]
            )
        return Result([{"ok": True} | found])
