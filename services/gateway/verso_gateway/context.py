"""What every route needs, created once when the gateway starts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fastapi import Request

from verso_core.result_files import ResultFiles
from verso_gateway.auth import Gate
from verso_gateway.collections_cache import CollectionsCache
from verso_gateway.job_service import JobService
from verso_gateway.metrics import Metrics
from verso_gateway.settings import Settings
from verso_ledger import AsyncLedger


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running gateway. ``closing`` is set when it was told to stop."""

    settings: Settings
    ledger: AsyncLedger
    files: ResultFiles
    collections: CollectionsCache
    job_service: JobService
    metrics: Metrics
    gate: Gate
    closing: asyncio.Event


def context_of(request: Request) -> Context:
    """Return the context of the application that serves a request."""
    context: Context = request.app.state.context
    return context


async def admit(request: Request) -> None:
    """Check the caller and note its tenant.

    Raises:
        Unauthorized: the caller is not known.
    """
    request.state.tenant = context_of(request).gate.tenant(request)
