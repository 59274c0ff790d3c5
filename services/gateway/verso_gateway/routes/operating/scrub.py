"""``/v1/scrub``: what the pass over all stored records has found, and a pass at once."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs.scrub import ScrubState
from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.context import context_of
from verso_ledger import AsyncLedger

router = guarded("scrub")


@router.get(
    "/v1/scrub", name="scrub", operation_id="getScrub", responses=openapi.responses(ScrubState)
)
async def describe(request: Request) -> Response:
    """Describe the newest pass: how far it is, and which documents it found damaged.

    After an unclean start the recent documents are read before all else: ``recent`` says how far.
    """
    return await _state(request, status=200)


@router.post(
    "/v1/scrub",
    name="scrub_request",
    operation_id="askForScrub",
    status_code=202,
    responses=openapi.responses(ScrubState, status=202),
)
async def ask(request: Request) -> Response:
    """Ask for a pass: it begins at once, or when the one under way has ended."""
    await context_of(request).ledgers.each(lambda one: one.scrub_request())
    return await _state(request, status=202)


async def _state(request: Request, *, status: int) -> Response:
    found = await context_of(request).ledgers.each(_described)
    content = views.scrub_of_all(list(found.values()))
    return responses.json_response(content, status=status)


async def _described(ledger: AsyncLedger) -> ScrubState:
    return views.scrub(await ledger.scrub(), await ledger.collections())
