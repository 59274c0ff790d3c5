"""What the worker does for each kind of job, independent of queue, stores and runtime.

The pipeline turns a slice into an outcome: a result with one object for each item, and the writes
that the ledger commits together with it. It reaches stores and models through the protocols of
:mod:`verso_worker.rules.ports` and :mod:`verso_worker.records.recorder`.

The error of one item is the result of that item, and the other items are worked on. An error that
is raised here concerns the whole slice, which is tried again if the error is retryable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from verso_core.errors import (
    CollectionUnknown,
    KindUnsupported,
    PatchCorrupt,
    RequestInvalid,
)
from verso_core.jobs import (
    BucketRange,
    Collection,
    CollectionKind,
    EmbedItem,
    EmbedParams,
    IngestItem,
    IngestParams,
    Kind,
    NoItem,
    Result,
    SearchItem,
    SearchParams,
    Slice,
)
from verso_core.jobs.cluster import ClusterParams, ProjectParams
from verso_core.jobs.collections import (
    CollectionChangeParams,
    CollectionInfo,
    CollectionName,
    CollectionParams,
)
from verso_core.jobs.documents import (
    CountParams,
    DeleteMatchingParams,
    FacetsParams,
    ListParams,
    PartItem,
    UpdateItem,
    UpdateParams,
)
from verso_core.jobs.fitting import FitItem, FitParams
from verso_core.jobs.heads import (
    Answered,
    AnswerItem,
    AnswerParams,
    Classified,
    ClassifyItem,
    ClassifyParams,
    FeedbackItem,
    FeedbackParams,
    HeadFigures,
    HeadInfo,
    HeadList,
    HeadReport,
    HeadsParams,
    ScoreItem,
    ScoreParams,
)
from verso_core.jobs.ingest import Deleted, DeleteItem, DeleteParams, Embedded
from verso_core.jobs.lines import IngestLinesParams, LinesItem, LinesParams
from verso_core.jobs.log_views import LabelsParams, StatementsParams, VolumeParams
from verso_core.jobs.migrate import MigrateItem, MigrateParams, MigrationResult
from verso_core.jobs.models import text_field
from verso_core.jobs.reconstruct import (
    ReconstructItem,
    ReconstructParams,
    RecordsItem,
    RecordsParams,
)
from verso_core.jobs.registry import ModelsParams
from verso_core.jobs.scrub import Scrubbed, ScrubParams
from verso_core.jobs.train import RowsItem, RowsParams
from verso_core.record import Entry, point_ids
from verso_worker.records.cache import Cache
from verso_worker.records.outputs import Timings
from verso_worker.rules.answer import Answer
from verso_worker.rules.classify import Classify, Learned
from verso_worker.rules.collections import Collections
from verso_worker.rules.export_rows import ExportRows
from verso_worker.rules.fit import Fit
from verso_worker.rules.generations import Generations
from verso_worker.rules.grouping.cluster import Cluster
from verso_worker.rules.ingest import Coded, Ingest
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.ingest import LogIngest
from verso_worker.rules.logs.kernels import Kernels
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.migrating import LogMigration
from verso_worker.rules.logs.operations import Beside, LogOperations
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.scrub import LogScrub
from verso_worker.rules.matching import Matching
from verso_worker.rules.migrate import Migrate, Migrations
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.orphans import OrphanCollector
from verso_worker.rules.ports import (
    Delete,
    Documents,
    FeedbackRows,
    Fitter,
    Heads,
    Lexicon,
    Logs,
    Models,
    OnPart,
    OnProgress,
    SliceOutcome,
    StableRun,
    Tables,
    Vectors,
    Verdict,
    no_part,
    no_progress,
)
from verso_worker.rules.projection import Projection
from verso_worker.rules.reader import Reader
from verso_worker.rules.reconstruct import DescribeRecords, Reconstruct
from verso_worker.rules.score import Score
from verso_worker.rules.scrub import Scrub
from verso_worker.rules.search import Search

DEFAULT_COLLECTION = "default"
_MOST_PAIRED = 64 * 1024
"""Largest cost of a slice that is run a second time, to compare a canary: half a second or so."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a slice is run.

    seq: the job's sequence number: of two writes of a document the later one wins.
    on_progress: receives the progress of work that takes minutes, and may end it.
    on_part: receives parts of a result whose caller waits for them.
    timings: what the slice spent in each phase.
    """

    seq: int
    on_progress: OnProgress
    on_part: OnPart = no_part
    timings: Timings = field(default_factory=Timings)


Rule = Callable[[Any, Call], SliceOutcome]
"""Runs the slices of one kind: ``(slice, call) -> outcome``."""


class Pipeline:
    """Runs slices against the stores and the models it is given.

    Args:
        models: the loaded artifacts.
        vectors: the vector store.
        documents: entries and collections.
        logs: lines of log collections.
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
    """

    def __init__(
        self,
        models: Models,
        vectors: Vectors,
        documents: Documents,
        *,
        logs: Logs,
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
    ) -> None:
        self._models = models
        self._vectors = vectors
        self._documents = documents
        self._registry = registry
        self._reader = Reader(models, vectors, documents)
        self._rows = ExportRows(vectors, self._reader)
        cached = replace(self._reader, cache=cache)
        self._collections = Collections(models, vectors, documents, buckets)
        self._cluster = Cluster(vectors, cached)
        self._projection = Projection(vectors, cached)
        self._heads = heads
        self._score = Score(heads)
        self._matching = Matching(vectors, documents, self._reader)
        self._search = Search(models, vectors, cached, lexicon, self._score)
        self._classify = Classify(vectors, cached, heads, lexicon, Learned(feedback))
        self._answer = Answer(cached, self._search, heads)
        self._reconstruct = Reconstruct(models, vectors, cached)
        self._records = DescribeRecords(models, vectors, cached)
        self._ingest = Ingest(
            models,
            vectors,
            documents,
            self._reader,
            lexicon,
            Cache(0) if coded is None else coded,
            Generations(models, tables),
        )
        self._fit = Fit(models, documents, self._reader, tables, fitter)
        store = LogStore(logs)
        self._migrate = Migrate(
            models,
            vectors,
            documents,
            migrations,
            self._reader,
            self._ingest,
            LogMigration(store),
        )
        orphans = OrphanCollector(vectors, documents, self._reader)
        self._scrub = Scrub(
            models, vectors, documents, self._reader, self._ingest, self.collect, orphans
        )
        self._kernels = Kernels()
        self._lines = LineReader(store, self._reader)
        self._log_management = LogManagement(store, self._lines)
        self._log_ingest = LogIngest(
            models, store, self._reader, self._ingest, self._log_management
        )
        self._log_operations = LogOperations(
            models,
            documents,
            store,
            self._lines,
            lexicon=lexicon,
            management=self._log_management,
            scrub=LogScrub(store, self._log_management),
            beside=Beside(
                self._reader,
                self._search,
                self._matching,
                self._classify,
                self._cluster,
                self._rows,
                self._reconstruct,
            ),
        )
        self._rules: Mapping[Kind, Rule] = {
            Kind.EMBED: lambda work, _: SliceOutcome(self.embed([work])[0]),
            Kind.INGEST: self._run_ingest,
            Kind.INGEST_LINES: self._run_ingest_lines,
            Kind.DELETE: self._run_delete,
            Kind.SEARCH: self._run_search,
            Kind.LIST: self._run_list,
            Kind.LINES: self._run_lines,
            Kind.VOLUME: self._run_volume,
            Kind.LABELS: self._run_labels,
            Kind.STATEMENTS: self._run_statements,
            Kind.COUNT: self._run_count,
            Kind.FACETS: self._run_facets,
            Kind.UPDATE: self._run_update,
            Kind.DELETE_MATCHING: self._run_delete_matching,
            Kind.COLLECTION_CHANGE: self._run_change,
            Kind.RECONSTRUCT: self._run_reconstruct,
            Kind.CLASSIFY: self._run_classify,
            Kind.FEEDBACK: self._run_feedback,
            Kind.ANSWER: self._run_answer,
            Kind.SCORE: self._run_score,
            Kind.HEADS: self._run_heads,
            Kind.RECORDS: self._run_records,
            Kind.CLUSTER: self._run_cluster,
            Kind.PROJECT: self._run_project,
            Kind.ROWS: self._run_rows,
            Kind.COLLECTION_CREATE: self._run_create,
            Kind.COLLECTION_DELETE: self._run_drop,
            Kind.STATS: self._run_stats,
            Kind.SCRUB: self._run_scrub,
            Kind.MIGRATE: self._run_migrate,
            Kind.FIT: self._run_fit,
            Kind.MODELS: self._run_models,
        }

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
        rule = self._rules.get(work.kind)
        if rule is None:
            raise RequestInvalid(f"expected a kind that workers do, got {work.kind}")
        call = Call(seq, on_progress, on_part)
        outcome = rule(work, call)
        outcome.result.timings_ms.update(call.timings.spent)
        return outcome

    def verify(self, work: Slice[Any, Any], *, seq: int) -> Verdict:
        """Check from the stores alone whether the texts of an ingested slice can be read back.

        A deleted collection has nothing left to verify.
        """
        try:
            collection = self._collection(work.params.collection)
        except CollectionUnknown:
            return Verdict([], [])
        if work.kind is Kind.INGEST_LINES:
            self._kernels.wait()
            return self._log_ingest.verify(work, collection, seq=seq)
        return self._ingest.verify(work, collection, seq=seq)

    def collect(self, collection: str, document: str, entry: bytes) -> None:
        """Remove the points of an entry that was replaced or deleted, except those still in use.

        Without a document, remove the vectors of a deleted collection.
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
        except PatchCorrupt:  # its points are not known any more: no search shows them
            return
        self._vectors.remove(collection, sorted(old - kept))

    def embed(self, works: Sequence[Slice[EmbedParams, EmbedItem]]) -> list[Result[Embedded]]:
        """Run embed slices in one call of the engine; return a result for each, in order.

        Raises:
            VersoError: the call failed; the slices may still be run one by one.
        """
        timings = Timings()
        rests: dict[str | None, Iterator[Embedded]] = {}
        with timings.phase("infer"):
            for name in {work.params.artifact for work in works}:
                own = [work for work in works if work.params.artifact == name]
                texts = [item.text for work in own for item in work.accepted.values()]
                rests[name] = iter(self._embedded(name, texts) if texts else ())
        return [
            Result(
                work.answered({i: next(rests[work.params.artifact]) for i in work.accepted}),
                dict(timings.spent),
            )
            for work in works
        ]

    def _embedded(self, artifact: str | None, texts: Sequence[bytes]) -> list[Embedded]:
        """Return the vectors of texts by an artifact; None is the current one."""
        encoded = self._models.named(artifact).recorder.engine.encode(texts)
        vectors = encoded.vectors.astype("<f4", copy=False)
        return [
            Embedded(tokens=tokens, truncated=truncated, vector=vector.tobytes())
            for vector, tokens, truncated in zip(
                vectors, encoded.tokens, encoded.truncated, strict=True
            )
        ]

    def create_collection(self, params: CollectionParams) -> CollectionInfo:
        """Make a collection, or find the same one made before.

        Raises:
            CollectionExists: there is one of this name with other settings.
        """
        return self._collections.create(params)

    def ensure_indexes(self) -> None:
        """Ask again for the indexes of all collections: a store may have deferred some."""
        self._collections.ensure_indexes()

    def prepare_logs(self) -> None:
        """Have the codec of lines compiled in the background, and loaded if there are lines."""
        self._kernels.compile()
        collections = self._documents.collections().values()
        if any(map(_is_log, collections)):
            self._kernels.load()

    @property
    def _logs(self) -> LogOperations:
        """Return what log collections do, once the codec of lines is compiled."""
        self._kernels.wait()
        return self._log_operations

    def _collection(self, name: str) -> Collection:
        collection = self._documents.collections().get(name)
        if collection is None:
            raise CollectionUnknown(f"no collection {name!r}")
        return collection

    def _collection_if_any(self, name: str | None) -> Collection | None:
        return None if name is None else self._collection(name)

    def _run_ingest(self, work: Slice[IngestParams, IngestItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        return self._ingest.run(work, collection, seq=call.seq, timings=call.timings)

    def _run_ingest_lines(
        self, work: Slice[IngestLinesParams, LinesItem], call: Call
    ) -> SliceOutcome:
        collection = self._logs_only(work.params.collection)
        return self._log_ingest.run(work, collection, seq=call.seq, timings=call.timings)

    def _run_lines(self, work: Slice[LinesParams, NoItem], _: Call) -> SliceOutcome:
        collection = self._logs_only(work.params.collection)
        return SliceOutcome(self._log_operations.lines(work, collection))

    def _run_volume(self, work: Slice[VolumeParams, NoItem], _: Call) -> SliceOutcome:
        collection = self._logs_only(work.params.collection)
        return SliceOutcome(self._log_operations.volume(work, collection))

    def _run_labels(self, work: Slice[LabelsParams, NoItem], _: Call) -> SliceOutcome:
        collection = self._logs_only(work.params.collection)
        return SliceOutcome(self._log_operations.labels(work, collection))

    def _run_statements(self, work: Slice[StatementsParams, NoItem], _: Call) -> SliceOutcome:
        collection = self._logs_only(work.params.collection)
        return SliceOutcome(self._log_operations.statements(work, collection))

    def _logs_only(self, name: str) -> Collection:
        collection = self._collection(name)
        if not _is_log(collection):
            raise KindUnsupported(f"expected a collection of kind logs, got {name!r} of documents")
        self._kernels.wait()
        return collection

    def _run_delete(self, work: Slice[DeleteParams, DeleteItem], _: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        if _is_log(collection):
            return self._logs.delete(work, collection)
        ids = [item.id for item in work.accepted.values()]
        live = self._reader.live(collection, ids)
        found = {
            index: Deleted(id=item.id, deleted=item.id in live)
            for index, item in work.accepted.items()
        }
        # A document that is not there yet may be on its way in: the tombstone is left anyway.
        deletes = list(map(Delete, dict.fromkeys(ids)))
        return SliceOutcome(
            Result(work.answered(found)), deletes=deletes, collection=collection.name
        )

    def _run_search(self, work: Slice[SearchParams, SearchItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        search = self._logs.search if _is_log(collection) else self._search.run
        named = [work.params.rerank] if work.params.rerank is not None else []
        return self._by_heads(
            named,
            work,
            lambda job, call: search(work, collection, job=job, timings=call.timings),
            call,
        )

    def _run_classify(self, work: Slice[ClassifyParams, ClassifyItem], call: Call) -> SliceOutcome:
        collection = self._collection_if_any(work.params.collection)

        def classified(job: str | None, call: Call) -> Result[Classified]:
            if collection is not None and _is_log(collection):
                return self._logs.classify(work, collection, job=job, timings=call.timings)
            return self._classify.run(work, collection, job=job, timings=call.timings)

        return self._by_heads(work.params.heads, work, classified, call)

    def _run_feedback(self, work: Slice[FeedbackParams, FeedbackItem], call: Call) -> SliceOutcome:
        collection = self._collection_if_any(work.params.collection)

        def classified(
            asked: Slice[ClassifyParams, ClassifyItem], job: str | None
        ) -> Result[Classified]:
            if collection is not None and _is_log(collection):
                return self._logs.classify(asked, collection, job=job, timings=call.timings)
            return self._classify.run(asked, collection, job=job, timings=call.timings)

        return SliceOutcome(self._classify.judge(work, collection, classify=classified))

    def _run_answer(self, work: Slice[AnswerParams, AnswerItem], call: Call) -> SliceOutcome:
        collection = self._collection_if_any(work.params.collection)

        def answered(job: str | None, call: Call) -> Result[Answered]:
            find = None
            if collection is not None and _is_log(collection):
                asked = SearchParams(
                    collection=collection.name,
                    limit=work.params.limit,
                    mode=collection.search,
                    filter=work.params.filter,
                )
                find = partial(self._logs.find, collection, asked=asked, timings=call.timings)
            return self._answer.run(
                work,
                collection,
                job=job,
                timings=call.timings,
                find=find,
                on_part=call.on_part if work.params.stream else None,
            )

        return self._by_heads([work.params.head], work, answered, call)

    def _run_score(self, work: Slice[ScoreParams, ScoreItem], call: Call) -> SliceOutcome:
        return self._by_heads(
            [work.params.head],
            work,
            lambda job, call: self._score.run(work, job=job, timings=call.timings),
            call,
        )

    def _by_heads(
        self,
        names: Sequence[str],
        work: Slice[Any, Any],
        do: Callable[[str | None, Call], Result[Any]],
        call: Call,
    ) -> SliceOutcome:
        """Run a slice that only reads and may need heads; the job chooses each head's channel.

        To compare a canary a slice may be run again, unless that takes longer than a person waits.
        """
        beside = None
        if sum(work.params.cost(item) for item in work.accepted.values()) <= _MOST_PAIRED:
            beside = StableRun(work, partial(do, None, Call(call.seq, no_progress)))
        found = self._heads.run_job(
            names, lambda job: do(job, call), job=str(call.seq), beside=beside
        )
        return SliceOutcome(found)

    def _run_heads(self, work: Slice[HeadsParams, NoItem], _: Call) -> SliceOutcome:
        """Describe all heads, or return the report of one."""
        name = work.params.report
        if name is None:
            states = tuple(HeadInfo.model_validate(state) for state in self._heads.states())
            return SliceOutcome(Result([HeadList(heads=states)]))
        head, card = self._heads.report(name, work.params.channel)
        figures = HeadFigures.of(head, card.decode())
        about = {"head": name, "version": head.version, "figures": figures}
        return SliceOutcome(Result([HeadReport.model_validate(about | text_field(card))]))

    def _run_reconstruct(
        self, work: Slice[ReconstructParams, ReconstructItem], call: Call
    ) -> SliceOutcome:
        collection = self._collection_if_any(work.params.collection)
        if collection is not None and _is_log(collection):
            return SliceOutcome(self._logs.reconstruct(work, collection, timings=call.timings))
        return SliceOutcome(self._reconstruct.run(work, collection, timings=call.timings))

    def _run_cluster(self, work: Slice[ClusterParams, NoItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        cluster = self._logs.cluster if _is_log(collection) else self._cluster.run
        return SliceOutcome(cluster(work, collection, on_progress=call.on_progress))

    def _run_project(self, work: Slice[ProjectParams, NoItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        project = self._logs.project if _is_log(collection) else self._projection.run
        return SliceOutcome(project(work, collection, on_progress=call.on_progress))

    def _run_records(self, work: Slice[RecordsParams, RecordsItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        return SliceOutcome(self._records.run(work, collection, timings=call.timings))

    def _run_rows(self, work: Slice[RowsParams, RowsItem], _: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        rows = self._logs.rows if _is_log(collection) else self._rows.run
        return SliceOutcome(rows(work, collection))

    def _run_list(self, work: Slice[ListParams, NoItem], _: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        page = self._logs.page if _is_log(collection) else self._matching.page
        return SliceOutcome(page(work, collection))

    def _run_count(self, work: Slice[CountParams, NoItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        count = self._logs.count if _is_log(collection) else self._matching.count
        return SliceOutcome(count(work, collection, call.on_progress))

    def _run_facets(self, work: Slice[FacetsParams, NoItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        facets = self._logs.facets if _is_log(collection) else self._matching.facets
        return SliceOutcome(facets(work, collection, call.on_progress))

    def _run_update(self, work: Slice[UpdateParams, UpdateItem], call: Call) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        update = self._logs.update if _is_log(collection) else self._matching.update
        return update(work, collection, seq=call.seq)

    def _run_delete_matching(
        self, work: Slice[DeleteMatchingParams, PartItem], call: Call
    ) -> SliceOutcome:
        collection = self._collection(work.params.collection)
        delete = self._logs.delete_matching if _is_log(collection) else self._matching.delete
        return delete(work, collection, seq=call.seq, on_progress=call.on_progress)

    def _run_change(self, work: Slice[CollectionChangeParams, NoItem], _: Call) -> SliceOutcome:
        sides = partial(self._migrate.sides, work.params.name)
        changed = self._collections.change(work.params, sides=sides)
        return SliceOutcome(Result([changed]))

    def _run_create(self, work: Slice[CollectionParams, NoItem], _: Call) -> SliceOutcome:
        if work.params.kind is CollectionKind.LOGS:
            self._kernels.load()
        return SliceOutcome(Result([self._collections.create(work.params)]))

    def _run_drop(self, work: Slice[CollectionName, NoItem], call: Call) -> SliceOutcome:
        return SliceOutcome(Result([self._collections.delete(work.params.name, by=call.seq)]))

    def _run_stats(self, work: Slice[CollectionName, NoItem], _: Call) -> SliceOutcome:
        name = work.params.name
        collection = self._collection(name)
        found = self._collections.stats(collection, name=name)
        if _is_log(collection):
            found = self._log_operations.statistics(collection, found)
        return SliceOutcome(Result([found]))

    def _run_models(self, work: Slice[ModelsParams, NoItem], _: Call) -> SliceOutcome:
        return SliceOutcome(self._registry.run(work))

    def _run_migrate(self, work: Slice[MigrateParams, MigrateItem], _: Call) -> SliceOutcome:
        """Begin a migration, do a step of it, or remove what it left."""
        name, item = work.params.collection, work.only
        match work.params.step:
            case "begin":
                state = self._migrate.begin(name, item.artifact or "", item.settings or {})
                found = MigrationResult(migration=state)
            case "remove":
                found = MigrationResult(migration=self._migrate.remove(name))
            case "work":
                found = self._migrate.step(
                    name, first=item.first, count=item.count, spend_s=item.spend_s
                )
        return SliceOutcome(Result([found]))

    def _run_fit(self, work: Slice[FitParams, FitItem], call: Call) -> SliceOutcome:
        name = work.params.collection
        return self._fit.run(work, self._collection(name), name=name, on_progress=call.on_progress)

    def _run_scrub(self, work: Slice[ScrubParams, BucketRange], _: Call) -> SliceOutcome:
        """Scrub a range of buckets; a deleted collection has none."""
        name, item = work.params.collection, work.only
        try:
            collection = self._collection(name)
            found = self._scrub.run(collection, item)
            if _is_log(collection):
                found = self._logs.scrub(collection, item, found)
        except CollectionUnknown:
            if name in self._documents.collections():
                raise  # it was not deleted: the vector store has lost it
            found = Scrubbed.of(item.count, {})
        return SliceOutcome(Result([found]))


def _is_log(collection: Collection) -> bool:
    return collection.kind is CollectionKind.LOGS
