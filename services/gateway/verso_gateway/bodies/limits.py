"""Limits of request bodies, checked before anything is parsed.

1. A body whose Content-Length exceeds the limit is refused unread. Routes that take many texts or
   vectors, files, and those of agents have the limits of the settings, all others ``SMALL_BYTES``:
   what they take is short, and a longer body would be parsed only to be refused.
2. A chunked body is counted as it arrives, and refused when it exceeds the limit.
3. All bodies in memory together have at most ``held_limit_bytes``; beyond that the answer is 429.
   What a route inflates itself counts as well (:func:`hold`).
4. A body that stops arriving is refused.

A refused body is read to its end and discarded if that is cheap: a client that still writes would
otherwise see a broken connection instead of the answer.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from verso_core.errors import BodyTooLarge, QueueFull, RequestInvalid, VersoError
from verso_gateway import problems
from verso_gateway.extract.formats import MEDIA_TYPES
from verso_gateway.protocols import COHERE_PATH, FEEDS, TEI_PATH, protocol_of

NDJSON = "application/x-ndjson"
PLAIN = "text/plain"
UPLOADS = frozenset({NDJSON, PLAIN, "text/csv"})
"""Media types whose bodies may be as long as an upload, where uploads are taken."""
TAKES_UPLOADS = frozenset({"/v1/ingest", "/v1/train"})
TAKES_FILES = "/v1/ingest"
TAKES_MANY = TAKES_UPLOADS | {
    "/v1/classify",
    "/v1/embed",
    "/v1/embeddings",
    "/v1/feedback",
    "/v1/reconstruct",
    "/v1/rerank",
    "/v1/score",
    *(f"{prefix}/v2/{name}" for prefix in ("", COHERE_PATH) for name in ("embed", "rerank")),
    *(f"{COHERE_PATH}/v1/{name}" for name in ("embed", "rerank")),
    TEI_PATH,
    *(f"{TEI_PATH}/{name}" for name in ("embed", "predict", "rerank", "similarity")),
}
"""Paths of the routes that take many texts or vectors."""
SMALL_BYTES = 1024 * 1024
"""Largest body of any other route: four times the longest contexts of an answer, as JSON may write
a letter of two bytes in six, and the most values of a filter, each of the longest."""
_DISCARD_BYTES = 64 * 1024 * 1024
_HOLD = "verso.hold"
"""Key of a request's scope under which :func:`hold` finds the limit."""


def hold(request: Request, size_bytes: int) -> None:
    """Count bytes that a request takes besides its body, until it is answered.

    Raises:
        QueueFull: with them too many request bytes are in memory at once.
    """
    request.scope[_HOLD](size_bytes)


class BodyLimit:
    """ASGI middleware that bounds request bodies."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        body_bytes: int,
        upload_bytes: int,
        file_bytes: int,
        feed_bytes: int,
        held_bytes: int,
        stall_timeout_s: float,
    ) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._upload_bytes = upload_bytes
        self._file_bytes = file_bytes
        self._feed_bytes = feed_bytes
        self._held_bytes = held_bytes
        self._stall_timeout_s = stall_timeout_s
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        body = _Body(
            receive,
            limit_bytes=self._limit_bytes(scope["path"], headers),
            stall_timeout_s=self._stall_timeout_s,
        )
        try:
            self._check_announced(headers, body.limit_bytes)
        except VersoError as error:
            if headers.get("expect", "").lower() != "100-continue":
                await body.discard()
            await problems.answer(scope, error)(scope, receive, send)
            return

        async def counted() -> Message:
            message = await body.next()
            size = len(message.get("body", b""))
            self._held += size
            body.held += size
            if self._held > self._held_bytes:
                await body.discard()
                raise QueueFull("too many request bytes in memory at once")
            return message

        def hold(size: int) -> None:
            if self._held + size > self._held_bytes:
                raise QueueFull("too many request bytes in memory at once")
            self._held += size
            body.held += size

        scope[_HOLD] = hold
        try:
            await self._app(scope, counted, send)
        finally:
            self._held -= body.held

    def _limit_bytes(self, path: str, headers: Headers) -> int:
        if protocol_of(path) in FEEDS:
            return self._feed_bytes
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if path in TAKES_UPLOADS and kind in UPLOADS:
            return self._upload_bytes
        if path == TAKES_FILES and kind in MEDIA_TYPES:
            return self._file_bytes
        return self._body_bytes if path in TAKES_MANY else min(SMALL_BYTES, self._body_bytes)

    def _check_announced(self, headers: Headers, limit_bytes: int) -> None:
        announced = headers.get("content-length", "0")
        if not (announced.isascii() and announced.isdigit()):
            raise RequestInvalid("expected a number as Content-Length")
        if int(announced) > limit_bytes:
            raise BodyTooLarge(f"expected a body of <= {limit_bytes} bytes, got {announced}")
        if self._held + int(announced) > self._held_bytes:
            raise QueueFull("too many request bytes in memory at once")


class _Body:
    """One request's body as it arrives."""

    def __init__(self, receive: Receive, *, limit_bytes: int, stall_timeout_s: float) -> None:
        self._receive = receive
        self._stall_timeout_s = stall_timeout_s
        self._complete = False
        self._taken = 0
        self.limit_bytes = limit_bytes
        self.held = 0

    async def next(self) -> Message:
        """Return the next message.

        Raises:
            BodyTooLarge: the body exceeds its limit.
            RequestInvalid: the body stopped arriving.
        """
        if self._complete:  # the server now reports a disconnect only, which may take forever
            return await self._receive()
        message = await self._take()
        if self._taken > self.limit_bytes:
            await self.discard()
            raise BodyTooLarge(f"expected a body of <= {self.limit_bytes} bytes, got more")
        return message

    async def discard(self) -> None:
        """Read and discard the rest, up to a bound."""
        start = self._taken
        try:
            while not self._complete and self._taken - start < _DISCARD_BYTES:
                await self._take()
        except RequestInvalid:
            return

    async def _take(self) -> Message:
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                message = await self._receive()
        except TimeoutError as exc:
            raise RequestInvalid(f"no byte of the body in {self._stall_timeout_s} s") from exc
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        self._taken += len(message.get("body", b""))
        return message
