"""``/v1/documents/{id}``: read one document back, change its metadata, or delete it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from verso_core.errors import DocumentChanged, DocumentUnknown
from verso_core.jobs import Kind, NoItem
from verso_core.jobs.documents import (
    DocumentInfo,
    DocumentPage,
    ListParams,
    Updated,
    UpdateItem,
    UpdateParams,
    UpdateRequest,
)
from verso_core.jobs.ingest import Deleted, DeleteItem, DeleteParams, DocumentDeleted
from verso_core.jobs.reconstruct import ReconstructItem, ReconstructParams, StoredText
from verso_core.texts import check_document_id, check_metadata, split_record_id
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded
from verso_gateway.bodies import reading
from verso_gateway.bodies.intake import unix_seconds
from verso_gateway.context import context_of
from verso_gateway.job_service import Ended
from verso_gateway.partitions.scatter import holder
from verso_ledger import NewJob

router = guarded("documents")

BYTES = "application/octet-stream"
_NEVER = -1
"""Number of no job: what was written by it is no document, so nothing is changed."""
Collection = Annotated[str, Query(description="name of the collection")]


@router.get(
    "/v1/documents/{document:path}",
    name="document",
    operation_id="getDocument",
    responses=openapi.responses(StoredText, also=[BYTES]),
)
async def get(request: Request, document: str, collection: Collection = "default") -> Response:
    """Return every byte of a document; a record of it by ``id#n`` (``%23`` in a path).

    ``Accept: application/octet-stream`` returns the bytes themselves.
    """
    name, chunk = split_record_id(document)
    where = await _where(request, collection, name)
    params, item = ReconstructParams(collection=where), ReconstructItem(name, chunk)
    job = responses.job_of_one(request, Kind.RECONSTRUCT, params, item)
    ended = await responses.finish(request, job)
    found: StoredText = responses.sole(ended)
    headers = {"Server-Timing": views.server_timing(ended.results), "Vary": "Accept"}
    if BYTES in request.headers.get("accept", ""):
        return Response(found.data, media_type=BYTES, headers=headers)
    return responses.json_response(found, headers=headers)


@router.patch(
    "/v1/documents/{document:path}",
    name="document_update",
    operation_id="updateDocument",
    responses=openapi.job_responses(Updated),
    openapi_extra=openapi.body(UpdateRequest),
)
async def update(request: Request, document: str, collection: Collection = "default") -> Response:
    """Change a document's metadata or time; its text and vectors stay, byte for byte.

    ``metadata`` sets the keys it has; with ``replace`` it is all that there is then. Two changes at
    once: the later one is refused as ``document_changed`` and may be sent under another key.
    """
    name = check_document_id(document)
    where = await _where(request, collection, name)
    value = await reading.read_object(request)
    checked = reading.validate(request, value, model=UpdateRequest)

    async def job_of(item: UpdateItem) -> NewJob:
        made = responses.job_of_one(request, Kind.UPDATE, UpdateParams(collection=where), item)
        return await responses.repeatable(request, made)

    job = await job_of(UpdateItem(name, {}, None, written=_NEVER))
    # A request that is sent again is answered by its job, whatever became of the document.
    if await context_of(request).job_service.find(job) is None:
        stored = await _stored(request, name, where)
        job = await job_of(_changed(stored, checked, value.get("metadata")))
    return await responses.respond(request, job, body=responses.sole)


async def _where(request: Request, collection: str, document: str) -> str:
    """Return the name of the collection, or of its partition, that has a document."""
    return holder(await collection_of(request, collection, partitioned=True), document)


async def _stored(request: Request, name: str, collection: str) -> DocumentInfo:
    """Read a document's metadata and time.

    Raises:
        DocumentUnknown: there is no such document.
    """
    params = ListParams(collection=collection, ids=(name,))
    job = responses.job_of_one(request, Kind.LIST, params, NoItem())
    found: DocumentPage = responses.sole(await responses.finish(request, job))
    if not found.documents:
        raise DocumentUnknown(f"no document {name!a}")
    return found.documents[0]


def _changed(stored: DocumentInfo, asked: UpdateRequest, metadata: object) -> UpdateItem:
    """Return a document as a request changes it; ``metadata`` is the request's, as it was sent.

    Raises:
        DocumentChanged: it was written by another job than the request names.
        MetadataInvalid: the metadata would be too large, or holds what metadata cannot.
        RequestInvalid: the time is none.
    """
    if asked.written not in (None, stored.written):
        raise DocumentChanged(f"expected {stored.id!a} of job {asked.written}: {stored.written}")
    given = asked.model_copy(update={"metadata": metadata})  # whose 1.0 is not 1
    time_s = unix_seconds(asked.time) if "time" in asked.model_fields_set else stored.time
    changed = check_metadata(given.changed(stored.metadata))
    return UpdateItem(stored.id, changed, time_s, stored.written)


@router.delete(
    "/v1/documents/{document:path}",
    name="document_delete",
    operation_id="deleteDocument",
    responses=openapi.job_responses(DocumentDeleted),
)
async def delete(request: Request, document: str, collection: Collection = "default") -> Response:
    """Delete a document: it is gone from reads and searches when this answers."""
    name = check_document_id(document)
    params = DeleteParams(collection=await _where(request, collection, name))
    job = responses.job_of_one(request, Kind.DELETE, params, DeleteItem(name))
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=_deleted)


def _deleted(ended: Ended) -> Deleted:
    item: Deleted = responses.sole(ended)
    if not item.deleted:
        raise DocumentUnknown(f"no document {item.id!a}")
    return item
