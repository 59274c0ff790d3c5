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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any

import orjson
from fastapi.sse import KEEPALIVE_COMMENT, ServerSentEvent, format_sse_event

from verso_core.errors import RequestInvalid, Unavailable, VersoError, error_body
from verso_core.jobs.job import Job
from verso_ledger import Event, JobRecord

BEGINNING = "0-0"
_CANCEL_AGAIN_S = 0.1
_PING_S = 15.0
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
    status = None
    async with aclosing(_until(events, until)) as coming:
        async for event in coming:
            if not isinstance(event, Event):
                yield ServerSentEvent(event="end", raw_data="{}")
                return
            name = "progress" if event.data["status"] == status else "state"
            status = event.data["status"]
            yield ServerSentEvent(event=name, id=event.id, raw_data=json.dumps(event.data))


async def changes(
    jobs: AsyncIterator[Sequence[JobRecord] | None],
    *,
    describe: Callable[[JobRecord], Job],
    until: Sequence[Coroutine[Any, Any, object]],
) -> AsyncGenerator[ServerSentEvent]:
    """Yield an event ``job`` for each change, and ``reset`` where changes may have been missed.

    Args:
        jobs: those that changed; None where others may have, too.
        describe: describes a job as callers see it.
        until: as for :func:`stream`; the stream also ends if the ledger does not answer.
    """
    with suppress(Unavailable):
        async with aclosing(_until(jobs, until)) as coming:
            async for changed in coming:
                if not isinstance(changed, Sequence):
                    yield ServerSentEvent(event="reset", raw_data="{}")
                    continue
                for record in changed:
                    data = orjson.dumps(describe(record).public()).decode()
                    yield ServerSentEvent(event="job", raw_data=data)


async def parts(
    events: AsyncIterator[ServerSentEvent], *, until: Sequence[Coroutine[Any, Any, object]]
) -> AsyncGenerator[bytes]:
    """Yield the events of a result in parts as bytes, with a comment where none comes for long.

    Args:
        events: the events; an error of theirs becomes the last one, named ``error``.
        until: the first of these that returns ends the stream.
    """
    async with aclosing(_until(_timed(events), until)) as coming:
        try:
            async for event in coming:
                if event is _END:
                    return
                assert event is None or isinstance(event, ServerSentEvent)
                yield KEEPALIVE_COMMENT if event is None else _bytes(event)
        except VersoError as error:
            yield format_sse_event(event="error", data_str=json.dumps(error_body(error)))


async def _timed(events: AsyncIterator[ServerSentEvent]) -> AsyncGenerator[ServerSentEvent | None]:
    """Yield events, and None whenever ``_PING_S`` seconds pass without one."""
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=_PING_S)
            event = coming.result() if done else None
            if done and event is None:
                return
            yield event
            if done:
                coming = asyncio.ensure_future(anext(events, None))
    finally:
        cancel_soon(coming)


def _bytes(event: ServerSentEvent) -> bytes:
    return format_sse_event(event=event.event, data_str=event.raw_data, id=event.id)


async def _until(
    items: AsyncIterator[object], until: Sequence[Coroutine[Any, Any, object]]
) -> AsyncGenerator[object]:
    """Yield items, and ``_END`` behind the last, until the first of some coroutines returns."""
    stops = {asyncio.ensure_future(one) for one in until}
    coming = asyncio.ensure_future(anext(items, _END))
    try:
        while True:
            done, _ = await asyncio.wait({coming, *stops}, return_when=asyncio.FIRST_COMPLETED)
            if stops & done:
                return
            yield coming.result()
            if coming.result() is _END:
                return
            coming = asyncio.ensure_future(anext(items, _END))
    finally:
        cancel_soon(coming, *stops)


def run_soon(work: Coroutine[Any, Any, None]) -> None:
    """Run work from a task that may be cancelled itself and so cannot wait for it."""
    task = asyncio.create_task(work)
    _ending.add(task)
    task.add_done_callback(_ending.discard)


def cancel_soon(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks for certain, from a task that may be cancelled itself and so cannot wait."""
    for task in tasks:
        run_soon(_cancelled(task))


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
