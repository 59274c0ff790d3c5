"""OTLP/HTTP logs: real requests, and the SDK of OpenTelemetry."""

from __future__ import annotations

import gzip

import httpx2
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_core.jobs import Kind
from verso_core.jobs.logs.records import TimeFrom

PROTOBUF = {"Content-Type": "application/x-protobuf"}


def request(*texts: str) -> bytes:
    asked = ExportLogsServiceRequest()
    scoped = asked.resource_logs.add().scope_logs.add()
    for text in texts:
        scoped.log_records.add(time_unix_nano=1).body.string_value = text
    return bytes(asked.SerializeToString())


def test_the_sdk_sends_its_records(gateway: Gateway, stored: Ledger) -> None:
    provider = LoggerProvider(
        resource=Resource({"service.name": "shop", "host.name": "web-1"}),
        shutdown_on_exit=False,
    )
    exporter = OTLPLogExporter(endpoint=f"{gateway.url}/v1/logs")
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("app", "1.0")
    try:
        logger.emit(
            LogRecord(
                timestamp=5,
                severity_text="WARN",
                severity_number=SeverityNumber.WARN,
                body="disk sda is full",
                attributes={"part": 1},
            )
        )
        logger.emit(
            LogRecord(observed_timestamp=6, severity_number=SeverityNumber.ERROR, body="two\nlines")
        )
        assert provider.force_flush()
    finally:
        provider.shutdown()
    first, second = sorted(stored.records(2), key=lambda one: one.time)
    assert (first.text, second.text) == ("disk sda is full", "two\nlines")
    assert first.collection == "logs"
    assert first.labels["service"] == "shop"
    assert (first.labels["level"], second.labels["level"]) == ("warn", "error")
    assert first.attributes["part"] == 1
    assert first.attributes["scope.name"] == "app"
    assert first.time == "1970-01-01T00:00:00.000000005Z"
    assert second.record.time_from is TimeFrom.OBSERVED


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_protobuf_is_answered_in_protobuf(
    client: httpx2.Client, stored: Ledger, coding: str
) -> None:
    body = request("a", "b")
    body = gzip.compress(body) if coding == "gzip" else body
    answer = client.post("/v1/logs", content=body, headers={**PROTOBUF, "Content-Encoding": coding})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert not ExportLogsServiceResponse.FromString(answer.content).HasField("partial_success")
    assert stored.texts(2) == ["a", "b"]
    assert stored.records(2)[0].time == "1970-01-01T00:00:00.000000001Z"


def test_a_bad_record_costs_itself(client: httpx2.Client, stored: Ledger) -> None:
    records: list[object] = [{"body": {"stringValue": str(n)}} for n in range(1000)]
    records[500] = {"body": {"stringValue": 7}}
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    answer = client.post("/v1/logs", json=body)
    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    assert "stringValue" in answer.json()["partialSuccess"]["errorMessage"]
    assert stored.texts(999) == sorted(str(n) for n in range(1000) if n != 500)


def test_errors_are_of_the_type_of_the_request(client: httpx2.Client) -> None:
    answer = client.post("/v1/logs", json={"resourceLogs": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert "resourceLogs" in answer.json()["message"]
    answer = client.post("/v1/logs", content=b"\xff", headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/x-protobuf")
    assert Status.FromString(answer.content).code == 3
    answer = client.post("/v1/logs", content=b"x", headers={"Content-Type": "text/html"})
    assert answer.status_code == 400
    assert client.get("/v1/logs", headers=PROTOBUF).status_code == 405


def test_a_body_that_inflates_to_too_much_is_413(gateway: Gateway) -> None:
    body = gzip.compress(bytes(40 << 20), 1)
    headers = {**PROTOBUF, "Content-Encoding": "gzip"}
    answer = gateway.client.post("/v1/logs", content=body, headers=headers)
    assert answer.status_code == 413
    assert Status.FromString(answer.content).code == 3


def test_the_collection_is_made_once(gateway: Gateway, worker: FakeWorker, stored: Ledger) -> None:
    assert gateway.client.get("/v1/collections/logs").status_code == 404
    for _ in range(2):
        answer = gateway.client.post("/v1/logs", content=request("a"), headers=PROTOBUF)
        assert answer.status_code == 200
    stored.records(2)
    assert [work.kind for work in worker.seen].count(Kind.COLLECTION_CREATE) == 1
    listed = gateway.client.get("/v1/collections").json()["collections"]
    assert {one["name"]: one["kind"] for one in listed}["logs"] == "logs"
