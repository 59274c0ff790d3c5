"""Facts about server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi.sse import ServerSentEvent
from tests.support.clock import run_by_own_clock

from verso_core.errors import QueueFull, RequestInvalid
from verso_gateway import events
from verso_ledger import Event


async def _events(*statuses: str, pause_s: float = 0.0) -> AsyncIterator[Event]:
    for number, status in enumerate(statuses):
        await asyncio.sleep(pause_s)
        yield Event(id=f"{number}-0", data={"status": status, "done": number})


async def test_states_progress_and_the_end_come_in_order() -> None:
    coming = _events("queued", "running", "running", "succeeded")
    found = [event async for event in events.stream(coming, until=[asyncio.Event().wait()])]
    assert [event.event for event in found] == ["state", "state", "progress", "state", "end"]
    assert (found[1].id, found[1].raw_data) == ("1-0", '{"status": "running", "done": 1}')


async def test_a_stopping_gateway_ends_streams_without_an_end_event() -> None:
    closing = asyncio.Event()
    closing.set()
    until = [asyncio.Event().wait(), closing.wait()]
    coming = _events("queued", pause_s=9)
    assert [event async for event in events.stream(coming, until=until)] == []


async def _parts(*names: str, pause_s: float = 0.0) -> AsyncIterator[ServerSentEvent]:
    for name in names:
        await asyncio.sleep(pause_s)
        if name == "full":
            raise QueueFull("too much")
        yield ServerSentEvent(event=name, raw_data="{}")


async def test_an_error_is_the_last_event_of_a_result_in_parts() -> None:
    coming = events.parts(_parts("hits", "full", "end"), until=[asyncio.Event().wait()])
    found = [data async for data in coming]
    assert found[0] == b"event: hits\ndata: {}\n\n"
    assert b"event: error" in found[1]
    assert b'"code": "queue_full"' in found[1]
    assert len(found) == 2


def test_a_comment_comes_where_no_part_does() -> None:
    async def run() -> None:
        coming = events.parts(_parts("end", pause_s=40), until=[asyncio.Event().wait()])
        found = [data async for data in coming]
        assert [data[:7] for data in found] == [b": ping\n", b": ping\n", b"event: "]

    run_by_own_clock(run())


async def test_a_result_in_parts_ends_where_the_gateway_stops() -> None:
    closing = asyncio.Event()
    closing.set()
    coming = events.parts(_parts("end", pause_s=9), until=[closing.wait()])
    assert [data async for data in coming] == []


def test_only_ids_of_our_own_are_gone_on_from() -> None:
    assert events.checked_id(None) == events.BEGINNING
    assert events.checked_id("17-3") == "17-3"
    for bad in ("x", "1-", "1-1\n", "$", "1" * 30):
        with pytest.raises(RequestInvalid):
            events.checked_id(bad)
