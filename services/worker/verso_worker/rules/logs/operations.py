"""What a log collection does of what collections do: lines in blocks, and records beside them.

Lines that are text and documents with ids of their own are records. Every operation here joins what
is found of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verso_core.errors import DocumentUnknown, KindUnsupported, VersoError
from verso_core.jobs import (
    BucketRange,
    Collection,
    Failed,
    Kind,
    NoItem,
    Result,
    SearchItem,
    SearchMode,
    SearchParams,
    Slice,
)
from verso_core.jobs.cluster import Clustered, ClusterParams, Method, Projected, ProjectParams
from verso_core.jobs.collections import SCRUB_COUNTS, Statistics
from verso_core.jobs.documents import (
    Counted,
    CountParams,
    DeletedMatching,
    DeleteMatchingParams,
    DocumentPage,
    Facets,
    FacetsParams,
    ListParams,
    PartItem,
    UpdateItem,
    UpdateParams,
)
from verso_core.jobs.heads.classify import Classified, ClassifyItem, ClassifyParams
from verso_core.jobs.ingest import Deleted, DeleteItem, DeleteParams
from verso_core.jobs.lines import LinesPage, LinesParams, line_place
from verso_core.jobs.log_views import (
    Labels,
    LabelsParams,
    Statements,
    StatementsParams,
    Volume,
    VolumeParams,
)
from verso_core.jobs.reconstruct import Guess, ReconstructItem, ReconstructParams, StoredText
from verso_core.jobs.scrub import Scrubbed
from verso_core.jobs.search import Explanation, Hit, Hits
from verso_core.jobs.train import Rows, RowsItem, RowsParams
from verso_worker.records import fusion
from verso_worker.records.outputs import Timings
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.export_rows import ExportRows
from verso_worker.rules.grouping.cluster import Cluster
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.counting import LineCounts
from verso_worker.rules.logs.grouping import LogCluster, LogProjection
from verso_worker.rules.logs.labelled import LineRows
from verso_worker.rules.logs.listing import LineList
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.query.lines import LineQuery
from verso_worker.rules.logs.query.pieces import Pieces
from verso_worker.rules.logs.query.statements import StatementList
from verso_worker.rules.logs.query.summaries import Summaries
from verso_worker.rules.logs.query.volume import LineVolume
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.scrub import LogScrub
from verso_worker.rules.logs.search import LogSearch
from verso_worker.rules.matching import Matching
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.outcome import Delete, OnProgress, SliceOutcome
from verso_worker.rules.ports.stores import Documents, Lexicon
from verso_worker.rules.reader import Reader
from verso_worker.rules.reconstruct import Reconstruct
from verso_worker.rules.search import Search


@dataclass(frozen=True, slots=True)
class Beside:
    """The operations on records that lines are joined with."""

    reader: Reader
    search: Search
    matching: Matching
    classify: Classify
    cluster: Cluster
    rows: ExportRows
    reconstruct: Reconstruct


class LogOperations:
    """Runs operations on log collections.

    Args:
        models: the loaded artifacts.
        documents: entries and collections.
        store: the log collections.
        lines: reads lines.
        lexicon: finds words.
        management: deletes lines and counts what they take.
        scrub: checks segments.
        beside: operations on records.
    """

    def __init__(
        self,
        models: Models,
        documents: Documents,
        store: LogStore,
        lines: LineReader,
        *,
        lexicon: Lexicon,
        management: LogManagement,
        scrub: LogScrub,
        beside: Beside,
    ) -> None:
        self._documents = documents
        self._lines = lines
        self._management = management
        self._scrub = scrub
        self._beside = beside
        blocks = Blocks(store)
        self._counts = LineCounts(store, lines)
        self._search = LogSearch(models, store, lexicon, lines, blocks)
        self._cluster = LogCluster(store, blocks)
        self._projection = LogProjection(store, blocks)
        self._rows = LineRows(models, store)
        self._query = LineQuery(store, lines, blocks, self._search)
        self._list = LineList(store, lines, self._query, beside.matching)
        summaries = Summaries(blocks)
        self._volume = LineVolume(store, Pieces(lines, blocks, summaries))
        self._statements = StatementList(store, blocks, summaries)

    def search(
        self,
        work: Slice[SearchParams, SearchItem],
        collection: Collection,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Hits]:
        """Find statements, or lines, and records; a head may order them again.

        Raises:
            HeadUnknown, HeadInvalid: the head that reranks cannot be served.
        """
        asked = work.params
        if asked.rerank is None:
            return self._found(work, collection, timings)
        most = max(asked.limit, asked.rerank_from)
        wide = asked.model_copy(update={"rerank": None, "limit": most, "with_text": True})
        found = self._found(replace(work, params=wide), collection, timings)
        with timings.phase("infer"):
            for index, item in work.accepted.items():
                hits = found.items[index]
                if isinstance(hits, Hits):
                    found.items[index] = self._reranked(asked, item.data or b"", hits, job=job)
        return found

    def find(
        self, collection: Collection, question: bytes, asked: SearchParams, timings: Timings
    ) -> Hits:
        """Return what one question finds.

        Raises:
            VersoError: it cannot be searched.
        """
        work = Slice(kind=Kind.SEARCH, params=asked, items=(SearchItem(question),))
        [hits] = self._found(work, collection, timings).items
        if isinstance(hits, Failed):
            raise hits.error.exception()
        return hits

    def _found(
        self, work: Slice[SearchParams, SearchItem], collection: Collection, timings: Timings
    ) -> Result[Hits]:
        work, failed = self._by_vector(work, collection)
        found = self._search.run(work, collection, timings=timings)
        if self._documents.holdings(collection.name).documents:
            records = self._beside.search.run(work, collection, job=None, timings=timings)
            pairs = zip(found.items, records.items, strict=True)
            found = Result([_joined(*pair, work.params) for pair in pairs])
        for index, fault in failed.items():
            found.items[index] = fault
        return found

    def _by_vector(
        self, work: Slice[SearchParams, SearchItem], collection: Collection
    ) -> tuple[Slice[SearchParams, SearchItem], dict[int, Failed]]:
        """Replace the lines and records that a search names by their vectors."""
        items = list(work.items)
        failed: dict[int, Failed] = {}
        for index, item in work.accepted.items():
            if item.id is None:
                continue
            try:
                vector = self._search.vector_of(collection, item.id)
                if vector is None:
                    vector = self._beside.search.query(collection, item)
            except VersoError as error:
                if error.retryable:
                    raise
                failed[index] = Failed.of(error)
                vector = np.eye(1, collection.dim, dtype=np.float32)[0]
            items[index] = SearchItem(vector.astype("<f4").tobytes(), vector=True)
        return replace(work, items=tuple(items)), failed

    def _reranked(self, asked: SearchParams, query: bytes, found: Hits, *, job: str | None) -> Hits:
        """Order hits by the search's score and a head's; hits without a text come last."""
        scored = found.hits[: asked.rerank_from]
        readable = [hit for hit in scored if hit.error is None]
        texts = [hit.data for hit in readable]
        read = self._beside.search.score.best(asked.rerank or "", query, texts, job=job)
        scores = [hit.score for hit in readable]
        order = fusion.reranked(scores, read, share=asked.rerank_share)
        ranked = [_read_by(readable[n], float(read[n]), asked) for n in order]
        rest = [hit for hit in scored if hit.error is not None]
        hits = [*ranked, *rest, *found.hits[asked.rerank_from :]][: asked.limit]
        return Hits(hits=tuple(hits if asked.with_text else map(_without_text, hits)))

    def classify(
        self,
        work: Slice[ClassifyParams, ClassifyItem],
        collection: Collection,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Classified]:
        """Classify lines as the texts that they are, and records as in any collection."""
        found = self._beside.classify.run(work, collection, job=job, timings=timings)
        unknown = _unknown(found.items)
        names = {n: item.id for n, item in work.accepted.items() if n in unknown and not item.chunk}
        with timings.phase("store"):
            lines = self._lines.texts(collection, list(dict.fromkeys(names.values())))
        failed = {n: lines[name] for n, name in names.items() if name in lines}
        texts = {n: one for n, one in failed.items() if not isinstance(one, Failed)}
        for n, fault in failed.items():
            if isinstance(fault, Failed):
                found.items[n] = fault
        if not texts:
            return found
        items = tuple(ClassifyItem(text=one.data) for one in texts.values())
        params = work.params.model_copy(update={"collection": None})
        read = self._beside.classify.run(
            replace(work, params=params, items=items), None, job=job, timings=timings
        )
        for (n, one), labelled in zip(texts.items(), read.items, strict=True):
            found.items[n] = labelled.model_copy(update={"id": one.id})
        return found

    def reconstruct(
        self,
        work: Slice[ReconstructParams, ReconstructItem],
        collection: Collection,
        *,
        timings: Timings,
    ) -> Result[StoredText | Guess]:
        """Read lines by their ids, and what is no line as documents."""
        names = {
            n: item.id
            for n, item in work.accepted.items()
            if not item.vector and not item.chunk and line_place(item.id) is not None
        }
        with timings.phase("restore"):
            lines = self._lines.texts(collection, list(names.values()))
        found: dict[int, StoredText | Guess | Failed] = {
            n: lines[name] for n, name in names.items() if name in lines
        }
        others = [n for n in work.accepted if n not in found]
        if others:
            rest = replace(work, items=tuple(work.items[n] for n in others))
            texts = self._beside.reconstruct.run(rest, collection, timings=timings)
            found |= dict(zip(others, texts.items, strict=True))
        return Result(work.answered(found))

    def cluster(
        self,
        work: Slice[ClusterParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Clustered]:
        """Group lines by their statements, and records beside them.

        Raises:
            RequestInvalid: there are more records, or statements to compare, than are grouped.
        """
        asked = work.params
        found = self._cluster.run(collection, asked)
        if self._documents.holdings(collection.name).documents:
            method = asked.method or Method.TEMPLATES
            named = replace(work, params=asked.model_copy(update={"method": method}))
            records = self._beside.cluster.run(named, collection, on_progress=on_progress).only
            groups = sorted((*found.groups, *records.groups), key=lambda group: -group.size)
            found = Clustered(
                records=found.records + records.records,
                clusters=found.clusters + records.clusters,
                alone=found.alone + records.alone,
                unread=found.unread + records.unread,
                groups=tuple(groups[: asked.limit]),
            )
        return Result([found])

    def project(
        self,
        work: Slice[ProjectParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,  # noqa: ARG002 - of all projections
    ) -> Result[Projected]:
        """Draw statements as a map; records beside them are not drawn.

        Raises:
            KindUnsupported: they were to be coloured by a label.
        """
        return Result([self._projection.run(collection, work.params)])

    def page(self, work: Slice[ListParams, NoItem], collection: Collection) -> Result[DocumentPage]:
        """List lines and records.

        Raises:
            RequestInvalid: the cursor is none of this list.
            RecordCorrupt: a block does not read back.
        """
        return self._list.page(work, collection)

    def lines(self, work: Slice[LinesParams, NoItem], collection: Collection) -> Result[LinesPage]:
        """Return a page of lines.

        Raises:
            RequestInvalid: the cursor is none of this list.
            RecordCorrupt: a block does not read back.
        """
        return self._query.run(work, collection)

    def volume(self, work: Slice[VolumeParams, NoItem], collection: Collection) -> Result[Volume]:
        """Count lines by time.

        Raises:
            RequestInvalid: there are too many intervals.
        """
        return Result([self._volume.volume(collection, work.params)])

    def labels(self, work: Slice[LabelsParams, NoItem], collection: Collection) -> Result[Labels]:
        """Count lines by label."""
        return Result([self._volume.labels(collection, work.params)])

    def statements(
        self, work: Slice[StatementsParams, NoItem], collection: Collection
    ) -> Result[Statements]:
        """List the statements of lines."""
        return Result([self._statements.run(collection, work.params)])

    def count(
        self,
        work: Slice[CountParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Counted]:
        """Count the lines and records that a filter passes."""
        lines = self._counts.by_stream(collection, work.params.filter, on_progress=on_progress)
        found = self._beside.matching.count(work, collection, on_progress=on_progress).only
        total = found.documents + lines.total()
        return Result([found.model_copy(update={"documents": total})])

    def facets(
        self,
        work: Slice[FacetsParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Facets]:
        """Count the values of labels over lines, and of metadata over records.

        Raises:
            RequestInvalid: a filter passes more records than are read.
        """
        lines = self._counts.by_stream(collection, work.params.filter, on_progress=on_progress)
        labels = self._counts.labels(collection)
        besides = [(dict(labels.get(stream, {})), count) for stream, count in lines.items()]
        return self._beside.matching.facets(
            work, collection, on_progress=on_progress, besides=besides
        )

    def update(
        self, work: Slice[UpdateParams, UpdateItem], collection: Collection, *, seq: int
    ) -> SliceOutcome:
        """Change the metadata of records; a line has the labels of its stream."""
        lines = {n for n, item in work.accepted.items() if line_place(item.id) is not None}
        refused = Failed.of(
            KindUnsupported("a line has the labels of its stream: send it with others instead")
        )
        items = tuple(item for n, item in enumerate(work.items) if n not in lines)
        done = self._beside.matching.update(replace(work, items=items), collection, seq=seq)
        rest = iter(done.result.items)
        rows = [
            refused.model_copy(update={"id": work.accepted[n].id}) if n in lines else next(rest)
            for n in range(len(work.items))
        ]
        return replace(done, result=Result(rows, done.result.timings_ms))

    def delete(self, work: Slice[DeleteParams, DeleteItem], collection: Collection) -> SliceOutcome:
        """Delete lines and records by their ids."""
        ids = list(dict.fromkeys(item.id for item in work.accepted.values()))
        live = {*self._beside.reader.live(collection, ids)}
        gone = self._management.delete(collection, [one for one in ids if one not in live])
        found = {
            index: Deleted(id=item.id, deleted=item.id in live or item.id in gone)
            for index, item in work.accepted.items()
        }
        deletes = [Delete(one) for one in ids if one not in gone]
        return SliceOutcome(
            Result(work.answered(found)), deletes=deletes, collection=collection.name
        )

    def delete_matching(
        self,
        work: Slice[DeleteMatchingParams, PartItem],
        collection: Collection,
        *,
        seq: int,
        on_progress: OnProgress,
    ) -> SliceOutcome:
        """Delete the lines and records that a filter passes; the first part has all lines."""
        lines = 0
        if any(item.part == 0 for item in work.accepted.values()):
            lines = self._management.delete_matching(
                collection, work.params.filter, on_progress=on_progress
            )
        done = self._beside.matching.delete(work, collection, seq=seq, on_progress=on_progress)
        for index, item in work.accepted.items():
            one = done.result.items[index]
            if item.part == 0 and isinstance(one, DeletedMatching):
                done.result.items[index] = DeletedMatching(deleted=one.deleted + lines)
        return done

    def rows(self, work: Slice[RowsParams, RowsItem], collection: Collection) -> Result[Rows]:
        """Return lines and records with a label, to train a head on."""
        found = self._beside.rows.run(work, collection)
        for index, item in work.accepted.items():
            records = found.items[index]
            if isinstance(records, Rows):
                left = replace(item, most=item.most - len(records.ids))
                lines = self._rows.run(work.params, left, collection)
                found.items[index] = Rows(
                    ids=(*records.ids, *lines.ids),
                    labels=(*records.labels, *lines.labels),
                    data=records.data + lines.data,
                )
        return found

    def statistics(self, collection: Collection, found: Statistics) -> Statistics:
        """Add what is held of lines to the statistics of a collection's records."""
        held = self._management.statistics(collection)
        kept = found.kept
        if kept is not None:
            memory = kept.bytes_memory + held.bytes_memory
            kept = kept.model_copy(
                update={"bytes_lines": held.bytes_memory, "bytes_memory": memory}
            )
        return found.model_copy(
            update={
                "lines": held,
                "kept": kept,
                "documents": found.documents + held.lines,
                "verified": found.verified + held.verified,
                "bytes_text": found.bytes_text + held.bytes_text,
            }
        )

    def scrub(self, collection: Collection, asked: BucketRange, found: Scrubbed) -> Scrubbed:
        """Add what a scrub finds of the lines of the buckets that were scrubbed."""
        if asked.since is not None:
            return found
        read = replace(asked, count=found.buckets)
        lines = self._scrub.run(collection, read)
        counts = {name: getattr(found, name) + getattr(lines, name) for name in SCRUB_COUNTS}
        return Scrubbed.of(found.buckets, counts, (*found.ids, *lines.ids))


