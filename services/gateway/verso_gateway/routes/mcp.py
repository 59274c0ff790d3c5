"""``POST /mcp``: tools for agents, by the Model Context Protocol (2025-11-25 and 2026-07-28).

Stateless streamable HTTP: each request is answered with one JSON object. There are no sessions to
end and no stream to listen to, so GET and DELETE are 405, as the protocol has it.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from verso_gateway import auth
from verso_gateway.access import guarded
from verso_gateway.context import context_of
from verso_gateway.protocols import MCP_PATH


async def check_names(request: Request) -> None:
    """Check where a request comes from, before anything else of it is looked at.

    Raises:
        Forbidden: by a name that is not this gateway's, or from a page of another site.
    """
    settings = context_of(request).settings
    auth.check_names(request, auth.LOOPBACK_NAMES | settings.mcp_names, origins=settings.cors)


router = guarded("agents", check_names)


@router.post(MCP_PATH, name="mcp", include_in_schema=False)
async def mcp(request: Request) -> Response:
    """Answer a request of an agent."""
    return _Answer(await context_of(request).agents.server())


class _Answer(Response):
    """What another application answers to the request."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
