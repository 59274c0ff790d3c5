"""Search, reconstruct, documents and collections over HTTP."""

from __future__ import annotations

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker

from verso_core.jobs import Kind

WAIT = {"Prefer": "wait=60"}


@pytest.fixture(autouse=True)
def _stored(client: httpx2.Client) -> None:
    documents = [{"id": "a", "text": "first", "metadata": {"k": 1}}, {"id": "b", "text": "second"}]
    client.post("/v1/ingest", json={"documents": documents}, headers=WAIT)


def test_search_by_text_gives_records(client: httpx2.Client, worker: FakeWorker) -> None:
    where = {"metadata": {"k": [1, 2]}, "time_gte": 5.0}
    body = client.post("/v1/search", json={"query": "q", "limit": 1, "filter": where}).json()
    assert body["hits"] == [
        {
            "id": "a#0",
            "document": "a",
            "chunk": 0,
            "score": 0.5,
            "metadata": {"k": 1},
            "time": None,
            "text": "first",
        }
    ]
    asked = worker.seen[-1].params
    assert asked["filter"] == {"metadata": {"k": [1, 2]}, "time_gte": 5.0}
    assert worker.seen[-1].items[0].blob == b"q"


def test_search_by_vector_and_by_record(client: httpx2.Client, worker: FakeWorker) -> None:
    assert client.post("/v1/search", json={"vector": [1, 0, 0, 0]}).status_code == 200
    assert worker.seen[-1].items[0].blob == bytes.fromhex("0000803f") + bytes(12)
    assert client.post("/v1/search", json={"id": "a#0"}).status_code == 200
    assert worker.seen[-1].items[0].header == {"id": "a", "chunk": 0}


def test_reconstruct_by_ids_answers_for_each(client: httpx2.Client) -> None:
    ids = ["b", "nothing", "a#0", "corrupt", "x\ny"]
    results = client.post("/v1/reconstruct", json={"ids": ids}).json()["results"]
    assert [one.get("text") for one in results] == ["second", None, "first", None, None]
    codes = [one["error"]["code"] for one in results if "error" in one]
    assert codes == ["document_unknown", "record_corrupt", "id_invalid"]
    assert results[0]["exact"] is True


