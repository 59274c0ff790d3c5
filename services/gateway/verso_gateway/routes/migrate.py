"""``/v1/collections/{name}/migrate``: change artifact or settings of a collection in use."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import MigrationRefused
from verso_core.jobs import Kind, MigrateRequest
from verso_core.jobs.migrate import (
    MigrateItem,
    MigrateParams,
    MigrationEnded,
    MigrationResult,
    MigrationState,
)
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded, read_of
from verso_gateway.bodies import reading
from verso_gateway.job_service import Ended

router = guarded("collections")


@router.get(
    "/v1/collections/{name}/migrate",
    name="migration",
    operation_id="getMigration",
    responses=openapi.responses(MigrationState),
)
async def describe(request: Request, name: str) -> Response:
    """Describe the newest migration of a collection."""
    await collection_of(request, name)
    state = await read_of(request, name, lambda one: one.migration(name))
    if state is None:
        raise MigrationRefused(f"{name!r} has never been migrated")
    return responses.json_response(views.migration(state))


@router.post(
    "/v1/collections/{name}/migrate",
    name="migrate",
    operation_id="migrate",
    responses=openapi.job_responses(MigrationState),
    openapi_extra=openapi.body(MigrateRequest),
)
async def begin(request: Request, name: str) -> Response:
    """Begin a migration, or let one that is under way or blocked go on."""
    checked = await reading.read(request, MigrateRequest)
    params = MigrateParams(collection=name, step="begin")
    item = MigrateItem(artifact=checked.artifact, settings=checked.settings or None)
    return await _step(request, params, item)


@router.delete(
    "/v1/collections/{name}/migrate",
    name="migration_remove",
    operation_id="endMigration",
    responses=openapi.job_responses(MigrationEnded),
)
async def remove(request: Request, name: str) -> Response:
    """Remove the old side of a migration that is done, or cancel one that is not."""
    return await _step(request, MigrateParams(collection=name, step="remove"), MigrateItem())


async def _step(request: Request, params: MigrateParams, item: MigrateItem) -> Response:
    name = params.collection
    await collection_of(request, name)

    def body(ended: Ended) -> MigrationState:
        found: MigrationResult = responses.sole(ended)
        if found.migration is None:
            return MigrationState(collection=name, stage="cancelled")
        return views.migration(found.migration)

    job = responses.job_of_one(request, Kind.MIGRATE, params, item)
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=body)
