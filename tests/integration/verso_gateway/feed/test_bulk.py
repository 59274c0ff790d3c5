"""Elasticsearch's bulk API: the real clients of Elasticsearch and OpenSearch, and raw requests."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from elasticsearch import Elasticsearch, helpers
from opensearchpy import OpenSearch
from opensearchpy import helpers as opensearch_helpers
from tests.integration.verso_gateway.conftest import Gateway
from tests.integration.verso_gateway.feed.conftest import Ledger

NDJSON = {"Content-Type": "application/x-ndjson"}
DOCUMENT = {"@timestamp": "2026-11-23T03:46:06.5Z", "message": "disk full", "host": {"name": "a"}}


def send(client: httpx2.Client, *rows: object, path: str = "/es/_bulk") -> Any:
    body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    answer = client.post(path, content=body, headers=NDJSON)
    assert answer.headers["x-elastic-product"] == "Elasticsearch"
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_client_of_elasticsearch_sends_documents(gateway: Gateway, stored: Ledger) -> None:
    with Elasticsearch(f"{gateway.url}/es", request_timeout=60) as client:
        assert client.info()["version"]["number"] == "8.15.0"
        assert client.cluster.health()["status"] == "green"
        rows = ({"_index": "app-2026.11.23", "_id": str(n), **DOCUMENT, "n": n} for n in range(700))
        assert helpers.bulk(client, rows) == (700, [])
    records = stored.records(700)
    assert {one.text for one in records} == {"disk full"}
    assert sorted(one.attributes["n"] for one in records) == [*range(700)]
    assert records[0].labels == {"host": "a"}
    assert records[0].time == "2026-11-23T03:46:06.500000000Z"


def test_the_client_of_opensearch_sends_documents(gateway: Gateway, stored: Ledger) -> None:
    client = OpenSearch(f"{gateway.url}/es", timeout=60, http_compress=True)
    rows = [{"_index": "app", "_op_type": "create", **DOCUMENT} for _ in range(10)]
    assert opensearch_helpers.bulk(client, rows) == (10, [])
    client.close()
    assert stored.texts(10) == ["disk full"] * 10


def test_equal_lines_without_an_id_stay_equal_lines(client: httpx2.Client, stored: Ledger) -> None:
    for _ in range(2):
        found = send(client, *([{"index": {}}, DOCUMENT] * 3), path="/es/app/_bulk")
        assert [item["index"]["status"] for item in found["items"]] == [201, 201, 201]
    assert stored.texts(6) == ["disk full"] * 6


def test_a_repeat_of_an_id_is_harmless(client: httpx2.Client, stored: Ledger) -> None:
    rows = [{"create": {"_index": "a", "_id": "1"}}, DOCUMENT]
    other = [{"create": {"_index": "b", "_id": "1"}}, DOCUMENT]
    assert send(client, *rows)["errors"] is False
    again = send(client, *rows, *other, *other)
    assert [item["create"]["status"] for item in again["items"]] == [409, 201, 409]
    assert again["items"][0]["create"]["error"]["type"] == "version_conflict_engine_exception"
    written = send(client, {"index": {"_index": "a", "_id": "1"}}, DOCUMENT)
    assert (written["errors"], written["items"][0]["index"]["result"]) == (False, "updated")
    assert stored.texts(2) == ["disk full"] * 2


def test_a_bad_item_costs_itself(client: httpx2.Client, stored: Ledger) -> None:
    rows: list[object] = []
    for n in range(1000):
        rows += [{"index": {"_index": "a"}}, {"message": str(n)} if n != 500 else [n]]
    found = send(client, *rows, {"delete": {"_index": "a", "_id": "1"}})
    statuses = [next(iter(item.values()))["status"] for item in found["items"]]
    assert found["errors"] is True
    assert (statuses[500], statuses[1000]) == (400, 400)
    assert set(statuses[:500] + statuses[501:1000]) == {201}
    assert found["items"][1000]["delete"]["error"]["type"] == "illegal_argument_exception"
    assert stored.texts(999) == sorted(str(n) for n in range(1000) if n != 500)


def test_what_is_no_bulk_is_400_in_the_words_of_elasticsearch(client: httpx2.Client) -> None:
    answer = client.put("/es/_bulk", content=b"x\n", headers=NDJSON)
    assert (answer.status_code, answer.headers["x-elastic-product"]) == (400, "Elasticsearch")
    body = answer.json()
    assert (body["status"], body["error"]["type"]) == (400, "illegal_argument_exception")
    assert body["error"]["reason"].startswith("Malformed action/metadata line [1]")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/es", 200),
        ("GET", "/es/", 200),
        *(
            ("GET", f"/es/{path}", 200)
            for path in ("_license", "_xpack", "_cat/health", "_nodes/http")
        ),
        *(("HEAD", f"/es/{path}", 200) for path in ("_index_template/filebeat", "_alias/x", "app")),
        *(("PUT", f"/es/{path}", 200) for path in ("_ilm/policy/x", "_ingest/pipeline/p", "app")),
        ("GET", "/es/_search", 404),
        ("POST", "/es/app/_search", 404),
    ],
)
def test_what_agents_ask_first(client: httpx2.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["x-elastic-product"] == "Elasticsearch"
    if status == 404:
        assert answer.json()["error"]["type"] == "resource_not_found_exception"


def test_indexes_are_routed_by_rules(
    valkey_url: str, worker: object, stored: Ledger, start_gateway: Any
) -> None:
    gateway = start_gateway(valkey_url, feed_routes="web-*=web, app=app-logs")
    found = send(
        gateway.client,
        *({"index": {"_index": "web-shop-2026.11.23"}}, DOCUMENT),
        *({"index": {"_index": "app-2026.11.23-000001"}}, DOCUMENT),
        *({"index": {"_index": "other"}}, DOCUMENT),
    )
    statuses = [item["index"]["status"] for item in found["items"]]
    assert statuses == [201, 201, 404]
    assert found["items"][2]["index"]["error"]["type"] == "index_not_found_exception"
    assert [one.collection for one in stored.records(2)] == ["app-logs", "web"]


def test_a_rule_may_keep_whole_records(
    valkey_url: str, worker: object, stored: Ledger, start_gateway: Any
) -> None:
    gateway = start_gateway(valkey_url, feed_routes="audit-*=audit:record, *=logs")
    row = b'{"@timestamp": "2026-11-23T03:46:06.5Z",  "message": "m", "host": "a", "user": 7}'
    actions = b'{"index":{"_index":"audit-db-2026.11.23"}}', b'{"index":{"_index":"x"}}'
    body = b"".join(b"%b\n%b\n" % (action, row) for action in actions)
    assert gateway.client.post("/es/_bulk", content=body, headers=NDJSON).json()["errors"] is False
    record = {"body": {"stringValue": "m"}, "severityText": "INFO", "timeUnixNano": "5"}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "audit-db"}}]}
    sent = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}
    assert gateway.client.post("/v1/logs", json=sent).status_code == 200
    whole = [one for one in stored.records(3) if one.collection == "audit"]
    [document] = [one for one in whole if one.text == row.decode()]
    assert (document.labels, document.attributes) == ({"host": "a"}, {})
    assert document.time == "2026-11-23T03:46:06.500000000Z"
    [otlp] = [one for one in whole if one is not document]
    assert json.loads(otlp.text) == {
        "resource": {"service.name": "audit-db"},
        "scope": {},
        "body": "m",
        "severityText": "INFO",
        "timeUnixNano": 5,
    }
    assert otlp.labels == {"service": "audit-db", "level": "info"}


def test_what_says_the_same_may_be_taken_for_a_repeat(
    valkey_url: str, worker: object, stored: Ledger, start_gateway: Any
) -> None:
    gateway = start_gateway(valkey_url, feed_deduplicate=True)
    other = {**DOCUMENT, "@timestamp": "2026-11-23T03:46:06.6Z"}
    for _ in range(2):
        found = send(gateway.client, *[{"create": {}}, DOCUMENT] * 2, path="/es/app/_bulk")
        assert [item["create"]["status"] for item in found["items"]] == [201, 201]
    send(gateway.client, {"create": {}}, other, path="/es/app/_bulk")
    send(gateway.client, {"create": {"_id": "1"}}, DOCUMENT, path="/es/app/_bulk")
    assert stored.texts(3) == ["disk full"] * 3


def test_a_queue_that_stays_full_is_429_and_nothing_is_accepted(
    valkey_url: str, worker: Any, stored: Ledger, start_gateway: Any
) -> None:
    gateway = start_gateway(valkey_url, queue_limit_slices=1)
    send(gateway.client, {"index": {"_index": "a"}}, {"message": "first"})
    stored.records(1)
    worker.pause()
    send(gateway.client, {"index": {"_index": "a"}}, {"message": "second"})
    body = b'{"index":{"_index":"a"}}\n{"message":"third"}\n'
    answer = gateway.client.post("/es/_bulk", content=body, headers=NDJSON)
    assert answer.status_code == 429
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["connection"] == "close"
    assert int(answer.headers["retry-after"]) <= 2
    worker.gate.set()
    assert stored.texts(2) == ["first", "second"]
