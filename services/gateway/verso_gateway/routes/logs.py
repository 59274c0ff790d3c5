"""``POST /v1/logs/query``: lines of a log collection, in order, as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from verso_core.errors import KindUnsupported, VersoError, error_body
from verso_core.jobs import CollectionKind, Kind, NoItem
from verso_core.jobs.lines import (
    LineRow,
    LinesPage,
    LinesParams,
    LinesRequest,
    Waiting,
)
from verso_gateway import openapi, responses
from verso_gateway.access import collection_of, guarded
from verso_gateway.bodies import reading
from verso_gateway.bodies.limits import NDJSON
from verso_gateway.context import context_of

router = guarded("logs")

BYTES = "application/octet-stream"


@router.post(
    "/v1/logs/query",
    name="logs_query",
    operation_id="queryLogs",
    responses=openapi.responses(LineRow, also=[NDJSON, BYTES]),
    openapi_extra=openapi.body(LinesRequest),
)
async def query(request: Request) -> Response:
    """Read lines in order, as far as ``limit`` says; 0 reads all.

    The oldest or the newest come first, or those nearest to a ``question``. ``before`` and
    ``after`` add the lines around each, of the streams with the same labels but for ``level``.

    The answer is a stream: NDJSON, a line a row, and last a row with ``next_cursor`` if there is
    more, and with ``waiting`` if accepted lines are not stored yet; with ``raw`` the lines' bytes.
    What is stored all the while is in it once, however many lines share a time. A fault in the
    middle ends NDJSON with a row that has an ``error``, and breaks the connection with ``raw``.
    """
    checked = await reading.read(request, LinesRequest)
    await log_collection(request, checked.collection)
    checked.check_cursor()
    ledger = await context_of(request).ledgers.of_collection(checked.collection)
    waiting = await ledger.waiting.of(checked.collection)
    first = await _page(request, checked.params())
    return StreamingResponse(
        _stream(request, checked, first, waiting),
        media_type=BYTES if checked.raw else NDJSON,
        headers=waiting_headers(waiting),
    )


async def log_collection(request: Request, name: str) -> None:
    """Check that a collection is there for the caller to see, and holds log lines.

    Raises:
        CollectionUnknown: there is none of this name, or it is not for the caller to see.
        KindUnsupported: it is of another kind.
    """
    if (await collection_of(request, name)).kind is not CollectionKind.LOGS:
        raise KindUnsupported(f"expected a collection of kind logs, got {name!a}")


def waiting_headers(waiting: Waiting) -> dict[str, str]:
    """Return the headers that say how many accepted lines are not stored yet."""
    found = {"Verso-Waiting-Lines": str(waiting.lines)}
    if waiting.oldest_s is not None:
        found["Verso-Waiting-Oldest-S"] = str(waiting.oldest_s)
    return found


async def _page(request: Request, params: LinesParams) -> LinesPage:
    job = responses.job_of_one(request, Kind.LINES, params, NoItem())
    page: LinesPage = responses.sole(await responses.finish(request, job))
    return page


async def _stream(
    request: Request, asked: LinesRequest, page: LinesPage, waiting: Waiting
) -> AsyncIterator[bytes]:
    """Yield page after page; the next one is made while one is sent."""
    sent, params = 0, asked.params()
    following: asyncio.Task[LinesPage] | None = None
    try:
        while True:
            sent += page.lines
            ends = page.next_cursor is None or (asked.limit and sent >= asked.limit)
            if not ends:
                left = asked.limit - sent if asked.limit else 0
                fields = dict(params) | {"cursor": page.next_cursor, "limit": left}
                following = asyncio.create_task(_page(request, LinesParams(**fields)))
            if page.data:
                yield page.data
            if following is None:
                last = _last_row(page.next_cursor, waiting)
                if last and not asked.raw:
                    yield responses.line(last)
                return
            page, following = await following, None
    except VersoError as error:
        if asked.raw:
            raise
        yield responses.line({"error": error_body(error)})
    finally:
        if following is not None:
            following.cancel()


def _last_row(cursor: str | None, waiting: Waiting) -> dict[str, Any]:
    """Return the row behind the lines: what else there is; empty if nothing."""
    row: dict[str, Any] = {}
    if cursor is not None:
        row["next_cursor"] = cursor
    if waiting.lines:
        row["waiting"] = waiting.public()
    return row
