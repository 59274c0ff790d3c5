"""The Celery application: one task, a wake-up that names a queue.

Celery is the transport and the executor; the ledger is the truth about jobs (ADR 0002). A message
may be lost, repeated or late without harm, so none of Celery's guarantees is used: no
acknowledgement after the work, no results, no retries, no prefetch.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from celery import Celery

from verso_core.errors import Unavailable
from verso_core.jobs import TASK_WORK, Queue
from verso_ledger.sentinel import celery_broker
from verso_worker.jobs.dispatcher import Dispatcher

_log = logging.getLogger(__name__)

BROKER_OPTIONS: dict[str, Any] = {
    # Without these, a peer that keeps its socket open but does not answer blocks a worker for ever.
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 5,
}


def create_app(broker_url: str, dispatcher: Dispatcher) -> Celery:
    """Return the application, whose one task runs a queue through the dispatcher."""
    broker, options = celery_broker(broker_url)
    app = Celery("verso", broker=broker, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options=BROKER_OPTIONS | options,
    )

    @app.task(name=TASK_WORK, shared=False)  # type: ignore[untyped-decorator]  # Celery has no types
    def work(queue: str) -> None:
        try:
            dispatcher.run_queue(Queue(queue), wake_slot=partial(wake_slot, Queue(queue)))
        except Unavailable as error:
            # Nothing is lost with a wake-up: the keeper sends another for what is due.
            _log.warning(
                "wake-up failed: ledger unavailable: %s", error.detail, extra={"code": error.code}
            )

    def wake_slot(queue: Queue) -> None:
        try:
            work.apply_async(args=[queue.value], queue=queue.celery_name, retry=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, the keeper sends a wake-up
            _log.warning("broker unavailable: %s", type(error).__name__)

    return app
