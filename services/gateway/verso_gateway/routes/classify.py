"""``POST /v1/classify``: what texts, or stored records, are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import Kind
from verso_core.jobs.heads import ClassifyItem, ClassifyRequest
from verso_core.jobs.job import Batch
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of
from verso_gateway.bodies import reading
from verso_gateway.routes.embed import cut_texts, split_texts, text_items
from verso_gateway.routes.reconstruct import stored_item

router = APIRouter(tags=["heads"])

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
        await collection_of(request, checked.collection)
        items = [stored_item(name, ClassifyItem) for name in checked.ids]
    else:
        items = text_items(checked.texts or [], lambda text: ClassifyItem(text=text), faults=faults)
    slices, queue = cut_texts(Kind.CLASSIFY, checked.params(), items, few=_INTERACTIVE_ITEMS)
    job = responses.job_of(request, Kind.CLASSIFY, slices, queue=queue)
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=views.batch)
