"""One POST to an address that callers chose: to where its name leads now, and nowhere else.

1. The host's addresses are asked for once, and every one of them must be permitted.
2. The connection goes to one of those very addresses: a name cannot lead elsewhere between the
   check and the use. TLS is checked against the name all the same.
3. A redirect is an answer like any other and is not followed. The answer's body is not read.
4. All of it, however slowly the other side drips, is over after ``timeout_s``.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from verso_core.webhooks import Address, Network, Target, permitted


class NotSent(Exception):
    """Raised when a message did not get through; says why in words without any address."""


def post(
    target: Target,
    body: bytes,
    *,
    headers: Mapping[str, str],
    allowed: Sequence[Network],
    timeout_s: float,
) -> int:
    """Send a message and give the status of the answer.

    Raises:
        NotSent: the address is not permitted, or nobody answered in time.
    """
    addresses = _addresses(target)
    if not addresses or not all(permitted(one, target, allowed) for one in addresses):
        raise NotSent("the address is not permitted")
    try:
        wire = _connected(addresses, target.port, timeout_s=timeout_s)
    except OSError as exc:
        raise NotSent(f"no connection: {type(exc).__name__}") from exc
    with contextlib.closing(wire), _ended_after(wire, timeout_s):
        try:
            if target.tls:
                wire = ssl.create_default_context().wrap_socket(wire, server_hostname=target.host)
            return _exchange(wire, target, body, headers)
        except (OSError, http.client.HTTPException) as exc:
            raise NotSent(f"no answer: {type(exc).__name__}") from exc
        finally:
            wire.close()


def _exchange(wire: socket.socket, target: Target, body: bytes, headers: Mapping[str, str]) -> int:
    kind = http.client.HTTPSConnection if target.tls else http.client.HTTPConnection
    connection = kind(target.host, target.port)
    connection.sock = wire
    connection.request("POST", target.path, body=body, headers=dict(headers))
    return connection.getresponse().status


def _addresses(target: Target) -> list[Address]:
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise NotSent("the host has no address") from exc
    # a link-local address may name its interface after a percent sign
    texts = dict.fromkeys(str(row[4][0]).partition("%")[0] for row in found)
    return [ipaddress.ip_address(text) for text in texts]


def _connected(addresses: Sequence[Address], port: int, *, timeout_s: float) -> socket.socket:
    """Connect to the first address that takes us."""
    *others, last = addresses[:4]
    share_s = timeout_s / (len(others) + 1)
    for address in others:
        with contextlib.suppress(OSError):
            return socket.create_connection((str(address), port), timeout=share_s)
    return socket.create_connection((str(last), port), timeout=share_s)


@contextmanager
def _ended_after(wire: socket.socket, timeout_s: float) -> Iterator[None]:
    """Cut a connection after a time: its own timeout begins anew with every byte."""
    # a second descriptor: wrapping in TLS takes the first one away
    copy = wire.dup()

    def cut() -> None:
        with contextlib.suppress(OSError):
            copy.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        copy.close()
