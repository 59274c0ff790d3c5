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


async def _read(coming: AsyncIterator[Event], *, ping_s: float = 15.0) -> list[bytes]:
    return [part async for part in events.stream(coming, closing=asyncio.Event(), ping_s=ping_s)]


async def test_states_progress_and_the_end_are_told_in_order() -> None:
    parts = await _read(_events("queued", "running", "running", "succeeded"))
    names = [part.split(b"event: ")[1].split(b"\n")[0] for part in parts]
    assert names == [b"state", b"state", b"progress", b"state", b"end"]
    assert parts[1] == b'id: 1-0\nevent: state\ndata: {"status": "running", "done": 1}\n\n'


async def test_a_quiet_stream_is_kept_open_by_comments() -> None:
    parts = await _read(_events("succeeded", pause_s=0.2), ping_s=0.05)
    assert parts[0] == b": ping\n\n"
    assert parts[-1].startswith(b"event: end")


async def test_a_stopping_gateway_ends_streams_without_an_end_event() -> None:
    closing = asyncio.Event()
    closing.set()
    assert [
        part async for part in events.stream(_events("queued", pause_s=9), closing=closing)
    ] == []


def test_only_ids_of_our_own_are_gone_on_from() -> None:
    assert events.checked_id(None) == events.BEGINNING
    assert events.checked_id("17-3") == "17-3"
    for bad in ("x", "1-", "1-1\n", "$", "1" * 30):
        with pytest.raises(RequestInvalid):
            events.checked_id(bad)
