"""``verso mcp``: the platform's tools for an agent on this machine."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import typer

from verso_client.async_client import AsyncClient
from verso_client.cli.terminal import PATIENCE_S, Target, fail
from verso_client.exchange import Retries
from verso_core import DISTRIBUTION
from verso_core.errors import NotInstalled


def mcp(context: typer.Context) -> None:
    """Serve the read-only tools to an agent, over standard input and output (MCP)."""
    if find_spec("mcp") is None:
        fail(NotInstalled.code, f"expected the extra {DISTRIBUTION}[mcp]")
    from verso_client.mcp.server import serve_stdio

    chosen: Target = context.obj
    retries = Retries(PATIENCE_S if chosen.patience_s is None else chosen.patience_s)
    # A platform that is not there yet is the error of a tool: agents start their servers first.
    asyncio.run(serve_stdio(AsyncClient(chosen.url, api_key=chosen.api_key, retries=retries)))
