"""A request's job, and its HTTP answer: the result if it came in time, else 202 and a location."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from verso_core.jobs import Failed, Item, Kind, Params, Queue, Rejected, SliceSpec, cut
from verso_core.jobs.collections import CollectionChangeParams, CollectionName, CollectionParams
from verso_core.jobs.models import OpenModel
from verso_gateway import headers, job_service, views
from verso_gateway.access import seen_by
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.headers import Fingerprint
from verso_gateway.job_service import Ended
from verso_ledger import Accepted, JobRecord, NewJob

SLICE_ALL = 1 << 30
"""Bound of a slice that must not be cut."""

Body = Callable[[Ended], OpenModel | dict[str, Any]]
"""Makes the answer out of a job's results."""


def json_response(
    content: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Write a JSON answer: a model of the job contracts, or a JSON value."""
    return Response(
        orjson.dumps(content.public() if isinstance(content, OpenModel) else content),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def line(content: object) -> bytes:
    """Write a JSON value as a line of NDJSON."""
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def job_of_one(
    request: Request,
    kind: Kind,
    params: Params,
    *items: Item | Rejected,
    queue: Queue = Queue.INTERACTIVE,
) -> NewJob:
    """Return a request's job of a single slice, scheduled as the request's headers say.

    Raises:
        RequestInvalid: a header cannot be read.
    """
    slices = list(cut(kind, params, items, max_items=SLICE_ALL, max_bytes=SLICE_ALL))
    return job_of(request, kind, slices, queue=queue, collection=collection_named_by(params))


def job_of(
    request: Request,
    kind: Kind,
    slices: list[SliceSpec],
    *,
    queue: Queue,
    collection: str | None,
) -> NewJob:
    """Return a request's job, scheduled as the request's headers say.

    Args:
        request: the request.
        kind: of the job.
        slices: its work.
        queue: where they wait.
        collection: the one that the job concerns; None for texts of the request itself.

    Raises:
        RequestInvalid: a header cannot be read.
    """
    asked = headers.scheduling_of(request)
    return NewJob(
        kind=kind,
        queue=queue,
        slices=slices,
        tenant=request.state.tenant,
        deadline_s=asked.deadline_s,
        urgency=kind.urgency if asked.urgency is None else asked.urgency,
        webhook=asked.webhook,
        collection=collection,
        seen=seen_by(request),
    )


def collection_named_by(params: Params) -> str | None:
    """Return the collection that a job's parameters name; None where they name none."""
    if isinstance(params, CollectionName | CollectionParams | CollectionChangeParams):
        return params.name
    found: str | None = getattr(params, "collection", None)
    return found


async def repeatable(request: Request, job: NewJob) -> NewJob:
    """Add the request's idempotency key to its job.

    Raises:
        RequestInvalid: the header holds no usable key.
    """
    key = headers.key_of(request)
    if key is None:
        return job
    fingerprint, data = Fingerprint(request), await request.body()
    await reading.off_loop(len(data), partial(fingerprint.update, data))
    return replace(job, idempotency=(key, fingerprint.hex()))


async def once(request: Request, act: Callable[[], Awaitable[None]]) -> None:
    """Do what an operator asks for and no worker does, unless its idempotency key is known.

    The key is noted afterwards: what was cut off before that is done again.

    Raises:
        IdempotencyConflict: the key belongs to another request.
    """
    service = context_of(request).job_service
    noted = job_of(request, Kind.MIGRATE, [], queue=Queue.INTERACTIVE, collection=None)
    noted = await repeatable(request, noted)
    if not await service.is_noted(noted):
        await act()
        await service.note(noted)


async def respond(
    request: Request,
    job: NewJob,
    *,
    body: Body,
    wait_default_s: float | None = None,
    status: int = 200,
    accepted_with: Mapping[str, Any] | None = None,
    keep_s: int | None = None,
) -> Response:
    """Submit a job and answer with its result, or with 202 when the caller's wait is over.

    Args:
        request: the request, for its Prefer header.
        job: the job.
        body: makes the answer from the job's results.
        wait_default_s: how long to wait if the caller did not say, seconds.
        status: HTTP status of the answer with the result.
        accepted_with: fields that a 202 has besides the job's.
        keep_s: how long the job is kept after its end, seconds; as all others by default.

    Raises:
        VersoError: the job was not accepted or ended in an error.
    """
    context = context_of(request)
    settings = context.settings
    preference = headers.preference_of(request)
    wait_s = preference.wait(
        settings.wait_default_s if wait_default_s is None else wait_default_s,
        max_s=settings.wait_max_s,
    )
    fields: dict[str, str] = {}

    def on_accepted(accepted: Accepted) -> None:
        request.state.job_id = accepted.job_id  # an error from here on names the job
        fields.update(_fields(accepted, applied=preference.applied(wait_s)))
        fields.update(headers.rate_limit(job.queue, settings, accepted))

    service = context.job_service
    outcome = await service.submit_and_wait(
        job, wait_s=wait_s, on_accepted=on_accepted, keep_s=keep_s
    )
    if wait_s <= 0 or not outcome.record.status.terminal:  # without a wait it is always 202
        return deferred(outcome.record, headers=fields, more=accepted_with)
    ended = job_service.ended(outcome)
    fields["Server-Timing"] = views.server_timing(ended.results)
    return json_response(body(ended), status=status, headers=fields)


async def finish(request: Request, job: NewJob, *, wait_default_s: float | None = None) -> Ended:
    """Submit a job and wait for its result, for answers that are never a 202.

    Args:
        request: the request, for its Prefer header.
        job: the job.
        wait_default_s: how long to wait if the caller did not say, seconds.

    Raises:
        NotReady: the result did not come in time.
        VersoError: the job was not accepted or ended in an error.
    """
    context = context_of(request)
    preference = headers.preference_of(request)
    settings = context.settings
    default_s = settings.wait_default_s if wait_default_s is None else wait_default_s
    wait_s = max(preference.wait(default_s, max_s=settings.wait_max_s), 1.0)
    if job.idempotency is None:  # with a key a repeated request finds the job, however late
        # Later than the wait, so that a caller who names no deadline is told that the platform is
        # not ready, which may be tried again, and never that a deadline has passed.
        job = replace(job, deadline_s=min(wait_s + 1.0, job.deadline_s or math.inf))
    return await context.job_service.run(job, timeout_s=wait_s)


def deferred(
    record: JobRecord, *, headers: Mapping[str, str], more: Mapping[str, Any] | None = None
) -> Response:
    """Return the 202 of an accepted job, with its location (RFC 9110, section 15.3.3)."""
    location = {"Location": f"/v1/jobs/{record.job_id}", "Retry-After": "1"}
    content = {**views.job(record).public(), **(more or {})}
    return json_response(content, status=202, headers={**headers, **location})


def sole(ended: Ended) -> Any:
    """Return the only item of a job.

    Raises:
        VersoError: the item failed.
    """
    return ended.results[0].only


def all_items(ended: Ended) -> list[Any]:
    """Return all items of a job whose answer has no error of one item.

    Raises:
        VersoError: an item failed.
    """
    items = [item for result in ended.results for item in result.items]
    for item in items:
        if isinstance(item, Failed):
            raise item.error.exception()
    return items


def _fields(accepted: Accepted, *, applied: str | None) -> dict[str, str]:
    fields = {"Verso-Job-Id": accepted.job_id}
    if applied is not None:
        fields["Preference-Applied"] = applied
        fields["Vary"] = "Prefer"
    if accepted.replayed:
        fields["Idempotency-Replayed"] = "true"
    return fields
