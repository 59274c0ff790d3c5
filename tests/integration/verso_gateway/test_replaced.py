"""A list of collections is up to a second old: what is asked of one reaches none made since.

That one may be another tenant's. Each test reads the list, replaces the collection, and asks at
once. Where the list is read again meanwhile, as on a busy machine, the answers are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, collection
from tests.wire import Item

from verso_core import api_keys
from verso_core.api_keys import Scope, mint
from verso_core.jobs import CollectionKind, Kind

TAIL = "/v1/logs/tail"
PUSH = "/loki/api/v1/push"
ENTRIES = {"streams": [{"stream": {"job": "x"}, "values": [["1", "a"]]}]}
DOCUMENTS = {"collection": "hers", "documents": [{"id": "d", "text": "secret"}]}
LOGS = CollectionKind.LOGS


@dataclass
class Site:
    """A gateway whose caller is ann, and the ledger under it."""

    worker: FakeWorker
    client: httpx2.Client

    def hold(self, name: str, *, owner: str, kind: CollectionKind, year: int) -> None:
        """Make a collection; one of its name is deleted before."""
        documents = self.worker.ledger.documents
        before = documents.collections().get(name)
        if before is not None:
            documents.collection_delete(before.name)
        made = collection(name, owner, kind)
        documents.collection_put(
            made.model_copy(update={"created": datetime(year, 1, 1, 7, tzinfo=UTC)})
        )

    def replace(
        self, *names: str, owner: str, kind: CollectionKind = CollectionKind.DOCUMENTS
    ) -> None:
        """Let the gateway read its list, then replace collections."""
        self.client.get("/v1/collections").raise_for_status()
        for name in names:
            self.hold(name, owner=owner, kind=kind, year=2027)

    def done(self) -> set[Kind]:
        """Return what the worker was asked for."""
        return {work.kind for work in self.worker.seen}


@pytest.fixture
def site(
    valkey_url: str, worker: FakeWorker, tmp_path: Path, start_gateway: Callable[..., Gateway]
) -> Site:
    secret, key = mint("ann", scopes=[Scope.INGEST, Scope.READ])
    api_keys.add(tmp_path / "keys", key)
    served = start_gateway(valkey_url, api_keys_file=tmp_path / "keys")
    served.client.headers["X-API-Key"] = secret
    found = Site(worker, served.client)
    for name in ("hers", "hers-too"):
        found.hold(name, owner="ann", kind=CollectionKind.DOCUMENTS, year=2026)
    for name in ("lines", "logs"):
        found.hold(name, owner="ann", kind=LOGS, year=2026)
    return found


ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/ingest", {"json": DOCUMENTS}),
    (
        "POST",
        "/v1/ingest?collection=hers",
        {"content": b'{"text": "a"}\n', "headers": {"Content-Type": "application/x-ndjson"}},
    ),
    ("DELETE", "/v1/documents/d?collection=hers", {}),
    ("POST", "/v1/search", {"json": {"collection": "hers", "query": "a"}}),
    ("POST", "/v1/reconstruct", {"json": {"collection": "hers", "ids": ["d"]}}),
]
READ_AT_ONCE = {  # without a job, and what is said of a collection of which nothing is known
    "/v1/collections/hers/documents": (200, None),
    "/v1/collections/hers/migrate": (409, "migration_refused"),
    "/v1/collections/hers/move": (404, "not_found"),
}
LINES: list[tuple[str, dict[str, Any]]] = [
    ("", {"content": b"a line\n", "headers": {"Content-Type": "text/plain"}}),
    (
        "&text_field=m",
        {"content": b'{"m": "a"}\n', "headers": {"Content-Type": "application/x-ndjson"}},
    ),
]


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
def test_nothing_is_asked_of_another_tenants_collection(
    site: Site, method: str, path: str, body: dict[str, Any]
) -> None:
    site.replace("hers", owner="bob")
    answer = site.client.request(method, path, **body)
    assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")
    assert not site.done()


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
def test_what_the_same_tenant_has_made_since_is_what_it_asks_for(
    site: Site, method: str, path: str, body: dict[str, Any]
) -> None:
    """It may have done so at another gateway, whose list is newer."""
    site.worker.documents["d"] = Item({"id": "d", "metadata": {}, "time": None}, b"secret")
    site.replace("hers", owner="ann")
    headers = {**body.get("headers", {}), "Prefer": "wait=60"}
    answer = site.client.request(method, path, **{**body, "headers": headers})
    assert answer.status_code == 200, answer.text
    assert site.done()


@pytest.mark.parametrize("owner", ["bob", "ann"])
@pytest.mark.parametrize("path", READ_AT_ONCE)
def test_what_is_read_without_a_job_is_of_a_collection_that_the_caller_may_see(
    site: Site, path: str, owner: str
) -> None:
    site.replace("hers", owner=owner)
    answer = site.client.get(path)
    expected = READ_AT_ONCE[path] if owner == "ann" else (404, "collection_unknown")
    assert (answer.status_code, answer.json().get("code")) == expected


@pytest.mark.parametrize("owner", ["bob", "ann"])
def test_no_line_of_another_tenants_collection_is_tailed(site: Site, owner: str) -> None:
    site.replace("lines", owner=owner, kind=LOGS)
    with site.client.sse(TAIL, params={"collection": "lines"}) as source:
        assert source.response.status_code == (200 if owner == "ann" else 404)


@pytest.mark.parametrize("owner", ["bob", "ann"])
def test_partitions_are_listed_for_those_who_may_see_them(site: Site, owner: str) -> None:
    made = {"name": "parts", "partitions": 2}
    assert site.client.post("/v1/collections", json=made).status_code == 201
    site.replace("parts.0", "parts.1", owner=owner)
    listed = site.client.get("/v1/collections/parts/documents")
    assert listed.status_code == (200 if owner == "ann" else 404), listed.text


@pytest.mark.parametrize(("query", "body"), LINES)
def test_no_line_is_written_to_another_tenants_collection(
    site: Site, query: str, body: dict[str, Any]
) -> None:
    site.replace("lines", owner="bob", kind=LOGS)
    answer = site.client.post(f"/v1/ingest?collection=lines{query}", **body)
    assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")
    site.replace("logs", owner="ann", kind=LOGS)
    again = site.client.post(f"/v1/ingest?collection=logs{query}", **body)
    assert again.status_code == 202
    assert {work.params["collection"] for work in site.worker.seen} <= {"logs"}


@pytest.mark.parametrize("owner", ["bob", "ann"])
def test_an_agent_sends_again_and_reaches_no_other_tenants_collection(
    site: Site, owner: str
) -> None:
    assert site.client.post(PUSH, json=ENTRIES).status_code == 204
    site.replace("logs", owner=owner, kind=LOGS)
    answer = site.client.post(PUSH, json=ENTRIES)
    until = time.monotonic() + 60
    while answer.status_code == 503 and time.monotonic() < until:
        time.sleep(0.05)
        answer = site.client.post(PUSH, json=ENTRIES)
    assert answer.status_code == (204 if owner == "ann" else 400)
    ledger = site.worker.ledger
    uid = ledger.logs.state(ledger.documents.collections()["logs"].name).uid
    assert bool(ledger.logs.streams(uid)) is (owner == "ann")


@pytest.mark.parametrize("owner", ["bob", "ann"])
def test_partitions_are_those_that_the_caller_has_access_to(site: Site, owner: str) -> None:
    made = {"name": "parts", "partitions": 2}
    assert site.client.post("/v1/collections", json=made).status_code == 201
    before = len(site.worker.seen)
    site.replace("parts.0", "parts.1", owner=owner)
    documents = [{"id": f"d{n}", "text": "a"} for n in range(9)]
    answer = site.client.post("/v1/ingest", json={"collection": "parts", "documents": documents})
    assert answer.status_code == (202 if owner == "ann" else 404), answer.text
    if owner == "bob":
        assert len(site.worker.seen) == before
