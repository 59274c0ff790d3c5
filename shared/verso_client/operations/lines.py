"""Lines of log collections: send them, and ask for them in order."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from verso_client.exchange import Call, Steps, path_of
from verso_client.operations.jobs import answered_one, new_key, results, wait
from verso_core.errors import SourceMoved
from verso_core.jobs import Status
from verso_core.jobs.lines import LinesIngested, LinesRequest
from verso_core.jobs.log_views import (
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


def bodies(stream: IO[bytes], *, size: int = BODY_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file in parts that end with a line, but perhaps the last."""
    rest = b""
    while data := stream.read(size):
        whole = rest + data
        end = whole.rfind(b"\n") + 1
        rest = whole[end:]
        if end:
            yield whole[:end]
    if rest:
        yield rest


def ingest_lines(
    parts: Iterable[bytes],
    *,
    collection: str,
    labels: Mapping[str, str],
    records: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Steps[LinesReport]:
    """Send lines, a few bodies at a time, and wait until all have been stored."""
    waiting: deque[str] = deque()
    jobs: list[str] = []
    found: list[LinesIngested] = []

    def ended() -> Steps[None]:
        found.extend((yield from _ended(waiting.popleft())))
        if progress is not None:
            progress(sum(one.lines for one in found))

    for part in parts:
        job = yield from submit_lines(part, collection=collection, labels=labels, records=records)
        jobs.append(job)
        waiting.append(job)
        if len(waiting) >= _OPEN_JOBS:
            yield from ended()
    while waiting:
        yield from ended()
    sums = {
        name: sum(getattr(one, name) for one in found)
        for name in ("lines", "records", "bytes_text", "bytes_stored", "shapes", "statements")
    }
    return LinesReport(jobs=tuple(jobs), **sums)


def submit_lines(
    body: bytes, *, collection: str, labels: Mapping[str, str], records: bool = False
) -> Steps[str]:
    """Send lines, or NDJSON of records, and return the job that stores them."""
    headers = {
        "Content-Type": _NDJSON if records else _PLAIN,
        "Idempotency-Key": new_key(),
        "Prefer": "respond-async",
    }
    params: dict[str, str | tuple[str, ...]] = {
        "collection": collection,
        "label": tuple(f"{name}={value}" for name, value in labels.items()),
    }
    if records:
        params |= _FIELDS
    reply = yield Call("POST", path_of("ingest"), params=params, content=body, headers=headers)
    return str(reply.json()["id"])


def append(part: SourceLines, *, collection: str, labels: Mapping[str, str]) -> Steps[int]:
    """Have a part of a source accepted, and return how far the source is accepted then.

    That is elsewhere than the part's end if the part was not the next one: nothing was accepted.
    """
    params: dict[str, str | tuple[str, ...]] = {
        "collection": collection,
        "label": tuple(f"{name}={value}" for name, value in labels.items()),
        "source": part.source,
        "source_begin": str(part.begin),
        "source_end": str(part.end),
    }
    if part.records:
        params |= _FIELDS
    headers = {
        "Content-Type": _NDJSON if part.records else _PLAIN,
        "Prefer": "respond-async",
    }
    call = Call("POST", path_of("ingest"), params=params, content=part.body, headers=headers)
    try:
        yield call
    except SourceMoved as error:
        return error.position
    return part.end


def query_call(request: LinesRequest) -> Call:
    """Return the call that streams lines."""
    return Call(
        "POST",
        path_of("logs", "query"),
        content=request.model_dump_json(exclude_unset=True, by_alias=True).encode(),
        headers={"Content-Type": "application/json"},
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