def test_reconstruct_from_a_bare_vector_is_marked_as_a_guess(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    body = {"vectors": [[1, 0, 0, 0]], "beam": 4, "max_tokens": 9}
    [guess] = client.post("/v1/reconstruct", json=body).json()["results"]
    assert guess == {
        "exact": False,
        "confidence": 0.5,
        "log_probability": -1.25,
        "text": "a guess",
    }
    assert worker.seen[-1].items[0].header == {
        "vector": True,
        "beam": 4,
        "max_tokens": 9,
        "blob": 0,
    }


def test_damaged_bytes_are_an_error_and_never_another_text(client: httpx2.Client) -> None:
    answer = client.get("/v1/documents/corrupt")
    assert (answer.status_code, answer.json()["code"]) == (500, "record_corrupt")
    raw = client.get("/v1/documents/corrupt", headers={"Accept": "application/octet-stream"})
    assert raw.status_code == 500
    assert raw.headers["content-type"] == "application/problem+json"


def test_documents_are_read_and_deleted(client: httpx2.Client) -> None:
    assert client.get("/v1/documents/a").json()["text"] == "first"
    assert client.get("/v1/documents/a%230").json()["text"] == "first"
    assert client.delete("/v1/documents/a").json() == {"id": "a", "deleted": True}
    for method in ("GET", "DELETE"):
        answer = client.request(method, "/v1/documents/a")
        assert (answer.status_code, answer.json()["code"]) == (404, "document_unknown")
    assert client.get("/v1/documents/").json()["code"] == "id_invalid"
    assert client.get("/v1/documents/a?collection=nope").json()["code"] == "collection_unknown"


def test_a_change_or_delete_that_is_sent_again_under_its_key_is_done_once(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    """Its answer is the first one's, whatever came between."""

    def change(key: str, value: int, **more: object) -> httpx2.Response:
        body = {"metadata": {"k": value}, **more}
        return client.patch("/v1/documents/a", json=body, headers={"Idempotency-Key": key})

    first = change("one", 2, written=1)
    assert first.json() == {"id": "a", "written": 2}
    assert change("two", 3).json()["written"] == 3
    again = change("one", 2, written=1)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert worker.documents["a"].header["metadata"] == {"k": 3}
    other = change("one", 4)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    for _ in range(2):
        gone = client.delete("/v1/documents/a", headers={"Idempotency-Key": "three"})
        assert (gone.status_code, gone.json()) == (200, {"id": "a", "deleted": True})
    assert change("two", 3).json()["written"] == 3
    assert change("four", 5).json()["code"] == "document_unknown"


def test_a_read_that_nobody_answers_is_503_and_leaves_no_work(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    answer = client.get("/v1/documents/a", headers={"Prefer": "wait=1"})
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    seen = len(worker.seen)
    worker.gate.set()
    assert client.post("/v1/embed", json={"texts": ["a"]}).status_code == 200
    assert len(worker.seen) == seen + 1


def test_what_nobody_answered_in_time_is_found_again_by_its_key(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    def ask(prefer: str) -> httpx2.Response:
        headers = {"Prefer": prefer, "Idempotency-Key": "late"}
        return client.post("/v1/embeddings", json={"input": "a", "model": "verso"}, headers=headers)

    worker.pause()
    seen = len(worker.seen)
    assert ask("wait=1").status_code == 503
    worker.gate.set()
    assert ask("wait=60").status_code == 200
    assert len(worker.seen) == seen + 1


def test_collections_are_made_listed_described_and_deleted(client: httpx2.Client) -> None:
    made = client.post("/v1/collections", json={"name": "logs", "precision": "int8"})
    assert made.status_code == 201
    assert made.json()["name"] == "logs"
    listed = client.get("/v1/collections").json()["collections"]
    assert [one["name"] for one in listed] == ["default", "logs"]
    assert "checksum_key" not in made.text + str(listed)
    assert client.get("/v1/collections/logs").json()["documents"] == 2
    assert client.delete("/v1/collections/logs").json() == {"name": "logs"}
    gone = client.get("/v1/collections/logs")
    assert (gone.status_code, gone.json()["code"]) == (404, "collection_unknown")


def test_a_change_or_delete_of_a_collection_that_is_sent_again_is_done_once(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    """Its answer is the first one's, whatever was made of the collection's name since."""

    def kept() -> float | None:
        return worker.ledger.documents.collections()["c"].retention_days

    def change(key: str, days: int) -> httpx2.Response:
        body = {"retention_days": days}
        return client.patch("/v1/collections/c", json=body, headers={"Idempotency-Key": key})

    def delete(key: str) -> httpx2.Response:
        return client.delete("/v1/collections/c", headers={"Idempotency-Key": key})

    assert delete("zero").json()["code"] == "collection_unknown"
    client.post("/v1/collections", json={"name": "c"}).raise_for_status()
    first = change("one", 1)
    assert (first.status_code, first.json()["retention_days"]) == (200, 1)
    assert change("two", 2).json()["retention_days"] == 2
    again = change("one", 1)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert kept() == 2
    other = change("one", 3)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert change("x" * 256, 3).json()["code"] == "request_invalid"
    for _ in range(2):
        gone = delete("three")
        assert (gone.status_code, gone.json()) == (200, {"name": "c"})
    assert delete("two").json()["code"] == "idempotency_conflict"
    client.post("/v1/collections", json={"name": "c"}).raise_for_status()
    assert (delete("three").json(), change("two", 2).status_code) == ({"name": "c"}, 200)
    assert kept() is None
    assert delete("zero").json() == {"name": "c"}  # nothing was accepted under it


def test_a_step_of_a_migration_that_is_sent_again_is_done_once(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    """A second one would be refused, or end the migration that somebody has started since."""
    path = "/v1/collections/default/migrate"
    for method, body in (("POST", {"artifact": "current"}), ("DELETE", None)):
        answers = [
            client.request(method, path, json=body, headers={"Idempotency-Key": method})
            for _ in range(2)
        ]
        assert [one.json() for one in answers] == [
            {"collection": "default", "stage": "cancelled"}
        ] * 2
        assert answers[1].headers["Idempotency-Replayed"] == "true"
    steps = [one.params.get("step", "begin") for one in worker.seen if one.kind is Kind.MIGRATE]
    assert steps == ["begin", "remove"]


def test_the_documents_of_a_collection_are_listed(client: httpx2.Client) -> None:
    assert client.get("/v1/collections/default/documents").json() == {
        "documents": [],
        "next_cursor": None,
    }
    for path, status, code in [
        ("/v1/collections/nope/documents", 404, "collection_unknown"),
        ("/v1/collections/default/documents?cursor=x", 422, "request_invalid"),
        ("/v1/collections/default/documents?limit=0", 422, "request_invalid"),
    ]:
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
