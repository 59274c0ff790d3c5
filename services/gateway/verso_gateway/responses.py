"""HTTP answers to placed jobs: the result where it came in time, else 202 and where to look."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from verso_core.jobs import Failed, Item, Kind, Params, Queue, Rejected, SliceSpec, cut
from verso_core.jobs.models import OpenModel
from verso_gateway import bodies, headers, job_service, views
from verso_gateway.context import context_of
from verso_gateway.idempotency import Fingerprint, key_of
from verso_gateway.job_service import Ended, Order
from verso_ledger import Accepted, JobRecord

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


def one_slice(kind: Kind, params: Params, items: Iterable[Item | Rejected]) -> list[SliceSpec]:
    """Make the single slice of a job that is not cut."""
    return list(cut(kind, params, items, max_items=SLICE_ALL, max_bytes=SLICE_ALL))


def order_of(
    request: Request,
    kind: Kind,
    *,
    slices: list[SliceSpec],
    queue: Queue = Queue.INTERACTIVE,
) -> Order:
    """Make the order of a request, placed as its headers say.

    Raises:
        RequestInvalid: a header of its placement cannot be read.
    """
    asked = headers.scheduling_of(request)
    return Order(
        kind=kind,
        queue=queue,
        slices=slices,
        tenant=request.state.tenant,
        deadline_s=asked.deadline_s,
        urgency=asked.urgency,
        webhook=asked.webhook,
    )


async def repeatable(request: Request, order: Order) -> Order:
    """Add the request's idempotency key to its order.

    Raises:
        RequestInvalid: the header holds no usable key.
    """
    key = key_of(request)
    if key is None:
        return order
    fingerprint, data = Fingerprint(request), await request.body()
    await bodies.off_loop(len(data), partial(fingerprint.update, data))
    return replace(order, idempotency=(key, fingerprint.hex()))


async def respond(
    request: Request,
    order: Order,
    *,
    body: Body,
    wait_default_s: float | None = None,
    status: int = 200,
) -> Response:
    """Place a job and answer with its result, or with 202 when the caller's wait is over.

    Args:
        request: the request, for its Prefer header.
        order: the job.
        body: makes the answer out of the job's results.
        wait_default_s: how long to wait where the caller did not say, seconds.
        status: HTTP status of the answer with the result.

    Raises:
        VersoError: the job could not be placed or ended in an error.
    """
    context = context_of(request)
    settings = context.settings
    preference = headers.preference_of(request)
    wait_s = preference.wait(
        settings.wait_default_s if wait_default_s is None else wait_default_s,
        max_s=settings.wait_max_s,
    )
    fields: dict[str, str] = {}

    def accepted(placed: Accepted) -> None:
        request.state.job_id = placed.job_id  # an error from here on names the job
        fields.update(_fields(placed, applied=preference.applied(wait_s)))
        fields.update(headers.rate_limit(order.queue, settings, placed))

    outcome = await context.job_service.submit_and_wait(order, wait_s=wait_s, on_accepted=accepted)
    if wait_s <= 0 or not outcome.record.status.terminal:  # who does not wait always gets 202
        return deferred(outcome.record, headers=fields)
    ended = job_service.ended(outcome)
    fields["Server-Timing"] = views.server_timing(views.total_timings(ended.results))
    return json_response(body(ended), status=status, headers=fields)


async def finish(request: Request, order: Order) -> Ended:
    """Place a job and wait for its result, where the answer can be nothing else.

    Raises:
        NotReady: it did not come in time.
        VersoError: the job could not be placed or ended in an error.
    """
    context = context_of(request)
    preference = headers.preference_of(request)
    wait_s = preference.wait(context.settings.wait_default_s, max_s=context.settings.wait_max_s)
    wait_s = max(wait_s, 1.0)
    if order.idempotency is None:  # else whoever asks again finds the job, however late it is begun
        order = replace(order, deadline_s=min(wait_s, order.deadline_s or math.inf))
    return await context.job_service.run(order, timeout_s=wait_s)


def deferred(record: JobRecord, *, headers: Mapping[str, str]) -> Response:
    """Say that a job is accepted and where to ask for it (RFC 9110, section 15.3.3)."""
    location = {"Location": f"/v1/jobs/{record.job_id}", "Retry-After": "1"}
    return json_response(views.job(record), status=202, headers={**headers, **location})


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
