"""Kinds of jobs that read and write lines, and the records beside them."""

from __future__ import annotations

from functools import partial

from verso_core.jobs import Collection, Kind, Result, SearchParams, Slice
from verso_core.jobs.documents import DeleteMatchingParams, PartItem, UpdateItem, UpdateParams
from verso_core.jobs.heads.answer import Answered, AnswerItem, AnswerParams
from verso_core.jobs.ingest import DeleteItem, DeleteParams
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem
from verso_worker.rules.kinds.call import Call, CollectionRule, reading, reporting, timed, viewing
from verso_worker.rules.kinds.composition import DocumentRules, LogRules
from verso_worker.rules.kinds.documents import answered, feedback
from verso_worker.rules.kinds.heads import HeadJobs
from verso_worker.rules.logs.joined.changes import JoinedChanges
from verso_worker.rules.logs.joined.search import JoinedSearch
from verso_worker.rules.ports.outcome import SliceOutcome


def log_table(
    rules: LogRules, records: DocumentRules, jobs: HeadJobs
) -> dict[Kind, CollectionRule]:
    """Return the rule of each kind in a log collection.

    A kind that is not there runs by the rule of documents: it concerns the records beside lines.
    """
    texts, changes, counts = rules.texts, rules.changes, rules.counts
    return {
        Kind.INGEST_LINES: partial(_ingest, rules),
        Kind.LINES: reading(rules.query.run),
        Kind.VOLUME: viewing(rules.volume.volume),
        Kind.LABELS: viewing(rules.volume.labels),
        Kind.STATEMENTS: viewing(rules.statements.run),
        Kind.DELETE: partial(_delete, changes),
        Kind.SEARCH: jobs.search(rules.search.run),
        Kind.CLASSIFY: jobs.classify(texts.classify),
        Kind.FEEDBACK: feedback(records.feedback, texts.classify),
        Kind.ANSWER: jobs.answer(partial(_answered, rules.search, records)),
        Kind.RECONSTRUCT: timed(texts.reconstruct),
        Kind.CLUSTER: reporting(rules.cluster.run),
        Kind.PROJECT: viewing(rules.projection.run),
        Kind.ROWS: reading(rules.rows.run),
        Kind.LIST: reading(rules.lines.page),
        Kind.COUNT: reporting(counts.count),
        Kind.FACETS: reporting(counts.facets),
        Kind.UPDATE: partial(_update, changes),
        Kind.DELETE_MATCHING: partial(_delete_matching, changes),
    }


def _ingest(
    rules: LogRules,
    work: Slice[IngestLinesParams, LinesItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return rules.ingest.run(work, collection, seq=call.seq, timings=call.timings)


def _answered(
    search: JoinedSearch,
    records: DocumentRules,
    work: Slice[AnswerParams, AnswerItem],
    collection: Collection,
    job: str | None,
    call: Call,
) -> Result[Answered]:
    asked = SearchParams(
        collection=collection.name,
        limit=work.params.limit,
        mode=collection.search,
        filter=work.params.filter,
    )
    find = partial(search.find, collection, asked=asked, timings=call.timings)
    return answered(records, work, collection, job, call, find)


def _delete(
    changes: JoinedChanges, work: Slice[DeleteParams, DeleteItem], collection: Collection, _: Call
) -> SliceOutcome:
    return changes.delete(work, collection)


def _update(
    changes: JoinedChanges,
    work: Slice[UpdateParams, UpdateItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return changes.update(work, collection, seq=call.seq)


def _delete_matching(
    changes: JoinedChanges,
    work: Slice[DeleteMatchingParams, PartItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return changes.delete_matching(work, collection, seq=call.seq, on_progress=call.on_progress)
