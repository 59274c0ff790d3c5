"""Facts about training bodies: others are answered while a large one is read."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message
from tests import made_up

from verso_core.errors import TrainingDataInvalid
from verso_core.heads import Task
from verso_core.jobs.train import unpack_groups, unpack_pairs, unpack_rows
from verso_gateway.bodies import examples, reading
from verso_gateway.bodies.examples import Examples
from verso_gateway.bodies.labelled import CSV, Columns
from verso_gateway.bodies.limits import NDJSON

TURNS = 10
"""A body that is read on the event loop lets it turn once or not at all."""
Rows = Sequence[Mapping[str, str | float]]
ROWS: Rows = [{"text": f"text {n} {'words ' * 20}", "label": "xy"[n % 2]} for n in range(20_000)]
PAIRS: Rows = made_up.pairs(20)


def request(body: bytes, media_type: str = "application/json") -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "headers": [(b"content-type", media_type.encode())]}, receive)


def as_lines(rows: Rows) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def as_csv(rows: Rows) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


async def from_body(rows: Rows, *, name: str = "rows") -> Examples:
    task = "classify" if name == "rows" else "score"
    body = {"head": "mood", "task": task, "source": {name: rows}}
    _, found = await examples.from_body(request(json.dumps(body).encode()))
    assert found is not None
    return found


async def from_lines(rows: Rows, task: Task = Task.CLASSIFY) -> Examples:
    return await examples.from_rows(request(as_lines(rows), NDJSON), Columns(), task=task)


async def from_csv(rows: Rows, task: Task = Task.CLASSIFY) -> Examples:
    return await examples.from_rows(request(as_csv(rows), CSV), Columns(), task=task)


async def turns_meanwhile(work: Awaitable[object]) -> int:
    """Count how often the event loop comes round while something is awaited."""
    count, over = 0, asyncio.Event()

    async def turn() -> None:
        nonlocal count
        while not over.is_set():
            count += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    await work
    over.set()
    await turning
    return count


@pytest.mark.parametrize("read", [from_body, from_lines, from_csv])
async def test_others_have_their_turn_while_a_large_body_is_read(
    read: Callable[[Rows], Awaitable[Examples]],
) -> None:
    assert await turns_meanwhile(read(list(ROWS))) > TURNS


async def test_others_have_their_turn_while_large_work_is_done() -> None:
    turned = threading.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    assert await reading.off_loop(reading.LARGE_BYTES + 1, lambda: turned.wait(60))


async def test_a_small_body_is_read_where_it_is() -> None:
    here = threading.get_ident()
    assert await reading.off_loop(reading.LARGE_BYTES, threading.get_ident) == here
    assert await reading.off_loop(reading.LARGE_BYTES + 1, threading.get_ident) != here


async def test_however_rows_come_they_are_the_same() -> None:
    found = [await read(ROWS[:20]) for read in (from_body, from_lines, from_csv)]
    assert found[0] == found[1] == found[2]
    assert [row.text for row in unpack_rows(found[0].packed)] == [row["text"] for row in ROWS[:20]]


async def test_however_pairs_come_they_are_the_same() -> None:
    ways = [
        from_body(PAIRS, name="pairs"),
        from_lines(PAIRS, Task.SCORE),
        from_csv(PAIRS, Task.SCORE),
    ]
    found = [await way for way in ways]
    assert found[0] == found[1] == found[2]
    assert len(unpack_pairs(found[0].packed)) == found[0].count == len(PAIRS)


async def test_however_groups_come_they_are_the_same() -> None:
    groups = made_up.groups(20)
    found = [await from_body(groups, name="groups"), await from_lines(groups, Task.SCORE)]
    assert found[0] == found[1]
    assert len(unpack_groups(found[0].packed)) == found[0].count == 20
    with pytest.raises(TrainingDataInvalid, match="expected pairs or groups, got 20 and 20"):
        await from_lines([*groups, *PAIRS[:20]], Task.SCORE)


async def test_a_bad_row_of_a_large_body_is_named() -> None:
    rows = [*ROWS, {"text": "", "label": "x"}]
    for read in (from_body, from_lines, from_csv):
        with pytest.raises(TrainingDataInvalid, match="2000"):
            await read(rows)
