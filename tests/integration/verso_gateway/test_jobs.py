"""Jobs over HTTP: look, page, follow, cancel, replay."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import Gateway, Hand

from verso_core.errors import VectorsUnavailable

LATER = {"Prefer": "respond-async"}
WAIT = {"Prefer": "wait=10"}


def _submit(client: httpx2.Client, texts: int = 600) -> str:
    body = {"texts": [f"text {n}" for n in range(texts)]}
    answer = client.post("/v1/embed", json=body, headers=LATER)
    assert answer.status_code == 202
    return str(answer.json()["id"])


def _events(client: httpx2.Client, job_id: str, **headers: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache"
        event: dict[str, Any] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                continue
            if not line:
                found.append(event)
                event = {}
                continue
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
    return found


def test_results_are_paged_by_cursor(client: httpx2.Client) -> None:
    job_id = _submit(client)
    client.get(f"/v1/jobs/{job_id}", headers=WAIT)
    results: list[Any] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = client.get(f"/v1/jobs/{job_id}", params={"limit": 1, "cursor": cursor}).json()
        assert len(page["results"]) <= 256
        results += page["results"]
        cursor = page["next_cursor"]
    assert len(results) == 600
    assert results == client.get(f"/v1/jobs/{job_id}").json()["results"]


def test_vectors_of_a_job_may_be_read_as_base64(client: httpx2.Client) -> None:
    job_id = _submit(client, 1)
    body = client.get(f"/v1/jobs/{job_id}?encoding=base64", headers=WAIT).json()
    assert isinstance(body["results"][0]["embedding"], str)


def test_a_waiting_job_shows_no_results_and_where_to_go_on(
    client: httpx2.Client, hand: Hand
) -> None:
    hand.gate.clear()
    job = client.get(f"/v1/jobs/{_submit(client)}").json()
    assert (job["status"], job["results"], job["next_cursor"]) == ("queued", [], "0")
    assert job["started"] is None
    assert job["created"].endswith("+00:00")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_unknown_job_is_a_404(client: httpx2.Client, method: str) -> None:
    answer = client.request(method, "/v1/jobs/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "job_unknown")
    assert client.get("/v1/jobs/nothing/events").status_code == 404
    assert client.post("/v1/jobs/nothing/replay").status_code == 404


def test_events_tell_of_states_and_progress_until_the_end(
    client: httpx2.Client, hand: Hand
) -> None:
    hand.gate.clear()
    job_id = _submit(client)
    hand.gate.set()
    events = _events(client, job_id)
    assert events[-1]["event"] == "end"
    assert events[-2]["data"]["status"] == "succeeded"
    assert events[-2]["data"]["done"] == 3
    ids = [event["id"] for event in events[:-1]]
    assert len(set(ids)) == len(ids)


def test_a_reader_that_comes_back_goes_on_where_it_stopped(client: httpx2.Client) -> None:
    job_id = _submit(client)
    client.get(f"/v1/jobs/{job_id}", headers=WAIT)
    events = _events(client, job_id)
    rest = _events(client, job_id, **{"Last-Event-ID": events[0]["id"]})
    assert [event.get("id") for event in rest] == [event.get("id") for event in events[1:]]
    bad = client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "soon"})
    assert bad.status_code == 422


def test_a_reader_that_goes_away_cancels_nothing(client: httpx2.Client, hand: Hand) -> None:
    hand.gate.clear()
    job_id = _submit(client)
    with client.stream("GET", f"/v1/jobs/{job_id}/events"):
        pass
    hand.gate.set()
    assert client.get(f"/v1/jobs/{job_id}", headers=WAIT).json()["status"] == "succeeded"


def test_a_cancelled_job_never_runs(client: httpx2.Client, hand: Hand) -> None:
    hand.gate.clear()
    job_id = _submit(client)
    assert client.delete(f"/v1/jobs/{job_id}").json()["status"] == "cancelled"
    hand.gate.set()
    _submit(client, 1)
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["error"]["code"]) == ("cancelled", "cancelled")
    assert _events(client, job_id)[-2]["data"]["status"] == "cancelled"


def test_cancelling_a_job_that_ended_changes_nothing(client: httpx2.Client) -> None:
    job_id = _submit(client, 1)
    client.get(f"/v1/jobs/{job_id}", headers=WAIT)
    assert client.delete(f"/v1/jobs/{job_id}").json()["status"] == "succeeded"


def test_a_dead_job_can_be_replayed(client: httpx2.Client, hand: Hand) -> None:
    hand.fail = VectorsUnavailable("gone")
    answer = client.post("/v1/ingest", json={"documents": [{"id": "r", "text": "x"}]}, headers=WAIT)
    assert answer.status_code == 503  # the error that killed it
    job_id = answer.json()["job_id"]
    assert client.get(f"/v1/jobs/{job_id}").json()["status"] == "dead"
    hand.fail = None
    replay = client.post(f"/v1/jobs/{job_id}/replay")
    assert replay.status_code == 202
    assert client.get(f"/v1/jobs/{job_id}", headers=WAIT).json()["status"] == "succeeded"


def test_open_streams_are_counted(gateway: Gateway, hand: Hand) -> None:
    hand.gate.clear()
    job_id = _submit(gateway.client)
    with gateway.client.stream("GET", f"/v1/jobs/{job_id}/events"):
        until = time.monotonic() + 5
        while "verso_event_streams 1.0" not in gateway.client.get("/metrics").text:
            assert time.monotonic() < until
            time.sleep(0.01)
