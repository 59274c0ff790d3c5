"""An ear: how the hands of a process that are awake are given new work.

A bell through the broker costs both sides a millisecond of work and several exchanges, and is worth
it only to wake somebody. The first hand of a process that is awake and finds nothing to claim
**stands in line**, in the same step (``claim`` with its name). Whoever accepts a slice gives it to
the first in line, under a lease as if that hand had claimed it: an idle worker begins at once and
asks nothing. It is shown embeds before they are accepted (``ahead``), to begin them. With nobody in
line the queue's name is published, and the hands that are awake claim together what has come. The
server says how many heard; the gateway rings only when there were none.

A slice that was given over a connection that is half dead is not lost: its lease runs out like that
of a worker that died. While at least one hand listens there is one subscription. One hand at a time
waits on the socket, the next in line behind it: the hand that hears goes to work and leaves its
place to another.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from dataclasses import replace
from typing import Any, cast

import redis
from redis.client import PubSub
from redis.exceptions import RedisError

from verso_core.jobs import Queue
from verso_ledger import codec
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Ahead, Lease

_CONFIRM_S = 2.0


class WorkSubscriber:
    """Hears of new work in one queue; shared by all hands of a process."""

    def __init__(self, client: redis.Redis, queue: Queue) -> None:
        self._redis = client
        self._wake = key("wake", queue)
        self.channel = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._listeners = 0
        self._channel: PubSub | None = None
        self._turn = threading.Lock()
        self._word = False  # of more, heard together with something given

    def hand(self, *, owner: str, lease_s: float) -> str:
        """Return a new name under which a hand of this ear stands in line."""
        return f"{self.channel}|{owner}|{round(lease_s * 1000)}|{next(self._numbers)}"

    def enter(self) -> None:
        """Listen from now on: whatever is accepted later is heard, or rung for.

        Raises:
            LedgerUnavailable: Redis did not take the subscription.
        """
        with self._lock:
            if self._channel is None:
                with translated():
                    self._channel = self._subscribed()
            self._listeners += 1

    def leave(self) -> None:
        """Listen no longer; the last one ends the subscription."""
        with self._lock:
            self._listeners -= 1
            if self._listeners == 0:
                self._end()

    @property
    def on(self) -> bool:
        """Whether the subscription stands; a lost one is made again by the next to enter."""
        return self._channel is not None

    def hear(self, timeout_s: float) -> list[Lease | Ahead] | None:
        """Wait for new work: slices that this process was given or is about to be given, or none,
        which is word of more.

        What was heard while nobody listened counts as well, so the caller may find that what it
        heard of is done already. None when nothing came in time or the subscription is lost.

        Raises:
            LedgerUnavailable: a slice's payload is long, and Redis did not hand it out.
        """
        if not self._turn.acquire(timeout=timeout_s):
            return None
        try:
            first = [] if self._word else self._next(timeout_s)
            self._word = False
            if first is None or first:
                return first
            # One look at the queue answers all who say that there is something.
            while (more := self._next(0.0)) is not None:
                if more:
                    self._word = True  # for whoever hears next
                    return more
            return []
        except RedisError:
            with self._lock:
                self._end()
            return None
        finally:
            self._turn.release()

    def _next(self, timeout_s: float) -> list[Lease | Ahead] | None:
        end = time.monotonic() + timeout_s
        while (channel := self._channel) is not None:
            left_s = end - time.monotonic()
            message = channel.get_message(timeout=max(0.0, left_s))
            if message is not None and message["type"] == "message":
                return [self._lease(message["data"])] if message["data"] else []
            if message is None and left_s <= 0:
                break
        return None

    def _lease(self, told: bytes) -> Lease | Ahead:
        lease, whole = codec.given(told)
        if whole or isinstance(lease, Ahead):
            return lease
        with translated():
            payload = cast("bytes | None", self._redis.get(key("payload", lease.slice_id)))
        return replace(lease, payload=payload or b"")

    def _subscribed(self) -> PubSub:
        channel: PubSub = cast("Any", self._redis).pubsub(ignore_subscribe_messages=False)
        try:
            channel.subscribe(self._wake, key("hand", self.channel))
            for _ in range(2):
                channel.get_message(timeout=_CONFIRM_S)
        except BaseException:
            channel.close()
            raise
        return channel

    def _end(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
