"""Compressed bodies are inflated piece by piece, under the limit of bodies."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from verso_core.errors import VersoError
from verso_gateway import problems
from verso_gateway.bodies.inflate import Inflate
from verso_gateway.bodies.limits import BodyLimit

LIMIT_BYTES = 1024 * 1024


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        response = Response(await Request(scope, receive).body())
    except VersoError as error:
        response = problems.answer(scope, error)
    await response(scope, receive, send)


def _sent(body: bytes, coding: str, *, part_bytes: int = 4096) -> tuple[int, bytes, dict[str, str]]:
    """Send a body in parts and return status, body and headers of the answer."""
    parts = [body[n : n + part_bytes] for n in range(0, len(body), part_bytes)] or [b""]
    sent: list[Message] = []

    async def receive() -> Message:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-encoding", coding.encode()), (b"content-type", b"application/json")]
    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/ingest", "state": {}}
    scope["headers"] = headers
    limited = BodyLimit(
        _echo,
        body_bytes=LIMIT_BYTES,
        upload_bytes=LIMIT_BYTES,
        file_bytes=LIMIT_BYTES,
        feed_bytes=1 << 20,
        held_bytes=2 * LIMIT_BYTES,
        stall_timeout_s=600.0,
    )
    asyncio.run(Inflate(limited)(scope, receive, send))
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return int(sent[0]["status"]), b"".join(m.get("body", b"") for m in sent[1:]), found


def _problem(body: bytes) -> Any:
    return json.loads(body)["code"]


@given(data=st.binary(max_size=3000), times=st.integers(1, 200), part=st.integers(1, 5000))
def test_an_inflated_body_is_what_was_compressed(data: bytes, times: int, part: int) -> None:
    whole = data * times
    for coding, packed in (
        ("gzip", gzip.compress(whole)),
        ("deflate", zlib.compress(whole)),
        ("zstd", zstandard.compress(whole)),
    ):
        assert _sent(packed, coding, part_bytes=part)[:2] == (200, whole)


def test_a_body_of_several_members_is_all_of_them() -> None:
    assert _sent(gzip.compress(b"a") + gzip.compress(b"b"), "x-gzip")[:2] == (200, b"ab")
    assert _sent(zstandard.compress(b"a") + zstandard.compress(b"b"), "zstd")[:2] == (200, b"ab")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_inflates_beyond_the_limit_is_refused(coding: str) -> None:
    """And costs little memory: a thousandth of it makes all of it."""
    whole = bytes(100 * LIMIT_BYTES)
    packed = gzip.compress(whole) if coding == "gzip" else zstandard.compress(whole)
    del whole
    tracemalloc.start()
    try:
        status, body, _ = _sent(packed, coding, part_bytes=len(packed))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (status, _problem(body)) == (413, "body_too_large")
    assert peak_bytes < 8 * LIMIT_BYTES


def test_a_body_may_not_ask_for_a_large_window() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=25)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(b"a" * 9000) + packer.flush()
    status, body, _ = _sent(packed, "zstd")
    assert (status, _problem(body)) == (422, "request_invalid")


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "zstd, zstd"])
def test_another_coding_is_refused_with_those_that_are_taken(coding: str) -> None:
    status, body, headers = _sent(b"x", coding)
    assert (status, _problem(body)) == (415, "encoding_unsupported")
    assert headers["accept-encoding"] == "gzip, deflate, zstd"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("fault", ["other bytes", "cut short", "empty"])
def test_a_broken_body_is_refused(coding: str, fault: str) -> None:
    pack = gzip.compress if coding == "gzip" else zstandard.compress
    body = {"other bytes": b"no coding", "cut short": pack(b"a" * 9000)[:-9], "empty": b""}[fault]
    status, answer, _ = _sent(body, coding)
    assert (status, _problem(answer)) == (422, "request_invalid")
