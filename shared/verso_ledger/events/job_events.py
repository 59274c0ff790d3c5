"""Events of jobs: one subscription of a process wakes every caller who waits for a job.

Who waits for lines that a collection accepts waits for the job ``lines:UID``, which never ends.

Events may be lost: pub/sub drops messages while a connection is down, so every waiter also polls
the ledger: often without a subscription, seldom with one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from redis.asyncio import Redis

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Status
from verso_ledger.connection import translated
from verso_ledger.keys import key

_log = logging.getLogger(__name__)

POLL_ALONE_S = 1.0
POLL_SUBSCRIBED_S = 5.0
_QUIET_S = 5.0
_SILENT_S = 15.0
_BACKOFF_S = 0.5
_NOTED = 4096
_LINES = "lines:"


class JobWaiter(asyncio.Event):
    """An event that is set for one waiter when its job has an event.

    ``end``: the hash and the result of the job, if the event of its end carried them, for
    :func:`verso_ledger.codec.job_rows.end_outcome`.
    """

    end: bytes | None = None


class JobChanges(asyncio.Event):
    """An event that is set when any job changes, with the ids of those that did."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, None] = {}
        self._missed = True

    def note(self, job_id: str) -> None:
        """Note that a job changed."""
        self._jobs[job_id] = None
        if len(self._jobs) > _NOTED:
            self.miss()
        self.set()

    def miss(self) -> None:
        """Note that jobs may have changed of which nothing is known."""
        self._jobs.clear()
        self._missed = True
        self.set()

    def take(self) -> list[str] | None:
        """Return which jobs changed since the last call; None if others may have, too."""
        jobs, missed = list(self._jobs), self._missed
        self._jobs.clear()
        self._missed = False
        self.clear()
        return None if missed else jobs


class JobEvents:
    """Wakes waiters by job id. The subscription starts with the first waiter."""

    def __init__(self, client: Redis) -> None:
        self._redis = client
        self._waiters: dict[str, set[JobWaiter]] = {}
        self._end_waiters: dict[str, set[JobWaiter]] = {}
        self._changes: set[JobChanges] = set()
        self._listener: asyncio.Task[None] | None = None
        self._connected = False
        self._closing = False
        self._cancellable = False  # in an await whose cancellation leaves no socket open
        self.released = False

    @property
    def connected(self) -> bool:
        """Whether events from now on are received."""
        return self._connected

    @property
    def poll_s(self) -> float:
        """How long a waiter may sleep before it polls the ledger, seconds."""
        return POLL_SUBSCRIBED_S if self._connected else POLL_ALONE_S

    def release(self) -> None:
        """Wake all waiters for good: they return with what is known now."""
        self.released = True
        self._wake_all()

    @contextmanager
    def waiter(self, job_id: str, *, end: bool = False) -> Iterator[JobWaiter]:
        """Yield a waiter that is set at every event of a job, or only at its end."""
        self._begin()
        waiter = JobWaiter()
        waiters = self._end_waiters if end else self._waiters
        waiters.setdefault(job_id, set()).add(waiter)
        try:
            yield waiter
        finally:
            of_job = waiters[job_id]
            of_job.discard(waiter)
            if not of_job:
                del waiters[job_id]

    @contextmanager
    def changes(self) -> Iterator[JobChanges]:
        """Yield what notes every job that changes from now on; at first all may have."""
        self._begin()
        changes = JobChanges()
        self._changes.add(changes)
        if self._connected:
            changes.set()
        try:
            yield changes
        finally:
            self._changes.discard(changes)

    def _begin(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        """End the subscription.

        A listener that is connecting is awaited: redis-py would leave its socket open if cancelled.
        """
        self._closing = True
        if self._listener is not None:
            if self._cancellable:
                self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None

    async def _listen(self) -> None:
        while not self._closing:
            try:
                with translated():
                    await self._subscription()
            except (LedgerUnavailable, OSError) as exc:
                if self._connected:
                    _log.warning("event subscription lost", extra={"error": str(exc)})
                self._connected = False
                with self._may_be_cancelled():
                    await asyncio.sleep(_BACKOFF_S)

    @contextmanager
    def _may_be_cancelled(self) -> Iterator[None]:
        self._cancellable = True
        try:
            yield
        finally:
            self._cancellable = False

    async def _subscription(self) -> None:
        """Receive events until the connection fails; ping a silent server, then give up."""
        clock = asyncio.get_running_loop().time
        async with self._redis.pubsub() as channel:
            await channel.subscribe(key("news"))
            received_s = clock()
            while not self._closing and clock() - received_s < _SILENT_S:
                with self._may_be_cancelled():
                    reply = await channel.get_message(timeout=_QUIET_S)
                message = cast("dict[str, Any] | None", reply)
                if message is None:
                    await channel.ping()
                    continue
                received_s = clock()
                if message["type"] == "subscribe":
                    self._connected = True
                    self._wake_all()
                elif message["type"] == "message":
                    self._receive(message["data"])

    def _receive(self, message: bytes) -> None:
        head, _, end = message.partition(b"\n")
        job_id, _, status = head.decode().partition(" ")
        self._wake(job_id, ended=Status(status).terminal, end=end or None)
        if not job_id.startswith(_LINES):
            for changes in self._changes:
                changes.note(job_id)

    def _wake(self, job_id: str, *, ended: bool, end: bytes | None = None) -> None:
        for waiter in self._waiters.get(job_id, ()):
            waiter.set()
        if ended:
            for waiter in self._end_waiters.get(job_id, ()):
                waiter.end = end or waiter.end  # the commit's own event need not carry it again
                waiter.set()

    def _wake_all(self) -> None:
        for job_id in (*self._waiters, *self._end_waiters):
            self._wake(job_id, ended=True)
        for changes in self._changes:
            changes.miss()
