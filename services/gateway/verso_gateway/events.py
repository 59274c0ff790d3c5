"""A job's progress as server-sent events (HTML standard, section 9.2).

``state`` is a new state of the job, ``progress`` more work done in the same state, and ``end`` the
last event. Events have the ledger's ids, so a reader that reconnects with Last-Event-ID continues
after the last event it received. A reader that disconnects cancels nothing. FastAPI writes the
stream, with a comment whenever 15 seconds pass without an event.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from typing import Any

from fastapi.sse import ServerSentEvent

from verso_core.errors import RequestInvalid
from verso_ledger import Event

BEGINNING = "0-0"
_CANCEL_AGAIN_S = 0.1
_EVENT_ID = re.compile(r"^\d{1,19}-\d{1,19}$")
_END = object()
_ending: set[asyncio.Task[None]] = set()


async def stream(
    events: AsyncIterator[Event], *, until: Sequence[Coroutine[Any, Any, object]]
) -> AsyncGenerator[ServerSentEvent]:
    """Yield a job's events, the last one named ``end``.

    Args:
        events: the ledger's events of the job; they end after that of the terminal state.
        until: the first of these that returns ends the stream without its last event, so that the
            reader reconnects.
    """
    stops = {asyncio.ensure_future(one) for one in until}
    coming = asyncio.ensure_future(anext(events, _END))
    status = None
    try:
        while True:
            done, _ = await asyncio.wait({coming, *stops}, return_when=asyncio.FIRST_COMPLETED)
            if stops & done:
                return
            event = coming.result()
            if not isinstance(event, Event):
                yield ServerSentEvent(event="end", raw_data="{}")
                return
            name = "progress" if event.data["status"] == status else "state"
            status = event.data["status"]
            yield ServerSentEvent(event=name, id=event.id, raw_data=json.dumps(event.data))
            coming = asyncio.ensure_future(anext(events, _END))
    finally:
        cancel_soon(coming, *stops)


def cancel_soon(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks for certain, from a task that may be cancelled itself and so cannot wait."""
    for task in tasks:
        ending = asyncio.create_task(_cancelled(task))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task until it ends: a Redis client may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN_S)
    if not task.cancelled():
        task.exception()  # retrieved, else asyncio would log it


def checked_id(given: str | None) -> str:
    """Return the id of the event to continue after, that of a Last-Event-ID header if any.

    Raises:
        RequestInvalid: the header is not an id of an event.
    """
    if not given:
        return BEGINNING
    if not _EVENT_ID.fullmatch(given):
        raise RequestInvalid("expected an event id such as '1700000000000-0' as Last-Event-ID")
    return given
