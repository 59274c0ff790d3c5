"""Bounds of connections, held before anybody is asked for a key.

uvicorn with httptools reads a head of any length for any time. Here:

1. A head, and whatever else of a request is no body (trailers, extensions of chunks), may have
   ``head_bytes``; then comes 431 (RFC 6585, section 5) and the connection is closed.
2. A head must be whole ``head_timeout_s`` after the connection opened, or after its first byte; an
   idle connection between two requests is uvicorn's to close. Then comes 408, if a byte had come.
3. Beyond ``most`` connections the next ones are closed with 503. The files that the process may
   open are raised to their hard limit, so that the bound is met before they run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_BODY_PAYS_FOR = 8
"""Bytes that one byte of a body may take: it may be a chunk of its own, with a length and ends."""
_SPARE_FILES = 64
"""Files kept for what is no caller's connection: the ledger, the broker, logs."""


def raise_file_limit() -> None:
    """Raise the number of files that this process may open to its hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS calls a limit unlimited that is not
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bounded(*, head_bytes: int, head_timeout_s: float, most: int) -> type[asyncio.Protocol]:
    """Return the protocol of a connection with these bounds, for uvicorn's ``http``."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY:
        most = min(most, max(1, files - _SPARE_FILES))

    class Bounded(_Bounded):
        limit_bytes = head_bytes
        timeout_s = head_timeout_s
        most_connections = most

    return Bounded


class _Bounded(HttpToolsProtocol):
    limit_bytes: int
    timeout_s: float
    most_connections: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unpaid = 0  # bytes that came and are no body
        self._in_head = False
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            self._refuse(503, "too many connections")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_whole()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unpaid += len(data)
        super().data_received(data)
        if self._unpaid > self.limit_bytes and not self._refused:
            self._refuse_long()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self._deadline is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_is_whole()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.limit_bytes:  # it came with other bytes, all at once
            self._refuse_long()
            raise httptools.HttpParserError("head too long")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unpaid = max(0, self._unpaid - _BODY_PAYS_FOR * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unpaid = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._refused:
            super().send_400_response(msg)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(self.timeout_s, self._head_is_late)

    def _head_is_whole(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(408, f"expected the head of a request within {self.timeout_s:g} s")
        else:
            self._refused = True
            self.transport.close()

    def _refuse_long(self) -> None:
        self._refuse(431, f"expected a head of <= {self.limit_bytes} bytes")

    def _refuse(self, status: int, reason: str) -> None:
        """Close the connection, with an answer unless another one is under way."""
        self._refused = True
        if self.cycle is None or self.cycle.response_complete:
            body = reason.encode("ascii")
            head = (
                f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: text/plain\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode("ascii") + body)
        self.transport.close()


_PHRASES = {
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
