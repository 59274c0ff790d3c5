"""Running a gateway: health, keys, metrics, wake-ups, outages, stopping."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import redis
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, collection

from verso_core.api_keys import mint
from verso_core.jobs import Queue
from verso_gateway.settings import Settings
from verso_ledger import Damage, Ledger, Move
from verso_standalone.valkey import free_port

EMBED = {"texts": ["a"]}


def test_the_address_leads_browsers_to_the_console_and_others_to_the_api(
    client: httpx2.Client,
) -> None:
    browser = client.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (browser.status_code, browser.headers["location"]) == (303, "/console")
    found = client.get("/").json()
    assert found["name"] == "verso"
    assert client.get(found["api"]).status_code == 200
    assert client.get(found["console"]).headers["content-type"].startswith("text/html")


def test_alive_is_not_ready(client: httpx2.Client, worker: FakeWorker) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    before = client.get("/readyz")
    assert (before.status_code, before.json()["code"]) == (503, "not_ready")
    worker.ledger.liveness.note_embed()
    unheard = client.get("/readyz")
    assert (unheard.status_code, unheard.json()["code"]) == (503, "not_ready")
    assert "beat" in unheard.json()["detail"]
    worker.ledger.liveness.note_worker("w")
    assert client.get("/readyz").json()["ready"] is True


def test_an_old_embed_is_not_enough(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    worker.ledger.liveness.note_worker("w")
    worker.ledger.liveness.note_embed()
    time.sleep(0.1)
    assert start_gateway(valkey_url).client.get("/readyz").status_code == 200
    strict = start_gateway(valkey_url, ready_embed_age_s=0.05).client
    assert strict.get("/readyz").status_code == 503


def test_the_default_collection_is_awaited_not_unknown(
    valkey_url: str, start_gateway: Callable[..., Gateway]
) -> None:
    answer = start_gateway(valkey_url).client.post("/v1/search", json={"query": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")


def test_keys_are_needed_where_keys_are_set(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    key, made = mint("ops")
    (tmp_path / "keys").write_text(made.line())
    client = start_gateway(valkey_url, api_keys_file=tmp_path / "keys").client
    for path in ("/v1/collections", "/v1/jobs/x", "/v1/jobs/x/events", "/v1/models"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for headers in ({"Authorization": f"Bearer {key}"}, {"X-API-Key": key}):
        assert client.post("/v1/embed", json=EMBED, headers=headers).status_code == 200
    assert client.get("/healthz").status_code == 200


def test_every_route_but_health_asks_who_is_there(
    valkey_url: str, start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(f"ops {hashlib.sha256(b'k').hexdigest()}")
    client = start_gateway(valkey_url, api_keys_file=tmp_path / "keys").client
    open_paths = {"/", "/healthz", "/readyz", "/docs/errors/{code}", "/tei/health"}
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            assert ("security" in operation) == (path not in open_paths), (method, path)
            answer = client.request(method.upper(), path)
            assert (answer.status_code == 401) == (path not in open_paths), (method, path)


def test_a_foreign_host_name_is_refused_without_keys(client: httpx2.Client) -> None:
    answer = client.get("/v1/collections", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_a_refused_body_is_freed_with_its_answer(client: httpx2.Client) -> None:
    """An error's frames hold the body in a cycle, which only the collector would end."""
    content = json.dumps({"texts": ["a" * 2**20], "unknown": True}).encode()
    headers = {"Content-Type": "application/json"}
    memory = psutil.Process().memory_info

    def refuse(times: int) -> None:
        for _ in range(times):
            answer = client.post("/v1/embed", content=content, headers=headers)
            assert (answer.status_code, answer.json()["pointer"]) == (422, "/unknown")

    refuse(3)
    gc.collect()
    gc.disable()
    try:
        before = memory().rss
        refuse(64)
        assert memory().rss - before < 32 * 2**20
    finally:
        gc.enable()


def test_figures_start_at_zero_and_count(client: httpx2.Client) -> None:
    page = client.get("/metrics").text
    assert 'verso_requests_total{status="5xx",task="search"} 0.0' in page
    client.post("/v1/embed", json=EMBED)
    page = client.get("/metrics").text
    assert 'verso_requests_total{status="2xx",task="embed"} 1.0' in page
    assert 'verso_request_seconds_count{task="embed"} 1.0' in page
    assert 'verso_jobs_accepted_total{queue="interactive",task="embed"} 1.0' in page


