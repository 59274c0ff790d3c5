"""Ports of protocols, on a gateway process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import httpx2
from elasticsearch import Elasticsearch, helpers
from tests.integration.verso_gateway.conftest import FakeWorker
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_standalone.valkey import free_port

DOCUMENT = {"_index": "app", "message": "disk full"}


def test_agents_find_their_protocols_on_their_ports(
    valkey_url: str,
    worker: FakeWorker,
    stored: Ledger,
) -> None:
    port, otlp, bulk = (free_port() for _ in range(3))
    settings = {
        "VERSO_REDIS_URL": valkey_url,
        "VERSO_BROKER_URL": valkey_url.removesuffix("/0") + "/1",
        "VERSO_PORT": str(port),
        "VERSO_FEED_OTLP_PORT": str(otlp),
        "VERSO_FEED_BULK_PORT": str(bulk),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "verso_gateway"],
        env={**os.environ, **settings},
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 120
        while True:
            try:
                assert httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
                break
            except httpx2.TransportError:
                assert time.monotonic() < until
                time.sleep(0.1)
        with Elasticsearch(f"http://127.0.0.1:{bulk}", request_timeout=60) as client:
            assert client.info()["tagline"] == "You Know, for Search"
            assert helpers.bulk(client, [DOCUMENT] * 3) == (3, [])
        answer = httpx2.post(f"http://127.0.0.1:{otlp}/v1/logs", json={}, timeout=60)
        assert (answer.status_code, answer.json()) == (200, {})
        assert httpx2.get(f"http://127.0.0.1:{port}/_license", timeout=60).status_code == 404
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert stored.texts(3) == ["disk full"] * 3
