"""``POST /v1/embed``: texts to vectors."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.errors import VersoError, error_body
from verso_core.jobs import (
    EmbedItem,
    EmbedParams,
    EmbedRequest,
    Kind,
    Queue,
    Rejected,
    SliceSpec,
    cut,
)
from verso_core.jobs.job import Batch
from verso_core.texts import text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.bodies import reading

router = APIRouter(tags=["models"])

_SLICE_ITEMS = 256
_SLICE_BYTES = 1024 * 1024
_INTERACTIVE_ITEMS = 32


@router.post(
    "/v1/embed",
    name="embed",
    operation_id="embed",
    responses=openapi.job_responses(Batch),
    openapi_extra=openapi.body(EmbedRequest),
)
async def embed(request: Request) -> Response:
    """Turn texts into vectors: mean-pooled, of unit length.

    A text that cannot be taken fails alone. A text longer than the model's window is embedded by
    its beginning.
    """
    value = await reading.read_object(request)
    texts, faults = split_texts(value.get("texts"))
    checked = reading.validate(request, {**value, "texts": texts}, model=EmbedRequest)
    slices, queue = embed_slices(checked.texts, faults=faults)
    job = responses.job_of(request, Kind.EMBED, slices, queue=queue)
    job = await responses.repeatable(request, job)
    body = partial(views.batch, vectors_base64=checked.encoding == "base64")
    return await responses.respond(request, job, body=body)


def split_texts(texts: Any) -> tuple[Any, dict[int, VersoError]]:
    """Set the strings aside that name no bytes: each fails alone, the rest can be validated."""
    if not isinstance(texts, list):
        return texts, {}
    kept, faults = list(texts), {}
    for index, text in enumerate(texts):
        if isinstance(text, str):
            try:
                text_bytes(text)
            except VersoError as error:
                faults[index] = error
                kept[index] = ""
    return kept, faults


def embed_slices(
    texts: list[str], *, faults: dict[int, VersoError]
) -> tuple[list[SliceSpec], Queue]:
    """Cut texts into slices and choose their queue: a few short texts must not wait behind bulk."""
    items = [
        Rejected(error_body(faults[index])) if index in faults else EmbedItem(text.encode())
        for index, text in enumerate(texts)
    ]
    slices = list(
        cut(Kind.EMBED, EmbedParams(), items, max_items=_SLICE_ITEMS, max_bytes=_SLICE_BYTES)
    )
    few = len(items) <= _INTERACTIVE_ITEMS and len(slices) == 1
    return slices, Queue.INTERACTIVE if few else Queue.BULK
