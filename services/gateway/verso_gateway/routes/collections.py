"""``/v1/collections``: make, list, describe, change and delete them; list what they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from verso_core.errors import CollectionExists, Forbidden
from verso_core.jobs import CollectionKind, CollectionRequest, Kind, NoItem, Queue
from verso_core.jobs.collections import (
    CollectionChange,
    CollectionChangeParams,
    CollectionDeleted,
    CollectionInfo,
    CollectionList,
    CollectionName,
    CollectionParams,
)
from verso_core.jobs.documents import MAX_LISTED, DocumentPage, ListParams, Order
from verso_core.jobs.fitting import FitItem, FitParams, Fitted
from verso_core.jobs.statistics import Statistics
from verso_gateway import openapi, responses, views
from verso_gateway.access import caller_of, collection_of, guarded, read_of, seen_by
from verso_gateway.bodies import reading
from verso_gateway.context import DEFAULT, context_of
from verso_gateway.job_service import Ended
from verso_gateway.partitions import documents as partitioned
from verso_gateway.partitions import managing
from verso_gateway.routes.matching import list_job
from verso_ledger.names import group_of

router = guarded("collections")


@router.get(
    "/v1/collections",
    name="collections",
    operation_id="listCollections",
    responses=openapi.responses(CollectionList),
)
async def list_all(request: Request) -> Response:
    """List the collections that the caller may see, by name."""
    caller = caller_of(request)
    found = await context_of(request).collections.list()
    seen = [one for one in found if caller.sees(one.name, owner=one.owner)]
    return responses.json_response(CollectionList(collections=tuple(map(CollectionInfo.of, seen))))


@router.post(
    "/v1/collections",
    name="collection_create",
    operation_id="createCollection",
    status_code=201,
    responses=openapi.job_responses(CollectionInfo, status=201),
    openapi_extra=openapi.body(CollectionRequest),
)
async def create(request: Request) -> Response:
    """Make a collection; one that exists with the settings that are named is given as it is.

    It belongs to the tenant of the key that makes it.
    """
    checked = await reading.read(request, CollectionRequest)
    owner = await _owner(request, checked)
    if checked.partitions > 1 or checked.rollover is not None:
        made = await managing.create(request, checked, owner=owner)
        return responses.json_response(made, status=201)
    given = checked.model_fields_set - {"partitions", "rollover"}
    params = CollectionParams(**{one: getattr(checked, one) for one in given}, owner=owner)
    job = responses.job_of_one(request, Kind.COLLECTION_CREATE, params, NoItem())
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=responses.sole, status=201)


@router.get(
    "/v1/collections/{name}",
    name="collection",
    operation_id="getCollection",
    responses=openapi.job_responses(Statistics),
)
async def describe(request: Request, name: str) -> Response:
    """Describe a collection: its settings, and what its texts, vectors and patches take."""
    found = await collection_of(request, name, partitioned=True, partition=True)
    if found.parted is not None:
        return responses.json_response(await managing.stats(request, found))

    def body(ended: Ended) -> Statistics:
        stats: Statistics = responses.sole(ended)
        return stats.model_copy(update={"name": name})

    job = responses.job_of_one(request, Kind.STATS, CollectionName(name=name), NoItem())
    return await responses.respond(request, job, body=body)


@router.patch(
    "/v1/collections/{name}",
    name="collection_change",
    operation_id="changeCollection",
    responses=openapi.job_responses(CollectionInfo),
    openapi_extra=openapi.body(CollectionChange),
)
async def change(request: Request, name: str) -> Response:
    """Add indexes to a collection, or change its codec policy, fits, or how many days it keeps.

    Another ``codec_policy`` holds for what is written from then on.
    """
    checked = await reading.read(request, CollectionChange)
    given = {field: getattr(checked, field) for field in checked.model_fields_set}
    params = CollectionChangeParams(name=name, **given)
    job = responses.job_of_one(request, Kind.COLLECTION_CHANGE, params, NoItem())
    job = await responses.repeatable(request, job)
    context = context_of(request)
    # A request that is sent again is answered by its job, whatever became of the collection.
    before = await context.job_service.find(job)
    grouped = before is not None and bool(group_of(before.job_id))
    if grouped and await context.job_service.is_noted(managing.completed(job)):
        changed = await managing.changed_before(request, job)
        return responses.json_response(changed, headers={"Idempotency-Replayed": "true"})
    if before is None or grouped:
        found = await collection_of(request, name, partitioned=True)
        if found.parted is not None:
            changed = await managing.change(request, found, params, job=job)
            return responses.json_response(changed)
        job = replace(job, seen=seen_by(request))
    answer = await responses.respond(request, job, body=responses.sole)
    context.collections.forget(name)
    return answer


@router.post(
    "/v1/collections/{name}/fit",
    name="collection_fit",
    operation_id="fitCollection",
    responses=openapi.job_responses(Fitted),
)
async def fit(request: Request, name: str) -> Response:
    """Fit a collection's codec to its newest texts now, whether or not that is due.

    The tables are kept if they save more than they take; then they are a canary first. ``auto_fit``
    of the collection may be off.
    """
    await collection_of(request, name, partition=True)
    job = responses.job_of_one(
        request, Kind.FIT, FitParams(collection=name), FitItem(), queue=Queue.FIT
    )
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=responses.sole)


@router.get(
    "/v1/collections/{name}/documents",
    name="documents",
    operation_id="listDocuments",
    responses=openapi.responses(DocumentPage),
)
async def documents(
    request: Request,
    name: str,
    cursor: Annotated[str | None, Query(description="from the last page's next_cursor")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    order: Annotated[
        Order | None, Query(description="with metadata and time, by id or time; at most 1000")
    ] = None,
    descending: Annotated[bool, Query(description="the largest first, in a list by order")] = False,
) -> Response:
    """List which documents a collection holds; never their texts.

    Without ``order`` the list is the ledger's, in no order and without metadata; a page may hold
    some more than ``limit``, or fewer: the list has ended when ``next_cursor`` is null.
    ``written`` grows from job to job. Of a log collection the list is by id: first lines, by stream
    and number, then records.
    """
    collection = await collection_of(request, name, partitioned=True)
    if order is not None or collection.kind is CollectionKind.LOGS:
        params = ListParams(
            collection=name,
            order=order or Order.ID,
            descending=descending,
            limit=min(limit, MAX_LISTED),
            cursor=cursor,
        )
        if collection.parted is not None:
            listed = await partitioned.listed(request, collection, params)
            return responses.json_response(listed)
        ended = await responses.finish(request, await list_job(request, params))
        return responses.json_response(responses.sole(ended))
    if collection.parted is not None:
        found = await partitioned.page(request, collection, cursor=cursor, limit=limit)
        return responses.json_response(found)
    page = await read_of(request, name, lambda one: one.documents(name, after=cursor, limit=limit))
    rows = tuple(map(views.document, page.rows))
    return responses.json_response(DocumentPage(documents=rows, next_cursor=page.cursor))


@router.delete(
    "/v1/collections/{name}",
    name="collection_delete",
    operation_id="deleteCollection",
    responses=openapi.job_responses(CollectionDeleted),
)
async def delete(request: Request, name: str) -> Response:
    """Delete a collection and all its documents."""
    context = context_of(request)
    job = responses.job_of_one(request, Kind.COLLECTION_DELETE, CollectionName(name=name), NoItem())
    job = await responses.repeatable(request, job)
    repeated = await context.job_service.find(job) is not None
    deleted = await managing.delete(request, name, job=job, repeated=repeated)
    if deleted is not None:
        return responses.json_response(deleted)
    if not repeated:
        await collection_of(request, name)
        job = replace(job, seen=seen_by(request))

    def body(ended: Ended) -> CollectionDeleted:
        responses.all_items(ended)
        return CollectionDeleted(name=name)

    answer = await responses.respond(request, job, body=body)
    context.collections.forget(name)
    return answer


async def _owner(request: Request, checked: CollectionRequest) -> str | None:
    """Return the owner of the collection that a caller makes, or finds made.

    Raises:
        Forbidden: the caller's key has a list of collections that does not name it.
        CollectionExists: another caller's has the name, or one of several partitions has it.
    """
    caller, name = caller_of(request), checked.name
    key = caller.key
    if key is not None and key.collections is not None and not key.lists(name):
        raise Forbidden(f"expected a collection that the key's list names, got {name!r}")
    known = {one.name: one for one in await context_of(request).collections.list()}
    noted = context_of(request).ledgers.partitioned.get(name)
    if noted is not None and checked.partitions == 1 and checked.rollover is None:
        managing.check_noted(noted, name)
        raise CollectionExists(f"{name!r} exists with partitions")
    if name not in known:  # the workers make the default one, for all
        return None if name == DEFAULT else caller.owner
    owner = known[name].owner
    if not caller.sees(name, owner=owner):
        raise CollectionExists(f"another caller's collection is named {name!r}")
    return owner
