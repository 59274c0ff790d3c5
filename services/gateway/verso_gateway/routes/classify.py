"""``POST /v1/classify``: what texts, or stored records, are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs import Item, Kind, Rejected
from verso_core.jobs.heads.classify import ClassifyItem, ClassifyParams, ClassifyRequest
from verso_core.jobs.heads.feedback import FeedbackItem, FeedbackParams, FeedbackRequest
from verso_core.jobs.job import Batch
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded, seen_by
from verso_gateway.bodies import reading
from verso_gateway.partitions import scatter
from verso_gateway.routes.embed import cut_texts, split_texts, text_items
from verso_gateway.routes.reconstruct import stored_item
from verso_ledger import NewJob

router = guarded("heads")

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
        items = [stored_item(name, ClassifyItem) for name in checked.ids]
    else:
        items = text_items(checked.texts or [], lambda text: ClassifyItem(text=text), faults=faults)
    return await _respond(request, Kind.CLASSIFY, checked.params(), items)


@router.post(
    "/v1/feedback",
    name="feedback",
    operation_id="addFeedback",
    responses=openapi.job_responses(Batch),
    openapi_extra=openapi.body(FeedbackRequest),
)
async def feedback(request: Request) -> Response:
    """Take the right labels of texts, or of stored documents and records, for a head.

    The head classifies them, and whether it was right corrects the confidence and the thresholds of
    ``accept_error`` of this version, for each source of labels from 30 on. A text counts once, with
    the label that was given last. Label a random sample: of withheld texts alone it would learn to
    withhold.
    """
    value = await reading.read_object(request)
    texts, faults = split_texts(value.get("texts"))
    checked = reading.validate(
        request, {**value, "texts": texts} if "texts" in value else value, model=FeedbackRequest
    )
    items: list[Item | Rejected] = []
    if checked.ids is not None:
        for name, label in zip(checked.ids, checked.labels, strict=True):
            items.append(stored_item(name, partial(FeedbackItem, label=label)))
    else:
        items = text_items(checked.texts or [], lambda text: FeedbackItem(text=text), faults=faults)
        items = [
            replace(item, label=label) if isinstance(item, FeedbackItem) else item
            for item, label in zip(items, checked.labels, strict=True)
        ]
    return await _respond(request, Kind.FEEDBACK, checked.params(), items)


async def _respond(
    request: Request,
    kind: Kind,
    params: ClassifyParams | FeedbackParams,
    items: list[Item | Rejected],
) -> Response:
    def job_of(name: str | None, own: list[Item | Rejected]) -> NewJob:
        named = params.model_copy(update={"collection": name})
        slices, queue = cut_texts(kind, named, own, few=_INTERACTIVE_ITEMS)
        return responses.job_of(request, kind, slices, queue=queue, collection=name)

    job = await responses.repeatable(request, job_of(params.collection, items))

    def part_of(name: str, own: list[Item | Rejected]) -> NewJob:
        part = job_of(name, own)
        return part if kind.is_read else scatter.keyed(part, job)

    if params.collection is not None:
        found = await collection_of(request, params.collection, partitioned=True)
        if found.parted is not None:
            ended = await scatter.by_document(request, found, items, part_of)
            return responses.json_response(views.batch(ended))
        job = replace(job, seen=seen_by(request))
    return await responses.respond(request, job, body=views.batch)
