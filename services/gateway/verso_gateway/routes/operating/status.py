"""``/v1/status``: whether work gets done, what waits, and what each worker has room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import NotReady
from verso_core.jobs import Queue
from verso_core.jobs.job import BacklogView, QueueView, StatusView, WorkerView
from verso_gateway import openapi, responses
from verso_gateway.access import guarded
from verso_gateway.context import context_of
from verso_gateway.routes.health import readiness
from verso_ledger import Backlog, Depth
from verso_ledger.ledgers import merging

router = guarded("health")


@router.get(
    "/v1/status",
    name="status",
    operation_id="getStatus",
    responses=openapi.responses(StatusView),
)
async def describe(request: Request) -> Response:
    """Describe the platform: readiness, queues, what waits, and the disks of the workers.

    It answers also while the platform is not ready, and then says why.
    """
    context = context_of(request)
    ledgers = context.ledgers
    health = await merging.health(ledgers)
    depths, backlog = await merging.depths(ledgers), await merging.backlog(ledgers)
    serving = await merging.serving(ledgers)
    reason = None
    try:
        readiness(context, health)
    except NotReady as error:
        reason = error.detail
    return responses.json_response(
        StatusView(
            ready=reason is None,
            reason=reason,
            last_embed_age_s=health.last_embed_age_s,
            worker_beat_age_s=health.worker_beat_age_s,
            trainer_beat_age_s=health.trainer_beat_age_s,
            queues=tuple(_queue(queue, depth) for queue, depth in depths.items()),
            backlog=_backlog(backlog),
            scrubbed={
                state: backlog.totals.get(f"scrub:{state}", 0)
                for state in ("sound", "repaired", "damaged")
            },
            workers=tuple(_worker(name, own) for name, own in serving.items()),
            **({"ledgers_away": ledgers.away} if ledgers.several else {}),
        )
    )


def _queue(queue: Queue, depth: Depth) -> QueueView:
    return QueueView(
        queue=queue,
        queued=depth.queued,
        delayed=depth.delayed,
        running=depth.running,
        oldest_s=depth.oldest_s,
    )


def _backlog(found: Backlog) -> BacklogView:
    return BacklogView(
        dead=found.dead,
        unverified=found.unverified,
        bytes_unverified=found.unverified_bytes,
        webhooks=found.to_send,
        orphans=found.orphans,
        read_only=found.read_only,
    )


def _worker(name: str, state: Mapping[str, Any]) -> WorkerView:
    return WorkerView.model_validate({**state, "worker": name})
