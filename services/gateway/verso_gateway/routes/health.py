"""``/healthz``, ``/readyz``, ``/metrics`` and the meaning of error codes; open to everyone.

Alive means that this process answers; ready, that work gets done: a worker sends heartbeats, and
one has embedded a text lately. None of the four shows ids, texts or names of tenants.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from verso_core.errors import NotFound, NotReady
from verso_gateway import metrics, openapi, problems, responses
from verso_gateway.context import context_of

router = APIRouter(tags=["health"])


@router.get(
    "/healthz",
    name="healthz",
    operation_id="healthz",
    responses=openapi.responses(openapi.AliveView),
)
async def healthz() -> Response:
    """Say that the process is alive."""
    return responses.json_response({"status": "ok"})


@router.get(
    "/readyz", name="readyz", operation_id="readyz", responses=openapi.responses(openapi.ReadyView)
)
async def readyz(request: Request) -> Response:
    """Say whether work gets done here."""
    context = context_of(request)
    if context.closing.is_set():
        raise NotReady("the gateway is stopping")
    health = await context.ledger.health()
    limit_s, age_s = context.settings.ready_embed_age_s, health.last_embed_age_s
    if age_s is None or age_s > limit_s:
        seen = "never" if age_s is None else f"{age_s:.1f} s ago"
        raise NotReady(f"expected a worker's embed within {limit_s:g} s, the last was {seen}")
    beat_s, beat_limit_s = health.worker_beat_age_s, context.settings.ready_beat_age_s
    if beat_s is None or beat_s > beat_limit_s:
        seen = "never" if beat_s is None else f"{beat_s:.1f} s ago"
        raise NotReady(
            f"expected a worker's heartbeat within {beat_limit_s:g} s, the last was {seen}"
        )
    return responses.json_response(
        {
            "ready": True,
            "last_embed_age_s": round(age_s, 3),
            "worker_beat_age_s": health.worker_beat_age_s,
        }
    )


@router.get("/metrics", name="metrics", operation_id="metrics", response_class=PlainTextResponse)
async def page(request: Request) -> Response:
    """Return this process's figures to Prometheus."""
    return Response(context_of(request).metrics.page(), media_type=metrics.CONTENT_TYPE)


@router.get(
    "/docs/errors/{code}",
    name="error_help",
    operation_id="explainError",
    response_class=PlainTextResponse,
)
async def error_help(code: str) -> Response:
    """Explain an error code: where the ``type`` of a problem leads."""
    text = problems.explanation(code)
    if text is None:
        raise NotFound(f"no error code {code!a}")
    return PlainTextResponse(text)
