"""A voice: publishes over a connection that is kept for it.

A caller waits for what is said here, and the way through a pool of connections, with a look at the
one that it gives, is a quarter of what saying it takes. See :mod:`verso_ledger.line`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import redis


class Voice:
    """Publishes; any number of threads may share it.

    Args:
        client: whose connections it makes its own as.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection: Any = None  # redis-py's connections have no types
        self._lock = threading.Lock()

    def publish(self, channel: str, messages: Sequence[bytes]) -> list[int]:
        """Say things on a channel, one after another; returns how many heard each.

        Raises:
            RedisError: it may or may not have been said.
        """
        with self._lock:
            connection = self._connection or self._pool.make_connection()
            self._connection = connection
            try:
                words = [("PUBLISH", channel, message) for message in messages]
                connection.send_packed_command(connection.pack_commands(words))
                return [cast("int", connection.read_response()) for _ in messages]
            except BaseException:
                connection.disconnect()
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.disconnect()
