"""Documents on their way in, over real HTTP."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, post

from verso_ledger import Ledger

WAIT = {"Prefer": "wait=60"}


def _ingest(client: httpx2.Client, *documents: object) -> dict[str, Any]:
    answer = post(client, "/v1/ingest", {"documents": documents}, **WAIT)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_ingest_answers_202_with_a_place_to_look(client: httpx2.Client) -> None:
    answer = client.post("/v1/ingest", json={"documents": [{"id": "a", "text": "x"}]})
    assert answer.status_code == 202
    assert answer.headers["retry-after"] == "1"
    job = client.get(answer.headers["location"], headers=WAIT).json()
    assert (job["status"], job["items"], job["ok"], job["failed"]) == ("succeeded", 1, 1, 0)
    assert job["results"] == [{"id": "a", "chunks": 1, "bytes_text": 1}]
    assert job["next_cursor"] is None


def test_every_document_has_its_own_result_in_its_place(client: httpx2.Client) -> None:
    documents = [{"id": f"d{n}", "text": "x" * n} for n in range(200)]
    documents[70] = {"id": "d0", "text": "again"}
    documents[71] = {"id": "bad", "text": "\ud800"}
    body = _ingest(client, *documents)
    assert body["slices"] > 1
    assert (body["ok"], body["failed"]) == (198, 2)
    assert body["results"][70]["error"]["code"] == "duplicate_id"
    assert body["results"][71]["error"]["code"] == "text_not_encodable"
    assert [body["results"][n]["id"] for n in (0, 69, 72, 199)] == ["d0", "d69", "d72", "d199"]


def test_a_request_whose_every_document_is_bad_makes_no_job(client: httpx2.Client) -> None:
    answer = post(client, "/v1/ingest", {"documents": [{"text": 1}, {"id": "x#1", "text": ""}]})
    body = answer.json()
    assert (answer.status_code, body["code"]) == (422, "documents_refused")
    assert (body["accepted"], body["refused"]) == (0, 2)
    codes = [one["error"]["code"] for one in body["refusals"]]
    assert codes == ["request_invalid", "id_invalid"]


def test_an_upload_says_at_once_which_lines_were_refused(client: httpx2.Client) -> None:
    lines = b'{"text": "a"}\n{"text": "b", "host": "c"}\n'
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    answer = client.post("/v1/ingest", content=gzip.compress(lines), headers=headers)
    body = answer.json()
    assert (answer.status_code, body["accepted"], body["refused"]) == (202, 1, 1)
    assert body["refusals"][0]["error"]["detail"].startswith("line 2: expected the keys")
    plain = client.post(
        "/v1/ingest",
        content=gzip.compress(lines),
        headers=headers | {"Content-Encoding": "identity"},
    )
    assert (plain.status_code, plain.json()["code"]) == (422, "documents_refused")


def test_the_same_request_with_its_key_is_the_same_job(client: httpx2.Client) -> None:
    def sent(key: str) -> str:
        answer = client.post(
            "/v1/ingest", json={"documents": [{"text": "a"}]}, headers={"Idempotency-Key": key}
        )
        return str(answer.json()["id"])

    assert sent("k1") == sent("k1") != sent("k2")


def test_bytes_that_json_cannot_hold_come_back_exactly(client: httpx2.Client) -> None:
    data = bytes(range(256)) + b"\x00\xff\xed\xa0\x80\r\n"
    _ingest(client, {"id": "b", "text_base64": base64.b64encode(data).decode()})
    raw = client.get("/v1/documents/b", headers={"Accept": "application/octet-stream"})
    assert raw.content == data
    assert raw.headers["content-type"] == "application/octet-stream"
    body = client.get("/v1/documents/b").json()
    assert base64.b64decode(body["text_base64"]) == data
    assert "text" not in body


def test_strange_but_valid_texts_come_back_as_text(client: httpx2.Client) -> None:
    texts = ["", "\x00", "a\r\nb\tc", "e\u0301\N{GRINNING FACE}\u202e", " " * 9, "\ufeff"]
    _ingest(client, *({"id": f"t{n}", "text": text} for n, text in enumerate(texts)))
    found = [client.get(f"/v1/documents/t{n}").json()["text"] for n in range(len(texts))]
    assert found == texts


def test_a_text_of_a_mebibyte_goes_in_alone(client: httpx2.Client) -> None:
    text = "0123456789abcdef" * 65536
    _ingest(client, {"id": "big", "text": text})
    assert client.get("/v1/documents/big").json()["text"] == text


def test_metadata_and_time_come_back(client: httpx2.Client) -> None:
    metadata = {"host": "a", "n": 3, "x": 1.5, "ok": True}
    _ingest(client, {"id": "m", "text": "x", "metadata": metadata, "time": "2026-01-01T00:00:00Z"})
    body = client.get("/v1/documents/m").json()
    assert (body["metadata"], body["time"]) == (metadata, 1767225600.0)


def test_an_upload_of_lines_is_cut_while_it_arrives(client: httpx2.Client) -> None:
    def lines() -> Iterator[bytes]:
        for n in range(500):
            yield json.dumps({"id": f"l{n}", "text": f"line {n}"}).encode() + b"\n"
        yield b"{broken\n"

    headers = WAIT | {"Content-Type": "application/x-ndjson"}
    answer = client.post("/v1/ingest?collection=default", content=lines(), headers=headers)
    body = answer.json()
    assert (answer.status_code, body["ok"], body["failed"]) == (200, 500, 1)
    assert body["results"][-1]["error"]["detail"].startswith("line 501: malformed JSON")
    assert client.get("/v1/documents/l499").json()["text"] == "line 499"


def test_documents_without_ids_are_documents_of_their_own(client: httpx2.Client) -> None:
    first = _ingest(client, {"text": "a"}, {"text": "a"}, {"text": "b"})
    again = _ingest(client, {"text": "a"}, {"text": "a"}, {"text": "b"})
    ids = [one["id"] for body in (first, again) for one in body["results"]]
    assert len(set(ids)) == 6
    assert (first["accepted"], first["refused"]) == (3, 0)
    assert ids == sorted(ids)


def test_ids_may_hold_anything_a_path_can_carry(client: httpx2.Client) -> None:
    name = "a/b c?d%e\N{SNOWMAN}&f=#g"
    _ingest(client, {"id": name, "text": "x"})
    answer = client.get("/v1/documents/" + quote(name, safe=""))
    assert (answer.status_code, answer.json()["id"]) == (200, name)


def test_an_unknown_collection_is_a_404_before_anything_is_stored(client: httpx2.Client) -> None:
    answer = client.post("/v1/ingest", json={"collection": "nope", "documents": [{"text": "a"}]})
    assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")


def test_nothing_is_taken_in_while_no_worker_has_room_on_its_disk(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    liveness = worker.ledger.liveness
    for name in ("a", "b"):
        liveness.note_worker(name)
        liveness.note_serving(name, {"disk_full": True})
    body = {"documents": [{"text": "x"}]}
    answer = client.post("/v1/ingest", json=body)
    assert (answer.status_code, answer.json()["code"]) == (503, "disk_full")
    assert "retry-after" in answer.headers
    liveness.note_serving("b", {"disk_full": False})
    time.sleep(1.1)
    assert client.post("/v1/ingest", json=body).status_code == 202


def test_lines_without_number_hold_up_nobody(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    """Many lines and documents are refused, and another caller is answered meanwhile."""
    served = start_gateway(valkey_url, upload_limit_documents=60_000)
    worker.pause()
    answers: list[tuple[int, str]] = []
    lines, json = "application/x-ndjson", "application/json"
    bodies = [
        (lines, b"1\n" * 1_000_000),
        (lines, b"1\n" * 50_000),
        (json, b'{"documents": [' + b"1," * 49_999 + b"1]}"),
    ]

    def upload() -> None:
        with httpx2.Client(base_url=served.client.base_url, timeout=120.0) as client:
            for kind, body in bodies:
                answer = client.post("/v1/ingest", content=body, headers={"Content-Type": kind})
                answers.append((answer.status_code, answer.json()["code"]))

    thread = threading.Thread(target=upload)
    thread.start()
    slowest = 0.0
    while thread.is_alive():
        started = time.process_time()  # of all threads, the gateway's among them
        assert served.client.get("/v1/collections").status_code == 200
        slowest = max(slowest, time.process_time() - started)
    assert answers == [(413, "body_too_large"), *2 * [(422, "documents_refused")]]
    assert slowest < 2.0  # it was six seconds when lines were read between other requests
    assert Ledger.from_url(valkey_url).maintenance.backlog().staged_bytes == 0
