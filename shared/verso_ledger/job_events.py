"""One subscription for a whole process: who waits for a job is woken when it has news.

JobEvents are a courtesy. Pub/sub drops messages while a connection is away, so every waiter also
looks
for itself now and then: often while the subscription is down, seldom while it stands.
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
POLL_BESIDE_NEWS_S = 5.0
_QUIET_S = 5.0
_SILENT_S = 15.0
_BACKOFF_S = 0.5


class JobWaiter(asyncio.Event):
    """Rings for one waiter.

    ``told`` is what came with the news of the job's end: its hash and its result, as
    :func:`verso_ledger.codec.told` reads them; None where nothing did.
    """

    told: bytes | None = None


class JobEvents:
    """Wakes waiters by job id. Starts with the first waiter."""

    def __init__(self, client: Redis) -> None:
        self._redis = client
        self._bells: dict[str, set[JobWaiter]] = {}
        self._end_bells: dict[str, set[JobWaiter]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._connected = False
        self._closing = False
        self._cancellable = False  # in an await whose cancellation leaves no socket open
        self.released = False

    @property
    def connected(self) -> bool:
        """Whether what happens from now on is heard."""
        return self._connected

    def release(self) -> None:
        """Wake everybody for good: who waits for an end goes on with what is known."""
        self.released = True
        self._ring_all()

    @property
    def poll_s(self) -> float:
        """How long a waiter may sleep before it looks for itself, seconds."""
        return POLL_BESIDE_NEWS_S if self._connected else POLL_ALONE_S

    @contextmanager
    def bell(self, job_id: str, *, end: bool = False) -> Iterator[JobWaiter]:
        """Yield a bell that is rung whenever the job has news, or only at its end."""
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())
        event = JobWaiter()
        bells = self._end_bells if end else self._bells
        bells.setdefault(job_id, set()).add(event)
        try:
            yield event
        finally:
            waiting = bells[job_id]
            waiting.discard(event)
            if not waiting:
                del bells[job_id]

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
        """Receive events until the connection fails; a silent server is pinged, then given up."""
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
                    self._ring_all()
                elif message["type"] == "message":
                    self._hear(message["data"])

    def _hear(self, message: bytes) -> None:
        what, _, told = message.partition(b"\n")
        job_id, _, status = what.decode().partition(" ")
        self._ring(job_id, ended=Status(status).terminal, told=told or None)

    def _ring(self, job_id: str, *, ended: bool, told: bytes | None = None) -> None:
        for bell in self._bells.get(job_id, ()):
            bell.set()
        if ended:
            for bell in self._end_bells.get(job_id, ()):
                bell.told = told or bell.told  # the commit's own news need not bring it again
                bell.set()

    def _ring_all(self) -> None:
        for job_id in (*self._bells, *self._end_bells):
            self._ring(job_id, ended=True)
