"""What callers see of jobs and collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from verso_core.jobs import Collection, Kind, Result
from verso_core.jobs.migration import Migration
from verso_gateway import results
from verso_gateway.job_service import Ended
from verso_ledger import DeadLetter, DocumentRow, JobRecord, Scrub


def job(record: JobRecord) -> dict[str, Any]:
    """Describe a job. Times are ISO 8601, UTC."""
    return {
        "id": record.job_id,
        "kind": record.kind,
        "status": record.status,
        "items": record.items,
        "ok": record.n_ok,
        "failed": record.n_err,
        "slices": record.slices,
        "slices_done": record.done,
        "attempts": record.attempts,
        "urgency": record.urgency,
        "created": _moment(record.created),
        "started": _moment(record.started),
        "finished": _moment(record.finished),
        "deadline": _moment(record.deadline),
        "error": record.error,
    }


def dead_letter(letter: DeadLetter) -> dict[str, Any]:
    """Describe a dead letter; its text is not shown."""
    return {
        "job_id": letter.job_id,
        "slice": letter.number,
        "kind": letter.kind,
        "phase": letter.phase,
        "items": letter.items,
        "bytes": letter.size_bytes,
        "crashes": letter.crashes,
        "errors": letter.errors,
        "error": letter.error,
        "died": _moment(letter.died),
    }


def batch(kind: Kind, ended: Ended, *, vectors_base64: bool = False) -> dict[str, Any]:
    """Describe a job that ended, with a result or an error for every item, in order."""
    return {
        **job(ended.record),
        "results": flat(kind, ended.results, vectors_base64=vectors_base64),
        "timings_ms": results.total_timings(ended.results),
    }


def flat(kind: Kind, found: Sequence[Result], *, vectors_base64: bool = False) -> list[Any]:
    """Join the items of several slices."""
    return [
        item
        for result in found
        for item in results.render(kind, result, vectors_base64=vectors_base64)
    ]


def collection(value: Collection) -> dict[str, Any]:
    """Describe a collection; the key of its checksums is not for callers."""
    return value.model_dump(mode="json", exclude={"checksum_key"})


def document(row: DocumentRow) -> dict[str, Any]:
    """Describe a stored document."""
    return {
        "id": row.id,
        "written": row.seq,
        "bytes": row.size_bytes,
        "verified": row.verified,
    }


def migration(state: Migration) -> dict[str, Any]:
    """Describe a migration; the own names of its two sides are not for callers."""
    return {
        "collection": state.collection,
        "stage": state.stage,
        "codec": state.codec,
        "in_place": state.in_place,
        "pass_number": state.number,
        "progress": round(min(1.0, state.bucket / state.buckets), 4) if state.running else 1.0,
        "copied": state.copied,
        "removed": state.removed,
        "unread": list(state.unread),
        "old_removed": state.old_removed,
        "started": _moment(state.started),
        "ended": _moment(state.ended),
    }


def scrub(state: Scrub, collections: Mapping[str, Collection]) -> dict[str, Any]:
    """Describe the newest pass of the scrub, and the walk over recent documents before it."""
    return {
        "number": state.number,
        "state": state.stage,
        "running": state.running,
        "asked": state.asked,
        "progress": round(state.progress(collections), 4),
        "recent": _recent(state, collections),
        "started": _moment(state.started),
        "ended": _moment(state.ended),
        **state.counts,
        "damaged_documents": [
            {"collection": one.collection, "id": one.document} for one in state.damaged
        ],
    }


def _recent(state: Scrub, collections: Mapping[str, Collection]) -> dict[str, Any] | None:
    walked = state.recent_walked(collections)
    if walked is None or state.recent is None:
        return None
    return {
        "progress": round(walked.part, 4),
        "buckets_done": walked.done,
        "buckets": walked.total,
        "documents": state.recent.documents,
    }


def _moment(time_s: float | None) -> str | None:
    if time_s is None:
        return None
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")
