"""The server of tools for agents (Model Context Protocol), made when it is first asked for.

Its library is an extra and takes a second to import, so nothing is imported at the start.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from verso_core import DISTRIBUTION
from verso_core.errors import NotInstalled

if TYPE_CHECKING:
    from verso_client.mcp.http import HttpServer


class Agents:
    """The server of tools of one application.

    Args:
        app: the application, whose API the tools call.
        timeout_s: a tool that takes longer fails.
    """

    def __init__(self, app: ASGIApp, *, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s
        self._making = asyncio.Lock()
        self._stop = asyncio.Event()
        self._server: HttpServer | None = None
        self._running: asyncio.Task[None] | None = None

    async def server(self) -> HttpServer:
        """Return the server.

        Raises:
            NotInstalled: the extra is not installed.
        """
        async with self._making:
            if self._server is None:
                made = (await asyncio.to_thread(_imported))(self._app, timeout_s=self._timeout_s)
                self._running = asyncio.create_task(made.run(self._stop))
                await made.started.wait()
                self._server = made
            return self._server

    async def close(self) -> None:
        """End the requests that are still open."""
        self._stop.set()
        if self._running is not None:
            await self._running


def _imported() -> type[HttpServer]:
    if find_spec("mcp") is None:
        raise NotInstalled(f"expected the extra {DISTRIBUTION}[mcp] at the gateway")
    from verso_client.mcp.http import HttpServer

    return HttpServer
