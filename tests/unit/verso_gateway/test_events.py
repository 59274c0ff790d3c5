"""Facts about server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from verso_core.errors import RequestInvalid
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


def test_only_ids_of_our_own_are_gone_on_from() -> None:
    assert events.checked_id(None) == events.BEGINNING
    assert events.checked_id("17-3") == "17-3"
    for bad in ("x", "1-", "1-1\n", "$", "1" * 30):
        with pytest.raises(RequestInvalid):
            events.checked_id(bad)
