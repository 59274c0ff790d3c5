"""``POST /v1/reconstruct``: stored texts by id, exactly; or guesses from bare vectors.

``GET /v1/records/{id}``: how a document is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from verso_core.errors import VersoError, error_body
from verso_core.jobs import SLICE_COST, Item, Kind, Queue, ReconstructRequest, Rejected, cut
from verso_core.jobs.job import Batch
from verso_core.jobs.reconstruct import (
    MAX_RECORDS,
    ReconstructItem,
    ReconstructParams,
    RecordsItem,
    RecordsParams,
    StoredRecords,
)
from verso_core.texts import split_record_id
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded
from verso_gateway.bodies import reading
from verso_gateway.partitions import scatter
from verso_ledger import NewJob

router = guarded("documents")

_INTERACTIVE_ITEMS = 64


@router.post(
    "/v1/reconstruct",
    name="reconstruct",
    operation_id="reconstruct",
    responses=openapi.job_responses(Batch),
    openapi_extra=openapi.body(ReconstructRequest),
)
async def reconstruct(request: Request) -> Response:
    """Read texts back.

    By ``ids`` (documents or records): the exact bytes, checked, with ``exact: true``. By bare
    ``vectors``: the model's best guess, with ``exact: false``, its own confidence and the
    length-normalised log-probability. Each id or vector has its own result or error.
    """
    checked = await reading.read(request, ReconstructRequest)
    if checked.ids is not None:
        found = await collection_of(request, checked.collection, partitioned=True)
        items = [stored_item(name, ReconstructItem) for name in checked.ids]
        if found.parted is not None:
            ended = await scatter.by_document(request, found, items, partial(_job, request))
            return responses.json_response(views.batch(ended))
    else:
        items = [_bare(vector, checked) for vector in checked.vectors or []]
    job = _job(request, None if checked.ids is None else checked.collection, items)
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=views.batch)


def _job(request: Request, collection: str | None, items: list[Item | Rejected]) -> NewJob:
    params = ReconstructParams(collection=collection)
    queue = Queue.INTERACTIVE if len(items) <= _INTERACTIVE_ITEMS else Queue.BULK
    slices = list(cut(Kind.RECONSTRUCT, params, items, max_cost=SLICE_COST))
    return responses.job_of(request, Kind.RECONSTRUCT, slices, queue=queue, collection=collection)


@router.get(
    "/v1/records/{record:path}",
    name="records",
    operation_id="getRecords",
    responses=openapi.responses(StoredRecords),
)
async def records(
    request: Request,
    record: str,
    collection: Annotated[str, Query(description="name of the collection")] = "default",
    vector: Annotated[bool, Query(description="with the stored vectors, as numbers")] = False,
    draft: Annotated[
        bool, Query(description="with the decoder's guess, and what the patch corrects")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS, description="records described")] = 16,
) -> Response:
    """Describe how a document is stored: codec, sizes, and vector of each record.

    A record of it by ``id#n`` (``%23`` in a path). With ``draft``, what the decoder guesses from
    the vector alone, and the parts of the text that it would have written otherwise, given the true
    text before them: those the patch corrects. Offsets count characters (code points) and bytes of
    the record. Lines of a log collection have no records of their own.
    """
    name, chunk = split_record_id(record)
    found = await collection_of(request, collection, partitioned=True)
    where = scatter.holder(found, name)
    params = RecordsParams(collection=where, vector=vector, draft=draft, limit=limit)
    job = responses.job_of_one(request, Kind.RECORDS, params, RecordsItem(name, chunk))
    ended = await responses.finish(request, job)
    headers = {"Server-Timing": views.server_timing(ended.results)}
    return responses.json_response(responses.sole(ended), headers=headers)


def stored_item(name: str, item: Callable[[str, int | None], Item]) -> Item | Rejected:
    """Return the item of a document or record; a malformed id is rejected at its position."""
    try:
        return item(*split_record_id(name))
    except VersoError as error:
        return Rejected(error_body(error))


def _bare(vector: list[float], checked: ReconstructRequest) -> Item | Rejected:
    try:
        data = reading.vector_bytes(vector)
    except VersoError as error:
        return Rejected(error_body(error))
    return ReconstructItem(vector=True, beam=checked.beam, max_tokens=checked.max_tokens, data=data)
