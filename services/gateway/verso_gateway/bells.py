"""Door-bells: Celery messages that wake a worker and name no job.

A bell that cannot be rung is no error: the keeper rings again within a second and idle workers look
by themselves. So ringing never holds a request up; it happens on one thread of its own, and while
one bell for a queue waits to be rung, more for the same queue say nothing new.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from celery import Celery

from verso_core.jobs import TASK_WORK, Queue
from verso_gateway.metrics import Metrics

_log = logging.getLogger(__name__)


class Bells:
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
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bells")
        self._lock = Lock()
        self._waiting: set[Queue] = set()
        self._failing = False

    def ring(self, queue: Queue) -> None:
        """Ask that a worker looks at ``queue``; returns at once and never fails."""
        with self._lock:
            if queue in self._waiting:
                return
            self._waiting.add(queue)
        self._thread.submit(self._send, queue)

    def close(self) -> None:
        """Ring what still waits and let go of the broker."""
        self._thread.shutdown(wait=True)
        self._app.close()

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
