"""``/v1/documents/{id}``: read one document back, or delete it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from verso_core.errors import DocumentUnknown
from verso_core.jobs import Item, Kind
from verso_core.texts import check_document_id, split_record_id
from verso_gateway import answers, openapi, results
from verso_gateway.context import context_of
from verso_gateway.schemas import DocumentView
from verso_gateway.submit import Ended

router = APIRouter(tags=["documents"])

BYTES = "application/octet-stream"
Collection = Annotated[str, Query(description="name of the collection")]


@router.get(
    "/v1/documents/{document:path}",
    name="document",
    operation_id="getDocument",
    responses=openapi.responses(DocumentView, also=[BYTES]),
)
async def get(request: Request, document: str, collection: Collection = "default") -> Response:
    """Give a document back, every byte; a record of it by ``id#n`` (``%23`` in a path).

    ``Accept: application/octet-stream`` gives the bytes themselves.
    """
    name, chunk = split_record_id(document)
    await context_of(request).catalogue.get(collection)
    item = Item({"id": name} if chunk is None else {"id": name, "chunk": chunk})
    slices = answers.one_slice(Kind.RECONSTRUCT, {"collection": collection}, [item])
    order = answers.order_of(request, Kind.RECONSTRUCT, slices=slices)
    ended = await answers.finish(request, order)
    found = answers.sole(Kind.RECONSTRUCT, ended)
    timings = results.server_timing(results.total_timings(ended.results))
    headers = {"Server-Timing": timings, "Vary": "Accept"}
    if BYTES in request.headers.get("accept", ""):
        return Response(_raw(ended), media_type=BYTES, headers=headers)
    return answers.json_response(found, headers=headers)


@router.delete(
    "/v1/documents/{document:path}",
    name="document_delete",
    operation_id="deleteDocument",
)
async def delete(request: Request, document: str, collection: Collection = "default") -> Response:
    """Delete a document: it is gone from reads and searches when this answers."""
    name = check_document_id(document)
    await context_of(request).catalogue.get(collection)
    slices = answers.one_slice(Kind.DELETE, {"collection": collection}, [Item({"id": name})])
    order = answers.order_of(request, Kind.DELETE, slices=slices)
    return await answers.respond(request, order, body=_deleted)


def _deleted(ended: Ended) -> dict[str, Any]:
    item = answers.sole(Kind.DELETE, ended)
    if not item["deleted"]:
        raise DocumentUnknown(f"no document {item['id']!a}")
    return item


def _raw(ended: Ended) -> bytes:
    [result] = ended.results
    place: int = result.items[0]["blob"]
    return result.blobs[place]
