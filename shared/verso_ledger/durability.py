"""Checks that a Redis server keeps what it acknowledges, and reads how full it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import redis

from verso_core.errors import DurabilityMissing, LedgerUnavailable
from verso_ledger.connection import translated

_LOOK_S = 1.0
_log = logging.getLogger(__name__)
_WANTED: dict[str, tuple[str, ...]] = {
    "appendonly": ("yes",),
    "appendfsync": ("always", "everysec"),
    "maxmemory-policy": ("noeviction",),
    "no-appendfsync-on-rewrite": ("no",),
}


def check_durability(client: redis.Redis) -> None:
    """Check that the server writes an append-only file, syncs it and never evicts.

    ``appendfsync everysec`` passes: it loses up to 1.2 s of acknowledged writes in a power cut but
    is faster. The one-machine default is ``always``.

    Raises:
        DurabilityMissing: a setting is wrong, the last write to the file failed, or the server does
            not support CONFIG GET.
        LedgerUnavailable: Redis did not answer.
    """
    try:
        found = cast("Mapping[str, Any]", client.config_get(*_WANTED))
    except redis.exceptions.ResponseError as exc:
        raise DurabilityMissing("expected a server that answers CONFIG GET") from exc
    except redis.RedisError:
        with translated():
            raise
    for name, wanted in _WANTED.items():
        if found.get(name) not in wanted:
            raise DurabilityMissing(f"expected {name} {' or '.join(wanted)}, got {found.get(name)}")
    with translated():
        state = cast("Mapping[str, Any]", client.info("persistence"))
    if state.get("aof_last_write_status") != "ok":
        raise DurabilityMissing(
            f"expected aof_last_write_status ok, got {state.get('aof_last_write_status')}"
        )


def await_ledger(client: redis.Redis, over: threading.Event) -> None:
    """Wait until the ledger answers and is configured to keep what it acknowledges, or ``over``.

    Raises:
        DurabilityMissing: it would lose acknowledged work.
    """
    logged = False
    while not over.is_set():
        try:
            check_durability(client)
        except LedgerUnavailable as error:
            if not logged:
                _log.warning("waiting for the ledger: %s", error.detail)
            logged = True
            over.wait(_LOOK_S)
        else:
            return


@dataclass(frozen=True, slots=True)
class Server:
    """State of the server.

    Attributes:
        append_ok: whether its last write to the append-only file, and the last rewrite of that
            file, succeeded.
        memory_bytes: memory that its data takes.
        memory_limit_bytes: memory that it may take; all of the machine's if no limit is set.
        clients: connections to it.
    """

    append_ok: bool
    memory_bytes: int
    memory_limit_bytes: int
    clients: int


def ask_server(client: redis.Redis) -> Server:
    """Ask the server for its state.

    Raises:
        LedgerUnavailable: it did not answer.
    """
    with translated():
        return read_server(cast("Mapping[str, Any]", client.info()))


def read_server(info: Mapping[str, Any]) -> Server:
    """Read the reply of INFO."""
    checks = ("aof_last_write_status", "aof_last_bgrewrite_status")
    return Server(
        append_ok=all(info.get(name) == "ok" for name in checks),
        memory_bytes=int(info["used_memory"]),
        memory_limit_bytes=int(info["maxmemory"]) or int(info["total_system_memory"]),
        clients=int(info["connected_clients"]),
    )
