"""Ledger records and results as the classes and JSON objects that callers see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import orjson

from verso_core.jobs import AnyResult, Collection, ItemError, Kind, Result
from verso_core.jobs.documents import DocumentInfo
from verso_core.jobs.job import DeadLetterView, Job
from verso_core.jobs.migrate import Migration, MigrationState
from verso_core.jobs.models import moment
from verso_core.jobs.scrub import Damaged, RecentWalk, ScrubState
from verso_core.result_files import ResultFiles, is_reference
from verso_gateway.job_service import Ended
from verso_ledger import DeadLetter, DocumentRow, JobRecord, Scrub


def job(record: JobRecord) -> Job:
    """Describe a job. Times are ISO 8601, UTC."""
    return Job(
        id=record.job_id,
        kind=record.kind,
        status=record.status,
        items=record.items,
        ok=record.n_ok,
        failed=record.n_err,
        slices=record.slices,
        slices_done=record.done,
        attempts=record.attempts,
        urgency=record.urgency,
        created=moment(record.created),
        started=moment(record.started),
        finished=moment(record.finished),
        deadline=moment(record.deadline),
        error=None if record.error is None else ItemError(**record.error),
    )


def dead_letter(letter: DeadLetter) -> DeadLetterView:
    """Describe a dead letter; its text is not shown."""
    return DeadLetterView(
        job_id=letter.job_id,
        slice=letter.number,
        kind=letter.kind,
        phase=letter.phase,
        items=letter.items,
        bytes=letter.size_bytes,
        crashes=letter.crashes,
        errors=letter.errors,
        error=ItemError(**letter.error),
        died=moment(letter.died),
    )


def batch(ended: Ended, *, vectors_base64: bool = False) -> dict[str, Any]:
    """Describe a job that ended, with a result or an error for every item, in order."""
    return {
        **job(ended.record).public(),
        "results": rendered(ended.results, vectors_base64=vectors_base64),
        "timings_ms": total_timings(ended.results),
    }


def rendered(results: Iterable[AnyResult], *, vectors_base64: bool = False) -> list[dict[str, Any]]:
    """Return the items of some slices' results as JSON objects, in order.

    Args:
        results: what the worker committed.
        vectors_base64: vectors as base64 of float32 (little endian), not as numbers.
    """
    return [
        item.public(vectors_base64=vectors_base64) for result in results for item in result.items
    ]


def total_timings(results: Iterable[AnyResult]) -> dict[str, float]:
    """Sum the slices' timings by phase, ms."""
    total: dict[str, float] = {}
    for result in results:
        for phase, ms in result.timings_ms.items():
            total[phase] = round(total.get(phase, 0.0) + ms, 3)
    return total


def server_timing(results: Iterable[AnyResult]) -> str:
    """Return the slices' timings as a Server-Timing header (W3C Server Timing)."""
    return ", ".join(f"{phase};dur={ms:g}" for phase, ms in total_timings(results).items())


def document(row: DocumentRow) -> DocumentInfo:
    """Describe a stored document."""
    return DocumentInfo(id=row.id, written=row.seq, bytes=row.size_bytes, verified=row.verified)


def migration(state: Migration) -> MigrationState:
    """Describe a migration; the own names of its two sides are not for callers."""
    return MigrationState(
        collection=state.collection,
        stage=state.stage,
        codec=state.codec,
        in_place=state.in_place,
        pass_number=state.number,
        progress=round(min(1.0, state.bucket / state.buckets), 4) if state.running else 1.0,
        copied=state.copied,
        removed=state.removed,
        unread=state.unread,
        old_removed=state.old_removed,
        started=moment(state.started),
        ended=moment(state.ended),
    )


def scrub(state: Scrub, collections: Mapping[str, Collection]) -> ScrubState:
    """Describe the newest pass of the scrub, and the walk over recent documents before it."""
    return ScrubState(
        number=state.number,
        state=state.stage,
        running=state.running,
        asked=state.asked,
        progress=round(state.progress(collections), 4),
        recent=_recent(state, collections),
        started=moment(state.started),
        ended=moment(state.ended),
        **state.counts,
        damaged_documents=tuple(
            Damaged(collection=one.collection, id=one.document) for one in state.damaged
        ),
    )


def _recent(state: Scrub, collections: Mapping[str, Collection]) -> RecentWalk | None:
    walked = state.recent_walked(collections)
    if walked is None or state.recent is None:
        return None
    return RecentWalk(
        progress=round(walked.part, 4),
        buckets_done=walked.done,
        buckets=walked.total,
        documents=state.recent.documents,
    )


class Page:
    """A page of a job's results as JSON: slices that follow each other.

    A page may hold a thousand slices of vectors. Results from the ledger are in memory already;
    results in files are read, rendered and sent one at a time. All files are read once before the
    first byte is sent, so a lost result is an error of its own and no answer breaks off.

    Args:
        files: the files of large results.
        job_id: the job.
        kind: kind of the job.
        first: number of the first slice.
        held: what the ledger holds of each slice's result.
    """

    def __init__(
        self, files: ResultFiles, job_id: str, *, kind: Kind, first: int, held: Sequence[bytes]
    ) -> None:
        self._files = files
        self._job_id = job_id
        self._kind = kind
        self._rows = list(enumerate(held, first))

    async def check(self) -> None:
        """Read every file once.

        Raises:
            ResultLost: a file is gone or damaged.
            ResultsUnavailable: the folder cannot be read.
        """
        for number, held in self._rows:
            if is_reference(held):
                await self._read(number, held)

    async def json(
        self, head: Mapping[str, Any], *, vectors_base64: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield one JSON object in parts: ``head`` and the page's items as ``results``."""
        yield orjson.dumps(dict(head))[:-1] + b',"results":['
        comma = b""
        for number, held in self._rows:
            frame = await self._read(number, held) if is_reference(held) else held
            result = Result.unpack(self._kind, frame)
            items = rendered([result], vectors_base64=vectors_base64)
            if items:
                yield comma + orjson.dumps(items)[1:-1]
                comma = b","
        yield b"]}"

    async def _read(self, number: int, held: bytes) -> bytes:
        return await asyncio.to_thread(self._files.read, self._job_id, number, held)
