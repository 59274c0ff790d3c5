"""``POST /v1/embed``: texts to vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import VersoError, error_body
from verso_core.jobs import (
    EmbedItem,
    EmbedParams,
    EmbedRequest,
    Item,
    Kind,
    Params,
    Queue,
    Rejected,
    SliceSpec,
    cut,
)
from verso_core.jobs.job import Batch
from verso_core.texts import text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.bodies import reading

router = guarded("models")

_SLICE_ITEMS = 256
_SLICE_BYTES = 1024 * 1024


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
    items = text_items(checked.texts, EmbedItem, faults=faults)
    slices, queue = cut_texts(Kind.EMBED, EmbedParams(artifact=checked.artifact), items)
    job = responses.job_of(request, Kind.EMBED, slices, queue=queue, collection=None)
    job = await responses.repeatable(request, job)
    body = partial(views.batch, vectors_base64=checked.encoding == "base64")
    return await responses.respond(request, job, body=body)


def split_texts(texts: Any) -> tuple[Any, dict[int, VersoError]]:
    """Return texts with those that name no bytes emptied, and their errors by position.

    Each of them fails alone; the others are validated.
    """
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


def text_items(
    texts: Iterable[str], item: Callable[[bytes], Item], *, faults: Mapping[int, VersoError]
) -> list[Item | Rejected]:
    """Return texts as items; a text with a fault is rejected at its position."""
    return [
        Rejected(error_body(faults[index])) if index in faults else item(text.encode())
        for index, text in enumerate(texts)
    ]


def cut_texts(
    kind: Kind, params: Params, items: Sequence[Item | Rejected], *, few: int = 32
) -> tuple[list[SliceSpec], Queue]:
    """Cut items into slices and choose their queue: ``few`` short texts do not wait behind bulk."""
    slices = list(cut(kind, params, items, max_items=_SLICE_ITEMS, max_bytes=_SLICE_BYTES))
    interactive = len(items) <= few and len(slices) == 1
    return slices, Queue.INTERACTIVE if interactive else Queue.BULK
