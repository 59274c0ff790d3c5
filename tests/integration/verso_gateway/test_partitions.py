"""Collections of several partitions are made and deleted as a whole, whatever stops a request."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, _at_work, post

LONG, SOON = "wait=60", "wait=1"


@pytest.fixture
def own_server(valkey_server: Callable[..., ValkeyServer]) -> ValkeyServer:
    """A server on which no other test makes collections."""
    return valkey_server()


def made(
    client: httpx2.Client, name: str, partitions: int, *, prefer: str = LONG
) -> tuple[int, str]:
    body = {"name": name, "partitions": partitions}
    answer = post(client, "/v1/collections", body, Prefer=prefer)
    return answer.status_code, answer.json().get("code", "")


def deleted(client: httpx2.Client, name: str, *, prefer: str = LONG) -> tuple[int, str]:
    answer = client.delete(f"/v1/collections/{name}", headers={"Prefer": prefer})
    return answer.status_code, answer.json().get("code", "")


def ingested(client: httpx2.Client, name: str) -> tuple[int, str]:
    body = {"collection": name, "documents": [{"id": f"d{n}", "text": f"t{n}"} for n in range(9)]}
    answer = post(client, "/v1/ingest", body, Prefer=LONG)
    return answer.status_code, answer.json().get("code", "")


def test_a_collection_is_served_from_when_all_partitions_are_made_until_it_is_deleted(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url) as worker:
        client = start_gateway(own_server.url).client
        _stopped_while_it_is_made(client, worker)
        _stopped_while_it_is_deleted(client, worker)
        assert made(client, "c", 2) == (201, "")
        assert deleted(client, "c") == (200, "")
        assert deleted(client, "c") == (404, "collection_unknown")


def _stopped_while_it_is_made(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    assert made(client, "c", 3, prefer=SOON) == (503, "not_ready")
    assert ingested(client, "c") == (404, "collection_unknown")
    assert made(client, "c", 1) == (409, "collection_exists")
    assert made(client, "c", 4) == (409, "collection_exists")
    worker.gate.set()
    assert made(client, "c", 3) == (201, "")
    assert made(client, "c", 3) == (201, "")
    assert ingested(client, "c") == (200, "")
    listed = client.get("/v1/collections").json()["collections"]
    assert [(one["name"], one.get("partitions")) for one in listed] == [("c", 3), ("default", None)]


def _stopped_while_it_is_deleted(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    assert deleted(client, "c", prefer=SOON) == (503, "not_ready")
    assert ingested(client, "c") == (404, "collection_unknown")
    assert made(client, "c", 3) == (409, "collection_exists")
    worker.gate.set()
    assert deleted(client, "c") == (200, "")
    listed = client.get("/v1/collections").json()["collections"]
    assert [one["name"] for one in listed] == ["default"]


def test_a_webhook_is_refused_where_several_partitions_work(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url):
        client = start_gateway(own_server.url).client
        assert made(client, "c", 2) == (201, "")
        body = {"collection": "c", "documents": [{"id": f"d{n}", "text": "t"} for n in range(9)]}
        hook = "wh_" + "0" * 32
        for path, asked in (
            ("/v1/ingest", body),
            ("/v1/search", {"collection": "c", "query": "t"}),
            ("/v1/collections/c/documents/delete", {"filter": {"field": "a", "eq": 1}}),
        ):
            answer = post(client, path, asked, Verso_Webhook=hook)
            assert (answer.status_code, answer.json()["code"]) == (422, "partitioned_unsupported")
