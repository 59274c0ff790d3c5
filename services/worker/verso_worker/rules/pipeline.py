"""What the worker does for each kind of job, independent of queue, stores and runtime.

The pipeline turns a slice into an outcome: a result with one object for each item, and the writes
that the ledger commits together with it. It reaches stores and models through the protocols of
:mod:`verso_worker.rules.ports` and :mod:`verso_worker.records.recorder`. What the rules are made of
and which one runs a kind is in :mod:`verso_worker.rules.kinds`.

The error of one item is the result of that item, and the other items are worked on. An error that
is raised here concerns the whole slice, which is tried again if the error is retryable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verso_core.errors import (
    CollectionUnknown,
    KindUnsupported,
    RequestInvalid,
    VectorsDamaged,
)
from verso_core.jobs import CollectionKind, EmbedItem, EmbedParams, Kind, Result, Slice
from verso_core.jobs.collections import CollectionInfo, CollectionParams
from verso_core.jobs.ingest import Embedded
from verso_worker.records.cache import Cache
from verso_worker.rules.cold.entries import ColdEntries
from verso_worker.rules.collections import collection_asked, collection_named
from verso_worker.rules.ingest import Coded
from verso_worker.rules.kinds.call import Call
from verso_worker.rules.kinds.collections import CollectionKinds
from verso_worker.rules.kinds.composition import CollectionRules, DocumentRules, LogRules
from verso_worker.rules.kinds.documents import document_table
from verso_worker.rules.kinds.heads import HeadJobs
from verso_worker.rules.kinds.logs import log_table
from verso_worker.rules.kinds.models import Embed, ModelKinds
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.kernels import Kernels
from verso_worker.rules.migrate import Migrations
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.ports.models import FeedbackRows, Fitter, Heads, Models, Tables
from verso_worker.rules.ports.outcome import (
    OnPart,
    OnProgress,
    SliceOutcome,
    Verdict,
    no_part,
    no_progress,
)
from verso_worker.rules.ports.stores import Documents, Lexicon, Vectors

DEFAULT_COLLECTION = "default"


class Pipeline:
    """Runs slices against the stores and the models it is given.

    Args:
        models: the loaded artifacts.
        vectors: the vector store.
        documents: entries and collections.
        logs: log collections, which pipelines of one ledger share.
        migrations: moves of collections to another artifact.
        lexicon: finds words, for collections that are searched by them as well.
        registry: shows and changes which models are served.
        heads: the served heads.
        feedback: labels that people have checked.
        tables: tables fitted to collections.
        fitter: fits them.
        buckets: number of buckets of a new collection.
        cache: texts that were read lately; without it every read goes to the stores.
        coded: chunks that were ingested lately; without it every slice is encoded and coded.
        kernels: those of the codec of lines, which several pipelines may share.
    """

    def __init__(
        self,
        models: Models,
        vectors: Vectors,
        documents: Documents,
        *,
        logs: LogStore,
        migrations: Migrations,
        lexicon: Lexicon,
        registry: ModelOperations,
        heads: Heads,
        feedback: FeedbackRows,
        tables: Tables,
        fitter: Fitter,
        buckets: int = 4096,
        cache: Cache[bytes] | None = None,
        coded: Cache[Coded] | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self._documents = documents
        self._records = DocumentRules.of(
            models,
            vectors,
            documents,
            cold=ColdEntries(logs.cold.storage, documents, logs.ledger),
            lexicon=lexicon,
            heads=heads,
            feedback=feedback,
            tables=tables,
            cache=cache,
            coded=coded,
        )
        self._lines = LogRules.of(
            models, documents, logs, lexicon=lexicon, records=self._records, kernels=kernels
        )
        self._management = CollectionRules.of(
            models,
            vectors,
            documents,
            migrations=migrations,
            tables=tables,
            fitter=fitter,
            buckets=buckets,
            records=self._records,
            lines=self._lines,
        )
        self._embed = Embed(models)
        jobs = HeadJobs(heads)
        self._of_documents = document_table(self._records, jobs)
        self._of_lines = log_table(self._lines, self._records, jobs)
        self._of_none = (
            CollectionKinds(self._management, self._lines, documents).table()
            | ModelKinds(self._embed, self._records.score, registry, jobs).table()
        )

    def run(
        self,
        work: Slice[Any, Any],
        *,
        seq: int,
        on_progress: OnProgress = no_progress,
        on_part: OnPart = no_part,
    ) -> SliceOutcome:
        """Run a slice by the rule of its kind; see :class:`Call` for the arguments.

        Raises:
            VersoError: the slice failed as a whole.
        """
        call = Call(seq, on_progress, on_part)
        rule = self._of_none.get(work.kind)
        outcome = self._run_in_collection(work, call) if rule is None else rule(work, call)
        outcome.result.timings_ms.update(call.timings.spent)
        return outcome

    def verify(self, work: Slice[Any, Any], *, seq: int) -> Verdict:
        """Check from the stores alone whether the texts of an ingested slice can be read back.

        A deleted collection has nothing left to verify.
        """
        try:
            collection = collection_named(self._documents, work.params.collection)
        except CollectionUnknown:
            return Verdict([], [])
        if work.kind is Kind.INGEST_LINES:
            self._lines.kernels.wait()
            return self._lines.ingest.verify(work, collection, seq=seq)
        return self._records.ingest.verify(work, collection, seq=seq)

    def code(self, work: Slice[Any, Any], *, most: int) -> int:
        """Encode and code the first chunks of an ingest's slice, and store nothing.

        Returns:
            How many chunks were coded, at most ``most``.

        Raises:
            VersoError: they could not be.
        """
        collection = collection_named(self._documents, work.params.collection)
        return self._records.ingest.code(work, collection, most=most)

    def collect(self, collection: str, document: str, entry: bytes) -> None:
        """Remove the points of an entry that was replaced or deleted, except those still in use.

        Without a document, remove the vectors of a deleted collection.
        """
        if document:
            self._management.orphans.discard(collection, document, entry)
        else:
            self._management.collections.clear(collection)

    def embed(self, works: Sequence[Slice[EmbedParams, EmbedItem]]) -> list[Result[Embedded]]:
        """Run embed slices in one call of the engine; return a result for each, in order.

        Raises:
            VersoError: the call failed; the slices may still be run one by one.
        """
        return self._embed.run(works)

    def create_collection(self, params: CollectionParams) -> CollectionInfo:
        """Make a collection, or find the same one made before.

        Raises:
            CollectionExists: there is one of this name with other settings.
        """
        return self._management.collections.create(params)

    def forget_lines(self, collection: str) -> None:
        """Have what is known of a log collection, by its own name, read again from the ledger."""
        self._lines.management.store.forget(collection)

    def ensure_indexes(self) -> None:
        """Ask again for the indexes of all collections: a store may have deferred some."""
        self._management.collections.ensure_indexes()

    def lacking(self) -> list[str]:
        """Return the collections of which the vector store has lost points; mend what it can."""
        return self._management.collections.lacking()

    def prepare_logs(self) -> None:
        """Have the codec of lines compiled in the background, and loaded if there are lines."""
        self._lines.kernels.compile()
        if any(one.kind is CollectionKind.LOGS for one in self._documents.collections().values()):
            self._lines.kernels.load()

    def _run_in_collection(self, work: Slice[Any, Any], call: Call) -> SliceOutcome:
        """Run a slice by the rule that its kind has in its collection; texts are in none.

        Raises:
            RequestInvalid: workers do not run slices of this kind.
            CollectionUnknown: there is no such collection, or it is younger than the slice.
            KindUnsupported: the kind is of log collections, and the collection is another.
            VectorsDamaged: the vector store has lost the collection.
        """
        own, other = self._of_lines.get(work.kind), self._of_documents.get(work.kind)
        if own is None and other is None:
            raise RequestInvalid(f"expected a kind that workers do, got {work.kind}")
        name = work.params.collection
        collection = None if name is None else collection_asked(self._documents, name, seq=call.seq)
        if own is not None and collection is not None and collection.kind is CollectionKind.LOGS:
            self._lines.kernels.wait()
            other = own
        if other is None:
            raise KindUnsupported(f"expected a collection of kind logs, got {name!r} of documents")
        try:
            return other(work, collection, call)
        except CollectionUnknown as error:
            if collection is None:
                raise
            self._documents.collection(collection.name)  # unless it was deleted meanwhile
            if self._management.collections.has_vectors(collection.name):
                raise  # it is another one that is gone
            raise VectorsDamaged(f"the vectors of collection {name!r} are lost") from error
