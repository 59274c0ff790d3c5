"""``/v1/collections/{name}/documents/…``: list, count, facet and delete documents by a filter."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs import Kind, NoItem, Queue, SliceSpec, cut
from verso_core.jobs.documents import (
    Counted,
    CountParams,
    CountRequest,
    DeletedMatching,
    DeleteMatchingParams,
    DeleteMatchingRequest,
    DeleteMatchingResponse,
    DocumentPage,
    Facets,
    FacetsRequest,
    ListParams,
    ListRequest,
    parts_of,
)
from verso_core.jobs.models import Params
from verso_gateway import openapi, responses
from verso_gateway.access import collection_of, guarded
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.headers import STRICT
from verso_gateway.job_service import Ended
from verso_gateway.partitions import documents as partitioned
from verso_gateway.partitions.missing import left_out
from verso_gateway.partitions.scatter import check_no_webhook, names_of
from verso_ledger import NewJob

router = guarded("documents")


@router.post(
    "/v1/collections/{name}/documents/query",
    name="documents_query",
    operation_id="queryDocuments",
    responses=openapi.job_responses(DocumentPage),
    openapi_extra=openapi.body(ListRequest),
)
async def query(request: Request, name: str) -> Response:
    """List documents that a filter passes, by id or time, with metadata and time.

    What is there all the while is in the list once, however many share a time and whatever else
    is written meanwhile. By time documents without one come last. A page by id costs a look at
    every document that passes; by time the collection's index of times leads to it.
    """
    checked = await reading.read(request, ListRequest)
    found = await collection_of(request, name, partitioned=True)
    if found.parted is not None:
        listed = await partitioned.listed(request, found, checked.params(name))
        return responses.json_response(listed)
    job = await responses.repeatable(request, await list_job(request, checked.params(name)))
    return await responses.respond(request, job, body=responses.sole)


async def list_job(request: Request, params: ListParams) -> NewJob:
    """Return the job of a list.

    Raises:
        RequestInvalid: the cursor is none of a list in this order.
    """
    _ = params.page_end  # the worker would refuse it later
    return await _reading(request, Kind.LIST, params, params.collection)


@router.post(
    "/v1/collections/{name}/documents/count",
    name="documents_count",
    operation_id="countDocuments",
    responses=openapi.job_responses(Counted),
    openapi_extra=openapi.body(CountRequest),
)
async def count(request: Request, name: str) -> Response:
    """Count the documents that a filter passes, or all."""
    checked = await reading.read(request, CountRequest)
    params = CountParams(collection=name, filter=checked.filter)
    found = await collection_of(request, name, partitioned=True)
    if found.parted is not None:
        return responses.json_response(await partitioned.counted(request, found, params))
    job = await responses.repeatable(request, await _reading(request, Kind.COUNT, params, name))
    return await responses.respond(request, job, body=responses.sole)


@router.post(
    "/v1/collections/{name}/facets",
    name="facets",
    operation_id="facets",
    responses=openapi.job_responses(Facets),
    openapi_extra=openapi.body(FacetsRequest),
)
async def facets(request: Request, name: str) -> Response:
    """Count the values of metadata fields, over the documents that a filter passes.

    A document with several values of a field counts for each. A filter that more than 100,000
    documents pass is refused.
    """
    checked = await reading.read(request, FacetsRequest)
    params = checked.params(name)
    found = await collection_of(request, name, partitioned=True)
    if found.parted is not None:
        return responses.json_response(await partitioned.facets(request, found, params))
    job = await responses.repeatable(request, await _reading(request, Kind.FACETS, params, name))
    return await responses.respond(request, job, body=responses.sole)


@router.post(
    "/v1/collections/{name}/documents/delete",
    name="documents_delete",
    operation_id="deleteDocuments",
    responses=openapi.job_responses(DeleteMatchingResponse),
    openapi_extra=openapi.body(DeleteMatchingRequest),
)
async def delete(request: Request, name: str) -> Response:
    """Delete the documents that a filter passes.

    A job: without ``Prefer: wait=N`` the answer is 202. It works through the collection in parts
    and may be repeated; nothing that was written after it was accepted is deleted. Where a
    partition is missing it is refused, unless ``Prefer: handling=lenient`` asks for the others.
    """
    checked = await reading.read(request, DeleteMatchingRequest)
    found = await collection_of(request, name, partitioned=True)
    left_out(request, found, handling=STRICT)
    names = names_of(found) if found.parted is not None else [name]
    parts = {one: await _parts(request, one, checked) for one in names}
    slices = [spec for own in parts.values() for spec in own]
    job = responses.job_of(request, Kind.DELETE_MATCHING, slices, queue=Queue.BULK, collection=name)
    job = await responses.repeatable(request, job)
    if found.parted is not None:
        check_no_webhook(request)
        job = replace(job, parts=parts)
    return await responses.respond(request, job, body=_deleted, wait_default_s=0.0)


async def _parts(request: Request, name: str, checked: DeleteMatchingRequest) -> list[SliceSpec]:
    ledgers = context_of(request).ledgers
    parts = parts_of(await ledgers.at(name, lambda one: one.document_count(name)))
    params = DeleteMatchingParams(collection=name, filter=checked.filter)
    return list(cut(Kind.DELETE_MATCHING, params, parts, max_items=1))


async def _reading(request: Request, kind: Kind, params: Params, collection: str) -> NewJob:
    await collection_of(request, collection)
    return responses.job_of_one(request, kind, params, NoItem())


def _deleted(ended: Ended) -> DeleteMatchingResponse:
    parts: list[DeletedMatching] = responses.all_items(ended)
    return DeleteMatchingResponse(
        job_id=ended.record.job_id, deleted=sum(part.deleted for part in parts)
    )
