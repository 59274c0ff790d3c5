"""Door-bells: Celery messages that wake a worker and name no job.

The gateway rings for what it accepts. The keeper rings again for whatever is due, so that a bell
the broker lost costs a second and never a job.
"""

from __future__ import annotations

from collections.abc import Mapping

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from verso_core.errors import Unavailable
from verso_core.jobs import TASK_WORK, Queue

_ENOUGH = 4
"""Unheard bells of one queue beyond which another says nothing new."""


class WakeupSender:
    """Rings workers by task name over the Celery broker."""

    def __init__(self, broker_url: str) -> None:
        self._app = Celery("verso", broker=broker_url, set_as_current=False)
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
            },
        )

    def ring(self, due: Mapping[Queue, int]) -> list[Queue]:
        """Ring once for every queue that has due slices; give the queues rung.

        A queue whose bells nobody hears gets no more of them: without that a night without workers
        would leave tens of thousands.

        Raises:
            Unavailable: the broker did not take a message.
        """
        waiting = [queue for queue, count in due.items() if count and queue.rung]
        try:
            return [queue for queue in waiting if self._ring(queue)]
        except (OperationalError, RedisError, OSError) as exc:
            raise Unavailable(f"the broker did not answer: {type(exc).__name__}") from exc

    def close(self) -> None:
        """Let go of the broker."""
        self._app.close()

    def _ring(self, queue: Queue) -> bool:
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
