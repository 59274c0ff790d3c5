"""The state of the server under the ledger: whether it still writes, and how full it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import redis

from verso_ledger.connection import translated


def keepalive(url: str) -> dict[str, bool]:
    """Return the option of a connection that is to notice a dead peer; a Unix socket needs none."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


@dataclass(frozen=True, slots=True)
class Server:
    """What the server says of itself.

    Attributes:
        append_ok: whether its last write to the append-only file, and the last rewrite of that
            file, succeeded.
        memory_bytes: memory that its data takes.
        memory_limit_bytes: what it may take, or all of the machine's where no limit is set.
        clients: connections to it.
    """

    append_ok: bool
    memory_bytes: int
    memory_limit_bytes: int
    clients: int


def ask(client: redis.Redis) -> Server:
    """Ask the server for its state.

    Raises:
        LedgerUnavailable: it did not answer.
    """
    with translated():
        info = cast("Mapping[str, Any]", client.info())
    checks = ("aof_last_write_status", "aof_last_bgrewrite_status")
    return Server(
        append_ok=all(info.get(name) == "ok" for name in checks),
        memory_bytes=int(info["used_memory"]),
        memory_limit_bytes=int(info["maxmemory"]) or int(info["total_system_memory"]),
        clients=int(info["connected_clients"]),
    )
