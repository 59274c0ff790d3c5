"""What each rule is made of: other rules, and what the pipeline is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verso_worker.records.cache import Cache
from verso_worker.rules.answer import Answer
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.classification.feedback import Feedback, Learned
from verso_worker.rules.classification.subjects import SubjectReader
from verso_worker.rules.cold.entries import ColdEntries
from verso_worker.rules.collections import Collections
from verso_worker.rules.export_rows import ExportRows
from verso_worker.rules.fit import Fit
from verso_worker.rules.generations import Generations
from verso_worker.rules.grouping.cluster import Cluster
from verso_worker.rules.ingest import Coded, Ingest
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.counting import LineCounts
from verso_worker.rules.logs.grouping import LogCluster, LogProjection
from verso_worker.rules.logs.joined.changes import JoinedChanges
from verso_worker.rules.logs.joined.maintenance import JoinedMaintenance
from verso_worker.rules.logs.joined.search import JoinedSearch
from verso_worker.rules.logs.joined.texts import JoinedTexts
from verso_worker.rules.logs.joined.views import JoinedCluster, JoinedCounts, JoinedRows
from verso_worker.rules.logs.kernels import Kernels
from verso_worker.rules.logs.labelled import LineRows
from verso_worker.rules.logs.listing import LineList
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.migrating import LogMigration
from verso_worker.rules.logs.query.lines import LineQuery
from verso_worker.rules.logs.query.pieces import Pieces
from verso_worker.rules.logs.query.statements import StatementList
from verso_worker.rules.logs.query.summaries import Summaries
from verso_worker.rules.logs.query.volume import LineVolume
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.scrub import LogScrub
from verso_worker.rules.logs.search import LogSearch
from verso_worker.rules.logs.writing.ingest import LogIngest
from verso_worker.rules.matching import Matching
from verso_worker.rules.migrate import Migrate, Migrations
from verso_worker.rules.orphans import OrphanCollector
from verso_worker.rules.ports.models import FeedbackRows, Fitter, Heads, Models, Tables
from verso_worker.rules.ports.stores import Documents, Lexicon, Vectors
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
        cold: ColdEntries,
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
        reader = Reader(models, vectors, documents, cold)
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
            matching=Matching(vectors, documents, reader, lexicon),
            cluster=Cluster(vectors, cached),
            projection=Projection(vectors, cached),
            rows=ExportRows(vectors, reader),
        )


@dataclass(frozen=True, slots=True)
class LogRules:
    """The rules of log collections; ``kernels`` are loaded before any other is used.

    Those that begin with *Joined* are of lines and of the records beside them, the others of lines.
    """

    kernels: Kernels
    management: LogManagement
    ingest: LogIngest
    migration: LogMigration
    query: LineQuery
    lines: LineList
    volume: LineVolume
    statements: StatementList
    projection: LogProjection
    search: JoinedSearch
    texts: JoinedTexts
    changes: JoinedChanges
    counts: JoinedCounts
    cluster: JoinedCluster
    rows: JoinedRows
    maintenance: JoinedMaintenance

    @classmethod
    def of(
        cls,
        models: Models,
        documents: Documents,
        store: LogStore,
        *,
        lexicon: Lexicon,
        records: DocumentRules,
        kernels: Kernels | None,
    ) -> LogRules:
        """Compose the rules; ``records`` are those of what a log collection holds beside lines."""
        reader, blocks = LineReader(store, records.reader), Blocks(store)
        summaries = Summaries(blocks)
        management = LogManagement(store, reader)
        search = LogSearch(models, store, lexicon, reader, blocks)
        query = LineQuery(store, reader, blocks, search)
        matching = records.matching
        return cls(
            kernels=kernels or Kernels(),
            management=management,
            ingest=LogIngest(models, store, records.reader, records.ingest, management),
            migration=LogMigration(store),
            query=query,
            lines=LineList(store, reader, query, matching),
            volume=LineVolume(store, Pieces(reader, blocks, summaries)),
            statements=StatementList(store, blocks, summaries),
            projection=LogProjection(store, blocks),
            search=JoinedSearch(search, records.search, documents),
            texts=JoinedTexts(reader, records.classify, records.reconstruct),
            changes=JoinedChanges(management, matching, records.reader),
            counts=JoinedCounts(LineCounts(store, reader), matching),
            cluster=JoinedCluster(LogCluster(store, blocks), records.cluster, documents),
            rows=JoinedRows(LineRows(models, store), records.rows),
            maintenance=JoinedMaintenance(management, LogScrub(store, management)),
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
        orphans = OrphanCollector(vectors, documents, reader, ingest.lexicon)
        return cls(
            collections=Collections(models, vectors, documents, buckets),
            migrate=Migrate(
                models, vectors, documents, migrations, reader, ingest, lines.migration
            ),
            scrub=Scrub(models, vectors, documents, reader, ingest, orphans, reader.cold),
            orphans=orphans,
            fit=Fit(models, documents, reader, tables, fitter),
        )
