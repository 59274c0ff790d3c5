"""Duties that run periodically, each in a thread of its own; and the two shortest of them."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence

from verso_core import tracing
from verso_core.errors import Unavailable
from verso_core.jobs import EmbedItem, EmbedParams, Item, Kind, Params, Queue, cut
from verso_core.result_files import SHARDS, ResultFiles
from verso_ledger import Accepted, Ledger, NewJob

TENANT = "verso"
_PROBE_TEXT = b"Is anybody there?"
_PROBE_DEADLINE_S = 30.0
_PROBE_KEEP_S = 60
_log = logging.getLogger(__name__)


def submit(
    ledger: Ledger,
    queue: Queue,
    kind: Kind,
    *,
    params: Params,
    item: Item,
    key: str,
    deadline_s: float | None = None,
    keep_s: int = 24 * 3600,
    collection: str | None = None,
) -> Accepted:
    """Accept a job of the keeper's own, of one item; ``collection`` where its params name none.

    The same ``key`` is the same job for every keeper, before and after a restart.

    Raises:
        LedgerUnavailable: Redis did not answer.
        QueueFull: the queue holds as much as it may.
    """
    job = NewJob(
        kind=kind,
        queue=queue,
        slices=list(cut(kind, params, [item])),
        tenant=TENANT,
        idempotency=(key, key.partition("-")[0]),
        deadline_s=deadline_s,
        keep_s=keep_s,
        trace=tracing.current(),
        collection=collection or getattr(params, "collection", None),
    )
    return ledger.jobs.accept(job)


class Periodic:
    """Calls ``duty`` every ``every_s`` seconds until stopped.

    An unavailable part is logged once for each outage, and the next round tries again.

    Args:
        name: what the duty is called in logs.
        duty: one round; raises Unavailable when it could not be done.
        every_s: from the end of one round to the next, seconds.
        after_round: called after every round, also one that failed.
    """

    def __init__(
        self,
        name: str,
        duty: Callable[[], object],
        *,
        every_s: float,
        after_round: Callable[[], object] = lambda: None,
    ) -> None:
        self._name = name
        self._duty = duty
        self._every_s = every_s
        self._after_round = after_round
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the first round."""
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        """Start no further round, and wait for the one that runs."""
        self._stop.set()
        self._thread.join(timeout_s)

    def run_once(self) -> None:
        """Run one round."""
        try:
            self._duty()
        except Unavailable as error:
            if not self._failing:
                _log.warning("%s waits: %s", self._name, error.detail, extra={"code": error.code})
            self._failing = True
        else:
            if self._failing:
                _log.info("%s resumed", self._name)
            self._failing = False
        self._after_round()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_once()
            except Exception:  # noqa: BLE001 - if this duty ended, its work would never be done
                _log.exception("%s failed", self._name)
            self._stop.wait(self._every_s)


class Prober:
    """Submits a short text to embed when no text was embedded for ``after_s`` seconds.

    Readiness thus rests on work that was done. The job's key names the span of time, so several
    keepers send one probe. A probe that no worker claims before its deadline expires.

    Args:
        ledger: accepts the probe.
        after_s: time without a real embed, seconds.
        clock: Unix seconds.
    """

    def __init__(
        self, ledger: Ledger, *, after_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._after_s = after_s
        self._clock = clock
        self._probed_span = -1

    def step(self) -> bool:
        """Run one round; return whether a probe was accepted.

        Raises:
            LedgerUnavailable: Redis did not answer.
            QueueFull: so much real work waits that a probe would show nothing.
        """
        age_s = self._ledger.liveness.health().last_embed_age_s
        span = int(self._clock() // self._after_s)
        if (age_s is not None and age_s < self._after_s) or span == self._probed_span:
            return False
        accepted = submit(
            self._ledger,
            Queue.INTERACTIVE,
            Kind.EMBED,
            params=EmbedParams(),
            item=EmbedItem(_PROBE_TEXT),
            key=f"probe-{span}",
            deadline_s=_PROBE_DEADLINE_S,
            keep_s=_PROBE_KEEP_S,
        )
        self._probed_span = span
        return not accepted.replayed


class ResultSweeper:
    """Removes the files of large results whose jobs have expired.

    One part of the folder is swept each round, and all of it in 256 rounds.

    Args:
        files: the folder.
        known: returns those of some jobs that have not expired.
    """

    def __init__(self, files: ResultFiles, known: Callable[[Sequence[str]], set[str]]) -> None:
        self._files = files
        self._known = known
        self._shards = itertools.cycle(SHARDS)

    def step(self) -> int:
        """Run one round; return the number of jobs whose files were removed.

        Raises:
            LedgerUnavailable: the ledger did not say which jobs it has; nothing is removed then.
            ResultsUnavailable: the folder cannot be read.
        """
        return self._files.sweep(next(self._shards), self._known)
