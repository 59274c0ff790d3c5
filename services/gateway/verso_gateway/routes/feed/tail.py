"""``GET /v1/logs/tail``: lines of a log collection as they are accepted, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.sse import EventSourceResponse
from starlette.responses import Response, StreamingResponse

from verso_core.api_keys import Scope
from verso_core.errors import CollectionBusy, CollectionUnknown, KindUnsupported, RequestInvalid
from verso_core.jobs import Collection, CollectionKind
from verso_core.jobs.collections import partition_name
from verso_core.jobs.logs.tail import TailGap, TailLine, TailPlace, TailRequest, TailStart
from verso_gateway import auth, openapi
from verso_gateway.access import collection_of, guarded, read_of, refused
from verso_gateway.bodies import reading
from verso_gateway.bodies.lines import labels_of
from verso_gateway.context import Context, context_of
from verso_gateway.tail.lines import Wanted
from verso_gateway.tail.stream import Tail
from verso_ledger import AsyncLedger
from verso_ledger.ledgers import rolled

router = guarded("logs")
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""As FastAPI sends them for event streams."""


@router.get(
    "/v1/logs/tail",
    name="logs_tail",
    operation_id="tailLogs",
    response_class=StreamingResponse,
    responses=openapi.events({"line": TailLine, "gap": TailGap, "position": None}, ids=True),
)
async def tail(
    request: Request,
    collection: Annotated[str, Query(description="of kind logs")] = "default",
    label: Annotated[
        list[str] | None, Query(description="key=value that a line's stream has; all must hold")
    ] = None,
    filter: Annotated[  # noqa: A002 - the parameter's name
        str | None,
        Query(description="JSON of a filter; a plain line has the time of its arrival"),
    ] = None,
    contains: Annotated[
        str | None, Query(max_length=4096, description="only lines with this text in them")
    ] = None,
    start: Annotated[
        TailStart,
        Query(
            description="now; unstored: from the oldest line that no worker has stored yet; kept: "
            "from the oldest one that the ledger keeps"
        ),
    ] = TailStart.NOW,
    last_event_id: Annotated[str | None, Header(description="go on after this event")] = None,
    after: Annotated[
        str | None,
        Query(
            alias="last_event_id",
            description="as the header, which counts where both are sent: a new `EventSource` of "
            "a browser cannot set one",
        ),
    ] = None,
) -> Response:
    """Follow the lines of a log collection from acceptance on, before any worker has seen them.

    Server-sent events: `line`; `gap`, which says how many lines are missing and why; and
    `position`, first and whenever 15 seconds pass without a line. After a break go on with
    `Last-Event-ID`, at any gateway: no line is lost or doubled as long as the ledger keeps it,
    which it does until the line is verified and for `VERSO_RAW_TEXT_RETENTION_S`. What it has
    dropped is a `gap`. A reader that is slow gets lines late, and at last a `gap`. Lines come in
    the order in which they were accepted.

    The stream ends, without an event, when the gateway stops, the ledger does not answer, the
    caller's key is revoked, or the collection is deleted.
    """
    asked = _asked(request, collection, label or [], filter, contains, start)
    found = await collection_of(request, asked.collection, partitioned=True)
    if found.kind is not CollectionKind.LOGS:
        raise KindUnsupported(f"expected a collection of kind logs, got {asked.collection!a}")
    context = context_of(request)
    wanted = Wanted.of(asked.filter, asked.contains)
    tailed, place, unknown = await _begin(request, found, asked.start, last_event_id or after)
    stream = context.tails.tail(tailed.ledger.arrivals, place, wanted, unknown=unknown)

    async def events() -> AsyncIterator[bytes]:
        here, coming_from = tailed, stream
        while True:
            until = [
                context.closing.wait(),
                refused(request, Scope.READ, collection=asked.collection),
                _replaced(here),
            ]
            if found.parted is not None:
                until.append(_rolled(context, here, coming_from))
            async with aclosing(coming_from.events(until=until)) as coming:
                async for data in coming:
                    yield data
            name = rolled.following(context.ledgers.partitioned, here.name)
            if name is None or not await _is_read(here, coming_from):
                return
            here = await _tailed(request, name)
            coming_from = context.tails.tail(here.ledger.arrivals, TailPlace(here.uid, 1), wanted)

    return EventSourceResponse(events(), headers=_HEADERS)


