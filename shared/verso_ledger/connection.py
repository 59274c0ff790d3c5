"""Connections to Redis or Valkey: their timeouts, retries and errors.

Every step of the ledger may be repeated, so the retries of a client do no harm. Behind Sentinels
each new connection asks them for the primary; a connection to a server that has become a replica
closes at its first refused write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio import sentinel as async_sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from verso_core.errors import LedgerUnavailable
from verso_ledger.sentinel import SentinelAddress, sentinel_address

_POOL_TURNS = 4
"""Timeouts of an answer that a caller waits for a free connection. With one, some of 256 callers on
a busy machine were refused although the ledger did answer."""


_LATE_S = 0.25
"""A timeout that ends so long after its time says that this process did not run meanwhile."""


class _LateReaderRetry(AsyncRetry):
    """Repeat a command once if this process was kept from reading its answer in time.

    On a busy machine a process may stand still for seconds. When it runs again, the answer is there
    and the timeout is over, and the timeout wins.
    """

    def __init__(self, *args: Any, timeout_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timeout_s = timeout_s

    async def call_with_retry(self, *args: Any, **options: Any) -> Any:
        """Execute an operation.

        Raises:
            RedisError: it failed, or took too long.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            return await super().call_with_retry(*args, **options)
        except exceptions.TimeoutError:
            if clock() - began < self._timeout_s + _LATE_S:
                raise
        return await super().call_with_retry(*args, **options)


@contextmanager
def translated() -> Iterator[None]:
    """Raise LedgerUnavailable for every error of Redis.

    A refused write (disk full, out of memory, read-only replica) and a lost connection are the same
    to the caller: nothing was acknowledged, and trying again later may help. An error inside a
    script is a bug that another attempt does not cure, and is raised as it is.

    Raises:
        LedgerUnavailable: Redis did not answer, or refused.
    """
    try:
        yield
    except exceptions.RedisError as exc:
        if str(exc).startswith("user_script"):
            raise
        raise LedgerUnavailable(f"the ledger did not answer: {type(exc).__name__}") from exc
    except RuntimeError as exc:
        # uvloop, unlike asyncio, raises this for a connection that the server has just closed.
        if "closed" not in str(exc):
            raise
        raise LedgerUnavailable("the ledger did not answer: the connection is closed") from exc


def connect(url: str, *, timeout_s: float = 10.0, retries: int = 3) -> redis.Redis:
    """Return a blocking client that detects a dead peer and repeats a command that was lost.

    Raises:
        ValueError: the address is malformed.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s / 2,
        **_keepalive(url),
        "health_check_interval": 5,
        "retry": Retry(
            ExponentialBackoff(cap=1.0, base=0.05),
            retries=retries,
            supported_errors=(exceptions.ConnectionError, exceptions.TimeoutError),
        ),
    }
    address = sentinel_address(url)
    if address is None:
        return redis.Redis.from_url(url, **options)
    pool = _SentinelPool(address.name, _manager(address), **address.server_options, **options)  # type: ignore[no-untyped-call]
    return redis.Redis.from_pool(pool)


def connect_async(url: str, *, timeout_s: float = 1.5, connections: int = 128) -> Redis:
    """Return an asynchronous client that gives up within ``timeout_s``, so a caller gets an answer.

    A command is repeated only if its connection was already closed, or if this process stood still
    while the answer came: a slow server is not asked twice. If all connections are in use, a caller
    waits longer for one: the server does answer.

    Raises:
        ValueError: the address is malformed.
    """
    options: dict[str, Any] = {
        "max_connections": connections,
        "timeout": _POOL_TURNS * timeout_s,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        **_keepalive(url),
        "retry": _LateReaderRetry(
            NoBackoff(),
            retries=1,
            supported_errors=(exceptions.ConnectionError,),
            timeout_s=timeout_s,
        ),
    }
    address = sentinel_address(url)
    if address is None:
        return Redis.from_pool(BlockingConnectionPool.from_url(url, **options))
    sentinels: Any = async_sentinel.Sentinel
    lookup = address.sentinel_options(asynchronous=True)
    manager = sentinels(address.hosts, sentinel_kwargs=lookup)
    blocking: Any = _BlockingSentinelPool
    pool = blocking(address.name, manager, **address.server_options, **options)
    return Redis.from_pool(pool)


def primary_address(address: SentinelAddress) -> tuple[str, int]:
    """Return host and port of the server that is the primary now.

    Raises:
        LedgerUnavailable: no Sentinel knows it.
    """
    with translated():
        host, port = _manager(address).discover_master(address.name)
    return str(host), int(port)


class _SentinelPool(SentinelConnectionPool):
    """Connections to the primary of the moment; closes those to the Sentinels with them."""

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections, or only the idle ones, which may be to an old primary."""
        super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                sentinel.close()


class _BlockingSentinelPool(async_sentinel.SentinelConnectionPool, BlockingConnectionPool):
    """As _SentinelPool, asynchronous; a caller waits where all connections are in use."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections, or only the idle ones, which may be to an old primary."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()


def _manager(address: SentinelAddress) -> Any:
    return Sentinel(address.hosts, sentinel_kwargs=address.sentinel_options())  # type: ignore[no-untyped-call]


def _keepalive(url: str) -> dict[str, bool]:
    """Return the option by which a connection detects a dead peer; a Unix socket needs none."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True}
