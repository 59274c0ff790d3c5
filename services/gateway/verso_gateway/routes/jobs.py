"""``/v1/jobs``: list, show, follow, cancel, what failed; ``/v1/dead-letters``: list and replay.

A caller sees the jobs of its own tenant only; the id of any other job is unknown to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Literal

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response, StreamingResponse

from verso_core.api_keys import Scope
from verso_core.errors import JobUnknown
from verso_core.jobs import Kind, Queue, Result, Status
from verso_core.jobs.job import DeadLetterList, Job, JobFailures, JobList, JobView, Replayed
from verso_core.result_files import is_reference
from verso_gateway import events, headers, openapi, responses, views
from verso_gateway.access import caller_of, guarded, refused, scope_of
from verso_gateway.context import context_of
from verso_gateway.views import Page
from verso_ledger.ledgers import merging

router = guarded("jobs")

_PAGE_SLICES = 16


@router.get("/v1/jobs", name="jobs", operation_id="listJobs", responses=openapi.responses(JobList))
async def listed(
    request: Request,
    status: Annotated[list[Status] | None, Query(description="only in these states")] = None,
    kind: Annotated[list[Kind] | None, Query(description="only of these kinds")] = None,
    cursor: Annotated[str | None, Query(description="from the last page's next_cursor")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    reads: Annotated[bool, Query(description="searches and other reads too")] = False,
) -> Response:
    """List the caller's jobs, the newest first.

    A search, answer or other read whose caller waits for its result is listed only if ``reads`` is
    true or ``kind`` names it, and for a minute after its end (``VERSO_READ_KEEP_S``). A filter that
    fits few jobs may give a short page, even an empty one: the list has ended when ``next_cursor``
    is null.
    """
    page = await merging.jobs(
        context_of(request).ledgers,
        request.state.tenant,
        after=cursor,
        limit=limit,
        statuses=status or (),
        kinds=kind or (),
        reads=reads or any(one.is_read for one in kind or ()),
    )
    jobs = tuple(map(views.job, page.rows))
    return responses.json_response(JobList(jobs=jobs, next_cursor=page.cursor))


@router.get(
    "/v1/jobs/events",
    name="jobs_events",
    operation_id="followJobs",
    response_class=EventSourceResponse,
    responses=openapi.events({"job": Job, "reset": None}),
)
async def follow_all(
    request: Request,
    kind: Annotated[list[Kind] | None, Query(description="only of these kinds")] = None,
    reads: Annotated[bool, Query(description="searches and other reads too")] = False,
) -> AsyncIterator[ServerSentEvent]:
    """Follow the caller's jobs: server-sent events of those that `GET /v1/jobs` lists.

    `job` is a job that was accepted or has changed, as it is now: changes that follow each other
    closely are one event. `reset` is first, and comes again where changes may have been missed:
    list the jobs then. Events have no ids: who comes back begins with `reset`. The stream ends when
    the gateway stops, the ledger does not answer, or the caller's key is revoked.
    """
    context = context_of(request)
    with context.metrics.streams.track_inprogress():
        coming = merging.changes(
            context.ledgers,
            request.state.tenant,
            kinds=kind or (),
            reads=reads or any(one.is_read for one in kind or ()),
        )
        until = context.closing.wait(), refused(request, None)
        async with aclosing(events.changes(coming, describe=views.job, until=until)) as stream:
            async for event in stream:
                yield event


@router.get(
    "/v1/dead-letters",
    name="dead_letters",
    operation_id="listDeadLetters",
    responses=openapi.responses(DeadLetterList),
)
async def dead_letters(
    request: Request,
    cursor: Annotated[str | None, Query(description="from the last page's next_cursor")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """List the slices that crashed or failed too often, the newest first; never their texts."""
    page = await merging.dead(
        context_of(request).ledgers, request.state.tenant, after=cursor, limit=limit
    )
    letters = tuple(map(views.dead_letter, page.rows))
    return responses.json_response(DeadLetterList(dead_letters=letters, next_cursor=page.cursor))


@router.post(
    "/v1/dead-letters/replay",
    name="dead_letters_replay",
    operation_id="replayDeadLetters",
    responses=openapi.responses(Replayed),
)
async def replay_all(
    request: Request,
    kind: Annotated[list[Kind] | None, Query(description="only of these kinds")] = None,
    code: Annotated[str | None, Query(description="only those that ended in this error")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="letters looked at")] = 1000,
) -> Response:
    """Replay dead jobs with a new budget of attempts, the newest first."""
    context = context_of(request)
    caller = caller_of(request)
    page = await merging.dead(context.ledgers, request.state.tenant, after=None, limit=limit)
    chosen = dict.fromkeys(
        letter.job_id
        for letter in page.rows
        if (not kind or letter.kind in kind)
        and (code is None or letter.error["code"] == code)
        and caller.may(scope_of(letter.kind))
    )
    for job_id in chosen:
        await context.ledgers.of_job(job_id).replay(job_id)
    for queue in Queue:
        context.job_service.notify(queue)
    return responses.json_response(Replayed(jobs=tuple(chosen), more=page.cursor is not None))


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
    preference = headers.preference_of(request)
    wait_s = preference.wait(0.0, max_s=context.settings.wait_max_s)
    await _own(request, job_id)
    record = await context.job_service.wait(job_id, wait_s)
    found = await context.ledgers.of_job(job_id).results(job_id, first=cursor, count=limit)
    held = [data for data in takewhile(lambda data: data is not None, found) if data]
    rest = cursor + len(held)
    more = rest < record.slices and not (record.status.terminal and len(held) < len(found))
    head = {**views.job(record).public(), "next_cursor": str(rest) if more else None}
    applied = preference.applied(wait_s)
    fields = {} if applied is None else {"Preference-Applied": applied}
    base64 = encoding == "base64"
    if any(map(is_reference, held)):
        page = Page(context.files, record, first=cursor, held=held)
        await page.check()
        parts = page.json(head, vectors_base64=base64)
        return StreamingResponse(parts, media_type="application/json", headers=fields)
    unpacked = [Result.unpack(record.kind, data) for data in held]
    results = views.rendered(unpacked, vectors_base64=base64)
    return responses.json_response({**head, "results": results}, headers=fields)


@router.get(
    "/v1/jobs/{job_id}/failures",
    name="job_failures",
    operation_id="listJobFailures",
    responses=openapi.responses(JobFailures),
)
async def failures(
    request: Request,
    job_id: str,
    cursor: Annotated[str | None, Query(description="from the last page's next_cursor")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the items of a job that failed, each with its error and its place in the request.

    Items that failed together, as part of the job that ended without a result, are one row with
    their number in `items`. Of a job that runs, these are the failures so far. A page may be short,
    even empty: the list has ended when `next_cursor` is null.
    """
    context = context_of(request)
    await _own(request, job_id)
    ledger = context.ledgers.of_job(job_id)
    record = await ledger.job(job_id)
    page = views.FailuresPage(ledger, context.files, record, limit=limit)
    return responses.json_response(await page.read(views.FailuresPlace.read(cursor)))


