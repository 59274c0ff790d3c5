"""Leases that ran out, and wake-ups for the queues that have due work.

A wake-up is a Celery message that wakes a worker and names no job. The gateway sends one for what
it accepts. The keeper sends one again for whatever is due, so that a message the broker lost costs
a second and never a job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from verso_core.errors import LedgerUnavailable, Unavailable
from verso_core.jobs import TASK_WORK, Queue
from verso_ledger import Ledger
from verso_ledger.sentinel import celery_broker

_ENOUGH = 4
"""Messages in a broker's queue from which another one would be useless."""
_log = logging.getLogger(__name__)


class Reaper:
    """Takes back slices whose worker died, and knows which queues have due work.

    While the ledger does not answer, no worker can renew a lease, so all leases look expired when
    it answers again. The workers get time for one heartbeat first; otherwise every restart of
    Redis would count as a crash of every running slice.

    Args:
        ledger: holds the leases.
        grace_s: the time that workers get, seconds; a little more than between two heartbeats.
        clock: seconds that never go back.
    """

    def __init__(
        self, ledger: Ledger, *, grace_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger = ledger
        self._grace_s = grace_s
        self._clock = clock
        self._away = False
        self._resume_s = 0.0
        self._due: Mapping[Queue, int] = {}

    @property
    def due(self) -> Mapping[Queue, int]:
        """Number of due slices of each queue, as the last round found it."""
        return self._due

    def step(self) -> None:
        """Run one round.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        try:
            self._due = self._reap()
        except LedgerUnavailable:
            self._away, self._due = True, {}
            raise

    def _reap(self) -> dict[Queue, int]:
        if not self._away and self._clock() >= self._resume_s:
            return self._ledger.maintenance.reap()
        depths = self._ledger.maintenance.depths()
        if self._away:
            self._away = False
            self._resume_s = self._clock() + self._grace_s
            _log.info("ledger available again: workers get time to renew their leases")
        return {queue: depth.queued for queue, depth in depths.items()}


class WakeupSender:
    """Sends wake-ups by task name over the Celery broker."""

    def __init__(self, broker_url: str) -> None:
        broker, options = celery_broker(broker_url)
        self._app = Celery("verso", broker=broker, set_as_current=False)
        self._app.conf.update(
            accept_content=["json"],
            task_serializer="json",
            task_ignore_result=True,
            broker_connection_retry=False,
            broker_transport_options={
                "socket_timeout": 5,
                "socket_connect_timeout": 2,
                "socket_keepalive": True,
                "health_check_interval": 5,
                **options,
            },
        )

    def notify(self, due: Mapping[Queue, int]) -> list[Queue]:
        """Send a wake-up for every queue that has due slices; return these queues.

        A queue whose messages are not consumed gets no more of them: otherwise a night without
        workers would leave tens of thousands.

        Raises:
            Unavailable: the broker did not take a message.
        """
        waiting = [queue for queue, count in due.items() if count and queue.takes_wakeups]
        try:
            return [queue for queue in waiting if self._send(queue)]
        except (OperationalError, RedisError, OSError) as exc:
            raise Unavailable(f"the broker did not answer: {type(exc).__name__}") from exc

    def close(self) -> None:
        """Close the connection to the broker."""
        self._app.close()

    def _send(self, queue: Queue) -> bool:
        with self._app.pool.acquire(block=True) as connection:
            declared = connection.default_channel.queue_declare(queue.celery_name)
            if declared.message_count >= _ENOUGH:
                return False
            self._app.send_task(
                TASK_WORK,
                args=[queue.value],
                queue=queue.celery_name,
                connection=connection,
                retry=False,
                ignore_result=True,
            )
        return True
