"""Webhook messages: taken from the ledger's outbox, sent, and reported on.

Every message is delivered at least once, or given up after its last attempt, always under the same
id. A slow receiver delays no other:

- A webhook has at most 2 attempts in flight, a tenant 4; no attempt waits for another's end.
- After 3 time-outs in a row a webhook's attempts fail unmade for a minute, then one is made again.
- The next attempt of each message has a time of its own.

How a message is sent, to an address that a caller chose:

1. The host's addresses are resolved once, and every one of them must be permitted.
2. The connection goes to one of the checked addresses, so the name cannot be resolved to another
   one in between. The TLS certificate is verified for the name.
3. A redirect is not followed: its status counts as a failure. The body of the answer is not read.
4. An attempt ends after ``timeout_s``, however slowly the name is resolved or the receiver answers.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import logging
import queue
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from verso_core import tracing, webhooks
from verso_core.errors import LedgerUnavailable, RequestInvalid
from verso_core.webhooks import DELAYS_S, Address, Network, Target, permitted
from verso_ledger import Message
from verso_ledger.events.webhooks import WebhookMessages

TIMEOUT_S = 10.0
LEASE_S = 60.0
_THREADS = 64
_ROUND_S = 1.0
_TIMEOUTS = 3
_PAUSE_S = 60.0
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
        round_s: longest time that a round waits for its attempts, seconds.
    """

    def __init__(
        self,
        outbox: WebhookMessages,
        *,
        allowed: Sequence[Network] = (),
        clock: Callable[[], float] = time.time,
        delays_s: Sequence[float] = DELAYS_S,
        timeout_s: float = TIMEOUT_S,
        round_s: float = _ROUND_S,
    ) -> None:
        self._outbox = outbox
        self._allowed = tuple(allowed)
        self._clock = clock
        self._delays_s = tuple(delays_s)
        self._timeout_s = timeout_s
        self._round_s = round_s
        self._breaker = _Breaker()
        self._in_flight: dict[Future[None], Message] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhooks")

    def close(self) -> None:
        """Start no further attempt."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def step(self) -> int:
        """Start to send what is due, and wait a while; return the number of messages.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        self._in_flight = {one: of for one, of in self._in_flight.items() if not one.done()}
        due = self._outbox.take(_THREADS - len(self._in_flight), busy=self._busy(), lease_s=LEASE_S)
        started = {self._pool.submit(self._send_and_report, one): one for one in due}
        self._in_flight |= started
        wait(started, timeout=self._round_s)
        return len(due)

    def _busy(self) -> Counter[str]:
        """Count the attempts in flight of each webhook and each tenant."""
        found: Counter[str] = Counter()
        for message in self._in_flight.values():
            found[message.webhook.id] += 1
            found[message.tenant] += 1
        return found

    def _send_and_report(self, message: Message) -> None:
        try:
            reason = self._send(message)
            if reason is None:
                self._outbox.delivered(message)
            else:
                self._outbox.failed(message, reason, delay_s=self._delay_s(message, reason))
        except LedgerUnavailable as error:  # the message comes again when its lease has ended
            _log.warning("webhook message not reported: %s", error.detail)

    def _send(self, message: Message) -> str | None:
        """Make one attempt; return why it failed, or None."""
        about: dict[str, tracing.Attribute] = {
            "verso.job": message.job_id,
            "verso.attempt": message.attempts,
        }
        with tracing.span("webhook", about=about) as span:
            reason = self._guarded_attempt(message)
            if span is not None:
                span.set_attribute("verso.outcome", "failed" if reason else "sent")
        return reason

    def _guarded_attempt(self, message: Message) -> str | None:
        hook = message.webhook.id
        if not self._breaker.admits(hook):
            return "the receiver has timed out repeatedly"
        started = time.monotonic()
        reason = self._attempt(message)
        timed_out = reason is not None and time.monotonic() - started >= 0.9 * self._timeout_s
        self._breaker.note(hook, timed_out=timed_out)
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


class _Breaker:
    """Stops attempts at webhooks that timed out several times in a row; any thread may call it."""

    def __init__(self) -> None:
        self._timeouts: Counter[str] = Counter()
        self._open_until: dict[str, float] = {}
        self._lock = threading.Lock()

    def admits(self, hook: str) -> bool:
        """Whether an attempt may be made; after a pause one is, and the pause starts again."""
        with self._lock:
            if self._timeouts[hook] < _TIMEOUTS:
                return True
            now = time.monotonic()
            if now < self._open_until[hook]:
                return False
            self._open_until[hook] = now + _PAUSE_S
            return True

    def note(self, hook: str, *, timed_out: bool) -> None:
        """Count how an attempt ended."""
        with self._lock:
            if not timed_out:
                self._timeouts.pop(hook, None)
                self._open_until.pop(hook, None)
                return
            self._timeouts[hook] += 1
            self._open_until[hook] = time.monotonic() + _PAUSE_S


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
    deadline = time.monotonic() + timeout_s
    addresses = _addresses(target, timeout_s=timeout_s)
    if not addresses or not all(permitted(one, target, allowed) for one in addresses):
        raise NotSent("the address is not permitted")
    try:
        sock = _connect(addresses, target.port, timeout_s=_left_s(deadline))
    except OSError as exc:
        raise NotSent(f"no connection: {type(exc).__name__}") from exc
    with contextlib.closing(sock), _ended_after(sock, _left_s(deadline)):
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
    response = connection.getresponse()
    # Responses before the final one (RFC 9110, section 15.2), of which http.client knows 100 alone
    while 100 <= response.status < 200 and response.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
        response.headers = None  # type: ignore[assignment]  # begin() reads where there are none
        response.begin()
    return response.status


def _left_s(deadline: float) -> float:
    """Seconds until a deadline on the monotonic clock, never quite 0."""
    return max(0.001, deadline - time.monotonic())


def _addresses(target: Target, *, timeout_s: float) -> list[Address]:
    # In a thread that is left behind if it takes too long: the resolver has no time limit.
    answers: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as exc:
            answers.put(exc)

    threading.Thread(target=resolve, name="webhooks-resolve", daemon=True).start()
    try:
        found = answers.get(timeout=timeout_s)
    except queue.Empty as exc:
        raise NotSent("the host's address was not found in time") from exc
    if isinstance(found, Exception):
        raise NotSent("the host has no address") from found
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
