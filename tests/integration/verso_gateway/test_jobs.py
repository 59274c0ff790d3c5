"""Jobs over HTTP: look, page, follow, cancel, replay."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, post

from verso_core.api_keys import mint
from verso_core.errors import VectorsUnavailable, VersoError
from verso_core.jobs import Queue
from verso_ledger.keys import key

LATER = {"Prefer": "respond-async"}
WAIT = {"Prefer": "wait=60"}


def _submit(client: httpx2.Client, texts: int = 600) -> str:
    body = {"texts": [f"text {n}" for n in range(texts)]}
    answer = client.post("/v1/embed", json=body, headers=LATER)
    assert answer.status_code == 202
    return str(answer.json()["id"])


def _events(client: httpx2.Client, job_id: str, **headers: str) -> list[dict[str, Any]]:
    with client.sse(f"/v1/jobs/{job_id}/events", headers=headers) as source:
        assert source.response.headers["content-type"].startswith("text/event-stream")
        assert source.response.headers["cache-control"] == "no-cache"
        return [{"id": one.id, "event": one.event, "data": json.loads(one.data)} for one in source]


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
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
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
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    job_id = _submit(client)
    worker.gate.set()
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


def test_a_reader_that_goes_away_cancels_nothing(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    job_id = _submit(client)
    with client.stream("GET", f"/v1/jobs/{job_id}/events"):
        pass
    worker.gate.set()
    assert client.get(f"/v1/jobs/{job_id}", headers=WAIT).json()["status"] == "succeeded"


def test_a_quiet_stream_is_kept_open_by_comments(
    client: httpx2.Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.05)  # FastAPI names it for tests
    worker.pause()
    job_id = _submit(client)
    with client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        lines = answer.iter_lines()
        assert ": ping" in (next(lines) for _ in range(20))


def test_a_cancelled_job_never_runs(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    job_id = _submit(client)
    assert client.delete(f"/v1/jobs/{job_id}").json()["status"] == "cancelled"
    worker.gate.set()
    _submit(client, 1)
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["error"]["code"]) == ("cancelled", "cancelled")
    assert _events(client, job_id)[-2]["data"]["status"] == "cancelled"


def test_cancelling_a_job_that_ended_changes_nothing(client: httpx2.Client) -> None:
    job_id = _submit(client, 1)
    client.get(f"/v1/jobs/{job_id}", headers=WAIT)
    assert client.delete(f"/v1/jobs/{job_id}").json()["status"] == "succeeded"


def _next(source: Iterator[Any], name: str, **fields: object) -> dict[str, Any]:
    """Return the data of the next event of a name with some fields."""
    for event in source:
        data: dict[str, Any] = json.loads(event.data)
        if event.event == name and fields.items() <= data.items():
            return data
    raise AssertionError("the stream has ended")


def test_a_stream_of_all_jobs_shows_each_as_it_changes(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    with client.sse("/v1/jobs/events") as stream:
        events = iter(stream)
        _next(events, "reset")
        job = post(client, "/v1/ingest", {"documents": [{"text": "a"}]}).json()["id"]
        shown = _next(events, "job", id=job)
        assert (shown["status"], shown["items"]) == ("queued", 1)
        assert shown == client.get("/v1/jobs").json()["jobs"][0]
        worker.gate.set()
        assert _next(events, "job", id=job, status="succeeded")["ok"] == 1


def test_a_stream_of_all_jobs_has_what_the_list_has(client: httpx2.Client) -> None:
    with (
        client.sse("/v1/jobs/events?kind=ingest") as ingests,
        client.sse("/v1/jobs/events?reads=true") as reads,
    ):
        _next(both := iter(reads), "reset")
        _next(only := iter(ingests), "reset")
        post(client, "/v1/search", {"query": "a"}, **WAIT)
        deleted = client.delete("/v1/documents/a", headers=LATER).json()["id"]
        job = post(client, "/v1/ingest", {"documents": [{"text": "a"}]}).json()["id"]
        assert _next(only, "job")["id"] == job
        assert _next(both, "job", kind="search")["status"] == "succeeded"
        assert _next(both, "job", id=deleted)["kind"] == "delete"


def test_the_failures_of_a_job_have_their_places_in_the_request(client: httpx2.Client) -> None:
    ids = ["corrupt" if n in (3, 300, 301) else f"n{n}" for n in range(600)]
    job_id = client.post("/v1/reconstruct", json={"ids": ids}, headers=LATER).json()["id"]
    assert client.get(f"/v1/jobs/{job_id}", headers=WAIT).json()["failed"] == 600
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get(f"/v1/jobs/{job_id}/failures", params={"limit": 7, **cursor}).json()
        assert len(page["failures"]) <= 7
        found += page["failures"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [(one["item"], one["id"]) for one in found] == list(enumerate(ids))
    corrupt = [one["item"] for one in found if one["error"]["code"] == "record_corrupt"]
    assert corrupt == [3, 300, 301]
    fine = _submit(client)
    assert client.get(f"/v1/jobs/{fine}/failures").json()["failures"] == []
    for cursor_text in ("x", "1.2", "1..2", "-1.0.0"):
        bad = client.get(f"/v1/jobs/{job_id}/failures", params={"cursor": cursor_text})
        assert (bad.status_code, bad.json()["code"]) == (422, "request_invalid")


def test_items_that_failed_together_are_one_failure(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    job_id = _submit(client)
    client.delete(f"/v1/jobs/{job_id}")
    worker.gate.set()
    found = client.get(f"/v1/jobs/{job_id}/failures").json()
    assert [(one["item"], one["items"]) for one in found["failures"]] == [
        (0, 256), (256, 256), (512, 88),
    ]  # fmt: skip
    assert {one["error"]["code"] for one in found["failures"]} == {"cancelled"}


def test_a_dead_job_can_be_replayed(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.fail = VectorsUnavailable("gone")
    answer = client.post("/v1/ingest", json={"documents": [{"id": "r", "text": "x"}]}, headers=WAIT)
    assert answer.status_code == 503  # the error that killed it
    job_id = answer.json()["job_id"]
    assert client.get(f"/v1/jobs/{job_id}").json()["status"] == "dead"
    worker.fail = None
    replay = client.post(f"/v1/jobs/{job_id}/replay")
    assert replay.status_code == 202
    assert client.get(f"/v1/jobs/{job_id}", headers=WAIT).json()["status"] == "succeeded"


def test_open_streams_are_counted(gateway: Gateway, worker: FakeWorker) -> None:
    worker.pause()
    job_id = _submit(gateway.client)
    with gateway.client.stream("GET", f"/v1/jobs/{job_id}/events"):
        until = time.monotonic() + 60
        while "verso_event_streams 1.0" not in gateway.client.get("/metrics").text:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_list_shows_the_callers_jobs_by_state_and_kind(client: httpx2.Client) -> None:
    made = [post(client, "/v1/embed", {"texts": [f"t{n}"]}).json()["id"] for n in range(5)]
    post(client, "/v1/search", {"query": "t"})
    found: list[str] = []
    cursor: str | None = None
    while True:
        params = {"kind": "embed", "status": "succeeded", "limit": "2"}
        page = client.get("/v1/jobs", params=params | ({"cursor": cursor} if cursor else {})).json()
        found += [row["id"] for row in page["jobs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == made[::-1]
    assert client.get("/v1/jobs?status=dead").json()["jobs"] == []
    assert client.get("/v1/jobs?cursor=x").json()["code"] == "request_invalid"
    assert client.get("/v1/jobs?status=odd").status_code == 422


_READS: tuple[tuple[str, dict[str, Any] | None], ...] = (
    ("/v1/embed", {"texts": ["a"]}),
    ("/v1/embeddings", {"model": "verso", "input": ["a"]}),
    ("/v1/search", {"query": "a"}),
    ("/v1/cluster", {"since": "2026-11-22T00:00:00Z"}),
    ("/v1/answer", {"question": "a?", "context": "a"}),
    ("/v1/classify", {"head": "kinds", "texts": ["a"]}),
    ("/v1/score", {"pairs": [["a", "b"]]}),
    ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("/v1/reconstruct", {"ids": ["a"]}),
    ("/v1/documents/a", None),
    ("/v1/heads", None),
    ("/v1/collections/default", None),
    ("/v1/collections/default/documents/query", {}),
    ("/v1/collections/default/documents/count", {}),
    ("/v1/collections/default/facets", {"fields": ["host"]}),
)


def test_a_read_whose_caller_waits_is_kept_briefly_and_not_listed(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    client = start_gateway(valkey_url, read_keep_s=40).client
    post(client, "/v1/ingest", {"documents": [{"id": "a", "text": "a"}]}, **WAIT)
    listed = client.get("/v1/jobs").json()["jobs"]
    with redis.Redis.from_url(valkey_url, decode_responses=True) as raw:
        kept = {*raw.scan_iter(key("job", "*")), *raw.scan_iter(key("result", "*"))}
        for path, body in _READS:
            answer = client.get(path) if body is None else post(client, path, body, **WAIT)
            assert answer.status_code == 200, (path, answer.text)
            made = {*raw.scan_iter(key("job", "*")), *raw.scan_iter(key("result", "*"))} - kept
            assert len(made) == 2, path
            assert all(0 < raw.ttl(name) <= 40 for name in made), path
            kept |= made
        assert client.get("/v1/jobs").json()["jobs"] == listed
        assert len(client.get("/v1/jobs?reads=true").json()["jobs"]) == len(_READS) + len(listed)
        later = post(client, "/v1/search", {"query": "a"}, **LATER).json()["id"]
        client.get(f"/v1/jobs/{later}", headers=WAIT)
        assert raw.ttl(key("result", later)) > 40  # asynchronous results keep their time
        assert client.get("/v1/jobs").json()["jobs"][0]["id"] == later


@pytest.mark.parametrize("cursor", ["\u0663", "\u00b2", "1" * 20, "1" * 5000, "-1", "1.x"])
def test_a_cursor_that_no_list_gave_is_refused_by_each(client: httpx2.Client, cursor: str) -> None:
    lists = ["/v1/jobs", "/v1/collections/default/documents"]
    if cursor != "1.x":  # a time and the name of a slice that is gone
        lists.append("/v1/dead-letters")
    for path in lists:
        answer = client.get(path, params={"cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid"), path
    results = client.get("/v1/jobs/none", params={"cursor": cursor})
    assert results.status_code in (404, 422)


def test_another_tenants_job_is_unknown(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    keys = dict(mint(name) for name in ("ann", "bob"))
    path = tmp_path / "keys"
    path.write_text("\n".join(key.line() for key in keys.values()))
    served = start_gateway(valkey_url, api_keys_file=path)
    ann, bob = ({"X-API-Key": key} for key in keys)
    job = served.client.post("/v1/embed", json={"texts": ["mine"]}, headers=ann).json()["id"]
    assert served.client.get(f"/v1/jobs/{job}", headers=ann).status_code == 200
    for method, path_of in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/events"),
        ("GET", "/failures"),
        ("POST", "/replay"),
    ):
        answer = served.client.request(method, f"/v1/jobs/{job}{path_of}", headers=bob)
        assert (answer.status_code, answer.json()["code"]) == (404, "job_unknown")
    assert served.client.get("/v1/jobs", headers=bob).json()["jobs"] == []
    assert len(served.client.get("/v1/jobs?reads=true", headers=ann).json()["jobs"]) == 1


def test_dead_letters_are_listed_and_run_again(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.fail = VersoError("no")
    post(client, "/v1/ingest", {"documents": [{"text": "kept"}]}, Prefer="wait=60")
    post(client, "/v1/ingest", {"documents": [{"text": "kept too"}]}, Prefer="wait=60")
    page = client.get("/v1/dead-letters?limit=1").json()
    [letter] = page["dead_letters"]
    assert (letter["kind"], letter["items"], letter["error"]["code"]) == ("ingest", 1, "internal")
    assert "kept" not in str(letter)
    rest = client.get("/v1/dead-letters", params={"cursor": page["next_cursor"]}).json()
    assert [row["job_id"] for row in rest["dead_letters"]] != [letter["job_id"]]
    worker.fail = None
    assert client.post("/v1/dead-letters/replay?kind=embed").json()["jobs"] == []
    again = client.post("/v1/dead-letters/replay?code=internal").json()
    assert len(again["jobs"]) == 2
    for job in again["jobs"]:
        answer = client.get(f"/v1/jobs/{job}", headers={"Prefer": "wait=60"}).json()
        assert answer["status"] == "succeeded"
    assert client.get("/v1/dead-letters").json()["dead_letters"] == []


def test_an_answer_says_how_much_more_may_come(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    served = start_gateway(valkey_url, queue_limit_slices=3)
    worker.pause()
    documents = {"documents": [{"text": "a"}]}
    first = served.client.post("/v1/ingest", json=documents)
    assert first.headers["RateLimit-Policy"] == '"bulk";q=3;qu="slices"'
    assert re.fullmatch(r'"bulk";r=2;t=\d+', first.headers["RateLimit"])
    for _ in range(2):
        assert served.client.post("/v1/ingest", json=documents).status_code == 202
    full = served.client.post("/v1/ingest", json=documents)
    assert (full.status_code, full.json()["code"]) == (429, "queue_full")
    assert int(full.headers["Retry-After"]) >= 1


def test_a_job_past_its_callers_deadline_is_never_run(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    placed = post(
        client, "/v1/ingest", {"documents": [{"text": "late"}]}, Verso_Deadline="0.05",
        Priority="u=1",
    ).json()  # fmt: skip
    assert placed["urgency"] == 1
    assert placed["deadline"] is not None
    time.sleep(0.1)
    worker.gate.set()
    answer = client.get(f"/v1/jobs/{placed['id']}", headers={"Prefer": "wait=60"}).json()
    assert (answer["status"], answer["error"]["code"]) == ("expired", "deadline_expired")
    assert post(client, "/v1/embed", {"texts": ["a"]}, Verso_Deadline="x").status_code == 422


def test_a_cluster_job_precedes_an_ingest_of_the_same_key(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    documents = {"documents": [{"text": "a"}]}
    placed = [post(client, "/v1/ingest", documents).json()["id"] for _ in range(3)]
    cluster = post(client, "/v1/cluster", {}).json()
    assert cluster["urgency"] == 2
    asked = post(client, "/v1/cluster", {}, Priority="u=5").json()
    assert asked["urgency"] == 5
    order = worker.ledger.leases.claim(Queue.BULK, owner="w", n=5)
    assert [lease.job_id for lease in order] == [cluster["id"], *placed, asked["id"]]


def test_a_search_is_bounded_by_the_values_of_its_filter(client: httpx2.Client) -> None:
    """400,000 values stopped the searches of every key for nine minutes."""
    for metadata, status, pointer in (
        ({"host": [f"h{n}" for n in range(400_000)]}, 413, ""),  # refused before it is read
        ({"host": [f"h{n}" for n in range(257)]}, 422, "/filter/metadata/host"),
        ({f"k{n}": "a" for n in range(33)}, 422, "/filter/metadata"),
    ):
        body = {"query": "a", "filter": {"metadata": metadata}}
        answer = post(client, "/v1/search", body)
        assert answer.status_code == status
        assert answer.json().get("pointer", "").startswith(pointer)
    most = {f"k{n}": [f"h{m}" for m in range(8)] for n in range(32)}
    assert post(client, "/v1/search", {"query": "a", "filter": {"metadata": most}}).is_success
