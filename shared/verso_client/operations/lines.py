"""Lines of log collections: send them, and ask for them in order."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from verso_client.exchange import Call, Reply, Steps, path_of
from verso_client.operations.jobs import answered_one, new_key, results, wait
from verso_core.errors import SourceMoved, Unavailable
from verso_core.jobs import Status
from verso_core.jobs.logs.lines import LinesIngested, LinesRequest
from verso_core.jobs.logs.time_formats import AUTO
from verso_core.jobs.logs.views import (
    LabelsAnswer,
    LabelsRequest,
    LinesWhere,
    StatementsAnswer,
    StatementsRequest,
    VolumeAnswer,
    VolumeRequest,
)
from verso_core.jobs.models import OpenModel

BODY_BYTES = 8 << 20
_NDJSON = "application/x-ndjson"
_PLAIN = "text/plain"
_FIELDS = {"text_field": "text", "time_field": "time"}
_OPEN_JOBS = 3


class LinesReport(OpenModel):
    """Result of one :meth:`Client.ingest_lines`."""

    jobs: tuple[str, ...]
    lines: int
    records: int
    bytes_text: int
    bytes_stored: int
    shapes: int
    statements: int


@dataclass(frozen=True, slots=True)
class SourceLines:
    """Lines, or log records, that are a part of a source, such as a file.

    Attributes:
        source: its name, 1..256 characters.
        begin: where in the source they begin.
        end: where they end.
        body: lines, each with its line end but perhaps the last; or NDJSON of records with
            ``text`` or ``text_base64``, and ``time`` as Unix nanoseconds.
        records: whether they are records.
    """

    source: str
    begin: int
    end: int
    body: bytes
    records: bool = False


def ingest_lines(
    parts: Iterable[bytes],
    *,
    collection: str,
    labels: Mapping[str, str],
    records: bool = False,
    time_format: str = AUTO,
    progress: Callable[[int], None] | None = None,
) -> Steps[LinesReport]:
    """Send lines, a few bodies at a time, and wait until all have been stored."""
    jobs = _Jobs(progress)
    for part in parts:
        sent = _Body(part, records, time_format)
        yield from jobs.add((yield from _submit(sent, collection=collection, labels=labels)))
    return (yield from jobs.report())


def ingest_source(
    read: Callable[[int], SourceLines | None],
    *,
    collection: str,
    labels: Mapping[str, str],
    time_format: str = AUTO,
    progress: Callable[[int], None] | None = None,
) -> Steps[LinesReport]:
    """Send the lines of a source that were not accepted before, and wait until all are stored."""
    jobs = _Jobs(progress)
    part = read(0)
    while part is not None:
        sent = _Body(part.body, part.records, time_format, part)
        try:
            job = yield from _submit(sent, collection=collection, labels=labels)
        except SourceMoved as error:
            part = read(error.position)
        else:
            yield from jobs.add(job)
            part = read(part.end)
    return (yield from jobs.report())


def append(
    part: SourceLines, *, collection: str, labels: Mapping[str, str], time_format: str = AUTO
) -> Steps[int]:
    """Have a part of a source accepted, and return how far the source is accepted then.

    That is elsewhere than the part's end if the part was not the next one: nothing was accepted.
    """
    sent = _Body(part.body, part.records, time_format, part)
    call = _call(sent, collection=collection, labels=labels)
    try:
        _job_of((yield call))  # else another server has answered, and nothing is accepted
    except SourceMoved as error:
        return error.position
    return part.end


@dataclass(frozen=True, slots=True)
class _Body:
    """A body of lines or of records, and the part of a source that it is."""

    data: bytes
    records: bool
    time_format: str
    part: SourceLines | None = None


@dataclass(slots=True)
class _Jobs:
    """Jobs that store lines, a few open at a time; ``progress`` gets how many are stored."""

    progress: Callable[[int], None] | None
    ids: list[str] = field(default_factory=list)
    open: deque[str] = field(default_factory=deque)
    found: list[LinesIngested] = field(default_factory=list)

    def add(self, job: str) -> Steps[None]:
        """Add a job; wait for the oldest one if too many are open."""
        self.ids.append(job)
        self.open.append(job)
        if len(self.open) >= _OPEN_JOBS:
            yield from self._end_one()

    def report(self) -> Steps[LinesReport]:
        """Wait for all jobs and return what became of their lines."""
        while self.open:
            yield from self._end_one()
        sums = {
            name: sum(getattr(one, name) for one in self.found)
            for name in ("lines", "records", "bytes_text", "bytes_stored", "shapes", "statements")
        }
        return LinesReport(jobs=tuple(self.ids), **sums)

    def _end_one(self) -> Steps[None]:
        self.found.extend((yield from _ended(self.open.popleft())))
        if self.progress is not None:
            self.progress(sum(one.lines for one in self.found))


def _submit(body: _Body, *, collection: str, labels: Mapping[str, str]) -> Steps[str]:
    """Send a body and return the job that stores its lines."""
    key = {"Idempotency-Key": new_key()}
    return _job_of((yield _call(body, collection=collection, labels=labels, headers=key)))


def _job_of(reply: Reply) -> str:
    """Return the id of the job that an answer names.

    Raises:
        Unavailable: it names none, so it is not the platform's.
    """
    row = reply.json()
    if not isinstance(row, dict) or "id" not in row:
        raise Unavailable(f"expected a job, got another answer with status {reply.status}")
    return str(row["id"])


def _call(
    body: _Body,
    *,
    collection: str,
    labels: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
) -> Call:
    params: dict[str, str | tuple[str, ...]] = {
        "collection": collection,
        "label": tuple(f"{name}={value}" for name, value in labels.items()),
    }
    if body.part is not None:
        params |= {
            "source": body.part.source,
            "source_begin": str(body.part.begin),
            "source_end": str(body.part.end),
        }
    if body.records:
        params |= _FIELDS
    elif body.time_format != AUTO:
        params["time_format"] = body.time_format
    sent = {
        "Content-Type": _NDJSON if body.records else _PLAIN,
        "Prefer": "respond-async",
        **(headers or {}),
    }
    return Call("POST", path_of("ingest"), params=params, content=body.data, headers=sent)


def query_call(request: LinesRequest) -> Call:
    """Return the call that streams lines; each page has a minute, as a late one breaks it off."""
    body = request.model_dump(mode="json", exclude_unset=True, by_alias=True)
    return Call(
        "POST",
        path_of("logs", "query"),
        content=json.dumps(body).encode("ascii"),
        headers={"Content-Type": "application/json", "Prefer": "wait=60"},
    )


def volume(request: VolumeRequest) -> Steps[VolumeAnswer]:
    """Count lines by time."""
    row = yield from answered_one(_view_call("volume", request))
    return VolumeAnswer.model_validate(row)


def labels(request: LabelsRequest) -> Steps[LabelsAnswer]:
    """List labels, or the values of one."""
    row = yield from answered_one(_view_call("labels", request))
    return LabelsAnswer.model_validate(row)


def statements(request: StatementsRequest) -> Steps[StatementsAnswer]:
    """List the statements of lines."""
    row = yield from answered_one(_view_call("statements", request))
    return StatementsAnswer.model_validate(row)


def _view_call(name: str, request: LinesWhere) -> Call:
    given = request.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude_none=True)
    params = {
        key: json.dumps(value) if key == "filter" else str(value) for key, value in given.items()
    }
    return Call("GET", path_of("logs", name), params=params)


def _ended(job_id: str) -> Steps[list[LinesIngested]]:
    job = yield from wait(job_id)
    if job.status is not Status.SUCCEEDED:
        raise job.exception()
    rows = yield from results(job_id)
    return [LinesIngested.model_validate(row) for row in rows]
