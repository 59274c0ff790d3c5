"""An ear: how the hands of a worker that are awake hear of new work in a queue.

A bell through the broker costs both sides a millisecond of work and several exchanges, and is worth
it only to wake somebody. Every accept therefore publishes the queue's name, and the server says how
many ears heard; the gateway rings only when there were none. What an ear misses because its
connection is half dead is made good as a lost bell is: the keeper rings for every queue with due
work.

While at least one hand listens there is one subscription. One hand at a time waits on the socket,
the next in line behind it: the hand that hears goes to work and leaves its place to another.
"""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import redis
from redis.client import PubSub
from redis.exceptions import RedisError

from verso_core.jobs import Queue
from verso_core.ledger.faults import translated
from verso_core.ledger.keys import key

_CONFIRM_S = 2.0


class Ear:
    """Hears of new work in one queue; shared by all hands of a process."""

    def __init__(self, client: redis.Redis, queue: Queue) -> None:
        self._redis = client
        self._name = key("wake", queue)
        self._lock = threading.Lock()
        self._listeners = 0
        self._channel: PubSub | None = None
        self._turn = threading.Lock()

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

    def hear(self, timeout_s: float) -> bool:
        """Wait for new work; False when none came in time or the subscription is lost.

        What was heard while all hands were busy counts as well, so the caller may find that the
        work is done already.
        """
        end = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=timeout_s):
            return False
        try:
            channel = self._channel
            while channel is not None and (left_s := end - time.monotonic()) > 0:
                if self._next(channel, left_s):
                    while self._next(channel, 0.0):
                        pass  # one look at the queue answers them all
                    return True
        except RedisError:
            with self._lock:
                self._end()
        finally:
            self._turn.release()
        return False

    def _subscribed(self) -> PubSub:
        channel: PubSub = cast("Any", self._redis).pubsub(ignore_subscribe_messages=False)
        try:
            channel.subscribe(self._name)
            channel.get_message(timeout=_CONFIRM_S)
        except BaseException:
            channel.close()
            raise
        return channel

    def _next(self, channel: PubSub, timeout_s: float) -> bool:
        message = channel.get_message(timeout=timeout_s)
        return message is not None and message["type"] == "message"

    def _end(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
