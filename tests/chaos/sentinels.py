"""A primary, two replicas and three Sentinels, as real processes that a test may kill and stop."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import redis
from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError, Sentinel

from verso_standalone.valkey import free_port

NAME = "ledger"
PASSWORD = "of/the:stores"
_SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "requirepass": PASSWORD,
    "primaryauth": PASSWORD,
    "replica-read-only": "yes",
    "min-replicas-to-write": "1",
    "min-replicas-max-lag": "5",
    "repl-diskless-sync-delay": "0",
}
_WAIT_S = 240.0
Found = TypeVar("Found")


class Process:
    """A server or a Sentinel on a folder of its own, with the settings in its file."""

    def __init__(self, binary: str, folder: Path, settings: dict[str, str], *words: str) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self._folder = folder
        self._command = [binary, str(folder / "server.conf"), *words]
        lines = {"port": str(self.port), "dir": str(folder), **settings}
        text = "".join(f"{name} {_quoted(value)}\n" for name, value in lines.items())
        (folder / "server.conf").write_text(text, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it, as its file says and with ``more`` arguments."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more], stdout=log, stderr=subprocess.STDOUT
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal; after SIGKILL wait until it has ended."""
        if self._process is not None:
            self._process.send_signal(number)
            if number is signal.SIGKILL:
                self._process.wait(timeout=60)
                self._process = None

    def client(self) -> redis.Redis:
        """Connect to it directly."""
        return redis.Redis(
            port=self.port, password=PASSWORD, socket_timeout=1.0, socket_connect_timeout=1.0
        )


class Group:
    """The servers of one ledger and the Sentinels that watch them."""

    def __init__(self, binary: str, folder: Path, *, down_after_ms: int = 2000) -> None:
        self.servers = [Process(binary, folder / f"server{n}", _SETTINGS) for n in range(3)]
        first = self.servers[0]
        watched = {
            "bind": "127.0.0.1",
            "requirepass": PASSWORD,
            "sentinel sentinel-pass": PASSWORD,
            f"sentinel monitor {NAME}": f"127.0.0.1 {first.port} 2",
            f"sentinel auth-pass {NAME}": PASSWORD,
            f"sentinel down-after-milliseconds {NAME}": str(down_after_ms),
            f"sentinel failover-timeout {NAME}": "6000",
            f"sentinel parallel-syncs {NAME}": "1",
        }
        self.sentinels = [
            Process(binary, folder / f"sentinel{n}", watched, "--sentinel") for n in range(3)
        ]
        first.start()
        for server in self.servers[1:]:
            server.start("--replicaof", f"127.0.0.1 {first.port}")
        self.await_replicas(first)
        for sentinel in self.sentinels:
            sentinel.start()
        hosts = [("127.0.0.1", one.port) for one in self.sentinels]
        options = {"password": PASSWORD, "socket_timeout": 1.0}
        self._lookup = Sentinel(hosts, min_other_sentinels=2, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        self.await_sentinels()

    def url(self, db: int) -> str:
        """Address of the primary behind the Sentinels."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        password = quote(PASSWORD, safe="")
        return f"redis+sentinel://:{password}@{hosts}/{NAME}/{db}?sentinel_auth=1"

    def primary(self) -> Process:
        """Return the server that the Sentinels name as the primary.

        Raises:
            MasterNotFoundError: they name none at the moment.
        """
        _, port = self._lookup.discover_master(NAME)  # type: ignore[no-untyped-call]
        return next(one for one in self.servers if one.port == int(port))

    def await_other_primary(self, old: Process) -> Process:
        """Wait until the Sentinels name another primary."""

        def other() -> Process | None:
            with contextlib.suppress(MasterNotFoundError):
                found = self.primary()
                return found if found is not old else None
            return None

        return _until(other)

    def await_replicas(self, primary: Process | None = None) -> None:
        """Wait until two replicas follow the primary, and have what it has.

        Without ``primary`` it is the one that the Sentinels name: on a busy machine they may take
        a live server for dead, and name another one meanwhile.
        """

        def both() -> bool | None:
            with (primary or self.primary()).client() as raw:
                info = raw.info("replication")
                states = [info.get(f"slave{n}") for n in range(2)]
                following = all(one and one["state"] == "online" for one in states)
                return (following and raw.set("verso:test", 1) and raw.wait(2, 900) == 2) or None

        _until(both)

    def await_sentinels(self) -> None:
        """Wait until every Sentinel knows the two others and both replicas, and none is down."""

        def agreed() -> bool | None:
            for one in self.sentinels:
                with one.client() as raw:
                    state = raw.sentinel_masters()[NAME]
                    replicas = raw.sentinel_slaves(NAME)
                healthy = [row for row in replicas if row["flags"] == "slave"]
                if state["flags"] != "master" or state["num-other-sentinels"] != 2:
                    return None
                if len(healthy) != 2 or any(row["master-link-status"] != "ok" for row in healthy):
                    return None
            return True

        _until(agreed)

    def close(self) -> None:
        """End all processes."""
        for client in self._lookup.sentinels:
            client.close()
        for one in (*self.sentinels, *self.servers):
            one.send(signal.SIGCONT)
            one.send(signal.SIGKILL)


@contextlib.contextmanager
def group(binary: str, folder: Path, *, down_after_ms: int = 2000) -> Iterator[Group]:
    """Run servers and Sentinels."""
    found = Group(binary, folder, down_after_ms=down_after_ms)
    try:
        yield found
    finally:
        found.close()


def _until(found: Callable[[], Found | None]) -> Found:
    until = time.monotonic() + _WAIT_S
    while True:
        with contextlib.suppress(RedisError, KeyError):
            if (result := found()) is not None:
                return result
        assert time.monotonic() < until, "the servers did not get ready in time"
        time.sleep(0.05)


def _quoted(value: str) -> str:
    return value or '""'
