"""The application: its routes, middleware and parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Match

from verso_core.errors import MethodNotAllowed, NotFound, RequestInvalid, VersoError
from verso_core.result_files import ResultFiles
from verso_gateway import auth, openapi, problems
from verso_gateway.access import OPEN, SCOPES, admit
from verso_gateway.agents import Agents
from verso_gateway.bodies.inflate import Inflate
from verso_gateway.bodies.limits import BodyLimit
from verso_gateway.context import DEFAULT, CollectionsCache, Context, DiskRoom, WorkersCache
from verso_gateway.extract.child import Bounds
from verso_gateway.extract.pool import Extractors
from verso_gateway.feed.acceptance import Acceptance
from verso_gateway.feed.making import CollectionMaker
from verso_gateway.feed.service import Feed
from verso_gateway.job_service import JobService
from verso_gateway.metrics import Metrics
from verso_gateway.observe import Observe
from verso_gateway.ports import OwnPorts
from verso_gateway.protocols import BULK_PATH
from verso_gateway.routes import (
    answer,
    classify,
    collections,
    console,
    documents,
    embed,
    health,
    ingest,
    jobs,
    log_views,
    logs,
    matching,
    mcp,
    migrate,
    reconstruct,
    score,
    search,
    session,
    webhooks,
)
from verso_gateway.routes.feed import bulk, handshake, loki, otlp, tail
from verso_gateway.routes.models import heads, registry, train
from verso_gateway.routes.operating import ledgers as ledgers_route
from verso_gateway.routes.operating import moves, scrub, status
from verso_gateway.routes.protocols import cohere, jina, openai, tei
from verso_gateway.settings import Settings
from verso_gateway.tail.stream import Tails
from verso_gateway.wakeup import WakeupSender
from verso_ledger import Ledgers, Limits
from verso_ledger.ledgers.webhooks import WebhooksOfAll

_CLOSE_S = 2.0
_GUARDED = (
    ingest,
    embed,
    openai,
    cohere,
    jina,
    tei,
    search,
    classify,
    answer,
    score,
    heads,
    reconstruct,
    documents,
    matching,
    log_views,
    logs,
    collections,
    jobs,
    migrate,
    scrub,
    status,
    ledgers_route,
    moves,
    registry,
    train,
    webhooks,
    session,
    otlp,
    bulk,
    handshake,  # behind bulk, as it takes every path below /es
    loki,
    tail,
    mcp,
)
_OPEN = (health, console)
# What the answers say in headers that a page of another origin may read.
_EXPOSED = (
    *("Verso-Job-Id", "Location", "Retry-After", "Retry-After-Ms", "X-Request-Id"),
    *("RateLimit", "RateLimit-Policy", "Server-Timing", "Preference-Applied"),
    *("Idempotency-Replayed", "WWW-Authenticate"),
)


def create_app(settings: Settings) -> FastAPI:
    """Return the application; connections open when it starts and close when it stops.

    Raises:
        ValueError: the API keys file is invalid.
        OSError: the API keys file cannot be read.
    """
    metrics = Metrics()
    gate = auth.Gate()
    if settings.api_keys_file is not None:
        gate = auth.Gate(auth.KeysFile(settings.api_keys_file))
    app = FastAPI(
        title="Verso",
        version="1",
        summary="Keeps a text's vector and a small patch, and returns every byte.",
        lifespan=_lifespan(settings, metrics, gate=gate),
        docs_url=None,  # the page would fetch its scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    _check_scopes()
    app.state.metrics = metrics
    # The routes themselves: FastAPI would make another set of an included router's, at the first
    # request of the process.
    for module in (*_GUARDED, *_OPEN):
        app.router.routes.extend(module.router.routes)
    metrics.create_tasks(
        name
        for module in (*_GUARDED, *_OPEN)
        for route in module.router.routes
        if (name := getattr(route, "name", None))
    )
    for kind in (VersoError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(
        BodyLimit,
        body_bytes=settings.body_limit_bytes,
        upload_bytes=settings.upload_limit_bytes,
        file_bytes=settings.file_limit_bytes,
        feed_bytes=settings.feed_limit_bytes,
        held_bytes=settings.held_limit_bytes,
        stall_timeout_s=settings.stall_timeout_s,
    )
    app.add_middleware(Inflate)  # before the limit, which so counts inflated bytes
    app.add_middleware(Observe, metrics=metrics)  # around all that can fail
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,  # outermost, so that errors can be read as well
            allow_origins=settings.cors,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
    if settings.feed_bulk_port:
        # outermost, so that everything else sees one path for one thing
        app.add_middleware(OwnPorts, prefixes={settings.feed_bulk_port: BULK_PATH})
    app.openapi = lambda: openapi.document(app, _operations())  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _check_scopes() -> None:
    """Check that every route says which scope it needs, and asks for it: none is open by mistake.

    Raises:
        KeyError: one does not.
    """
    for module in (*_GUARDED, *_OPEN):
        asks = any(one.dependency is admit for one in module.router.dependencies)
        if asks is (module in _OPEN):
            raise KeyError(
                f"expected the routes of {module.__name__} to ask for a key, or to be open"
            )
        for route in module.router.routes:
            name = getattr(route, "name", "")
            if name not in SCOPES and not (module in _OPEN and name in OPEN):
                raise KeyError(f"expected the route {name!r} in access.SCOPES")


def _operations() -> dict[str, str]:
    """Return the name of the route of each operation."""
    return {
        route.operation_id: route.name
        for module in (*_GUARDED, *_OPEN)
        for route in module.router.routes
        if isinstance(route, APIRoute) and route.operation_id is not None
    }


def _lifespan(settings: Settings, metrics: Metrics, *, gate: auth.Gate) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        closing = asyncio.Event()
        ledgers = Ledgers.connect(
            settings.ledger_addresses, replicas=settings.ledger_replicas, at_home=[DEFAULT]
        )
        wakeups = WakeupSender(settings.broker_url, metrics=metrics)
        files = ResultFiles(settings.results)
        extractors = Extractors(
            processes=settings.file_processes,
            bounds=Bounds(settings.file_timeout_s, settings.file_memory_bytes),
            metrics=metrics.files,
        )
        job_service = JobService(
            ledgers,
            wakeups,
            files=files,
            metrics=metrics,
            limits=_limits(settings),
            keep_s=settings.keep_s,
            read_keep_s=settings.read_keep_s,
            closing=closing,
        )
        workers = WorkersCache(ledgers)
        app.state.context = Context(
            settings=settings,
            ledgers=ledgers,
            webhooks=WebhooksOfAll(ledgers),
            files=files,
            collections=CollectionsCache(ledgers),
            workers=workers,
            room=DiskRoom(workers),
            extractors=extractors,
            job_service=job_service,
            feed=_feed(settings, ledgers, job_service, metrics=metrics),
            tails=Tails(ledgers, metrics=metrics, limit=settings.tail_limit),
            metrics=metrics,
            gate=gate,
            agents=Agents(app, timeout_s=settings.wait_max_s),
            closing=closing,
        )
        released = asyncio.create_task(_release(ledgers, closing))
        packed = asyncio.create_task(asyncio.to_thread(console.load))  # before the first visitor
        try:
            yield
        finally:
            closing.set()
            await released
            await packed
            await app.state.context.agents.close()
            await extractors.close()
            # a Redis client may turn a cancellation into an error of its own and so survive it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ledgers.close(), _CLOSE_S)
            await asyncio.to_thread(wakeups.close)

    return lifespan


def _limits(settings: Settings) -> Limits:
    """Return how much unfinished work a queue of a ledger may hold."""
    return Limits(
        max_slices=settings.queue_limit_slices,
        max_bytes=settings.queue_limit_bytes,
        tenant_share=settings.tenant_part,
    )


def _feed(
    settings: Settings, ledgers: Ledgers, job_service: JobService, *, metrics: Metrics
) -> Feed:
    acceptance = Acceptance(
        ledgers,
        job_service,
        metrics=metrics,
        gather_s=settings.feed_gather_ms / 1000,
        keep_s=settings.feed_keep_s,
        identity_s=settings.feed_identity_s,
    )
    maker = CollectionMaker(job_service)
    return Feed(
        settings.routing,
        settings.feed_fields,
        acceptance,
        maker,
        by_content=settings.feed_deduplicate,
    )


async def _release(ledgers: Ledgers, closing: asyncio.Event) -> None:
    """Answer waiting callers with 202 once the gateway stops."""
    await closing.wait()
    ledgers.release()


def _drop_frames(error: BaseException | None) -> None:
    """Drop the frames that an error came through, and those of its causes.

    They hold the body, in a cycle with the error that only the collector ends. The frames are not
    cleared: that of a coroutine which answers several requests would end with the first answer.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _answer(request: Request, error: Exception) -> Response:
    """Return the answer to an error of a route or of the framework."""
    match error:
        case VersoError():
            _drop_frames(error)
            return problems.answer(request.scope, error)
        case RequestValidationError():
            fault = error.errors()[0]
            invalid, pointer = problems.from_fault(fault["loc"], message=fault["msg"])
            request.state.pointer = pointer
            return problems.answer(request.scope, invalid)
        case HTTPException(status_code=404):
            return problems.answer(request.scope, NotFound(f"nothing at {request.url.path!a}"))
        case HTTPException(status_code=405):
            wrong = MethodNotAllowed(f"{request.url.path!a} does not answer {request.method}")
            response = problems.answer(request.scope, wrong)
            response.headers["Allow"] = ", ".join(_methods(request))
            return response
        case HTTPException():
            return problems.answer(request.scope, RequestInvalid(error.detail))
        case _:
            raise error


def _methods(request: Request) -> list[str]:
    """Return the methods that the request's path answers; each is a route of its own."""
    return sorted(
        {
            method
            for module in (*_GUARDED, *_OPEN)
            for route in module.router.routes
            if isinstance(route, APIRoute) and route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
    )
