"""The wake-up of an idle worker that still listens: one subscription of a process to a queue.

A message through the Celery broker costs the gateway and the worker a millisecond each, and is
needed only to wake a worker that no longer listens. The accept step also publishes on the queue's
channel; a listening slot receives that message and claims the slice. The server reports the number
of receivers, and the gateway sends a message through the broker only if there was none.

All slots of a process share the subscription, which exists while at least one slot listens. One
slot at a time reads the socket and the others wait for their turn: the slot that receives the
message goes to work, and the next slot reads.
"""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import redis
from redis.client import PubSub
from redis.exceptions import RedisError

from verso_core.jobs import Queue
from verso_ledger.connection import translated
from verso_ledger.keys import key

_CONFIRM_S = 2.0


class WorkSubscriber:
    """Receives announcements of new work in one queue; shared by all slots of a process."""

    def __init__(self, client: redis.Redis, queue: Queue) -> None:
        self._redis = client
        self._channel = key("wake", queue)
        self._lock = threading.Lock()
        self._listeners = 0
        self._pubsub: PubSub | None = None
        self._reading = threading.Lock()

    def open(self) -> None:
        """Listen from now on: work accepted after this call is received or announced by Celery.

        Raises:
            LedgerUnavailable: Redis did not take the subscription.
        """
        with self._lock:
            if self._pubsub is None:
                with translated():
                    self._pubsub = self._subscribe()
            self._listeners += 1

    def close(self) -> None:
        """Stop listening; the last listener ends the subscription."""
        with self._lock:
            self._listeners -= 1
            if self._listeners == 0:
                self._unsubscribe()

    @property
    def is_open(self) -> bool:
        """Whether the subscription stands. The next call of :meth:`open` restores a lost one."""
        return self._pubsub is not None

    def receive(self, timeout_s: float) -> bool:
        """Whether new work was announced in time; several announcements at once count as one.

        Announcements from before this call count too, so the work may be done already. Return
        False if the subscription was lost.
        """
        if not self._reading.acquire(timeout=timeout_s):
            return False
        try:
            received = self._next(timeout_s)
            while received and self._next(0.0):
                pass  # one claim serves all of them
        except RedisError:
            with self._lock:
                self._unsubscribe()
            return False
        else:
            return received
        finally:
            self._reading.release()

    def _next(self, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while (pubsub := self._pubsub) is not None:
            left_s = end - time.monotonic()
            message = pubsub.get_message(timeout=max(0.0, left_s))
            if message is not None and message["type"] == "message":
                return True
            if message is None and left_s <= 0:
                return False
        return False

    def _subscribe(self) -> PubSub:
        pubsub: PubSub = cast("Any", self._redis).pubsub(ignore_subscribe_messages=False)
        try:
            pubsub.subscribe(self._channel)
            pubsub.get_message(timeout=_CONFIRM_S)
        except BaseException:
            pubsub.close()
            raise
        return pubsub

    def _unsubscribe(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            pubsub.close()
