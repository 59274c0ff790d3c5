"""Door-bells: Celery messages that wake a worker and name no job.

A bell that cannot be rung is no error: the keeper rings again within a second and idle workers look
by themselves. So ringing never holds a request up; it happens on one thread of its own, and while
one bell for a queue waits to be rung, more for the same queue say nothing new.
"""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Lock, Thread

from celery import Celery

from verso_core.jobs import TASK_WORK, Queue
from verso_gateway.metrics import Metrics

_log = logging.getLogger(__name__)
_CLOSE_S = 1.0


class WakeupSender:
    """Rings workers by task name over the Celery broker."""

    def __init__(self, broker_url: str, *, metrics: Metrics) -> None:
        self._app = Celery("verso", broker=broker_url, set_as_current=False)
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
            },
        )
        self._metrics = metrics
        self._lock = Lock()
        self._waiting: set[Queue] = set()
        self._due: SimpleQueue[Queue | None] = SimpleQueue()
        self._failing = False
        # a daemon: the broker's client tries for seconds to reach a broker that is gone, and a
        # gateway that stops must not wait for that
        self._thread = Thread(target=self._run, name="bells", daemon=True)
        self._thread.start()

    def ring(self, queue: Queue) -> None:
        """Ask that a worker looks at ``queue``; returns at once and never fails."""
        with self._lock:
            if queue in self._waiting:
                return
            self._waiting.add(queue)
        self._due.put(queue)

    def close(self) -> None:
        """Ring what still waits, unless the broker keeps us waiting, and let go of it."""
        self._due.put(None)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._app.close()

    def _run(self) -> None:
        while (queue := self._due.get()) is not None:
            self._send(queue)

    def _send(self, queue: Queue) -> None:
        with self._lock:  # before sending: work accepted from now on needs a bell of its own
            self._waiting.discard(queue)
        try:
            self._app.send_task(
                TASK_WORK,
                args=[queue.value],
                queue=queue.celery_name,
                retry=False,
                ignore_result=True,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the keeper rings instead
            self._metrics.bell(queue, sent=False)
            if not self._failing:  # say it once for each outage
                _log.warning(
                    "broker does not take door-bells", extra={"error": type(error).__name__}
                )
            self._failing = True
        else:
            self._metrics.bell(queue, sent=True)
            self._failing = False
