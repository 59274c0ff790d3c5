"""Webhook messages: taken from the ledger's outbox, sent, and reported on.

Every message is delivered at least once, or given up after its last attempt, always under the same
id. A slow receiver occupies a few threads and delays no other: the next attempt of each message has
a time of its own.

How a message is sent, to an address that a caller chose:

1. The host's addresses are resolved once, and every one of them must be permitted.
2. The connection goes to one of the checked addresses, so the name cannot be resolved to another
   one in between. The TLS certificate is verified for the name.
3. A redirect is not followed: its status counts as a failure. The body of the answer is not read.
4. An attempt ends after ``timeout_s``, however slowly the receiver answers.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from verso_core import tracing, webhooks
from verso_core.errors import RequestInvalid
from verso_core.webhooks import DELAYS_S, Address, Network, Target, permitted
from verso_ledger import Message
from verso_ledger.webhooks import WebhookMessages

TIMEOUT_S = 10.0
LEASE_S = 60.0
_THREADS = 8
_GONE = 410
_log = logging.getLogger(__name__)


class WebhookSender:
    """Sends the webhook messages that are due.

    Args:
        outbox: the messages in the ledger.
        allowed: networks that messages may go to although they are not public.
        clock: Unix seconds.
        delays_s: waits between attempts, seconds.
        timeout_s: longest time for one attempt, seconds.
    """

    def __init__(
        self,
        outbox: WebhookMessages,
        *,
        allowed: Sequence[Network] = (),
        clock: Callable[[], float] = time.time,
        delays_s: Sequence[float] = DELAYS_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._outbox = outbox
        self._allowed = tuple(allowed)
        self._clock = clock
        self._delays_s = tuple(delays_s)
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhooks")

    def close(self) -> None:
        """Start no further attempt."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def step(self) -> int:
        """Send what is due; return the number of messages.

        Raises:
            LedgerUnavailable: Redis did not answer; messages sent meanwhile are sent again.
        """
        # No more than can be sent before the lease of the first ends
        due = self._outbox.take(_THREADS * 4, lease_s=LEASE_S)
        for message, reason in zip(due, self._pool.map(self._send, due), strict=True):
            if reason is None:
                self._outbox.delivered(message)
            else:
                self._outbox.failed(message, reason, delay_s=self._delay_s(message, reason))
        return len(due)

    def _send(self, message: Message) -> str | None:
        """Make one attempt; return why it failed, or None."""
        about: dict[str, tracing.Attribute] = {
            "verso.job": message.job_id,
            "verso.attempt": message.attempts,
        }
        with tracing.span("webhook", about=about) as span:
            reason = self._attempt(message)
            if span is not None:
                span.set_attribute("verso.outcome", "failed" if reason else "sent")
        return reason

    def _attempt(self, message: Message) -> str | None:
        now = self._clock()
        body = json.dumps(body_of(message), separators=(",", ":")).encode()
        hook = message.webhook
        try:
            target = webhooks.target_of(hook.url, self._allowed)
            headers = webhooks.headers(
                hook.secrets(now), body, message_id=message.id, timestamp=int(now)
            )
            status = post(
                target, body, headers=headers, allowed=self._allowed, timeout_s=self._timeout_s
            )
        except (NotSent, RequestInvalid) as error:
            return str(error)
        return None if 200 <= status < 300 else f"status {status}"

    def _delay_s(self, message: Message, reason: str) -> float | None:
        if message.attempts >= len(self._delays_s) or reason == f"status {_GONE}":
            _log.warning("webhook message given up", extra={"reason": reason})
            return None
        # Up to a fifth more, so that messages that failed together are not sent again together
        return self._delays_s[message.attempts] * random.uniform(1.0, 1.2)


def body_of(message: Message) -> dict[str, Any]:
    """Return a message's body: how the job ended, and never a text."""
    return {
        "type": f"job.{message.status}",
        "timestamp": _moment(message.ended),
        "data": {
            "id": message.job_id,
            "kind": message.kind,
            "status": message.status,
            "created": _moment(message.created),
            "items": message.items,
            "ok": message.n_ok,
            "failed": message.n_err,
            "error": {"code": message.code, "detail": message.detail} if message.code else None,
        },
    }


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


class NotSent(Exception):
    """Raised when a message could not be delivered; the reason names no address."""


def post(
    target: Target,
    body: bytes,
    *,
    headers: Mapping[str, str],
    allowed: Sequence[Network],
    timeout_s: float,
) -> int:
    """Send a message and return the status of the answer.

    Raises:
        NotSent: the address is not permitted, or there was no answer in time.
    """
    addresses = _addresses(target)
    if not addresses or not all(permitted(one, target, allowed) for one in addresses):
        raise NotSent("the address is not permitted")
    try:
        sock = _connect(addresses, target.port, timeout_s=timeout_s)
    except OSError as exc:
        raise NotSent(f"no connection: {type(exc).__name__}") from exc
    with contextlib.closing(sock), _ended_after(sock, timeout_s):
        try:
            if target.tls:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=target.host)
            return _exchange(sock, target, body, headers)
        except (OSError, http.client.HTTPException) as exc:
            raise NotSent(f"no answer: {type(exc).__name__}") from exc
        finally:
            sock.close()


def _exchange(sock: socket.socket, target: Target, body: bytes, headers: Mapping[str, str]) -> int:
    kind = http.client.HTTPSConnection if target.tls else http.client.HTTPConnection
    connection = kind(target.host, target.port)
    connection.sock = sock
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


def _connect(addresses: Sequence[Address], port: int, *, timeout_s: float) -> socket.socket:
    """Connect to the first address that accepts a connection."""
    *others, last = addresses[:4]
    share_s = timeout_s / (len(others) + 1)
    for address in others:
        with contextlib.suppress(OSError):
            return socket.create_connection((str(address), port), timeout=share_s)
    return socket.create_connection((str(last), port), timeout=share_s)


@contextmanager
def _ended_after(sock: socket.socket, timeout_s: float) -> Iterator[None]:
    """Close a connection after a time: a socket's own timeout restarts with every byte."""
    # a second descriptor, since wrapping in TLS detaches the first
    copy = sock.dup()

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
