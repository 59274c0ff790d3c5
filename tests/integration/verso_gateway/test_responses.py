"""How requests become jobs and answers: waiting, repeating, refusing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, post

from verso_core.errors import CollectionUnknown

EMBED = {"texts": ["a", "b"]}


def test_embed_gives_vectors_and_what_took_how_long(client: httpx2.Client) -> None:
    answer = client.post("/v1/embed", json=EMBED)
    body = answer.json()
    assert answer.status_code == 200
    assert [len(one["embedding"]) for one in body["results"]] == [4, 4]
    assert answer.headers["server-timing"] == "queue;dur=1, infer;dur=2.5"
    assert answer.headers["verso-job-id"] == body["id"]
    assert answer.headers["x-request-id"]


def test_one_bad_text_does_not_fail_its_neighbours(client: httpx2.Client) -> None:
    body = post(client, "/v1/embed", {"texts": ["a", "\ud800", "b"]}).json()
    assert [("embedding" in one) for one in body["results"]] == [True, False, True]
    assert body["results"][1]["error"]["code"] == "text_not_encodable"


def test_many_texts_keep_their_order_over_slices(client: httpx2.Client) -> None:
    texts = [f"text {n}" for n in range(600)]
    many = client.post("/v1/embed", json={"texts": texts}).json()
    assert many["slices"] == 3
    one = client.post("/v1/embed", json={"texts": texts[599:]}).json()
    assert many["results"][599] == one["results"][0]


def test_respond_async_is_answered_at_once(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    answer = client.post("/v1/embed", json=EMBED, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.json()["status"] == "queued"
    worker.gate.set()
    job = client.get(answer.headers["location"], headers={"Prefer": "wait=60"}).json()
    assert job["status"] == "succeeded"


def test_the_wait_ends_in_202_when_the_work_takes_longer(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    start = time.monotonic()
    answer = client.post("/v1/embed", json=EMBED, headers={"Prefer": "wait=1"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=1"
    assert time.monotonic() - start > 0.9


def test_the_same_key_and_body_give_the_same_job(client: httpx2.Client) -> None:
    first = client.post("/v1/embed", json=EMBED, headers={"Idempotency-Key": '"k-1"'})
    again = client.post("/v1/embed", json=EMBED, headers={"Idempotency-Key": "k-1"})
    assert again.json() == first.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"


def test_the_same_key_with_another_body_is_refused(client: httpx2.Client) -> None:
    headers = {"Idempotency-Key": "k-2"}
    assert client.post("/v1/embed", json=EMBED, headers=headers).status_code == 200
    other = client.post("/v1/embed", json={"texts": ["c"]}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert other.headers["x-should-retry"] == "false"


def test_a_job_that_fails_whole_is_a_problem_that_names_it(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.fail = CollectionUnknown("no collection 'default'")
    answer = client.post("/v1/embed", json=EMBED)
    assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")
    job = client.get(f"/v1/jobs/{answer.json()['job_id']}").json()
    assert (job["status"], job["error"]["code"]) == ("failed", "collection_unknown")
    assert job["next_cursor"] is None


def test_more_work_than_may_wait_is_429_with_a_time_to_come_back(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    worker.pause()
    client = start_gateway(valkey_url, queue_limit_slices=3).client
    for _ in range(3):
        answer = client.post("/v1/embed", json=EMBED, headers={"Prefer": "respond-async"})
        assert answer.status_code == 202
    full = client.post("/v1/embed", json=EMBED)
    assert (full.status_code, full.json()["code"]) == (429, "queue_full")
    assert full.json()["retryable"] is True
    assert int(full.headers["retry-after"]) >= 1
    worker.gate.set()


@pytest.mark.parametrize(
    ("path", "body", "code", "pointer"),
    [
        ("/v1/embed", {"texts": []}, "request_invalid", "/texts"),
        ("/v1/embed", {"texts": ["a"], "txet": 1}, "request_invalid", "/txet"),
        ("/v1/embed", {"texts": "a"}, "request_invalid", "/texts"),
        ("/v1/embed", [], "request_invalid", None),
        ("/v1/search", {}, "request_invalid", ""),
        ("/v1/search", {"query": "a", "id": "b"}, "request_invalid", ""),
        ("/v1/search", {"query": "\ud800"}, "text_not_encodable", "/query"),
        ("/v1/search", {"query": "a", "limit": 0}, "request_invalid", "/limit"),
        ("/v1/search", {"query": "a", "collection": "A B"}, "request_invalid", "/collection"),
        ("/v1/search", {"query": "a", "collection": "nope"}, "collection_unknown", None),
        ("/v1/search", {"query": "a", "mode": "both"}, "request_invalid", "/mode"),
        ("/v1/search", {"query": "a", "mode": "hybrid"}, "request_invalid", None),
        ("/v1/search", {"vector": [1e39]}, "vector_invalid", None),
        ("/v1/search", {"id": "a\nb"}, "id_invalid", None),
        ("/v1/cluster", {"method": "guess"}, "request_invalid", "/method"),
        ("/v1/cluster", {"eps": 0}, "request_invalid", "/eps"),
        ("/v1/cluster", {"collection": "nope"}, "collection_unknown", None),
        ("/v1/reconstruct", {}, "request_invalid", ""),
        ("/v1/reconstruct", {"ids": ["a"], "beam": 99}, "request_invalid", "/beam"),
        ("/v1/ingest", {"documents": {}}, "request_invalid", None),
        ("/v1/ingest", {"documents": []}, "request_invalid", None),
        ("/v1/ingest", {"documents": [], "x": 1}, "request_invalid", "/x"),
        ("/v1/collections", {"name": "No!"}, "request_invalid", "/name"),
        ("/v1/collections", {"name": "a", "search": "sparse"}, "request_invalid", "/search"),
    ],
)
def test_a_wrong_body_is_pointed_at(
    client: httpx2.Client, path: str, body: object, code: str, pointer: str | None
) -> None:
    answer = post(client, path, body)
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["code"], problem.get("pointer")) == (code, pointer)
    assert problem["status"] == answer.status_code
    assert client.get(problem["type"]).status_code == 200  # the type explains itself


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b'{"texts": [NaN]}', b'{"texts": ["\xff"]}', b"\x00"]
)
def test_malformed_json_is_a_clear_error(client: httpx2.Client, data: bytes) -> None:
    answer = client.post("/v1/embed", content=data, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


def test_only_json_is_taken_as_json(client: httpx2.Client) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/v1/embed", content=b"{}", headers={"Content-Type": media_type})
        assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


def test_a_wrong_path_method_or_query_is_a_problem_too(client: httpx2.Client) -> None:
    for method, path, status in [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/embed", 405),
        ("GET", "/v1/jobs/x?cursor=-1", 422),
        ("GET", "/docs/errors/nothing", 404),
    ]:
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["status"]) == (status, status)
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/v1/embed").headers["Allow"] == "POST"


def test_a_body_over_the_limit_is_413(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    client = start_gateway(valkey_url, body_limit_bytes=100_000).client
    body = {"texts": ["x" * 200_000]}
    whole = client.post("/v1/embed", json=body)
    chunked = client.post(
        "/v1/embed",
        content=(b"x" * 50_000 for _ in range(4)),
        headers={"Content-Type": "application/json"},
    )
    for answer in (whole, chunked):
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert client.post("/v1/embed", json=EMBED).status_code == 200


def test_the_api_describes_itself(client: httpx2.Client) -> None:
    document = client.get("/openapi.json").json()
    assert {"/v1/ingest", "/v1/search", "/v1/jobs/{job_id}/events"} <= set(document["paths"])
    schemas = document["components"]["schemas"]
    assert {"SearchRequest", "IngestRequest", "Document", "Problem", "JobView"} <= set(schemas)
    text = client.get("/openapi.json").text
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in schemas
