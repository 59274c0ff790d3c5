"""Agents that no package registry has: their requests, as their sources say, are replayed.

A file of ``tests/data/agents`` has the requests of one agent, in order, what must be in the answers
because the agent reads it, and what is stored in the end. It names the sources it follows.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import httpx2
import pytest
import yaml
import zstandard
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_gateway.feed.loki import PUSH_REQUEST

AGENTS = sorted((Path(__file__).parents[3] / "data/agents").glob("*.yaml"))
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
}
_SECOND_NS = 1_000_000_000


class Plain(yaml.SafeLoader):
    """Reads times as the strings that they are."""


Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith(":timestamp")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def body_of(exchange: dict[str, Any]) -> bytes:
    match exchange:
        case {"lines": rows}:
            return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        case {"json": value}:
            return json.dumps(value).encode()
        case {"otlp": value}:
            return request_of(value)
        case {"push": streams}:
            return push_of(streams)
    return b""


def request_of(value: dict[str, Any]) -> bytes:
    """Return an OTLP request in protobuf; ids are hexadecimal, as in OTLP's own JSON."""
    request = ExportLogsServiceRequest()
    for part in value["resourceLogs"]:
        made = request.resource_logs.add()
        json_format.ParseDict(part["resource"], made.resource)
        for scoped in part["scopeLogs"]:
            records = made.scope_logs.add().log_records
            for record in scoped["logRecords"]:
                one = json_format.ParseDict({**record, "traceId": ""}, records.add())
                one.trace_id = bytes.fromhex(record.get("traceId", ""))
    return bytes(request.SerializeToString())


def push_of(streams: list[dict[str, Any]]) -> bytes:
    """Return a push of Loki in protobuf and Snappy."""
    push = PUSH_REQUEST()
    for one in streams:
        stream = push.streams.add(labels=one["labels"])
        for given in one["entries"]:
            entry = stream.entries.add(line=given["line"].encode())
            entry.timestamp.seconds, entry.timestamp.nanos = divmod(given["time"], _SECOND_NS)
            for name, value in given["metadata"].items():
                entry.structuredMetadata.add(name=name, value=value)
    return bytes(cramjam.snappy.compress_raw(push.SerializeToString()))


def assert_within(wanted: Any, found: Any) -> None:
    """Check that everything wanted is in what was found; arrays have the same length."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict)
        for name, value in wanted.items():
            assert_within(value, found.get(name))
    elif isinstance(wanted, list):
        assert isinstance(found, list)
        for one, other in zip(wanted, found, strict=True):
            assert_within(one, other)
    else:
        assert found == wanted


@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.stem)
def test_an_agent_gets_the_answers_that_it_reads(
    path: Path, client: httpx2.Client, stored: Ledger
) -> None:
    agent = yaml.load(path.read_text(), Plain)  # noqa: S506 - a safe loader
    for exchange in agent["exchanges"]:
        method, url = exchange["request"].split()
        headers, body = exchange.get("headers", {}), body_of(exchange)
        if coding := exchange.get("coding"):
            body, headers = CODINGS[coding](body), {**headers, "Content-Encoding": coding}
        answer = client.request(method, url, content=body, headers=headers)
        wanted = exchange["answer"]
        assert answer.status_code == wanted["status"], (exchange["request"], answer.text)
        for name, value in wanted.get("headers", {}).items():
            assert answer.headers[name] == value
        assert wanted.get("contains", "") in answer.text
        if "body" in wanted:
            assert_within(wanted["body"], answer.json())
        if "partial" in wanted:
            found = ExportLogsServiceResponse.FromString(answer.content)
            assert found.HasField("partial_success") is wanted["partial"]
    records = sorted(stored.records(len(agent["stored"])), key=lambda one: one.time)
    for wanted, record in zip(agent["stored"], records, strict=True):
        shown = (record.collection, record.text, record.time, record.labels)
        assert shown == tuple(wanted[name] for name in ("collection", "text", "time", "labels"))
        assert_within(wanted.get("attributes", {}), record.attributes)
