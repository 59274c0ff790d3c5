"""Which scope each route needs, and what a caller may see: the only place that says so.

The gateway does not start with a route that is not named here, and the OpenAPI document states the
scope of every operation.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from fastapi import APIRouter, Depends, Request

from verso_core.api_keys import Scope
from verso_core.errors import (
    CollectionUnknown,
    Forbidden,
    PartitionedUnsupported,
    Unauthorized,
)
from verso_core.jobs import Collection, Kind
from verso_core.jobs.collections import collection_of_partition
from verso_gateway import auth
from verso_gateway.auth import Caller
from verso_gateway.context import context_of
from verso_ledger import AsyncLedger
from verso_ledger.models import CollectionReplaced, Seen

T = TypeVar("T")

_INGEST = (
    *("ingest", "document_delete", "document_update", "collection_create"),
    *("otlp_logs", "loki_push", "bulk", "bulk_index", "bulk_root", "bulk_handshake"),
)
_READ = (
    *("search", "answer", "classify", "score", "rerank", "embed", "cluster", "reconstruct"),
    *("cohere_embed", "cohere_rerank"),
    *("tei", "tei_embed", "tei_predict", "tei_rerank", "tei_similarity", "tei_info"),
    *("openai_embeddings", "openai_models", "openai_model", "document", "documents"),
    *("collection", "collections", "migration", "heads", "head", "head_report", "registry"),
    *("documents_query", "documents_count", "facets", "metrics", "logs_query"),
    *("logs_volume", "logs_labels", "logs_statements", "logs_tail"),
    *("project", "records", "status", "mcp", "ledgers", "move_state"),
)
_ADMIN = (
    *("collection_delete", "migrate", "migration_remove", "scrub", "scrub_request", "train"),
    *("registry_promote", "registry_rollback", "collection_change", "documents_delete"),
    *("collection_fit", "feedback", "ledger_change", "move", "move_end"),
)
# Of jobs and webhooks a caller sees its tenant's own only; and a job needs the scope of its kind.
_ANY = (
    *("jobs", "jobs_events", "job", "job_failures", "job_events", "job_cancel", "job_replay"),
    *("dead_letters", "dead_letters_replay"),
    *("webhooks", "webhook_create", "webhook_delete", "webhook_rotate", "webhook_replay"),
    *("session_create", "session_delete", "session"),
)

SCOPES: dict[str, Scope | None] = {
    **dict.fromkeys(_INGEST, Scope.INGEST),
    **dict.fromkeys(_READ, Scope.READ),
    **dict.fromkeys(_ADMIN, Scope.ADMIN),
    **dict.fromkeys(_ANY),
}
"""The scope that a route needs, by the route's name; None: any valid key."""

OPEN = frozenset(
    {
        *("root", "healthz", "readyz", "error_help", "tei_health"),
        *("console", "console_page", "console_file"),
    }
)
"""Routes that need no key."""

_KINDS: dict[Kind, Scope] = {
    **dict.fromkeys(
        (Kind.INGEST, Kind.INGEST_LINES, Kind.UPDATE, Kind.DELETE, Kind.COLLECTION_CREATE),
        Scope.INGEST,
    ),
    **dict.fromkeys(
        (
            *(Kind.COLLECTION_CHANGE, Kind.COLLECTION_DELETE, Kind.DELETE_MATCHING, Kind.MIGRATE),
            *(Kind.TRAIN, Kind.MODELS, Kind.SCRUB, Kind.ROWS, Kind.FIT, Kind.FEEDBACK),
        ),
        Scope.ADMIN,
    ),
}
"""The scope that a job of a kind needs; ``read`` for every other kind."""


def guarded(tag: str, *checks: Callable[[Request], Awaitable[None]]) -> APIRouter:
    """Return a router whose requests pass :func:`admit`, after checks of its own.

    Args:
        tag: of its operations in the OpenAPI document.
        checks: what raises an error for requests that the router does not take.
    """
    return APIRouter(tags=[tag], dependencies=[Depends(check) for check in (*checks, admit)])


