"""Kinds of jobs that read and write documents, and texts that are in no collection."""

from __future__ import annotations

from functools import partial
from typing import Any

from verso_core.jobs import Collection, IngestItem, IngestParams, Kind, Result, Slice
from verso_core.jobs.documents import DeleteMatchingParams, PartItem, UpdateItem, UpdateParams
from verso_core.jobs.heads.answer import Answered, AnswerItem, AnswerParams
from verso_core.jobs.heads.feedback import FeedbackItem, FeedbackParams
from verso_core.jobs.ingest import Deleted, DeleteItem, DeleteParams
from verso_worker.rules.answer import Find
from verso_worker.rules.classification.feedback import Feedback
from verso_worker.rules.kinds.call import Call, CollectionRule, reading, reporting, timed
from verso_worker.rules.kinds.composition import DocumentRules
from verso_worker.rules.kinds.heads import HeadJobs, HeadRule
from verso_worker.rules.ports.outcome import Delete, SliceOutcome


def document_table(rules: DocumentRules, jobs: HeadJobs) -> dict[Kind, CollectionRule]:
    """Return the rule of each kind in a collection of documents."""
    return {
        Kind.INGEST: partial(_ingest, rules),
        Kind.DELETE: partial(_delete, rules),
        Kind.SEARCH: jobs.search(rules.search.run),
        Kind.CLASSIFY: jobs.classify(rules.classify.run),
        Kind.FEEDBACK: feedback(rules.feedback, rules.classify.run),
        Kind.ANSWER: jobs.answer(partial(answered, rules)),
        Kind.RECONSTRUCT: timed(rules.reconstruct.run),
        Kind.RECORDS: timed(rules.describe.run),
        Kind.CLUSTER: reporting(rules.cluster.run),
        Kind.PROJECT: reporting(rules.projection.run),
        Kind.ROWS: reading(rules.rows.run),
        Kind.LIST: reading(rules.matching.page),
        Kind.COUNT: reporting(rules.matching.count),
        Kind.FACETS: reporting(rules.matching.facets),
        Kind.UPDATE: partial(_update, rules),
        Kind.DELETE_MATCHING: partial(_delete_matching, rules),
    }


def feedback(rule: Feedback, classify: HeadRule) -> CollectionRule:
    """Return the rule of feedback; ``classify`` says what heads say of its items."""

    def run(
        work: Slice[FeedbackParams, FeedbackItem], collection: Collection | None, call: Call
    ) -> SliceOutcome:
        def classified(asked: Any, job: str | None) -> Result[Any]:
            return classify(asked, collection, job=job, timings=call.timings)

        return SliceOutcome(rule.run(work, collection, classify=classified))

    return run


def answered(
    rules: DocumentRules,
    work: Slice[AnswerParams, AnswerItem],
    collection: Collection | None,
    job: str | None,
    call: Call,
    find: Find | None = None,
) -> Result[Answered]:
    """Answer questions from their own contexts, or from what ``find`` or a search finds."""
    return rules.answer.run(
        work,
        collection,
        job=job,
        timings=call.timings,
        find=find,
        on_part=call.on_part if work.params.stream else None,
    )


def _ingest(
    rules: DocumentRules,
    work: Slice[IngestParams, IngestItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return rules.ingest.run(work, collection, seq=call.seq, timings=call.timings)


def _delete(
    rules: DocumentRules, work: Slice[DeleteParams, DeleteItem], collection: Collection, _: Call
) -> SliceOutcome:
    ids = [item.id for item in work.accepted.values()]
    live = rules.reader.live(collection, ids)
    found = {
        index: Deleted(id=item.id, deleted=item.id in live) for index, item in work.accepted.items()
    }
    # A document that is not there yet may be on its way in: the tombstone is left anyway.
    deletes = list(map(Delete, dict.fromkeys(ids)))
    return SliceOutcome(Result(work.answered(found)), deletes=deletes, collection=collection.name)


def _update(
    rules: DocumentRules,
    work: Slice[UpdateParams, UpdateItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return rules.matching.update(work, collection, seq=call.seq)


def _delete_matching(
    rules: DocumentRules,
    work: Slice[DeleteMatchingParams, PartItem],
    collection: Collection,
    call: Call,
) -> SliceOutcome:
    return rules.matching.delete(work, collection, seq=call.seq, on_progress=call.on_progress)
