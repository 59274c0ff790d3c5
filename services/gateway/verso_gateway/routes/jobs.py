"""``/v1/jobs/{id}``: look at a job, follow it, cancel it, run a dead one again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import takewhile
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from verso_core.jobs import Queue, Result
from verso_gateway import answers, events, openapi, prefer, views
from verso_gateway.context import context_of
from verso_gateway.schemas import JobView

router = APIRouter(tags=["jobs"])

_PAGE_SLICES = 16


@router.get(
    "/v1/jobs/{job_id}",
    name="job",
    operation_id="getJob",
    responses=openapi.responses(JobView),
)
async def get(
    request: Request,
    job_id: str,
    cursor: Annotated[int, Query(ge=0, description="from the last page's next_cursor")] = 0,
    limit: Annotated[int, Query(ge=0, le=1024, description="slices a page")] = _PAGE_SLICES,
    encoding: Annotated[Literal["float", "base64"], Query(description="of vectors")] = "float",
) -> Response:
    """Describe a job, with a page of its results: those of its slices that are done, in order.

    A page ends at the first slice that is not done; ``next_cursor`` is null after the last slice.
    ``Prefer: wait=N`` waits until the job ends, at most N seconds.
    """
    context = context_of(request)
    preference = prefer.parse(request.headers.getlist("prefer"))
    wait_s = preference.wait(0.0, max_s=context.settings.wait_max_s)
    record = await context.desk.wait(job_id, wait_s)
    found = await context.ledger.results(job_id, first=cursor, count=limit)
    page = [Result.unpack(data) for data in takewhile(lambda data: data is not None, found) if data]
    rest = cursor + len(page)
    more = rest < record.slices and not (record.status.terminal and len(page) < len(found))
    content = {
        **views.job(record),
        "results": views.flat(record.kind, page, vectors_base64=encoding == "base64"),
        "next_cursor": str(rest) if more else None,
    }
    applied = preference.applied(wait_s)
    return answers.json_response(
        content, headers={} if applied is None else {"Preference-Applied": applied}
    )


@router.get("/v1/jobs/{job_id}/events", name="job_events", operation_id="followJob")
async def follow(
    request: Request,
    job_id: str,
    last_event_id: Annotated[str | None, Header(description="go on after this event")] = None,
) -> Response:
    """Follow a job: server-sent events of its state and progress, the last one is ``end``."""
    context = context_of(request)
    await context.ledger.job(job_id)  # an unknown job is a 404, not an empty stream
    after = events.checked_id(last_event_id)

    async def body() -> AsyncIterator[bytes]:
        with context.metrics.streams.track_inprogress():
            coming = context.ledger.follow(job_id, after)
            async for part in events.stream(coming, closing=context.closing):
                yield part

    return StreamingResponse(body(), media_type="text/event-stream", headers=events.HEADERS)


@router.delete("/v1/jobs/{job_id}", name="job_cancel", operation_id="cancelJob")
async def cancel(request: Request, job_id: str) -> Response:
    """Cancel a job: what has not begun never will. A job that has ended stays as it is."""
    ledger = context_of(request).ledger
    await ledger.cancel(job_id)
    return answers.json_response(views.job(await ledger.job(job_id)))


@router.post("/v1/jobs/{job_id}/replay", name="job_replay", operation_id="replayJob")
async def replay(request: Request, job_id: str) -> Response:
    """Give a dead job a new budget of attempts."""
    context = context_of(request)
    await context.ledger.replay(job_id)
    for queue in (Queue.INTERACTIVE, Queue.BULK):
        context.desk.ring(queue)
    record = await context.ledger.job(job_id)
    return answers.deferred(record, headers={"Verso-Job-Id": job_id})
