"""Wake-ups: Celery messages that wake a worker and name no job.

A wake-up that cannot be sent is no error: the keeper sends another within a second and idle workers
poll. So sending never delays a request; it happens in a thread of its own, and while one wake-up
for a queue waits to be sent, more for the same queue would say nothing new.
"""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Lock, Thread

from celery import Celery

from verso_core.jobs import TASK_WORK, Queue
from verso_gateway.metrics import Metrics
from verso_ledger.sentinel import celery_broker

_log = logging.getLogger(__name__)
_CLOSE_S = 1.0


class WakeupSender:
    """Sends wake-ups by task name over the Celery broker."""

    def __init__(self, broker_url: str, *, metrics: Metrics) -> None:
        broker, options = celery_broker(broker_url)
        self._app = Celery("verso", broker=broker, set_as_current=False)
        self._app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            broker_connection_retry=False,
            broker_transport_options={
                "socket_timeout": 2,
                "socket_connect_timeout": 2,
                "socket_keepalive": True,
                "health_check_interval": 5,
                **options,
            },
        )
        self._metrics = metrics
        self._lock = Lock()
        self._waiting: set[Queue] = set()
        self._due: SimpleQueue[Queue | None] = SimpleQueue()
        self._failing = False
        # A daemon: the broker's client tries for seconds to reach a broker that is gone, and a
        # gateway that stops must not wait for that
        self._thread = Thread(target=self._run, name="wakeups", daemon=True)
        self._thread.start()

    def notify(self, queue: Queue) -> None:
        """Have a worker woken for ``queue``; return at once and never fail."""
        with self._lock:
            if queue in self._waiting:
                return
            self._waiting.add(queue)
        self._due.put(queue)

    def close(self) -> None:
        """Send what still waits, unless the broker is slow, and close the connection."""
        self._due.put(None)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._app.close()

    def _run(self) -> None:
        while (queue := self._due.get()) is not None:
            self._send(queue)

    def _send(self, queue: Queue) -> None:
        with self._lock:  # before sending: work accepted from now on needs a wake-up of its own
            self._waiting.discard(queue)
        try:
            self._app.send_task(
                TASK_WORK,
                args=[queue.value],
                queue=queue.celery_name,
                retry=False,
                ignore_result=True,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the keeper sends one instead
            self._metrics.wakeup(queue, sent=False)
            if not self._failing:  # once for each outage
                _log.warning("broker unavailable", extra={"error": type(error).__name__})
            self._failing = True
        else:
            self._metrics.wakeup(queue, sent=True)
            self._failing = False
