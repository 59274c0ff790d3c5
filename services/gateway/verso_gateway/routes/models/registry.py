"""``/v1/registry``: which models serve, promote a canary, roll back."""

from __future__ import annotations

import uuid
from typing import Literal

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs import Kind, NoItem
from verso_core.jobs.registry import ModelsParams, RegistryResult, RegistryState, ReleaseRequest
from verso_gateway import openapi, responses
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_ledger.ledgers import merging

router = guarded("models")


@router.get(
    "/v1/registry",
    name="registry",
    operation_id="getRegistry",
    responses=openapi.responses(RegistryState),
)
async def describe(request: Request) -> Response:
    """Describe what the channels shall serve, and what each worker does serve, or why not."""
    return await _change(request, "show", ReleaseRequest())


@router.post(
    "/v1/registry/promote",
    name="registry_promote",
    operation_id="promote",
    responses=openapi.responses(RegistryState),
    openapi_extra=openapi.body(ReleaseRequest),
)
async def promote(request: Request) -> Response:
    """Make a canary stable. Workers take it up within a second or two."""
    return await _change(request, "promote", await reading.read(request, ReleaseRequest))


@router.post(
    "/v1/registry/rollback",
    name="registry_rollback",
    operation_id="rollback",
    responses=openapi.responses(RegistryState),
    openapi_extra=openapi.body(ReleaseRequest),
)
async def rollback(request: Request) -> Response:
    """Take a canary back; without one, go back to what was stable before."""
    return await _change(request, "rollback", await reading.read(request, ReleaseRequest))


async def _change(
    request: Request, change: Literal["show", "promote", "rollback"], of: ReleaseRequest
) -> Response:
    # A worker may end after the change and before its commit; its successor knows the change by
    # the token.
    params = ModelsParams(change=change, head=of.head, token=uuid.uuid4().hex)
    request.state.target = of.head or "artifact"  # for the audit log
    job = responses.job_of_one(request, Kind.MODELS, params, NoItem())
    if change != "show":
        job = await responses.repeatable(request, job)
    serving = await merging.serving(context_of(request).ledgers)
    found: RegistryResult = responses.sole(await responses.finish(request, job))
    workers = tuple({"worker": name, **state} for name, state in serving.items())
    return responses.json_response(RegistryState(**dict(found), workers=workers))
