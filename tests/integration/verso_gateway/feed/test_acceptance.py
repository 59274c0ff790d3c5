"""Requests that arrive together share a job, are answered each for itself, and wait for room."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_core.errors import CollectionExists

PUSH = "/loki/api/v1/push"


def push(client: httpx2.Client, *texts: str, **labels: str) -> int:
    values = [["1", text] for text in texts]
    body = {"streams": [{"stream": labels or {"job": "x"}, "values": values}]}
    return client.post(PUSH, json=body).status_code


def test_requests_that_arrive_together_share_a_job(
    valkey_url: str, worker: FakeWorker, stored: Ledger, start_gateway: Any
) -> None:
    gateway: Gateway = start_gateway(valkey_url, feed_gather_ms=300)
    assert push(gateway.client, "first") == 204
    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(lambda n: push(gateway.client, str(n)), range(40)))
    assert done == [204] * 40
    assert stored.texts(41) == sorted(["first", *map(str, range(40))])
    assert len(stored.slices()) <= 12
    jobs = gateway.client.get("/v1/jobs?kind=ingest_lines").json()["jobs"]
    assert sum(job["slices"] for job in jobs) == len(stored.slices())


def test_each_stream_is_numbered_by_itself(client: httpx2.Client, stored: Ledger) -> None:
    for n in range(3):
        assert push(client, f"a{n}", host="a") == 204
        assert push(client, f"b{n}", host="b") == 204
    found = {one.text: (one.labels, one.place[1]) for one in stored.records(6)}
    assert found == {f"{host}{n}": ({"host": host}, n) for host in "ab" for n in range(3)}


def test_requests_wait_for_room_and_are_accepted_once(
    valkey_url: str, worker: FakeWorker, stored: Ledger, start_gateway: Any
) -> None:
    gateway = start_gateway(valkey_url, queue_limit_slices=2)
    assert push(gateway.client, "first") == 204
    stored.records(1)
    worker.pause()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(push, gateway.client, str(n), host=str(n)) for n in range(8)]
        worker.gate.set()
        assert [one.result() for one in waiting] == [204] * 8
    assert stored.texts(9) == sorted(["first", *map(str, range(8))])


def test_a_request_lies_in_one_job(client: httpx2.Client, stored: Ledger) -> None:
    texts = [f"{n} " + "x" * 1000 for n in range(6000)]
    assert push(client, *texts) == 204
    assert stored.texts(6000) == sorted(texts)
    assert len(stored.slices()) == 3
    jobs = client.get("/v1/jobs?kind=ingest_lines").json()["jobs"]
    assert [job["slices"] for job in jobs] == [3]


def test_a_collection_of_documents_takes_no_records(
    valkey_url: str, worker: FakeWorker, start_gateway: Any
) -> None:
    gateway = start_gateway(valkey_url, feed_routes="*=default")
    body = {"streams": [{"stream": {"job": "x"}, "values": [["1", "a"]]}]}
    answer = gateway.client.post(PUSH, json=body)
    assert answer.status_code == 400
    assert "kind logs" in answer.text


def test_a_collection_that_was_deleted_is_made_again(
    client: httpx2.Client, worker: FakeWorker, stored: Ledger
) -> None:
    def await_status(status: int) -> None:
        until = time.monotonic() + 60
        while client.get("/v1/collections/logs").status_code != status:
            assert time.monotonic() < until
            time.sleep(0.05)

    worker.pause()
    assert push(client, "early") == 503  # the collection is still being made
    worker.gate.set()
    await_status(200)
    assert push(client, "first") == 204
    assert client.delete("/v1/collections/logs", headers={"Prefer": "wait=60"}).status_code == 200
    await_status(404)
    assert push(client, "second") == 204
    assert stored.texts(2) == ["first", "second"]


def test_a_collection_that_could_not_be_made_is_tried_again(
    client: httpx2.Client, worker: FakeWorker, stored: Ledger
) -> None:
    worker.fail = CollectionExists("of other settings")
    assert push(client, "early") == 503
    worker.fail = None
    assert push(client, "first") == 204
    assert stored.texts(1) == ["first"]
