"""Tells webhooks of jobs' ends: takes messages from the outbox, sends them, reports.

Every message is sent at least once or given up after its attempts; its id is the same each time. A
receiver that is slow or away holds up a few threads here and nobody else: each message's next
attempt has a time of its own.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from verso_core import tracing, webhooks
from verso_core.errors import RequestInvalid
from verso_core.webhooks import DELAYS_S, Network
from verso_keeper.webhook_delivery import NotSent, post
from verso_ledger import Message
from verso_ledger.webhooks import WebhookMessages

TIMEOUT_S = 10.0
LEASE_S = 60.0
_THREADS = 8
_GONE = 410
_log = logging.getLogger(__name__)


class WebhookSender:
    """Sends what is due.

    Args:
        outbox: the ledger.
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
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="herald")

    def close(self) -> None:
        """Start no further attempt."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def step(self) -> int:
        """Send what is due and give how many messages that was.

        Raises:
            LedgerUnavailable: Redis did not answer; messages sent meanwhile are sent again.
        """
        # no more than can be sent before the first of them would be due again
        due = self._outbox.take(_THREADS * 4, lease_s=LEASE_S)
        for message, reason in zip(due, self._pool.map(self._send, due), strict=True):
            if reason is None:
                self._outbox.delivered(message)
            else:
                self._outbox.failed(message, reason, delay_s=self._delay_s(message, reason))
        return len(due)

    def _send(self, message: Message) -> str | None:
        """Make one attempt; gives why it failed."""
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
            _log.warning("a webhook message is given up", extra={"reason": reason})
            return None
        # up to a fifth more, so that what failed together does not come back together
        return self._delays_s[message.attempts] * random.uniform(1.0, 1.2)


def body_of(message: Message) -> dict[str, Any]:
    """Return a message's body: what became of the job, and never a text."""
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
