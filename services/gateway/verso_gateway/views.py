"""Ledger records and results as the classes and JSON objects that callers see."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from verso_core.errors import RequestInvalid
from verso_core.jobs import AnyResult, Collection, Failed, ItemError, Result
from verso_core.jobs.documents import DocumentInfo
from verso_core.jobs.job import DeadLetterView, Job, JobFailure, JobFailures
from verso_core.jobs.migrate import Migration, MigrationState
from verso_core.jobs.models import moment
from verso_core.jobs.moves import Move, MoveView
from verso_core.jobs.scrub import Damaged, RecentWalk, ScrubState
from verso_core.result_files import ResultFiles, is_reference
from verso_gateway.bodies import reading
from verso_gateway.job_service import Ended
from verso_ledger import AsyncLedger, DeadLetter, DocumentRow, JobRecord, Scrub, SliceFailures
from verso_ledger.ledgers.groups import JobGroup

_SLICES_LOOKED_AT = 256
"""Slices that one page of failures looks at."""
_FAILURES_CURSOR = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{0,12})")


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


def move(state: Move) -> MoveView:
    """Describe a move to another ledger."""
    part = 1.0 - state.left / state.units if state.units else 0.0
    return MoveView(
        collection=state.collection,
        source=state.source,
        target=state.target,
        stage=state.stage,
        part=round(max(0.0, part), 4),
        bytes_copied=state.bytes_copied,
        paused_s=state.paused_ms / 1000,
        reason=state.reason,
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


def scrub_of_all(states: Sequence[ScrubState]) -> ScrubState:
    """Describe the passes of several ledgers as one, which has ended when each has."""
    if len(states) == 1:
        return states[0]
    running = [one for one in states if one.running]
    counted = {
        name: sum(getattr(one, name) for one in states)
        for name in ("documents", "sound", "repaired", "damaged", "bytes", "unread", "orphans")
    }
    ended = [one.ended for one in states]
    return (running or states)[0].model_copy(
        update={
            **counted,
            "number": min(one.number for one in states),
            "running": bool(running),
            "asked": any(one.asked for one in states),
            "progress": round(sum(one.progress for one in states) / len(states), 4),
            "recent": next((one.recent for one in states if one.recent is not None), None),
            "started": min((one.started for one in states if one.started), default=None),
            "ended": None if None in ended else max(filter(None, ended)),
            "damaged_documents": tuple(one for own in states for one in own.damaged_documents),
        }
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


class FailuresPage:
    """A page of the items of a job that failed, in order.

    The results of slices without failed items are not read. Of a job that runs, slices that are
    not done yet are passed over.

    Args:
        ledger: where the job is.
        files: the files of large results.
        record: the job.
        limit: failures after which the page ends.
    """

    def __init__(
        self, ledger: AsyncLedger | JobGroup, files: ResultFiles, record: JobRecord, *, limit: int
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._record = record
        self._limit = limit

    async def read(self, place: FailuresPlace) -> JobFailures:
        """Return the page that begins at a place.

        Raises:
            ResultLost: a file is gone or damaged.
            ResultsUnavailable: the folder cannot be read.
        """
        record = self._record
        count = min(_SLICES_LOOKED_AT, max(0, record.slices - place.slice))
        if not record.n_err:
            return JobFailures(failures=())
        if record.parts:  # slices are those of one partition after the other
            place = replace(place, item=None)
        known = await self._ledger.failures(record.job_id, first=place.slice, count=count)
        found: list[JobFailure] = []
        for one in known:
            rows, items = await self._of_slice(place, one)
            left = self._limit - len(found)
            found += rows[place.index :][:left]
            if len(rows) - place.index > left:
                following = FailuresPlace(place.slice, place.index + left, place.item)
                return JobFailures(failures=tuple(found), next_cursor=following.cursor)
            item = None if place.item is None or items is None else place.item + items
            place = FailuresPlace(place.slice + 1, 0, item)
        more = place.slice < record.slices
        return JobFailures(failures=tuple(found), next_cursor=place.cursor if more else None)

    async def _of_slice(
        self, place: FailuresPlace, known: SliceFailures
    ) -> tuple[list[JobFailure], int | None]:
        """Return the failures of a slice, and how many items it has."""
        if known.error is not None:
            error = ItemError(**known.error)
            return [JobFailure(item=place.item, items=known.items or 1, error=error)], known.items
        if not known.in_result:
            return [], known.items
        job_id, number = self._record.job_id, place.slice
        [data] = await self._ledger.results(job_id, first=number, count=1)
        if data is None:
            return [], known.items
        if is_reference(data):
            data = await asyncio.to_thread(self._files.read, *self._record.place(number), data)
        result = await reading.off_loop(len(data), partial(Result.unpack, self._record.kind, data))
        rows = [
            _failure(item, None if place.item is None else place.item + n)
            for n, item in enumerate(result.items)
            if isinstance(item, Failed)
        ]
        return rows, len(result.items)


@dataclass(frozen=True, slots=True)
class FailuresPlace:
    """Where a page of failures begins.

    Attributes:
        slice: number of the slice.
        index: how many of its failures are on pages before.
        item: place of the slice's first item in the request; None if it is not known.
    """

    slice: int = 0
    index: int = 0
    item: int | None = 0

    @property
    def cursor(self) -> str:
        """Write the place as a cursor."""
        return f"{self.slice}.{self.index}.{'' if self.item is None else self.item}"

    @classmethod
    def read(cls, cursor: str | None) -> FailuresPlace:
        """Read a cursor; without one the list begins.

        Raises:
            RequestInvalid: it is none of such a list.
        """
        if cursor is None:
            return cls()
        found = _FAILURES_CURSOR.fullmatch(cursor)
        if found is None:
            raise RequestInvalid("expected a cursor of this list")
        return cls(int(found[1]), int(found[2]), int(found[3]) if found[3] else None)


def _failure(failed: Failed, item: int | None) -> JobFailure:
    about = {name: getattr(failed, name) for name in ("id", "chunk")}
    named = {name: value for name, value in about.items() if value is not None}
    return JobFailure(item=item, error=failed.error, **named)


class Page:
    """A page of a job's results as JSON: slices that follow each other.

    A page may hold a thousand slices of vectors. Results from the ledger are in memory already;
    results in files are read, rendered and sent one at a time. All files are read once before the
    first byte is sent, so a lost result is an error of its own and no answer breaks off.

    Args:
        files: the files of large results.
        record: the job.
        first: number of the first slice.
        held: what the ledger holds of each slice's result.
    """

    def __init__(
        self, files: ResultFiles, record: JobRecord, *, first: int, held: Sequence[bytes]
    ) -> None:
        self._files = files
        self._record = record
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
            result = Result.unpack(self._record.kind, frame)
            items = rendered([result], vectors_base64=vectors_base64)
            if items:
                yield comma + orjson.dumps(items)[1:-1]
                comma = b","
        yield b"]}"

    async def _read(self, number: int, held: bytes) -> bytes:
        return await asyncio.to_thread(self._files.read, *self._record.place(number), held)
