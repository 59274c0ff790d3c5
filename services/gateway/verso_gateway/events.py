"""A job's progress as server-sent events (HTML standard, section 9.2).

``state`` tells of a new state and ``progress`` of more work done in it; ``end`` comes last. Events
have the ledger's ids, so a reader that comes back with Last-Event-ID goes on where it stopped. A
reader that goes away cancels nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from verso_core.errors import RequestInvalid
from verso_ledger import Event

PING_S = 15.0
BEGINNING = "0-0"
_EVENT_ID = re.compile(r"^\d{1,19}-\d{1,19}$")
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_END = object()


def encode(name: str, data: dict[str, Any], *, event_id: str | None = None) -> bytes:
    """Write one event; JSON in ASCII holds no line break, so one data line is enough."""
    lines = [] if event_id is None else [f"id: {event_id}"]
    lines += [f"event: {name}", f"data: {json.dumps(data)}", "", ""]
    return "\n".join(lines).encode("ascii")


async def stream(
    events: AsyncIterator[Event], *, closing: asyncio.Event, ping_s: float = PING_S
) -> AsyncIterator[bytes]:
    """Write a job's events as they come, and a comment when none came for a while.

    Args:
        events: what the ledger tells of the job; it ends after the event of the terminal state.
        closing: ends the stream without its last event when set, so that the reader comes back.
        ping_s: seconds between two comments that keep proxies from cutting the connection.
    """
    stopped = asyncio.ensure_future(closing.wait())
    coming = asyncio.ensure_future(anext(events, _END))
    status = None
    try:
        while True:
            done, _ = await asyncio.wait(
                {coming, stopped}, timeout=ping_s, return_when=asyncio.FIRST_COMPLETED
            )
            if stopped in done:
                return
            if not done:
                yield b": ping\n\n"
                continue
            event = coming.result()
            if not isinstance(event, Event):
                yield encode("end", {})
                return
            name = "progress" if event.data["status"] == status else "state"
            status = event.data["status"]
            yield encode(name, event.data, event_id=event.id)
            coming = asyncio.ensure_future(anext(events, _END))
    finally:
        for task in (coming, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await task


def checked_id(given: str | None) -> str:
    """Return the event id to go on after: that of a Last-Event-ID header, or the beginning.

    Raises:
        RequestInvalid: it is no id that a stream of ours ever sent.
    """
    if not given:
        return BEGINNING
    if not _EVENT_ID.fullmatch(given):
        raise RequestInvalid("expected an event id such as '1700000000000-0' as Last-Event-ID")
    return given
