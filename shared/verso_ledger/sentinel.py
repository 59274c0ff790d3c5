"""Addresses of servers behind Sentinels: which server is the primary is asked at each connection.

    redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT] …]/NAME[/DB][?sentinel_auth=1]

The hosts are the Sentinels'; NAME is what they call the primary. User and password are the
servers'. With ``sentinel_auth=1`` the Sentinels ask for the same password.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

_SCHEME = "redis+sentinel"
_PORT = 26379
_LOOK_UP_S = 1.0
"""How long one Sentinel may take to answer before the next one is asked."""


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """A primary that Sentinels know by ``name``; ``username`` and ``password`` are '' for none."""

    hosts: tuple[tuple[str, int], ...]
    name: str
    db: int
    username: str
    password: str
    sentinel_auth: bool

    @property
    def server_options(self) -> dict[str, Any]:
        """Options of a connection to the primary."""
        return {"db": self.db, "username": self.username or None, "password": self.password or None}

    def sentinel_options(self, *, asynchronous: bool = False) -> dict[str, Any]:
        """Return the options of a connection to a Sentinel. It is asked once, then the next one."""
        retry = AsyncRetry(NoBackoff(), 0) if asynchronous else Retry(NoBackoff(), 0)
        options = {
            "socket_timeout": _LOOK_UP_S,
            "socket_connect_timeout": _LOOK_UP_S,
            "retry": retry,
        }
        return options | ({"password": self.password} if self.sentinel_auth else {})


def sentinel_address(url: str) -> SentinelAddress | None:
    """Return the parts of an address behind Sentinels; None for an address of another kind.

    Raises:
        ValueError: the address names no host, no primary, or a database that is no number.
    """
    if not url.startswith(f"{_SCHEME}://"):
        return None
    # urllib refuses several hosts where a later one is an IPv6 address (Python 3.13 and newer).
    login_and_hosts, _, rest = url.removeprefix(f"{_SCHEME}://").partition("/")
    path, _, query = rest.partition("?")
    before, _, hosts = login_and_hosts.rpartition("@")
    username, _, password = before.partition(":")
    name, _, db = path.strip("/").partition("/")
    if not hosts or not name or not (db or "0").isdigit():
        raise ValueError(f"expected {_SCHEME}://HOST:PORT,HOST:PORT/NAME/DB")
    return SentinelAddress(
        hosts=tuple(_host(one) for one in hosts.split(",")),
        name=unquote(name),
        db=int(db or 0),
        username=unquote(username),
        password=unquote(password),
        sentinel_auth=parse_qs(query).get("sentinel_auth") == ["1"],
    )


def celery_broker(url: str) -> tuple[str, dict[str, Any]]:
    """Return a broker's address as Celery writes it, and the transport options that belong to it.

    Raises:
        ValueError: the address begins as one behind Sentinels and is none.
    """
    address = sentinel_address(url)
    if address is None:
        return url, {}
    login = f"{quote(address.username, safe='')}:{quote(address.password, safe='')}@"
    start = f"sentinel://{login if address.password else ''}"
    hosts = [(f"[{host}]" if ":" in host else host, port) for host, port in address.hosts]
    urls = [f"{start}{host}:{port}/{address.db}" for host, port in hosts]
    options = {"master_name": address.name, "sentinel_kwargs": address.sentinel_options()}
    return ";".join(urls), options


def _host(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        host, port = text, str(_PORT)
    if not host:
        raise ValueError(f"expected HOST:PORT of a Sentinel, got {text}")
    return host.strip("[]"), int(port)
