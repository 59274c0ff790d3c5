"""What each rule is made of: other rules, and what the pipeline is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verso_worker.records.cache import Cache
from verso_worker.rules.answer import Answer
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.classification.feedback import Feedback, Learned
from verso_worker.rules.classification.subjects import SubjectReader
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
from verso_worker.rules.orphans import OrphanCollector
from verso_worker.rules.ports.models import FeedbackRows, Fitter, Heads, Models, Tables
from verso_worker.rules.ports.stores import Documents, Lexicon, Logs, Vectors
from verso_worker.rules.projection import Projection
from verso_worker.rules.reader import Reader
from verso_worker.rules.reconstruct import DescribeRecords, Reconstruct
from verso_worker.rules.score import Score
from verso_worker.rules.scrub import Scrub
from verso_worker.rules.search import Search


@dataclass(frozen=True, slots=True)
class DocumentRules:
    """The rules of collections of documents, and of texts that are in no collection."""

    reader: Reader
    ingest: Ingest
    search: Search
    classify: Classify
    feedback: Feedback
    answer: Answer
    score: Score
    reconstruct: Reconstruct
    describe: DescribeRecords
    matching: Matching
    cluster: Cluster
    projection: Projection
    rows: ExportRows

    @classmethod
    def of(
        cls,
        models: Models,
        vectors: Vectors,
        documents: Documents,
        *,
        lexicon: Lexicon,
        heads: Heads,
        feedback: FeedbackRows,
        tables: Tables,
        cache: Cache[bytes] | None,
        coded: Cache[Coded] | None,
    ) -> DocumentRules:
        """Compose the rules.

        What is searched, classified, grouped and reconstructed is read through ``cache``; what is
        checked or exported is read from the stores.
        """
        reader = Reader(models, vectors, documents)
        cached = replace(reader, cache=cache)
        score = Score(heads)
        learned = Learned(feedback)
        search = Search(models, vectors, cached, lexicon, score)
        return cls(
            reader=reader,
            ingest=Ingest(
                models,
                vectors,
                documents,
                reader,
                lexicon,
                Cache(0) if coded is None else coded,
                Generations(models, tables),
            ),
            search=search,
            classify=Classify(SubjectReader(vectors, cached, lexicon), heads, learned),
            feedback=Feedback(heads, learned),
            answer=Answer(cached, search, heads),
            score=score,
            reconstruct=Reconstruct(models, vectors, cached),
            describe=DescribeRecords(models, vectors, cached),
            matching=Matching(vectors, documents, reader),
            cluster=Cluster(vectors, cached),
            projection=Projection(vectors, cached),
            rows=ExportRows(vectors, reader),
        )


@dataclass(frozen=True, slots=True)
class LogRules:
    """The rules of log collections; ``kernels`` are loaded before any other is used."""

    kernels: Kernels
    management: LogManagement
    ingest: LogIngest
    operations: LogOperations
    migration: LogMigration

    @classmethod
    def of(
        cls,
        models: Models,
        documents: Documents,
        logs: Logs,
        *,
        lexicon: Lexicon,
        records: DocumentRules,
    ) -> LogRules:
        """Compose the rules; ``records`` are those of what a log collection holds beside lines."""
        store = LogStore(logs)
        lines = LineReader(store, records.reader)
        management = LogManagement(store, lines)
        return cls(
            kernels=Kernels(),
            management=management,
            ingest=LogIngest(models, store, records.reader, records.ingest, management),
            operations=LogOperations(
                models,
                documents,
                store,
                lines,
                lexicon=lexicon,
                management=management,
                scrub=LogScrub(store, management),
                beside=Beside(
                    records.reader,
                    records.search,
                    records.matching,
                    records.classify,
                    records.cluster,
                    records.rows,
                    records.reconstruct,
                ),
            ),
            migration=LogMigration(store),
        )


@dataclass(frozen=True, slots=True)
class CollectionRules:
    """The rules that make, change, move and check whole collections."""

    collections: Collections
    migrate: Migrate
    scrub: Scrub
    orphans: OrphanCollector
    fit: Fit

    @classmethod
    def of(
        cls,
        models: Models,
        vectors: Vectors,
        documents: Documents,
        *,
        migrations: Migrations,
        tables: Tables,
        fitter: Fitter,
        buckets: int,
        records: DocumentRules,
        lines: LogRules,
    ) -> CollectionRules:
        """Compose the rules; ``buckets`` is the number of a new collection."""
        reader, ingest = records.reader, records.ingest
        orphans = OrphanCollector(vectors, documents, reader)
        return cls(
            collections=Collections(models, vectors, documents, buckets),
            migrate=Migrate(
                models, vectors, documents, migrations, reader, ingest, lines.migration
            ),
            scrub=Scrub(models, vectors, documents, reader, ingest, orphans),
            orphans=orphans,
            fit=Fit(models, documents, reader, tables, fitter),
        )
