"""``POST /v1/classify``: what texts, or stored records, are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.errors import VersoError, error_body
from verso_core.jobs import Kind, Queue, Rejected, cut
from verso_core.jobs.heads import ClassifyItem, ClassifyRequest
from verso_core.jobs.job import Batch
from verso_core.texts import split_record_id
from verso_gateway import openapi, responses, views
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.routes.embed import split_texts

router = APIRouter(tags=["heads"])

_SLICE_ITEMS = 256
_SLICE_BYTES = 1024 * 1024
_INTERACTIVE_ITEMS = 64


@router.post(
    "/v1/classify",
    name="classify",
    operation_id="classify",
    responses=openapi.job_responses(Batch),
    openapi_extra=openapi.body(ClassifyRequest),
)
async def classify(request: Request) -> Response:
    """Classify texts, or stored documents and records, with one head or several.

    A head that reads vectors classifies stored records without decoding them. With
    ``accept_error`` a label that is not sure enough is withheld: ``label`` is null, ``abstained``
    true. ``chunk`` chooses what of a long text is read. Each text or id has its own result or
    error.
    """
    value = await reading.read_object(request)
    texts, faults = split_texts(value.get("texts"))
    checked = reading.validate(
        request, {**value, "texts": texts} if "texts" in value else value, model=ClassifyRequest
    )
    if checked.ids is not None:
        await context_of(request).collections.get(checked.collection)
        items: list[ClassifyItem | Rejected] = [_stored(name) for name in checked.ids]
    else:
        items = [
            Rejected(error_body(faults[index]))
            if index in faults
            else ClassifyItem(text=text.encode())
            for index, text in enumerate(checked.texts or [])
        ]
    params = checked.params()
    slices = list(cut(Kind.CLASSIFY, params, items, max_items=_SLICE_ITEMS, max_bytes=_SLICE_BYTES))
    few = len(items) <= _INTERACTIVE_ITEMS and len(slices) == 1
    queue = Queue.INTERACTIVE if few else Queue.BULK
    job = responses.job_of(request, Kind.CLASSIFY, slices, queue=queue)
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=views.batch)


def _stored(name: str) -> ClassifyItem | Rejected:
    """Name a document or record as an item; a name that is none is rejected in its place."""
    try:
        return ClassifyItem(*split_record_id(name))
    except VersoError as error:
        return Rejected(error_body(error))