def _asked(
    request: Request,
    collection: str,
    label: list[str],
    where: str | None,
    contains: str | None,
    start: TailStart,
) -> TailRequest:
    """Return the query as its model.

    Raises:
        RequestInvalid: a label or the filter cannot be read.
    """
    parts: list[Any] = [{"field": name, "eq": value} for name, value in labels_of(label).items()]
    if where is not None:
        try:
            parts.append(json.loads(where))
        except (ValueError, RecursionError) as exc:
            raise RequestInvalid("expected JSON as filter") from exc
    value: dict[str, Any] = {"collection": collection, "contains": contains, "start": start}
    if parts:
        value["filter"] = parts[0] if len(parts) == 1 else {"and": parts}
    return reading.validate(request, value, model=TailRequest)


@dataclass(frozen=True, slots=True)
class _Tailed:
    """What is tailed: a collection or a partition by time, its ledger, and the uid of its lines."""

    name: str
    ledger: AsyncLedger
    uid: str


async def _tailed(request: Request, name: str) -> _Tailed:
    """Return a collection or partition as its ledger knows it.

    Raises:
        CollectionUnknown: it is gone, or not for the caller to see.
    """

    async def at(ledger: AsyncLedger) -> _Tailed:
        return _Tailed(name, ledger, await ledger.arrivals.uid(name))

    return await read_of(request, name, at)


async def _begin(
    request: Request, collection: Collection, start: TailStart, last_event_id: str | None
) -> tuple[_Tailed, TailPlace, bool]:
    """Return what is tailed first, from which place, and whether the one asked for is not known.

    Of partitions by time that is the oldest that has such lines, or the one that takes lines.
    """
    state = collection.parted
    if state is None:
        tailed = await _tailed(request, collection.name)
        return tailed, *await _place(tailed, start, last_event_id)
    names = [
        partition_name(collection.name, number)
        for number in state.numbers
        if number <= state.writing
    ]
    for name in names if last_event_id or start is not TailStart.NOW else ():
        tailed = await _tailed(request, name)
        place, unknown = await _place(tailed, start, last_event_id)
        there = await tailed.ledger.arrivals.next_number(tailed.uid)
        if not unknown and (last_event_id or place.number < there):
            return tailed, place, False
    tailed = await _tailed(request, names[-1])
    return tailed, *await _place(tailed, start, last_event_id)


async def _place(
    tailed: _Tailed, start: TailStart, last_event_id: str | None
) -> tuple[TailPlace, bool]:
    """Return the place that a tail begins at, and whether the one to go on from is not known.

    Args:
        tailed: what is tailed.
        start: where a new tail begins.
        last_event_id: what to go on from.

    Raises:
        RequestInvalid: the header is no id of an event.
    """
    arrivals, uid = tailed.ledger.arrivals, tailed.uid
    if last_event_id:
        last, end = TailPlace.read(last_event_id), await arrivals.next_number(uid)
        uids = {uid} | await tailed.ledger.moves.earlier_uids(tailed.name)
        if last.uid in uids and last.number < end:
            return TailPlace(uid, last.number + 1), False
        return TailPlace(uid, end), True
    match start:
        case TailStart.NOW:
            number = await arrivals.next_number(uid)
        case TailStart.UNSTORED:
            number = await arrivals.oldest_unstored(uid)
        case TailStart.KEPT:
            number = await arrivals.oldest_kept(uid)
    return TailPlace(uid, number), False


async def _replaced(tailed: _Tailed) -> None:
    """Return once there is another collection of a name, or none, or it has moved."""
    with suppress(CollectionUnknown, CollectionBusy):
        while True:
            await asyncio.sleep(auth.LOOK_S)
            if await tailed.ledger.arrivals.uid(tailed.name) != tailed.uid:
                return


async def _rolled(context: Context, tailed: _Tailed, tail: Tail) -> None:
    """Return once another partition takes the lines, and all of this one were looked at."""
    while True:
        await asyncio.sleep(auth.LOOK_S)
        following = rolled.following(context.ledgers.partitioned, tailed.name)
        if following is not None and await _is_read(tailed, tail):
            return


async def _is_read(tailed: _Tailed, tail: Tail) -> bool:
    """Whether a partition takes no more lines, and all that it took were looked at."""
    if not await tailed.ledger.has_rolled(tailed.name):
        return False
    return tail.next_number >= await tailed.ledger.arrivals.next_number(tailed.uid)
