"""Agents with keys: refusals are in the words of their protocols, and tenants stay apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from elasticsearch import Elasticsearch, helpers
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_core import api_keys
from verso_core.api_keys import Scope, mint

PUSH = "/loki/api/v1/push"
ENTRY = {"streams": [{"stream": {"job": "x"}, "values": [["1", "a"]]}]}


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Secrets of keys by name."""
    found = {}
    for name, scope in (("ann", Scope.INGEST), ("bob", Scope.INGEST), ("reader", Scope.READ)):
        found[name], key = mint(name, scopes=[scope])
        api_keys.add(tmp_path / "keys", key)
    return found


@pytest.fixture
def gateway(
    valkey_url: str,
    worker: FakeWorker,
    keys: dict[str, str],
    tmp_path: Path,
    start_gateway: Callable[..., Gateway],
) -> Gateway:
    """A gateway with these keys."""
    return start_gateway(valkey_url, api_keys_file=tmp_path / "keys")


def test_who_may_not_send_hears_it_in_the_words_of_the_protocol(
    client: httpx2.Client, keys: dict[str, str]
) -> None:
    unknown = client.post(PUSH, json=ENTRY)
    assert unknown.status_code == 401
    assert unknown.headers["content-type"].startswith("text/plain")
    reader = {"Authorization": f"Bearer {keys['reader']}"}
    otlp = client.post("/v1/logs", json={}, headers=reader)
    assert (otlp.status_code, otlp.json()["code"]) == (403, 7)
    bulk = client.post("/es/_bulk", content=b"", headers=reader)
    assert (bulk.status_code, bulk.json()["error"]["type"]) == (403, "security_exception")
    assert bulk.headers["x-elastic-product"] == "Elasticsearch"


def test_a_key_is_the_password_of_elasticsearch(
    gateway: Gateway, keys: dict[str, str], stored: Ledger
) -> None:
    with Elasticsearch(
        f"{gateway.url}/es", basic_auth=("any", keys["ann"]), request_timeout=60
    ) as client:
        assert helpers.bulk(client, [{"_index": "a", "message": "x"}]) == (1, [])
    assert stored.texts(1) == ["x"]


def test_the_collection_of_another_tenant_is_not_there(
    client: httpx2.Client, keys: dict[str, str], stored: Ledger
) -> None:
    mine = client.post(PUSH, json=ENTRY, headers={"X-API-Key": keys["ann"]})
    assert mine.status_code == 204
    other = client.post(PUSH, json=ENTRY, headers={"X-API-Key": keys["bob"]})
    assert (other.status_code, "no collection 'logs'" in other.text) == (400, True)
    assert stored.texts(1) == ["a"]
