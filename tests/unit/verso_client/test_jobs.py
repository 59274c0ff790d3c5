"""Lists of jobs: pages are joined, and dead jobs are replayed until none is left."""

from __future__ import annotations

import json
from typing import Any

from verso_client.exchange import Call, Reply, Steps
from verso_client.operations import jobs as operations
from verso_core.jobs import Kind, Status


def job(number: int) -> dict[str, Any]:
    counts = {"items": 1, "ok": 0, "failed": 1}
    return {"id": f"j{number}", "kind": "embed", "status": "dead", **counts}


def carried_out(steps: Steps[Any], answers: list[dict[str, Any]]) -> tuple[Any, list[Call]]:
    """Return the result of the steps for these answers of the platform, and their calls."""
    calls: list[Call] = []
    try:
        call = next(steps)
        while True:
            calls.append(call)
            call = steps.send(Reply(200, {}, json.dumps(answers.pop(0)).encode()))
    except StopIteration as end:
        return end.value, calls


def test_pages_are_joined_up_to_the_limit() -> None:
    answers: list[dict[str, Any]] = [
        {"jobs": [job(n) for n in range(200)], "next_cursor": "7"},
        {"jobs": [], "next_cursor": "6"},  # a filter may leave a page empty
        {"jobs": [job(n) for n in range(200, 230)], "next_cursor": "5"},
    ]
    steps = operations.jobs(status=Status.DEAD, kind=Kind.EMBED, reads=False, limit=230)
    found, calls = carried_out(steps, answers)
    assert [one.id for one in found] == [f"j{n}" for n in range(230)]
    assert calls[0].params == {"status": "dead", "kind": "embed", "limit": "200"}
    assert (calls[1].params["cursor"], calls[2].params["cursor"]) == ("7", "6")
    assert calls[2].params["limit"] == "30"


def test_dead_jobs_are_replayed_until_none_is_new() -> None:
    answers: list[dict[str, Any]] = [
        {"jobs": ["a", "b"], "more": True},
        {"jobs": ["c"], "more": True},
        {"jobs": ["c"], "more": True},  # died again meanwhile: that is enough
    ]
    found, calls = carried_out(operations.replay_dead(), answers)
    assert found == ["a", "b", "c"]
    assert len(calls) == 3
