"""Sockets of syslog: streams that are read as fast as the ledger takes them, and datagrams."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

from verso_gateway.feed.syslog import Framer
from verso_gateway.metrics import Metrics
from verso_gateway.protocols import Protocol
from verso_gateway.syslog.intake import Messages

_READ_BYTES = 256 * 1024
Take = Callable[[Messages], Awaitable[None]]


class Streams:
    """Connections over TCP and TLS. What was read of one is on disk before more is read."""

    def __init__(self, take: Take, *, metrics: Metrics) -> None:
        self._take = take
        self._metrics = metrics
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a port and return it.

        Raises:
            OSError: the port is in use.
        """
        server = await asyncio.start_server(self._serve, host, port, ssl=tls, limit=_READ_BYTES)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def close(self, *, grace_s: float) -> None:
        """Read no more; wait until what was read is on disk."""
        for server in self._servers:
            server.close()
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=grace_s)
            for task in late:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        framer = Framer()
        try:
            while (chunk := await self._next(reader)) is not None:
                self._metrics.feed.received(Protocol.SYSLOG, len(chunk))
                messages = list(framer.feed(chunk) if chunk else framer.end())
                if messages:
                    await self._take(messages)
                if not chunk:
                    return
        except OSError:
            return  # the sender went away
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _next(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return more bytes, empty at the sender's end; None once this process ends."""
        while all(server.is_serving() for server in self._servers):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    return await reader.read(_READ_BYTES)
        return None


class Datagrams(asyncio.DatagramProtocol):
    """Datagrams, each a message; those beyond ``most_bytes`` that wait are dropped and counted."""

    def __init__(self, take: Take, *, metrics: Metrics, most_bytes: int) -> None:
        self._take = take
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._waiting: list[bytes] = []
        self._size = 0
        self._come = asyncio.Event()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002
        """Keep a datagram, if there is room."""
        if self._size + len(data) > self._most_bytes:
            self._metrics.feed.dropped()
            return
        self._metrics.feed.received(Protocol.SYSLOG, len(data))
        self._waiting.append(data.removesuffix(b"\n"))
        self._size += len(data)
        self._come.set()

    async def run(self) -> None:
        """Take what has come in, until cancelled."""
        while True:
            await self._come.wait()
            self._come.clear()
            messages, self._waiting = self._waiting, []
            await self._take(messages)
            self._size = sum(map(len, self._waiting))
