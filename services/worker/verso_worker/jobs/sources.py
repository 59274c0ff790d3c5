"""The ledgers that a worker takes its work from.

A worker serves every ledger of its platform with the same engine, vector store and slots. What
belongs to one ledger is a :class:`Source`: the leases held there, and what executes its slices.

1. A worker starts as soon as one ledger answers.
2. Each ledger is added when it has answered, has the name that its address was given, and is not
   older than the worker's mark.
3. One that does not answer later rests for a moment, and is then asked by one slot at a time until
   it answers, so that the slots serve the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from verso_core.errors import LedgerUnavailable, VersoError
from verso_core.jobs import Queue
from verso_core.settings import LedgerAddress
from verso_ledger import Ledger, WorkSubscriber, await_ledger
from verso_ledger.connection import connect
from verso_worker.jobs.executor import Executor
from verso_worker.jobs.leases import LeaseRenewer
from verso_worker.jobs.ledger_watch import HighWaterMark

_AGAIN_S = 2.0
_REST_S = 1.0
_TIMEOUT_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Source:
    """One ledger as a worker's slots use it.

    Attributes:
        ledger: the truth about its jobs.
        executor: executes its slices.
        leases: the worker's leases there; they say whose they are and for how long.
        subscribers: how a slot learns of new work there; a slot of a queue without one does not
            listen.
        busy: how many slots execute slices of it, by queue.
    """

    ledger: Ledger
    executor: Executor
    leases: LeaseRenewer
    subscribers: Mapping[Queue, WorkSubscriber] = field(default_factory=dict)
    busy: dict[Queue, int] = field(default_factory=dict)
    _rests_until: float | None = None
    _asked: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def asked(self) -> Iterator[bool]:
        """Yield whether this slot may ask the ledger now; note whether it answers."""
        until = self._rests_until
        if until is not None and (time.monotonic() < until or not self._asked.acquire(False)):
            yield False
            return
        try:
            yield True
        except LedgerUnavailable:
            self._rests_until = time.monotonic() + _REST_S
            raise
        else:
            self._rests_until = None
        finally:
            if until is not None:
                self._asked.release()


class Connected:
    """The connection to one ledger, from the start of a worker to its end.

    Args:
        address: of the ledger.
        folder: the worker's data folder, which holds the mark.
        replicas: replicas that must have a step before it returns.
        several: whether the platform has more than one ledger.

    Attributes:
        client: the connection.
        ledger: the ledger.
    """

    def __init__(
        self, address: LedgerAddress, *, folder: Path, replicas: int, several: bool
    ) -> None:
        # Where there are others to serve, a slot does not wait long for one that stands still.
        patience: dict[str, Any] = {"timeout_s": _TIMEOUT_S, "retries": 1} if several else {}
        self.client: Redis = connect(address.url, **patience)
        self.ledger = Ledger(self.client, replicas=replicas, name=address.name)
        self._several = several
        self._watch = HighWaterMark(
            folder,
            self.ledger.epoch,
            name=address.name,
            on_unclean_end=self.ledger.scrub.request_recent,
        )

    def await_answer(self, over: threading.Event) -> None:
        """Wait until the ledger answers, and check that it is the right one and not too old.

        Raises:
            DurabilityMissing: it would lose acknowledged work.
            LedgerMisnamed: it is another ledger of the platform.
            LedgerUnavailable: it went away again, or its mark cannot be kept.
        """
        await_ledger(self.client, over)
        if over.is_set():
            return
        if self._several:
            self.ledger.epoch.check_name(self.ledger.name)
        try:
            self._watch.check()
        except OSError as error:
            raise LedgerUnavailable(f"cannot keep the mark of the ledger: {error}") from error
        self._watch.start()

    def close(self) -> None:
        """Close the mark and the connections."""
        self._watch.stop()
        self.ledger.close()


class Ledgers:
    """The ledgers of a worker, each added as soon as it answers.

    Args:
        connected: the ledgers, the home ledger first.
    """

    def __init__(self, connected: Sequence[Connected]) -> None:
        self.connected = connected
        self._over = threading.Event()
        self._answered = threading.Event()
        self._added = threading.Event()
        self._may_add = threading.Event()
        self._add: Callable[[Connected], None] = lambda _: None

    @property
    def home(self) -> Ledger:
        """The home ledger."""
        return self.connected[0].ledger

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.connected) > 1

    def tables(self, generation: str) -> bytes | None:
        """Return packed tables by their generation from the ledger that has them.

        Raises:
            LedgerUnavailable: none has them, and one that may does not answer.
        """
        error: LedgerUnavailable | None = None
        for one in self.connected:
            try:
                if (found := one.ledger.generations.tables(generation)) is not None:
                    return found
            except LedgerUnavailable as exc:
                error = exc
        if error is not None:
            raise error
        return None

    def await_first(self) -> None:
        """Wait until a ledger answers.

        Raises:
            VersoError: the only ledger is not fit.
        """
        if not self.several:
            self.connected[0].await_answer(self._over)
            return
        for one in self.connected:
            threading.Thread(target=self._run, args=(one,), name="ledger", daemon=True).start()
        self._answered.wait()

    def add(self, add: Callable[[Connected], None]) -> None:
        """Add each ledger that has answered, and each other one once it has.

        Returns when the first is added.

        Raises:
            VersoError: the only ledger cannot be added.
        """
        if not self.several:
            add(self.connected[0])
            return
        self._add = add
        self._may_add.set()
        self._added.wait()

    def close(self) -> None:
        """Add none any more, and close the connections."""
        self._over.set()
        self._may_add.set()
        for one in self.connected:
            one.close()

    def _run(self, one: Connected) -> None:
        self._repeat(one, lambda: one.await_answer(self._over))
        self._answered.set()
        self._may_add.wait()
        self._repeat(one, lambda: self._add(one))
        self._added.set()
        if not self._over.is_set():
            _log.info("ledger served", extra={"ledger": one.ledger.name})

    def _repeat(self, one: Connected, action: Callable[[], None]) -> None:
        """Do something with a ledger until it succeeds or the worker stops."""
        logged = ""
        while not self._over.is_set():
            try:
                action()
            except VersoError as error:
                if error.code != logged:
                    about = {"ledger": one.ledger.name, "code": error.code}
                    _log.error("ledger not served: %s", error.detail, extra=about)
                logged = error.code
                self._over.wait(_AGAIN_S)
            else:
                return