async def admit(request: Request) -> None:
    """Check the caller and what it may do, and note who it is.

    Raises:
        Unauthorized: the caller is not known.
        Forbidden: it lacks the scope of this route.
    """
    caller = await _identified(request)
    request.state.caller, request.state.tenant = caller, caller.tenant
    scope = SCOPES[request.scope["route"].name]
    if scope is not None:
        caller.check(scope)


async def _identified(request: Request) -> Caller:
    context = context_of(request)
    token = request.cookies.get(auth.COOKIE)
    if context.gate.known is None or token is None or auth.presented_key(request) is not None:
        return context.gate.caller(request)
    auth.check_same_origin(request)
    digest = await context.ledgers.home.sessions.get(hashlib.sha256(token.encode()).hexdigest())
    if digest is None:
        raise Unauthorized("the session has ended")
    return context.gate.holder(digest)


async def refused(request: Request, scope: Scope | None, *, collection: str | None = None) -> None:
    """Return once the key or session of an admitted request is refused, or lacks a scope.

    Args:
        request: the request.
        scope: what it needs; None: any will do.
        collection: name of a collection that the caller must see.
    """
    try:
        while True:
            await asyncio.sleep(auth.LOOK_S)
            caller = await _identified(request)
            if scope is not None:
                caller.check(scope)
            if collection is not None:
                found = await context_of(request).collections.get(collection)
                if not caller.sees(collection, owner=found.owner):
                    return
    except (Unauthorized, Forbidden, CollectionUnknown):
        return


def caller_of(request: Request) -> Caller:
    """Return who sent a request that was admitted."""
    caller: Caller = request.state.caller
    return caller


async def collection_of(
    request: Request, name: str, *, partitioned: bool = False, partition: bool = False
) -> Collection:
    """Return a collection that the caller may see.

    Args:
        request: the request.
        name: of the collection.
        partitioned: it may have several partitions.
        partition: it may be a partition of one.

    Raises:
        CollectionUnknown: there is none of this name, or it is not for the caller to see.
        NotReady: no worker has made the default collection yet.
        PartitionedUnsupported: what is asked for needs a collection that is on one ledger.
    """
    found = await context_of(request).collections.get(name)
    whole = collection_of_partition(name)
    if not caller_of(request).sees(whole or name, owner=found.owner):
        raise CollectionUnknown(f"no collection {name!a}")
    if found.parted is not None and not partitioned:
        first = found.parted.numbers[0]
        hint = f"a partition, such as {name}.{first}" if partition else "one without partitions"
        raise PartitionedUnsupported(f"expected {hint}, got {name!a}: of {found.partitions}")
    if whole is not None and not partition:
        raise PartitionedUnsupported(f"expected a collection, got a partition of {whole!a}")
    parts = context_of(request).collections.parts(found)
    request.state.seen = seen_by(request) | {one: Seen.of(part) for one, part in parts.items()}
    return found


def seen_by(request: Request) -> dict[str, Seen]:
    """Return the collections that a request was found to have access to, and their partitions."""
    seen: dict[str, Seen] = getattr(request.state, "seen", {})
    return seen


def made_of(request: Request, name: str) -> str:
    """Return when a collection that a request has seen was made; empty if it has seen none."""
    found = seen_by(request).get(name)
    return "" if found is None else found.made


async def read_of(request: Request, name: str, ask: Callable[[AsyncLedger], Awaitable[T]]) -> T:
    """Return what the ledger of a collection answers without a job, if the caller may see that one.

    The gateway's list may be too old: where another collection has the name by now, the caller's
    access to that one is checked, and its ledger asked again.

    Args:
        request: the request.
        name: of the collection, or of a partition.
        ask: the ledger, which may have moved the collection away.

    Raises:
        CollectionUnknown: there is none of this name, or it is not for the caller to see.
    """
    context = context_of(request)

    async def checked(ledger: AsyncLedger) -> T:
        found = await ask(ledger)
        await ledger.check_made(name, made_of(request, name))
        return found

    if name in seen_by(request):
        with suppress(CollectionReplaced):
            return await context.ledgers.at(name, checked)
        await context.collections.list()
    await collection_of(request, name, partition=True)
    return await context.ledgers.at(name, checked)


def scope_of(kind: Kind) -> Scope:
    """Return the scope that a caller needs for a job of a kind: its results, or to run it again."""
    return _KINDS.get(kind, Scope.READ)
