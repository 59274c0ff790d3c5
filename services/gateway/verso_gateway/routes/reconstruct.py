"""``POST /v1/reconstruct``: stored texts by id, exactly; or guesses from bare vectors."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.errors import VersoError, error_body
from verso_core.jobs import Item, Kind, Queue, ReconstructRequest
from verso_core.texts import split_record_id
from verso_gateway import bodies, floats, openapi, responses, views
from verso_gateway.context import context_of
from verso_gateway.schemas import BatchView

router = APIRouter(tags=["documents"])

_INTERACTIVE_ITEMS = 64


@router.post(
    "/v1/reconstruct",
    name="reconstruct",
    operation_id="reconstruct",
    responses=openapi.job_responses(BatchView),
    openapi_extra=openapi.body(ReconstructRequest),
)
async def reconstruct(request: Request) -> Response:
    """Return texts back.

    By ``ids`` (documents or records): the exact bytes, checked, with ``exact: true``. By bare
    ``vectors``: the model's best guess, with ``exact: false``, its own confidence and the
    length-normalised log-probability. Each id or vector has its own result or error.
    """
    value = await bodies.read_object(request)
    checked = bodies.validate(request, value, model=ReconstructRequest)
    if checked.ids is not None:
        await context_of(request).catalogue.get(checked.collection)
        items = [stored_item(name) for name in checked.ids]
    else:
        options = {"beam": checked.beam, "max_tokens": checked.max_tokens}
        items = [_bare(vector, options) for vector in checked.vectors or []]
    params = {"collection": None if checked.ids is None else checked.collection}
    queue = Queue.INTERACTIVE if len(items) <= _INTERACTIVE_ITEMS else Queue.BULK
    slices = responses.one_slice(Kind.RECONSTRUCT, params, items)
    order = responses.order_of(request, Kind.RECONSTRUCT, slices=slices, queue=queue)
    return await responses.respond(
        request,
        await responses.repeatable(request, order),
        body=lambda ended: views.batch(Kind.RECONSTRUCT, ended),
    )


def stored_item(name: str) -> Item:
    """Name a document or record as an item; one whose name is none is refused in its place."""
    try:
        document, chunk = split_record_id(name)
    except VersoError as error:
        return Item({"rejected": error_body(error)})
    return Item({"id": document} if chunk is None else {"id": document, "chunk": chunk})


def _bare(vector: list[float], options: dict[str, int]) -> Item:
    try:
        return Item({"vector": True, **options}, floats.pack(vector))
    except VersoError as error:
        return Item({"rejected": error_body(error)})
