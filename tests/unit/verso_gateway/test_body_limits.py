"""Facts about the body limit, with messages as an ASGI server sends them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from tests.support.api_document import DOCUMENT

from verso_core.errors import VersoError
from verso_gateway import problems
from verso_gateway.bodies.limits import NDJSON, SMALL_BYTES, TAKES_MANY, BodyLimit


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        body = await Request(scope, receive).body()
        response = Response(str(len(body)))
    except VersoError as error:
        response = problems.answer(scope, error)
    await response(scope, receive, send)


class _Caller:
    """Sends a body in parts and keeps the answer."""

    def __init__(self, *parts: bytes, announce: bool, **headers: str) -> None:
        self.parts = list(parts)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        pairs = {"content-type": "application/json", **named}
        if announce:
            pairs.setdefault("content-length", str(sum(map(len, parts))))
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/ingest",
            "headers": [(k.encode(), v.encode()) for k, v in pairs.items()],
            "state": {},
        }
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if not self.parts:
            await asyncio.sleep(3600)
        part = self.parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.sent[1:]))


def _limit(*, held_bytes: int = 10_000) -> BodyLimit:
    return BodyLimit(
        _echo,
        body_bytes=100,
        upload_bytes=1000,
        file_bytes=1000,
        feed_bytes=100,
        held_bytes=held_bytes,
        stall_timeout_s=0.05,
    )


def _call(caller: _Caller, limit: BodyLimit | None = None) -> _Caller:
    asyncio.run((limit or _limit())(caller.scope, caller.receive, caller.send))
    return caller


@pytest.mark.parametrize("announce", [True, False])
def test_a_body_of_exactly_the_limit_passes(announce: bool) -> None:
    assert _call(_Caller(b"x" * 60, b"x" * 40, announce=announce)).body == 100


@pytest.mark.parametrize("announce", [True, False])
def test_a_body_over_the_limit_is_413_announced_or_chunked(announce: bool) -> None:
    caller = _call(_Caller(b"x" * 60, b"x" * 41, b"x" * 5, announce=announce))
    assert caller.status == 413
    assert caller.body["code"] == "body_too_large"
    assert caller.parts == []  # read to its end, so that the caller sees the answer


def test_a_caller_that_asks_first_is_told_before_it_sends() -> None:
    caller = _call(_Caller(b"x" * 200, announce=True, expect="100-continue"))
    assert caller.status == 413
    assert caller.parts


def test_uploads_have_their_own_limit() -> None:
    assert _call(_Caller(b"x" * 1000, announce=False, content_type=NDJSON)).body == 1000
    assert _call(_Caller(b"x" * 1001, announce=False, content_type=NDJSON)).status == 413


@pytest.mark.parametrize("announce", [True, False])
def test_what_takes_one_question_has_a_bound_of_its_own(announce: bool) -> None:
    wide = BodyLimit(
        _echo,
        body_bytes=2 * SMALL_BYTES,
        upload_bytes=2 * SMALL_BYTES,
        file_bytes=2 * SMALL_BYTES,
        feed_bytes=SMALL_BYTES,
        held_bytes=10 * SMALL_BYTES,
        stall_timeout_s=0.05,
    )
    for path, status in (("/v1/embed", 200), ("/v1/search", 413), ("/v1/answer", 413)):
        for media_type in ("application/json", NDJSON):
            caller = _Caller(b"x" * SMALL_BYTES, b"x", announce=announce, content_type=media_type)
            caller.scope["path"] = path
            assert _call(caller, wide).status == status


def test_routes_of_long_bodies_are_routes() -> None:
    below = {
        f"/cohere/{version}/{name}" for version in ("v1", "v2") for name in ("embed", "rerank")
    }
    assert set(DOCUMENT["paths"]) | below > TAKES_MANY


@pytest.mark.parametrize("length", ["-1", "x", "²"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    assert _call(_Caller(b"", announce=True, content_length=length)).status == 422


def test_a_body_that_stops_arriving_is_given_up() -> None:
    caller = _Caller(b"x", b"y", announce=False)
    caller.parts = [b"x", b"y"]

    async def stalled() -> Message:
        if len(caller.parts) == 1:
            await asyncio.sleep(3600)
        return await _Caller.receive(caller)

    asyncio.run(_limit()(caller.scope, stalled, caller.send))
    assert caller.status == 422


@pytest.mark.parametrize("announce", [True, False])
def test_all_bodies_together_are_bounded(announce: bool) -> None:
    limit = _limit(held_bytes=50)
    assert _call(_Caller(b"x" * 51, announce=announce), limit).status == 429
    assert _call(_Caller(b"x" * 50, announce=announce), limit).body == 50  # all was given back
