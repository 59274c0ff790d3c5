"""``POST /v1/logs/query``: lines of a log collection, in order, as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from verso_core.errors import KindUnsupported, VersoError, error_body
from verso_core.jobs import Collection, CollectionKind, Kind, NoItem
from verso_core.jobs.logs.lines import (
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
from verso_gateway.partitions.logs import lines
from verso_gateway.partitions.logs.spans import waiting_of

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
    more, with ``waiting`` if accepted lines are not stored yet, and with ``missing_partitions`` if
    partitions were left out; with ``raw`` the lines' bytes.
    What is stored all the while is in it once, however many lines share a time. A fault in the
    middle ends NDJSON with a row that has an ``error``, and breaks the connection with ``raw``.
    """
    checked = await reading.read(request, LinesRequest)
    collection = await log_collection(request, checked.collection)
    if collection.parted is None:
        checked.check_cursor()
        params, page = checked.params(), partial(_page, request)
        missing: dict[str, tuple[str, ...]] = {}
    else:
        params = await lines.asked(request, collection, checked)
        page = partial(lines.page, request, collection)
        missing = lines.left_out_of(request, collection, params)
    waiting = await waiting_of(request, collection)
    fields = waiting_headers(waiting)
    if missing:
        fields["Verso-Missing-Partitions"] = ", ".join(missing["missing_partitions"])
    first = await page(params)
    return StreamingResponse(
        _stream(checked, params, first, page, _beside(waiting) | missing),
        media_type=BYTES if checked.raw else NDJSON,
        headers=fields,
    )


async def log_collection(request: Request, name: str) -> Collection:
    """Return a collection of log lines that the caller may see; it may have partitions by time.

    Raises:
        CollectionUnknown: there is none of this name, or it is not for the caller to see.
        KindUnsupported: it is of another kind.
    """
    found = await collection_of(request, name, partitioned=True)
    if found.kind is not CollectionKind.LOGS:
        raise KindUnsupported(f"expected a collection of kind logs, got {name!a}")
    return found


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
    asked: LinesRequest,
    params: LinesParams,
    page: LinesPage,
    make: Callable[[LinesParams], Coroutine[Any, Any, LinesPage]],
    beside: Mapping[str, Any],
) -> AsyncIterator[bytes]:
    """Yield page after page; the next one is made while one is sent.

    ``beside``: what the row behind the lines says besides where more of them are.
    """
    sent, ends_open = 0, False
    following: asyncio.Task[LinesPage] | None = None
    try:
        while True:
            sent += page.lines
            ends = page.next_cursor is None or (asked.limit and sent >= asked.limit)
            if not ends:
                left = asked.limit - sent if asked.limit else 0
                fields = dict(params) | {"cursor": page.next_cursor, "limit": left}
                following = asyncio.create_task(make(LinesParams(**fields)))
            if page.data:
                yield b"\n" + page.data if ends_open else page.data
                ends_open = not page.data.endswith(b"\n")  # the last line of a partition
            if following is None:
                cursor = page.next_cursor
                last = {**beside} if cursor is None else {"next_cursor": cursor, **beside}
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


def _beside(waiting: Waiting) -> dict[str, Any]:
    """Return the field that says how many accepted lines are not stored yet; empty if none."""
    return {"waiting": waiting.public()} if waiting.lines else {}
