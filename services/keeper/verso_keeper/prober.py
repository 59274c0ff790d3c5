"""Keeps asking whether a text can really be embedded, so that readiness rests on work done."""

from __future__ import annotations

import time
from collections.abc import Callable

from verso_core.jobs import Item, Kind, Queue, cut
from verso_ledger import Ledger, NewJob

TENANT = "verso"
_TEXT = b"Is anybody there?"
_DEADLINE_S = 30.0
_KEEP_S = 60


class Prober:
    """Has one short text embedded when none was for ``after_s`` seconds.

    The idempotency key names the span of time, so several keepers ask once between them. A probe
    that nobody takes up within its deadline is never run.

    Args:
        ledger: the truth about jobs.
        after_s: how long without a real embed, seconds.
        clock: Unix seconds.
    """

    def __init__(
        self, ledger: Ledger, *, after_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._after_s = after_s
        self._clock = clock
        self._asked = -1

    def step(self) -> bool:
        """Do one round; tell whether a probe was accepted.

        Raises:
            LedgerUnavailable: Redis did not answer.
            QueueFull: real work waits in such numbers that a probe would say nothing.
        """
        age_s = self._ledger.liveness.health().last_embed_age_s
        span = int(self._clock() // self._after_s)
        if (age_s is not None and age_s < self._after_s) or span == self._asked:
            return False
        job = NewJob(
            kind=Kind.EMBED,
            queue=Queue.INTERACTIVE,
            slices=list(cut(Kind.EMBED, {}, [Item({}, _TEXT)])),
            tenant=TENANT,
            idempotency=(f"probe-{span}", "probe"),
            deadline_s=_DEADLINE_S,
            keep_s=_KEEP_S,
        )
        accepted = self._ledger.jobs.accept(job)
        self._asked = span
        return not accepted.replayed
