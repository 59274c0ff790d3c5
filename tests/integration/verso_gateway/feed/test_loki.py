"""Loki's push API: real handlers of Python's logging, and raw requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import cramjam
import httpx2
import logging_loki
import pytest
from loki_logger_handler.loki_logger_handler import LokiLoggerHandler
from tests.integration.verso_gateway.conftest import Gateway
from tests.integration.verso_gateway.feed.conftest import Ledger

from verso_gateway.feed.loki import PUSH_REQUEST

PUSH = "/loki/api/v1/push"
PROTOBUF = "application/x-protobuf"


def test_python_logging_loki_sends_its_records(gateway: Gateway, stored: Ledger) -> None:
    handler = logging_loki.LokiHandler(
        url=gateway.url + PUSH, tags={"application": "shop"}, version="1"
    )
    logger = logging.getLogger("test_python_logging_loki")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        logger.error("disk %s is full", "sda", extra={"tags": {"part": "1"}})
    finally:
        logger.removeHandler(handler)
        handler.close()
    [one] = stored.records(1)
    assert one.text == "disk sda is full"
    assert one.labels["application"] == "shop"
    assert (one.labels["severity"], one.labels["part"]) == ("error", "1")


def test_loki_logger_handler_sends_its_records(gateway: Gateway, stored: Ledger) -> None:
    handler = LokiLoggerHandler(
        url=gateway.url + PUSH, labels={"app": "shop"}, label_keys={}, timeout=0.2
    )
    logger = logging.getLogger("test_loki_logger_handler")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        logger.error("disk is full")
        until = time.monotonic() + 60
        while not stored.slices() and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        logger.removeHandler(handler)
    [one] = stored.records(1)
    assert "disk is full" in one.text
    assert one.labels["app"] == "shop"


@pytest.mark.parametrize("named", [{}, {"Content-Encoding": "snappy"}], ids=["promtail", "vector"])
def test_a_push_of_protobuf_is_taken_byte_for_byte(
    client: httpx2.Client, stored: Ledger, named: dict[str, str]
) -> None:
    push = PUSH_REQUEST()
    stream = push.streams.add(labels='{job="web", host="a"}')
    entry = stream.entries.add(line=b"\xff\n\0 bytes")
    entry.timestamp.seconds, entry.timestamp.nanos = 1, 5
    entry.structuredMetadata.add(name="trace", value="t")
    body = bytes(cramjam.snappy.compress_raw(push.SerializeToString()))
    headers = {"Content-Type": PROTOBUF, **named}
    answer = client.post(PUSH, content=body, headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    [one] = stored.records(1)
    assert one.record.text == b"\xff\n\0 bytes"
    assert (one.labels, one.attributes) == ({"job": "web", "host": "a"}, {"trace": "t"})
    assert one.time == "1970-01-01T00:00:01.000000005Z"


def test_a_push_may_have_tens_of_thousands_of_streams(client: httpx2.Client) -> None:
    streams = [
        {"stream": {"job": "x", "pod": str(n)}, "values": [["1", f"line {n}"]]}
        for n in range(40_000)
    ]
    for _ in range(5):  # on a busy machine the ledger may be late; then an agent sends it again
        answer = client.post(PUSH, json={"streams": streams}, timeout=60)
        if answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
            break
    assert (answer.status_code, answer.text) == (204, "")


def test_what_snappy_inflates_to_counts_as_held(
    valkey_url: str, start_gateway: Callable[..., Gateway]
) -> None:
    gateway = start_gateway(valkey_url, held_limit_bytes=256 * 1024)
    push = PUSH_REQUEST()
    push.streams.add(labels='{job="web"}').entries.add(line=b"a" * 512 * 1024)
    body = bytes(cramjam.snappy.compress_raw(push.SerializeToString()))
    assert len(body) < 64 * 1024
    for _ in range(2):  # what was held is given back
        answer = gateway.client.post(PUSH, content=body, headers={"Content-Type": PROTOBUF})
        assert (answer.status_code, answer.text) == (
            429,
            "too many request bytes in memory at once\n",
        )


def test_a_bad_entry_is_left_out(client: httpx2.Client, stored: Ledger) -> None:
    values = [[str(n), str(n)] for n in range(1000)]
    values[500] = ["soon", "500"]
    answer = client.post(PUSH, json={"streams": [{"stream": {"job": "x"}, "values": values}]})
    assert answer.status_code == 204
    assert len(stored.texts(999)) == 999
    metrics = client.get("/metrics").text
    assert 'verso_feed_records_total{protocol="loki",status="rejected"} 1.0' in metrics
    assert 'verso_feed_records_total{protocol="loki",status="accepted"} 999.0' in metrics


def test_a_push_that_cannot_be_read_is_400_in_plain_text(client: httpx2.Client) -> None:
    for body in (b"{", b"[]", b'{"streams": [{"stream": {}, "values": [["x", "y"]]}]}'):
        answer = client.post(PUSH, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert answer.headers["content-type"].startswith("text/plain")
    assert client.post("/loki/api/v1/other").status_code == 404
