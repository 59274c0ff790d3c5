"""Which failed calls are repeated, and when.

1. Only calls that fail with a ``retryable`` error are repeated: a full queue, a restart.
2. The pause doubles from a quarter of a second, with full jitter so that callers who failed
   together do not return together, and is never shorter than the server asked for.
3. After ``patience_s`` seconds the last error is raised.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from verso_client.exchange import Call, Pause, Reply, Steps, error_of, retry_after_s
from verso_core.errors import VersoError

_FIRST_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Retries:
    """How long to repeat a failed call."""

    patience_s: float = 30.0
    longest_pause_s: float = 8.0

    def pause_s(self, attempt: int, *, asked_s: float | None) -> float:
        """Return the pause after failed attempt ``attempt``, counted from 0, seconds."""
        ceiling = min(self.longest_pause_s, _FIRST_PAUSE_S * 2 ** min(attempt, 16))
        return max(random.uniform(0, ceiling), asked_s or 0.0)


def perform(call: Call, retries: Retries) -> Steps[Reply]:
    """Repeat a call until it succeeds, fails for good, or ``patience_s`` has passed.

    Raises:
        VersoError: the platform's error, or Unavailable if it could not be reached.
    """
    deadline = time.monotonic() + retries.patience_s
    attempt = 0
    while True:
        asked_s: float | None = None
        try:
            reply = yield call
            assert reply is not None
            if reply.status < 400:
                return reply
            asked_s = retry_after_s(reply)
            raise error_of(reply)
        except VersoError as error:
            pause_s = retries.pause_s(attempt, asked_s=asked_s)
            late = time.monotonic() + pause_s > deadline
            if not (error.retryable and call.repeatable) or late:
                raise
        yield Pause(pause_s)
        attempt += 1
