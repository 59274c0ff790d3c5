"""The tools that need more than one call of the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from verso_client import AsyncClient
from verso_client.mcp.tools import LINES_BYTES, TOOLS, LinesArguments, LinesFound
from verso_core.jobs.logs.lines import LinesRequest


class Lines:
    """A log collection of a thousand lines, each with others around it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.largest = 0

    async def lines(self, request: LinesRequest) -> AsyncIterator[bytes]:
        """Yield a page as the platform does, in parts that end anywhere."""
        first = int(request.cursor or 0)
        last = min(first + request.limit, 1000)
        around = [{"id": "0:0", "text": "x" * self.size}] * request.before
        rows: list[dict[str, Any]] = [
            {"id": f"0:{n}", "text": "x" * self.size, "before": around} for n in range(first, last)
        ]
        if last < 1000:
            rows.append({"next_cursor": str(last)})
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self.largest = max(self.largest, len(data))
        for start in range(0, len(data), 65_536):
            yield data[start : start + 65_536]


async def ask(held: Lines, **given: Any) -> LinesFound:
    asked = LinesArguments.model_validate({"collection": "logs", **given})
    found = await TOOLS["logs_query"].call(cast(AsyncClient, held), asked)
    assert isinstance(found, LinesFound)
    return found


@pytest.mark.parametrize(("size", "before"), [(10, 0), (10, 100), (20_000, 0), (20_000, 100)])
async def test_an_answer_of_lines_is_bounded_and_goes_on_at_its_cursor(
    size: int, before: int
) -> None:
    held, ids, cursor, answers = Lines(size), [], None, 0
    while cursor is not None or not answers:
        found = await ask(held, limit=1000, before=before, cursor=cursor)
        ids += [line.id for line in found.lines]
        cursor, answers = found.next_cursor, answers + 1
    assert ids == [f"0:{n}" for n in range(1000)]
    assert held.largest <= 2 * LINES_BYTES
    assert answers > 1 or not before * size


@pytest.mark.parametrize("limit", [1, 100, 101, 999])
async def test_no_more_lines_come_than_were_asked_for(limit: int) -> None:
    found = await ask(Lines(10), limit=limit)
    assert len(found.lines) == limit
    assert found.next_cursor == str(limit)