def test_a_caller_who_goes_away_while_sending_is_no_fault_of_the_gateway(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    head = "POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        time.sleep(0.2)  # the route reads the body

    def count(status: str) -> bool:
        name = f'verso_requests_total{{status="{status}",task="ingest"}} 1.0'
        return name in gateway.client.get("/metrics").text

    until = time.monotonic() + 60
    while not count("4xx"):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not count("5xx")
    assert "fault" not in [record.message for record in caplog.records]


def test_a_wakeup_names_the_task_the_queue_and_no_job(
    client: httpx2.Client, valkey_url: str
) -> None:
    job_id = client.post("/v1/embed", json=EMBED).json()["id"]
    broker = redis.Redis.from_url(valkey_url.removesuffix("/0") + "/1")
    with broker:
        until = time.monotonic() + 60
        while not broker.llen("verso.interactive") and time.monotonic() < until:
            time.sleep(0.01)
        [raw] = broker.lrange("verso.interactive", 0, -1)
    message: dict[str, Any] = json.loads(raw)
    assert message["headers"]["task"] == "verso.work"
    assert message["content-type"] == "application/json"
    assert job_id.encode() not in raw
    assert "interactive" in message["headers"]["argsrepr"]


def test_a_lost_broker_delays_no_answer(valkey_url: str, worker: FakeWorker) -> None:
    gateway = Gateway(Settings(redis_url=valkey_url, broker_url="redis://127.0.0.1:1/0"))
    try:
        assert gateway.client.post("/v1/embed", json=EMBED).status_code == 200
    finally:
        gateway.close()


def test_without_the_ledger_callers_are_told_soon_and_served_again_when_it_is_back(
    valkey_server: Callable[..., Any], start_gateway: Callable[..., Gateway]
) -> None:
    server = valkey_server()
    with_ledger = Ledger.from_url(server.url)
    with_ledger.documents.collection_put(collection())
    client = start_gateway(server.url).client
    assert client.get("/v1/collections").status_code == 200
    server.kill()
    for method, path in [("GET", "/v1/collections"), ("POST", "/v1/embed"), ("GET", "/readyz")]:
        start = time.monotonic()
        answer = client.request(method, path, json=EMBED)
        assert (answer.status_code, answer.json()["code"]) == (503, "ledger_unavailable")
        assert "retry-after" in answer.headers
        assert time.monotonic() - start < 50
    assert client.get("/healthz").status_code == 200
    server.start()
    until = time.monotonic() + 60
    while client.get("/v1/collections").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    answer = client.post("/v1/embed", json=EMBED, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    with_ledger.close()


def test_a_ledger_that_hangs_is_given_up(
    valkey_server: Callable[..., Any], start_gateway: Callable[..., Gateway]
) -> None:
    server = valkey_server()
    client = start_gateway(server.url).client
    assert client.get("/v1/collections").status_code == 200
    server.pause()  # a gateway that waited for it would not answer
    answer = client.post("/v1/embed", json=EMBED)
    assert (answer.status_code, answer.json()["code"]) == (503, "ledger_unavailable")
    server.resume()


def _run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "verso_gateway", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_process_refuses_to_listen_beyond_loopback_without_keys() -> None:
    process = _run(VERSO_HOST="0.0.0.0")  # noqa: S104 - it refuses
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "without API keys" in errors


def test_the_process_refuses_a_file_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    process = _run(VERSO_API_KEYS_FILE=str(tmp_path / "keys"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "verso keys new" in errors


@pytest.mark.slow
def test_a_stop_signal_answers_who_waits_and_ends_the_process(
    valkey_url: str, worker: FakeWorker
) -> None:
    port = free_port()
    worker.pause()
    process = _run(
        VERSO_REDIS_URL=valkey_url,
        VERSO_BROKER_URL=valkey_url.removesuffix("/0") + "/1",
        VERSO_PORT=str(port),
    )
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + 120
    with httpx2.Client(base_url=url, timeout=60) as client:
        while True:
            try:
                client.get("/healthz")
                break
            except httpx2.TransportError:
                assert time.monotonic() < until
                time.sleep(0.1)
        job_id = client.post("/v1/embed", json=EMBED, headers={"Prefer": "wait=0"}).json()["id"]
        with (
            client.stream("GET", f"/v1/jobs/{job_id}/events") as stream,
            ThreadPoolExecutor(1) as pool,
        ):
            waiting = pool.submit(
                client.post, "/v1/embed", json=EMBED, headers={"Prefer": "wait=30"}
            )
            while worker.ledger.maintenance.depths()[Queue.INTERACTIVE].queued < 2:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert waiting.result(timeout=60).status_code == 202
            assert "event: end" not in stream.read().decode()  # the reader will come back
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert all("texts" not in line["message"] for line in lines)


def test_the_scrub_is_shown_and_asked_for(client: httpx2.Client, worker: FakeWorker) -> None:
    first = client.get("/v1/scrub").json()
    assert (first["number"], first["running"], first["started"]) == (0, False, None)
    asked = client.post("/v1/scrub")
    assert (asked.status_code, asked.json()["asked"]) == (202, True)
    worker.ledger.scrub.move(0, Move(begin=True))
    found = Move(
        set={"collection": "default", "bucket": 4},
        add={"documents": 3, "sound": 2, "damaged": 1},
        damaged=[Damage("default", "\u00fc")],
    )
    worker.ledger.scrub.move(1, found)
    state = client.get("/v1/scrub").json()
    assert (state["number"], state["running"], state["asked"]) == (1, True, False)
    assert (state["sound"], state["damaged"], state["ended"]) == (2, 1, None)
    assert 0 < state["progress"] < 1
    assert state["damaged_documents"] == [{"collection": "default", "id": "\u00fc"}]
    assert (state["state"], state["recent"]) == ("running", None)
    worker.ledger.scrub.request_recent(0)  # an unclean start
    where: dict[str, str | int | float | None] = {
        "recent_collection": "default",
        "recent_bucket": 4,
    }
    worker.ledger.scrub.move(3, Move(set=where | {"recent_documents": 7}))
    state = client.get("/v1/scrub").json()
    assert (state["state"], state["running"]) == ("recent", True)
    assert state["recent"].pop("progress") == pytest.approx(4 / state["recent"]["buckets"], 1e-3)
    assert state["recent"] == {
        "buckets_done": 4,
        "buckets": state["recent"]["buckets"],
        "documents": 7,
    }


def test_the_state_of_the_platform_is_one_answer(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.ledger.liveness.note_worker("w")
    disk = {"bytes_free": 5, "bytes_total": 9, "bytes_floor": 1}
    worker.ledger.liveness.note_serving("w", {"engines": 1, "disk_full": False, "disk": disk})
    state = client.get("/v1/status").json()
    queues = {one["queue"]: one for one in state["queues"]}
    assert queues.keys() == set(Queue)
    assert queues["bulk"]["queued"] == 0
    assert state["workers"] == [{"worker": "w", "engines": 1, "disk_full": False, "disk": disk}]
    assert (state["backlog"]["dead"], state["backlog"]["read_only"]) == (0, False)
    assert state["scrubbed"].keys() == {"sound", "repaired", "damaged"}
    assert state["ready"] is (state["reason"] is None)


def test_a_map_is_a_job_and_what_it_is_coloured_by_is_checked(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    now = {"Prefer": "wait=60"}
    assert client.post("/v1/project", json={"limit": 5}).status_code == 202
    found = client.post("/v1/project", json={"limit": 5}, headers=now).json()
    assert (found["records"], found["ids"]) == (0, [])
    for wrong in ({"limit": 20_001}, {"colour": "label"}, {"label_key": "a"}, {"groups": 13}):
        assert client.post("/v1/project", json=wrong, headers=now).status_code == 422


def test_a_document_says_how_it_is_stored(client: httpx2.Client, worker: FakeWorker) -> None:
    sent = {"documents": [{"id": "a/b", "text": "x"}]}
    client.post("/v1/ingest", json=sent, headers={"Prefer": "wait=60"})
    assert client.get("/v1/records/a/b").json()["id"] == "a/b"
    assert client.get("/v1/records/none").json()["code"] == "document_unknown"
    assert client.get("/v1/records/a/b", params={"limit": 65}).status_code == 422
