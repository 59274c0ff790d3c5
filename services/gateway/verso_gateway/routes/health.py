"""``/``, ``/healthz``, ``/readyz`` and the meaning of error codes, open to everyone; ``/metrics``.

Alive means that this process answers; ready, that work gets done: a worker sends heartbeats, and
one has embedded a text lately. None of these shows ids, texts or names of tenants.

Where keys are in use ``/metrics`` needs one with the scope ``read``; with a port of its own
(``VERSO_METRICS_PORT``) it is served there, to everyone who reaches that port, and not here.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from verso_core.errors import NotFound, NotReady, Unavailable
from verso_core.jobs.models import OpenModel
from verso_gateway import metrics, openapi, problems, responses
from verso_gateway.access import admit
from verso_gateway.context import Context, context_of
from verso_gateway.protocols import TEI_PATH
from verso_gateway.routes import console
from verso_ledger import Health
from verso_ledger.ledgers import merging

router = APIRouter(tags=["health"])

_SEE_CONSOLE: dict[int | str, dict[str, Any]] = {
    303: {"description": "for `Accept: text/html`: to the console"}
}


class AliveView(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class ReadyView(OpenModel):
    """Work gets done; ages in seconds."""

    ready: Literal[True]
    last_embed_age_s: float
    worker_beat_age_s: float
    ledgers_away: tuple[str, ...] = Field(
        default=(), description="ledgers that do not answer; the others are served"
    )


class RootView(BaseModel):
    """Where to go from here: paths of this server."""

    name: Literal["verso"] = "verso"
    console: str = console.ADDRESS
    api: str = "/openapi.json"
    ready: str = "/readyz"
    metrics: str = "/metrics"


@router.get(
    "/",
    name="root",
    operation_id="root",
    responses=openapi.responses(RootView) | _SEE_CONSOLE,
)
async def root(request: Request) -> Response:
    """Say what this server is; a browser is led to the console."""
    headers = {"Vary": "Accept"}
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(console.ADDRESS, status_code=303, headers=headers)
    return responses.json_response(RootView().model_dump(), headers=headers)


@router.get(
    "/healthz",
    name="healthz",
    operation_id="healthz",
    responses=openapi.responses(AliveView),
)
async def healthz() -> Response:
    """Say that the process is alive."""
    return responses.json_response({"status": "ok"})


@router.get(
    f"{TEI_PATH}/health",
    name="tei_health",
    operation_id="teiHealth",
    responses={200: {"description": "Work gets done here"}},
    response_class=Response,
)
async def tei_health(request: Request) -> Response:
    """Say whether work gets done here, as Text Embeddings Inference does: by the status alone."""
    context = context_of(request)
    try:
        readiness(context, await merging.health(context.ledgers))
    except NotReady as error:
        raise Unavailable(error.detail) from None  # not ready is an overload to this protocol
    return Response()


@router.get("/readyz", name="readyz", operation_id="readyz", responses=openapi.responses(ReadyView))
async def readyz(request: Request) -> Response:
    """Say whether work gets done here."""
    context = context_of(request)
    return responses.json_response(readiness(context, await merging.health(context.ledgers)))


def readiness(context: Context, health: Health) -> ReadyView:
    """Return the signs that work gets done.

    Raises:
        NotReady: there is none of late, or the gateway is stopping.
    """
    if context.closing.is_set():
        raise NotReady("the gateway is stopping")
    settings = context.settings
    embed_s = _recent("embed", health.last_embed_age_s, limit_s=settings.ready_embed_age_s)
    beat_s = _recent("heartbeat", health.worker_beat_age_s, limit_s=settings.ready_beat_age_s)
    return ReadyView(
        ready=True,
        last_embed_age_s=round(embed_s, 3),
        worker_beat_age_s=beat_s,
        **({"ledgers_away": context.ledgers.away} if context.ledgers.several else {}),
    )


def _recent(what: str, age_s: float | None, *, limit_s: float) -> float:
    """Return the age of a sign of life.

    Raises:
        NotReady: it is older than ``limit_s``, or there is none.
    """
    if age_s is None or age_s > limit_s:
        seen = "never" if age_s is None else f"{age_s:.1f} s ago"
        raise NotReady(f"expected a worker's {what} within {limit_s:g} s, the last was {seen}")
    return age_s


@router.get("/metrics", name="metrics", operation_id="metrics", response_class=PlainTextResponse)
async def page(request: Request) -> Response:
    """Return this process's figures to Prometheus."""
    settings = context_of(request).settings
    if settings.metrics_port:
        raise NotFound(f"metrics are served on port {settings.metrics_port}")
    if context_of(request).gate.known is not None:
        await admit(request)
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
