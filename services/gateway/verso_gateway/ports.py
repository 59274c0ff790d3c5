"""Ports of their own for agents that are pointed at a host and a port, and expect a protocol there.

The same application serves all ports; on one of a protocol the paths are the protocol's own, so
that ``/_bulk`` on the port of Elasticsearch is ``/es/_bulk``.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

BACKLOG = 2048
"""Connections that wait to be taken, as uvicorn's own."""


class OwnPorts:
    """ASGI middleware that puts a prefix before the paths of requests to a port.

    Args:
        app: the application.
        prefixes: by port.
    """

    def __init__(self, app: ASGIApp, *, prefixes: Mapping[int, str]) -> None:
        self._app = app
        self._prefixes = prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        prefix = self._prefixes.get((scope.get("server") or ("", 0))[1])
        if prefix and scope["type"] == "http":
            path, raw_path = scope["path"], scope.get("raw_path") or b""
            scope = {**scope, "path": prefix + path, "raw_path": prefix.encode() + raw_path}
        await self._app(scope, receive, send)


def listen(host: str, ports: Sequence[int]) -> list[socket.socket]:
    """Return sockets that listen on ports of an address.

    Raises:
        OSError: a port is in use.
    """
    found: list[socket.socket] = []
    try:
        for port in ports:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            one = socket.socket(family, kind)
            found.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
            one.listen(BACKLOG)
    except OSError:
        for one in found:
            one.close()
        raise
    return found