def _unknown(items: Sequence[Any]) -> set[int]:
    """Return which results say that there is no such document."""
    return {
        n
        for n, one in enumerate(items)
        if isinstance(one, Failed) and one.error.code == DocumentUnknown.code
    }


def _joined(lines: Hits | Failed, records: Hits | Failed, asked: SearchParams) -> Hits | Failed:
    """Join the statements and the records that answer one query, best first."""
    if isinstance(lines, Failed):
        return lines
    if isinstance(records, Failed):
        return records
    # A cosine of rounded vectors may be above 1, which lines have that hold all that was asked.
    most = np.inf if asked.mode is SearchMode.SPARSE else 1.0
    hits = sorted((*lines.hits, *records.hits), key=lambda hit: -min(hit.score, most))
    return Hits(hits=tuple(hits[: asked.limit]))


def _read_by(hit: Hit, score: float, asked: SearchParams) -> Hit:
    """Return a hit with the score of the head that read it."""
    update: dict[str, Any] = {"rerank_score": score}
    if asked.explain:
        parts = {} if hit.explain is None else hit.explain.model_dump(exclude_none=True)
        parts |= {"rerank_score": score, "rerank_share": asked.rerank_share}
        update["explain"] = Explanation(**parts)
    return hit.model_copy(update=update)


def _without_text(hit: Hit) -> Hit:
    return hit.model_copy(update={"text": None, "text_base64": None, "lines": ()})
