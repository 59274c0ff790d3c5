"""A collection of four partitions on two ledgers of a running platform: as one on one ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.conftest import ValkeyServer

from verso_client import Client, Document
from verso_core.jobs.collections import partition_names, partition_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

PARTED, WHOLE = "parted", "whole"
COUNT = 240
TOPICS = ("disk", "fan", "link", "login", "power", "session")


def text_of(n: int) -> str:
    return f"{TOPICS[n % 6]} {n * 7919 % 1000} of host h{n % 7}: state {n % 11}\n" * (1 + n % 3)


def documents() -> list[Document]:
    return [
        Document(
            text_of(n),
            id=f"d{n:03d}",
            metadata={"topic": TOPICS[n % 6], "host": f"h{n % 7}"},
            time=None if n % 10 == 0 else 1_700_000_000.0 + n * 37 % 100,
        )
        for n in range(COUNT)
    ]


@pytest.fixture(scope="module")
def platform(new_platform: Callable[..., Platform], second_ledger: ValkeyServer) -> Platform:
    made = new_platform(
        VERSO_LEDGERS=f"b={second_ledger.url}",
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_RESULT_INLINE_BYTES="2048",
    )
    made.start()
    with made.client() as verso:
        assert verso.create_collection(PARTED, partitions=4).partitions == 4
        assert verso.create_collection(PARTED, partitions=4).partitions == 4
        verso.create_collection(WHOLE)
        for name in (PARTED, WHOLE):
            report = verso.ingest(documents(), collection=name)
            assert report.failed == ()
            assert report.documents == COUNT
            made.await_verified(name, COUNT)
    return made


def post(http: httpx2.Client, path: str, body: Any, **headers: str) -> dict[str, Any]:
    answer = http.post(path, json=body, headers=headers)
    assert answer.status_code in (200, 201, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_partitions_are_spread_over_the_ledgers_and_stand_in_no_list(verso: Client) -> None:
    held = {one.name: one.collections for one in verso.ledgers()}
    assert min(held.values()) >= 2
    assert {one.name: one.partitions for one in verso.collections()} == {
        "default": None, PARTED: 4, WHOLE: None,
    }  # fmt: skip
    sizes = [verso.stats(name).documents for name in partition_names(PARTED, 4)]
    assert sum(sizes) == COUNT
    assert min(sizes) > COUNT / 8
    told, whole = verso.stats(PARTED), verso.stats(WHOLE)
    assert (told.documents, told.bytes_text, told.chunks, told.partitions) == (
        COUNT, whole.bytes_text, whole.chunks, 4,
    )  # fmt: skip


def test_every_document_is_read_back_by_its_id(platform: Platform, http: httpx2.Client) -> None:
    found = platform.read_all(PARTED, [f"d{n:03d}" for n in range(COUNT)])
    assert found == {f"d{n:03d}": text_of(n).encode() for n in range(COUNT)}
    answer = http.get("/v1/documents/d017", params={"collection": PARTED})
    assert answer.json()["text"] == text_of(17)
    assert http.get("/v1/documents/none", params={"collection": PARTED}).status_code == 404
    records = http.get("/v1/records/d017", params={"collection": PARTED}).json()
    assert records["bytes_text"] == len(text_of(17))


@pytest.mark.parametrize(
    "asked",
    [
        {"query": "fan 300 of host h3", "mode": "dense"},
        {"query": "login of h2 state 4", "mode": "dense", "limit": 60, "explain": True},
        {"query": "power", "mode": "dense", "filter": {"field": "host", "eq": "h1"}},
        {"id": "d031"},
    ],
)
def test_a_search_by_vectors_finds_what_one_collection_finds(
    http: httpx2.Client, asked: dict[str, Any]
) -> None:
    parted, whole = (
        post(http, "/v1/search", {"collection": name, **asked}) for name in (PARTED, WHOLE)
    )
    assert parted["collection"] == PARTED
    scores = [[hit["score"] for hit in one["hits"]] for one in (parted, whole)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    last = scores[0][-1]
    kept = [[hit for hit in one["hits"] if hit["score"] > last + 1e-6] for one in (parted, whole)]
    assert {hit["id"]: hit for hit in kept[0]}.keys() == {hit["id"]: hit for hit in kept[1]}.keys()
    texts = {hit["id"]: hit["text"] for hit in whole["hits"]}
    assert all(hit["text"] == texts[hit["id"]] for hit in kept[0])


NEARLY = 5e-3
"""How far weights may be apart: each partition weighs by the mean length of its own chunks."""


@pytest.mark.parametrize("query", ["fan 300 of host h3", "login state", "7919 nowhere h5"])
def test_a_search_by_words_counts_them_in_all_partitions(http: httpx2.Client, query: str) -> None:
    asked = {"query": query, "mode": "sparse", "limit": 30}
    parted, whole = (
        [hit["score"] for hit in post(http, "/v1/search", {"collection": name, **asked})["hits"]]
        for name in (PARTED, WHOLE)
    )
    assert parted == pytest.approx(whole, rel=NEARLY)


def test_a_hybrid_search_orders_all_partitions_on_one_scale(http: httpx2.Client) -> None:
    asked = {"query": "fan 300 of host h3", "limit": 20, "explain": True}
    parted, whole = (
        post(http, "/v1/search", {"collection": name, **asked}) for name in (PARTED, WHOLE)
    )
    scores = [hit["score"] for hit in parted["hits"]]
    assert scores == sorted(scores, reverse=True)
    weights = [{h["id"]: h["explain"]["sparse"] for h in one["hits"]} for one in (parted, whole)]
    for one in weights[0].keys() & weights[1].keys():
        assert weights[0][one] == pytest.approx(weights[1][one], rel=NEARLY)
    assert len({json.dumps(hit["explain"]["scale"]) for hit in parted["hits"]}) == 1
    common = {hit["id"] for hit in parted["hits"]} & {hit["id"] for hit in whole["hits"]}
    assert len(common) >= 12


@pytest.mark.parametrize("order", ["id", "time"])
@pytest.mark.parametrize("descending", [False, True])
def test_a_list_is_that_of_one_collection_page_by_page(
    http: httpx2.Client, order: str, descending: bool
) -> None:
    def rows(name: str, limit: int) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            body = {"order": order, "descending": descending, "limit": limit, "cursor": cursor}
            body["filter"] = {"field": "host", "ne": "h6"}
            page = post(http, f"/v1/collections/{name}/documents/query", body)
            found += [row["id"] for row in page["documents"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    whole = rows(WHOLE, 1000)
    assert rows(PARTED, 1000) == rows(PARTED, 17) == whole


def test_counts_facets_and_the_plain_list_are_those_of_one_collection(
    http: httpx2.Client, verso: Client
) -> None:
    where = {"filter": {"field": "topic", "in": ["fan", "disk"]}}
    for path, body in (
        ("documents/count", {}),
        ("documents/count", where),
        ("facets", {"fields": ["host", "topic"], "limit": 3, **where}),
    ):
        parted, whole = (
            post(http, f"/v1/collections/{name}/{path}", body) for name in (PARTED, WHOLE)
        )
        assert parted == whole
    listed: list[str] = []
    after = None
    while True:
        page = verso.documents(PARTED, after=after)
        listed += [row.id for row in page.documents]
        after = page.next_cursor
        if after is None:
            break
    assert sorted(listed) == [f"d{n:03d}" for n in range(COUNT)]


def test_an_ingest_is_one_job_of_all_its_ledgers(http: httpx2.Client) -> None:
    rows: list[dict[str, Any]] = [{"id": f"j{n}", "text": f"job text {n}"} for n in range(20)]
    rows.insert(7, {"id": "j3", "text": "twice"})
    rows.insert(9, {"text": 5})
    body = {"collection": PARTED, "documents": rows}
    answer = http.post("/v1/ingest", json=body, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    ids = [row.get("id") for row in found["results"]]
    assert ids == [row.get("id") for row in rows]
    assert (found["items"], found["ok"], found["failed"], found["accepted"]) == (22, 20, 2, 20)
    job_id = found["id"]
    assert "_" in job_id
    shown = http.get(f"/v1/jobs/{job_id}").json()
    assert (shown["status"], shown["ok"], shown["failed"]) == ("succeeded", 20, 2)
    assert len(shown["results"]) == 22
    failed = http.get(f"/v1/jobs/{job_id}/failures").json()["failures"]
    assert {row["error"]["code"] for row in failed} == {"duplicate_id", "request_invalid"}
    assert {row.get("item") for row in failed} == {None}
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as events:
        told = "".join(events.iter_text())
    assert told.count("event: end") == 1
    last = [line for line in told.splitlines() if line.startswith('data: {"status"')][-1]
    assert json.loads(last.removeprefix("data: "))["done"] == shown["slices_done"]
    listed = http.get("/v1/jobs", params={"kind": "ingest"}).json()["jobs"]
    mine = [row for row in listed if row["id"].partition("-")[0] == job_id.partition("-")[0]]
    assert [(row["id"], row["items"]) for row in mine] == [(job_id, 22)]


def test_a_request_with_a_key_makes_its_documents_once(http: httpx2.Client) -> None:
    body = {"collection": PARTED, "documents": [{"text": f"keyed {n}"} for n in range(12)]}
    headers = {"Idempotency-Key": "one-key", "Prefer": "wait=60"}
    first = http.post("/v1/ingest", json=body, headers=headers)
    again = http.post("/v1/ingest", json=body, headers=headers)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["results"] == again.json()["results"]
    other = {**body, "documents": body["documents"][:11]}
    answer = http.post("/v1/ingest", json=other, headers=headers)
    assert answer.status_code == 422 or answer.json()["id"] != first.json()["id"]


def test_documents_are_changed_and_deleted_where_they_are(http: httpx2.Client) -> None:
    where = {"collection": PARTED}
    assert http.post(
        "/v1/ingest",
        json={**where, "documents": [{"id": f"x{n}", "text": f"x {n}"} for n in range(9)]},
        headers={"Prefer": "wait=60"},
    ).is_success
    for _ in range(100):
        changed = http.patch("/v1/documents/x1", params=where, json={"metadata": {"drop": True}})
        if changed.status_code != 503:
            break
    assert changed.status_code == 200, changed.text
    assert http.delete("/v1/documents/x2", params=where).status_code == 200
    assert http.get("/v1/documents/x2", params=where).status_code == 404
    path = f"/v1/collections/{PARTED}/documents/delete"
    found = post(http, path, {"filter": {"field": "drop", "eq": True}}, Prefer="wait=60")
    assert found["deleted"] == 1
    assert http.get("/v1/documents/x1", params=where).status_code == 404
    assert http.get("/v1/documents/x3", params=where).status_code == 200


def test_what_needs_one_ledger_is_refused(http: httpx2.Client) -> None:
    for path, body in (
        ("/v1/cluster", {"collection": PARTED}),
        ("/v1/project", {"collection": PARTED}),
        (f"/v1/collections/{PARTED}/migrate", {}),
        (f"/v1/collections/{PARTED}/fit", {}),
        (f"/v1/collections/{PARTED}/move", {"ledger": "b"}),
        ("/v1/ingest", {"collection": f"{PARTED}.1", "documents": [{"text": "x"}]}),
    ):
        answer = http.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "partitioned_unsupported") or (
            path == "/v1/ingest" and answer.status_code == 422
        ), answer.text
    answer = http.post("/v1/collections", json={"name": PARTED})
    assert (answer.status_code, answer.json()["code"]) == (409, "collection_exists")
    answer = http.post("/v1/collections", json={"name": PARTED, "partitions": 3})
    assert (answer.status_code, answer.json()["code"]) == (409, "collection_exists")
    answer = http.post("/v1/collections", json={"name": WHOLE, "partitions": 2})
    assert (answer.status_code, answer.json()["code"]) == (409, "collection_exists")


def test_a_partition_moves_and_a_ledger_is_drained_while_served(
    platform: Platform, verso: Client, http: httpx2.Client
) -> None:
    before = platform.read_all(PARTED, [f"d{n:03d}" for n in range(COUNT)])
    answer = http.patch("/v1/ledgers/b", json={"draining": True, "move": True})
    assert answer.status_code == 200, answer.text
    number, end = 0, time.monotonic() + 300.0
    while {one.name: one.collections for one in verso.ledgers()}["b"]:
        number += 1
        assert time.monotonic() < end, "a partition does not move"
        name = f"m{number % 40}"
        body = {"collection": PARTED, "documents": [{"id": name, "text": f"{name} {number}"}]}
        sent = http.post("/v1/ingest", json=body, headers={"Prefer": "wait=60"})
        assert sent.status_code == 200, sent.text
        read = http.get(f"/v1/documents/{name}", params={"collection": PARTED})
        assert read.json().get("text") == f"{name} {number}", read.text
    assert platform.read_all(PARTED, [f"d{n:03d}" for n in range(COUNT)]) == before
    verso.drain_ledger("b", draining=False)
    places = {partition_of(f"m{n}", 4) for n in range(1, 1 + min(number, 39))}
    assert places


def test_a_collection_goes_with_all_its_partitions(verso: Client, http: httpx2.Client) -> None:
    for _ in range(2):
        verso.create_collection("gone", partitions=3)
        verso.ingest([Document(f"t {n}", id=f"g{n}") for n in range(9)], collection="gone")
        assert verso.stats("gone").documents == 9
        verso.delete_collection("gone")
        assert http.get("/v1/collections/gone").status_code == 404
        assert http.get("/v1/collections/gone.0").status_code == 404
    verso.create_collection("gone")
    verso.delete_collection("gone")
