"""Kinds of jobs that read and write lines, and the records beside them."""

from __future__ import annotations

from functools import partial

from verso_core.jobs import Collection, Kind, Result, SearchParams, Slice
from verso_core.jobs.documents import DeleteMatchingParams, PartItem, UpdateItem, UpdateParams
from verso_core.jobs.heads.answer import Answered, AnswerItem, AnswerParams
from verso_core.jobs.ingest import DeleteItem, DeleteParams
from verso_core.jobs.lines import IngestLinesParams, LinesItem
from verso_worker.rules.kinds.call import Call, CollectionRule, reading, reporting, timed
from verso_worker.rules.kinds.composition import DocumentRules, LogRules
from verso_worker.rules.kinds.documents import answered, feedback
from verso_worker.rules.kinds.heads import HeadJobs
from verso_worker.rules.logs.operations import LogOperations
from verso_worker.rules.ports.outcome import SliceOutcome


def log_table(
    rules: LogRules, records: DocumentRules, jobs: HeadJobs
) -> dict[Kind, CollectionRule]:
    """Return the rule of each kind in a log collection.

    A kind that is not there runs by the rule of documents: it concerns the records beside lines.
    """
    lines = rules.operations
    return {
        Kind.INGEST_LINES: partial(_ingest, rules),
        Kind.LINES: reading(lines.lines),
        Kind.VOLUME: reading(lines.volume),
        Kind.LABELS: reading(lines.labels),
        Kind.STATEMENTS: reading(lines.statements),
        Kind.DELETE: partial(_delete, lines),
        Kind.SEARCH: jobs.search(lines.search),
        Kind.CLASSIFY: jobs.classify(lines.classify),
        Kind.FEEDBACK: feedback(records.feedback, lines.classify),
        Kind.ANSWER: jobs.answer(partial(_answered, lines, records)),
        Kind.RECONSTRUCT: timed(lines.reconstruct),
        Kind.CLUSTER: reporting(lines.cluster),
        Kind.PROJECT: reporting(lines.project),
        Kind.ROWS: reading(lines.rows),
        Kind.LIST: reading(lines.page),
        Kind.COUNT: reporting(lines.count),
        Kind.FACETS: reporting(lines.facets),
        Kind.UPDATE: partial(_update, lines),
        Kind.DELETE_MATCHING: partial(_delete_matching, lines),
    }


def _ingest(
    rules: LogRules,
    work: Slice[IngestLinesParams, LinesItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return rules.ingest.run(work, collection, seq=call.seq, timings=call.timings)


def _answered(
    lines: LogOperations,
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
    find = partial(lines.find, collection, asked=asked, timings=call.timings)
    return answered(records, work, collection, job, call, find)


def _delete(
    lines: LogOperations, work: Slice[DeleteParams, DeleteItem], collection: Collection, _: Call
) -> SliceOutcome:
    return lines.delete(work, collection)


def _update(
    lines: LogOperations,
    work: Slice[UpdateParams, UpdateItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return lines.update(work, collection, seq=call.seq)


def _delete_matching(
    lines: LogOperations,
    work: Slice[DeleteMatchingParams, PartItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return lines.delete_matching(work, collection, seq=call.seq, on_progress=call.on_progress)
