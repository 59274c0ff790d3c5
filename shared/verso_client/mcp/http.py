"""The tools over stateless streamable HTTP, served by an application whose API they call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from verso_client.async_client import AsyncClient
from verso_client.exchange import Retries
from verso_client.mcp.server import create_server

_FORWARDED = (
    *("authorization", "x-api-key", "cookie", "host", "origin", "sec-fetch-site"),
    "traceparent",
)
"""Headers of an agent's request that the tool's calls carry too: who asks, and from where."""


class HttpServer:
    """Answers requests of the protocol; each is one exchange, and none is remembered.

    Args:
        app: the application. A tool calls it with the caller's own key, in the same process, so its
            scopes, limits and errors hold.
        timeout_s: a tool that takes longer fails; work that has not started by then never runs.
    """

    def __init__(self, app: ASGIApp, *, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s
        server = create_server(self._client, timeout_s=timeout_s)
        # Host and Origin were checked before: the SDK's own check is off.
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self.started = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Be ready for requests until ``stop`` is set."""
        async with self._manager.run():
            self.started.set()
            await stop.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._manager.handle_request(scope, receive, send)

    @asynccontextmanager
    async def _client(self, request: Request) -> AsyncIterator[AsyncClient]:
        headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        headers["x-request-id"] = request.state.request_id
        headers["verso-deadline"] = f"{self._timeout_s:g}"
        transport = _Within(httpx2.ASGITransport(self._app), headers)
        retries = Retries(
            patience_s=0
        )  # the agent tries again, and the queue is this process's own
        async with AsyncClient("http://localhost", transport=transport, retries=retries) as client:
            yield client


class _Within(httpx2.AsyncBaseTransport):
    """Calls an application in this process, with headers of another request."""

    def __init__(self, inner: httpx2.ASGITransport, headers: dict[str, str]) -> None:
        self._inner = inner
        self._headers = headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the application."""
        request.headers.update(self._headers)
        return await self._inner.handle_async_request(request)