@dataclass(frozen=True, slots=True)
class _Followed:
    """A job that is the caller's: the scope it needs, and the id of the event to continue after."""

    scope: Scope
    after: str


async def _followed(
    request: Request,
    job_id: str,
    last_event_id: Annotated[str | None, Header(description="continue after this event")] = None,
) -> _Followed:
    """Check who follows a job, and from where on.

    A dependency, as the status of a stream is sent before its first event.
    """
    return _Followed(await _own(request, job_id), events.checked_id(last_event_id))


@router.get(
    "/v1/jobs/{job_id}/events",
    name="job_events",
    operation_id="followJob",
    response_class=EventSourceResponse,
)
async def follow(
    request: Request, job_id: str, followed: Annotated[_Followed, Depends(_followed)]
) -> AsyncIterator[ServerSentEvent]:
    """Follow a job: server-sent events of its state and progress, the last one is ``end``.

    A stream also ends, without that event, when the gateway stops or the caller's key is revoked.
    """
    context = context_of(request)
    with context.metrics.streams.track_inprogress():
        coming = context.ledgers.of_job(job_id).follow(job_id, followed.after)
        until = context.closing.wait(), refused(request, followed.scope)
        async with aclosing(events.stream(coming, until=until)) as stream:
            async for event in stream:
                yield event


@router.delete(
    "/v1/jobs/{job_id}",
    name="job_cancel",
    operation_id="cancelJob",
    responses=openapi.responses(JobView),
)
async def cancel(request: Request, job_id: str) -> Response:
    """Cancel a job: work that has not started never will. A job that has ended does not change."""
    ledger = context_of(request).ledgers.of_job(job_id)
    await _own(request, job_id)
    await ledger.cancel(job_id)
    return responses.json_response(views.job(await ledger.job(job_id)))


@router.post(
    "/v1/jobs/{job_id}/replay",
    name="job_replay",
    operation_id="replayJob",
    status_code=202,
    responses=openapi.responses(JobView, status=202),
)
async def replay(request: Request, job_id: str) -> Response:
    """Replay a dead job with a new budget of attempts."""
    context = context_of(request)
    await _own(request, job_id)
    ledger = context.ledgers.of_job(job_id)
    await ledger.replay(job_id)
    for queue in (Queue.INTERACTIVE, Queue.BULK):
        context.job_service.notify(queue)
    record = await ledger.job(job_id)
    return responses.deferred(record, headers={"Verso-Job-Id": job_id})


async def _own(request: Request, job_id: str) -> Scope:
    """Check that a job is the caller's, and that the caller might have started it.

    Returns:
        The scope that the job needs.

    Raises:
        JobUnknown: it is not, or there is none.
        Forbidden: the caller's key lacks the scope.
    """
    record = await context_of(request).ledgers.of_job(job_id).job(job_id)
    if record.tenant != request.state.tenant:
        raise JobUnknown(f"no job has the id {job_id[:64]!a}")
    scope = scope_of(record.kind)
    caller_of(request).check(scope)
    return scope
