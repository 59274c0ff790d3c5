"""A line to the server: one connection for all who call at once, and for what is published.

The gateway asks the ledger little and often, and its code is cold when it does: a model has just
run through the processor's caches. A client library goes through many layers for each command, and
takes a connection for each caller; that took a lone caller half a millisecond. Here a command is
written as it comes and replies are handed out in their order (RESP 2, redis.io's specification of
the protocol; hiredis reads it). Address, password and TLS are those of the client it is made from.

A server that keeps somebody waiting and says nothing for a while is given up, with all who wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis
from redis.asyncio import Redis, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from verso_ledger.codec import Arg

_DOUBT_S = 0.05
"""A server is looked at once more before it is given up: the loop itself may have been late."""


class Line(asyncio.Protocol):
    """One connection, made by :func:`dial`.

    Args:
        silent_s: a server that owes a reply and says nothing for so long is given up, seconds.
        heard: is given what is published on the channels that were subscribed to.
    """

    def __init__(self, *, silent_s: float, heard: Callable[[bytes], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._silent_s = silent_s
        self._heard = heard
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._last_s = 0.0
        self._doubted = False
        self._fault: RedisError = RedisConnectionError("the connection was closed")
        self.over: asyncio.Future[None] = self._loop.create_future()

    def call(self, *words: Arg) -> asyncio.Future[Any]:
        """Send a command; the future has its reply, or the error it was answered with.

        Raises:
            ConnectionError: (of redis) the line is over.
        """
        if self._transport is None or self._transport.is_closing():
            raise RedisConnectionError("the connection is closed")
        reply: asyncio.Future[Any] = self._loop.create_future()
        if not self._waiting:
            self._last_s = self._loop.time()
        self._waiting.append(reply)
        self._transport.write(hiredis.pack_command(cast("Any", words)))
        if self._watch is None:
            self._watch = self._loop.call_later(self._silent_s, self._look)
        return reply

    async def close(self) -> None:
        """End the line."""
        if self._transport is not None:
            self._transport.abort()
            await self.over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand out replies in order, and what was published."""
        self._last_s = self._loop.time()
        self._doubted = False
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if self._heard is not None and isinstance(reply, list) and reply[0] == b"message":
                self._heard(reply[2])
                continue
            waiter = self._waiting.popleft()
            if waiter.done():  # the caller has gone away
                continue
            if isinstance(reply, hiredis.ReplyError):
                waiter.set_exception(_error(str(reply)))
            else:
                waiter.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's own name
        """Tell all who wait."""
        if self._watch is not None:
            self._watch.cancel()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(self._fault)
        if not self.over.done():
            self.over.set_result(None)

    def _look(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        left_s = self._last_s + self._silent_s - self._loop.time()
        if left_s <= 0 and self._doubted:
            self._fault = RedisTimeoutError(f"no word from the server in {self._silent_s} s")
            assert self._transport is not None
            self._transport.abort()
            return
        self._doubted = left_s <= 0
        self._watch = self._loop.call_later(max(left_s, _DOUBT_S), self._look)


class Exchange:
    """Commands over a line that is made when it is needed, and again when it was lost."""

    def __init__(self, client: Redis, *, silent_s: float) -> None:
        self._client = client
        self._silent_s = silent_s
        self._line: Line | None = None
        self._dialling = asyncio.Lock()

    async def call(self, *words: Arg) -> Any:
        """Return a command's reply. It must be one that may be repeated.

        Only where the connection was lost is it sent again, once: a slow server is not asked twice.

        Raises:
            RedisError: there was none, or it was an error.
        """
        try:
            return await (await self._connected()).call(*words)
        except RedisConnectionError:
            return await (await self._connected()).call(*words)

    async def close(self) -> None:
        """End the line."""
        if self._line is not None:
            await self._line.close()

    async def _connected(self) -> Line:
        line = self._line
        if line is not None and not line.over.done():
            return line
        async with self._dialling:
            if self._line is None or self._line.over.done():
                self._line = await dial(self._client, silent_s=self._silent_s)
            return self._line


async def dial(
    client: Redis, *, silent_s: float, heard: Callable[[bytes], None] | None = None
) -> Line:
    """Connect as a client would, and give a line that is ready; see :class:`Line`.

    Raises:
        RedisError: the server cannot be reached, or does not take the password.
    """
    pool, loop = client.connection_pool, asyncio.get_running_loop()
    given = pool.connection_kwargs
    line = Line(silent_s=silent_s, heard=heard)
    try:
        async with asyncio.timeout(silent_s):
            if "path" in given:
                await loop.create_unix_connection(lambda: line, given["path"])
            else:
                context = None
                if issubclass(pool.connection_class, SSLConnection):
                    context = pool.connection_class(**given).ssl_context.get()
                host, port = given.get("host", "localhost"), int(given.get("port", 6379))
                transport, _ = await loop.create_connection(lambda: line, host, port, ssl=context)
                wire = transport.get_extra_info("socket")
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if given.get("password"):
                names = [given[name] for name in ("username", "password") if given.get(name)]
                await line.call("AUTH", *names)
            if given.get("db"):
                await line.call("SELECT", given["db"])
    except TimeoutError as exc:
        await line.close()
        raise RedisTimeoutError(f"no connection within {silent_s} s") from exc
    except OSError as exc:
        await line.close()
        raise RedisConnectionError(f"no connection: {type(exc).__name__}") from exc
    except BaseException:
        await line.close()
        raise
    return line


def _error(message: str) -> RedisError:
    """Name an error of the server as redis-py does."""
    if message.startswith("NOSCRIPT"):
        return NoScriptError(message)
    return ResponseError(message.removeprefix("ERR "))
