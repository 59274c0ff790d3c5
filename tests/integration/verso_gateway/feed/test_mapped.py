"""NDJSON with fields of its own, as ``POST /v1/ingest`` takes it."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, collection
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_core.jobs import CollectionKind

WAIT = {"Prefer": "wait=60", "Content-Type": "application/x-ndjson"}


@pytest.fixture
def logs(worker: FakeWorker) -> str:
    """A log collection."""
    worker.ledger.documents.collection_put(collection("web", kind=CollectionKind.LOGS))
    return "web"


def send(client: httpx2.Client, query: str, *rows: object, **headers: str) -> httpx2.Response:
    body = b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
    return client.post(f"/v1/ingest?{query}", content=body, headers={**WAIT, **headers})


def test_rows_have_the_fields_that_are_named(
    client: httpx2.Client, logs: str, stored: Ledger
) -> None:
    row = {"what": "disk full", "when": 5.25, "pod": {"name": "p"}, "n": [1]}
    answer = send(client, f"collection={logs}&text_field=what&time_field=when&labels=pod.name", row)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["accepted"], answer.json()["refused"]) == (1, 0)
    [one] = stored.records(1)
    assert (one.text, one.time) == ("disk full", "1970-01-01T00:00:05.250000000Z")
    assert (one.labels, one.attributes) == ({"pod.name": "p"}, {"n": [1]})


def test_a_bad_row_costs_itself(client: httpx2.Client, logs: str, stored: Ledger) -> None:
    rows: list[Any] = [{"message": str(n)} for n in range(1000)]
    rows[500] = b"{"
    body = send(client, f"collection={logs}&labels=x", *rows).json()
    assert (body["accepted"], body["refused"]) == (999, 1)
    assert body["refusals"][0]["error"]["detail"].startswith("row 501: malformed JSON")
    assert len(stored.texts(999)) == 999


def test_a_key_finds_the_same_job(client: httpx2.Client, logs: str, stored: Ledger) -> None:
    query = f"collection={logs}&text_field=message"
    first = send(client, query, {"message": "a"}, **{"Idempotency-Key": "k"})
    again = send(client, query, {"message": "a"}, **{"Idempotency-Key": "k"})
    assert first.json()["id"] == again.json()["id"]
    assert stored.texts(1) == ["a"]


def test_documents_have_no_such_fields(client: httpx2.Client, logs: str) -> None:
    assert send(client, "text_field=a", {"a": "x"}).json()["code"] == "kind_unsupported"
    assert send(client, f"collection={logs}&text_field=a", b"{").json()["code"] == (
        "documents_refused"
    )
