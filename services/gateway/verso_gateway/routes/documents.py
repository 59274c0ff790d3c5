"""``/v1/documents/{id}``: read one document back, or delete it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from verso_core.errors import DocumentUnknown
from verso_core.jobs import Kind
from verso_core.jobs.ingest import Deleted, DeleteItem, DeleteParams, DocumentDeleted
from verso_core.jobs.reconstruct import ReconstructItem, ReconstructParams, StoredText
from verso_core.texts import check_document_id, split_record_id
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of
from verso_gateway.job_service import Ended

router = APIRouter(tags=["documents"])

BYTES = "application/octet-stream"
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
    await collection_of(request, collection)
    params, item = ReconstructParams(collection=collection), ReconstructItem(name, chunk)
    job = responses.job_of_one(request, Kind.RECONSTRUCT, params, item)
    ended = await responses.finish(request, job)
    found: StoredText = responses.sole(ended)
    headers = {"Server-Timing": views.server_timing(ended.results), "Vary": "Accept"}
    if BYTES in request.headers.get("accept", ""):
        return Response(found.data, media_type=BYTES, headers=headers)
    return responses.json_response(found, headers=headers)


@router.delete(
    "/v1/documents/{document:path}",
    name="document_delete",
    operation_id="deleteDocument",
    responses=openapi.job_responses(DocumentDeleted),
)
async def delete(request: Request, document: str, collection: Collection = "default") -> Response:
    """Delete a document: it is gone from reads and searches when this answers."""
    name = check_document_id(document)
    await collection_of(request, collection)
    params = DeleteParams(collection=collection)
    job = responses.job_of_one(request, Kind.DELETE, params, DeleteItem(name))
    return await responses.respond(request, job, body=_deleted)


def _deleted(ended: Ended) -> Deleted:
    item: Deleted = responses.sole(ended)
    if not item.deleted:
        raise DocumentUnknown(f"no document {item.id!a}")
    return item
