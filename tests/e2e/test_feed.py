"""Agents send logs to a real platform: what they sent is read, also when parts of it are killed."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import elasticsearch
import httpx2
import psutil
import pytest
import zstandard
from elasticsearch import Elasticsearch, helpers
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from tests.e2e.conftest import Platform

from verso_core.jobs import Filter
from verso_core.jobs.logs.lines import LinesRequest

LINES = 2000
MIB = 1024 * 1024


def texts(platform: Platform, service: str, count: int) -> Counter[str]:
    """Return the lines of a service once there are so many, with how often each is there."""
    asked = LinesRequest(collection="logs", filter=Filter(field="service", eq=service), limit=0)
    deadline = time.monotonic() + 300
    while True:
        with platform.client() as verso:
            rows = [json.loads(row) for row in b"".join(verso.lines(asked)).splitlines()]
        found = Counter(row["text"] for row in rows if "text" in row)
        if found.total() >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


@contextmanager
def killed(platform: Platform, *parts: str) -> Iterator[Callable[[], None]]:
    """Kill parts of a platform, one after the other, each time that the function is called."""
    left = list(parts)

    def kill() -> None:
        if left:
            platform.kill(left.pop(0))

    yield kill
    assert not left


def test_what_clients_send_is_read_with_its_time_and_labels(platform: Platform) -> None:
    provider = LoggerProvider(
        resource=Resource({"service.name": "shop", "host.name": "a"}), shutdown_on_exit=False
    )
    exporter = OTLPLogExporter(endpoint=f"{platform.url}/v1/logs", timeout=120)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    stamp = 1_795_405_566_123_456_789
    provider.get_logger("app").emit(
        LogRecord(timestamp=stamp, severity_text="WARN", body="disk full\non sda")
    )
    assert provider.force_flush(120_000)
    provider.shutdown()
    assert texts(platform, "shop", 1) == {"disk full\non sda": 1}
    asked = LinesRequest(collection="logs", filter=Filter(field="level", eq="warn"))
    with platform.client() as verso:
        row = json.loads(b"".join(verso.lines(asked)))
    assert row["time"] == "2026-11-23T03:46:06.123456789Z"
    assert row["labels"]["host"] == "a"


def test_bulk_with_ids_is_stored_once_while_parts_are_killed(platform: Platform) -> None:
    rows = [
        {"_index": "bulk", "_id": str(n), "message": f"line {n}", "service": "bulk"}
        for n in range(LINES)
    ]
    with (
        Elasticsearch(f"{platform.url}/es", request_timeout=10) as client,
        killed(platform, "gateway", "valkey", "gateway") as kill,
    ):
        for start in range(0, LINES, 100):
            if start % 500 == 300:
                killer = threading.Timer(0.02, kill)
                killer.start()
            while True:
                try:
                    done, errors = helpers.bulk(
                        client, rows[start : start + 100], raise_on_error=False
                    )
                except (elasticsearch.TransportError, elasticsearch.ApiError):
                    time.sleep(0.2)
                    continue
                assert (done, errors) == (100, [])
                break
            if start % 500 == 300:
                killer.join()
        kill()
    found = texts(platform, "bulk", LINES)
    assert found == {f"line {n}": 1 for n in range(LINES)}


def test_otlp_without_ids_loses_nothing_while_parts_are_killed(
    platform: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = LoggerProvider(resource=Resource({"service.name": "sdk"}), shutdown_on_exit=False)
    exporter = OTLPLogExporter(endpoint=f"{platform.url}/v1/logs", timeout=120)
    processor = BatchLogRecordProcessor(
        exporter, schedule_delay_millis=50, max_export_batch_size=100, max_queue_size=2 * LINES
    )
    provider.add_log_record_processor(processor)
    logger = provider.get_logger("app")
    with killed(platform, "gateway", "valkey") as kill:
        for n in range(LINES):
            logger.emit(LogRecord(timestamp=n + 1, body=f"line {n}"))
            if n in (LINES // 4, LINES // 2):
                time.sleep(0.3)
                kill()
    assert provider.force_flush(240_000)
    provider.shutdown()
    found = texts(platform, "sdk", LINES)
    assert set(found) == {f"line {n}" for n in range(LINES)}
    with capsys.disabled():
        print(f"\n{found.total() - LINES} of {LINES} lines without ids are doubled")  # noqa: T201


def gzip_bomb() -> bytes:
    """Return 10 GiB in some 10 MiB: members of gzip follow each other."""
    return gzip.compress(bytes(10 * MIB), 9) * 1024


def deflate_bomb() -> bytes:
    """Return as much as one stream: what was flushed may stand again and again."""
    packer = zlib.compressobj(9)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    part = packer.compress(bytes(10 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + part * 1024


def zstd_bomb() -> bytes:
    """Return far more than 10 GiB: frames follow each other."""
    part = zstandard.compress(bytes(10 * MIB), 19)
    return part * (10 * MIB // len(part))


def snappy_bomb() -> bytes:
    """Return a block that says it has 4 GiB, which is all that a block can say."""
    return b"\xff\xff\xff\xff\x0f" + bytes(10 * MIB)


@pytest.mark.parametrize("make", [gzip_bomb, deflate_bomb, zstd_bomb, snappy_bomb])
def test_a_small_body_that_inflates_to_a_huge_one_costs_no_memory(
    make: Callable[[], bytes], platform: Platform
) -> None:
    body, coding = make(), make.__name__.removesuffix("_bomb")
    path = "/loki/api/v1/push" if coding == "snappy" else "/v1/logs"
    assert 9 * MIB < len(body) < 11 * MIB
    gateway = psutil.Process(platform.pid("gateway"))
    before, peak, done = gateway.memory_info().rss, 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, gateway.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        answer = httpx2.post(
            platform.url + path,
            content=body,
            headers={"Content-Type": "application/x-protobuf", "Content-Encoding": coding},
            timeout=120,
        )
    finally:
        done.set()
        watcher.join()
    assert answer.status_code == 413
    assert peak - before < 64 * MIB
