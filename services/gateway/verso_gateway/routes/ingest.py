"""``POST /v1/ingest``: take documents in, as one JSON body or as a stream of lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from verso_core.errors import RequestInvalid
from verso_core.jobs import Kind, Queue
from verso_core.jobs.ingest import IngestAccepted, IngestBatch, IngestRequest
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of
from verso_gateway.bodies import reading
from verso_gateway.bodies.limits import NDJSON
from verso_gateway.bodies.upload import Upload
from verso_gateway.context import context_of
from verso_gateway.headers import Fingerprint, key_of
from verso_gateway.job_service import Ended

router = APIRouter(tags=["documents"])


@router.post(
    "/v1/ingest",
    name="ingest",
    operation_id="ingest",
    responses=openapi.job_responses(IngestBatch, accepted=IngestAccepted),
    openapi_extra=openapi.body(IngestRequest, also={NDJSON: "one document a line"}),
)
async def ingest(
    request: Request,
    collection: Annotated[str | None, Query(description="for NDJSON; default 'default'")] = None,
) -> Response:
    """Take documents in: each is stored as a vector and a patch and its text is dropped.

    The text is dropped only after a decode of the stored bytes has given it back. Send JSON, or
    NDJSON with one document a line and the collection in the query. The answer is 202 unless
    ``Prefer: wait=N`` asks to wait; it counts the documents that were refused at once and says why.
    If every document was refused, the answer is 422. A document without an id gets a new one.
    """
    fingerprint = Fingerprint(request)
    limit = context_of(request).settings.upload_limit_documents
    if reading.media_type(request) == NDJSON:
        name = collection or "default"
        await collection_of(request, name)
        await context_of(request).room.check()
        upload = Upload(name, limit=limit)
        await upload.read_lines(_hashed(request.stream(), fingerprint))
    else:
        value = await reading.read_object(request, most_values=None)
        data = await request.body()
        await reading.off_loop(len(data), partial(fingerprint.update, data))
        # the documents are judged one by one: a bad one must not fail its neighbours
        documents = value.get("documents")
        if not isinstance(documents, list):
            raise RequestInvalid("/documents: expected an array")
        head = reading.validate(request, {**value, "documents": []}, model=IngestRequest)
        if collection is not None and "collection" in value and collection != head.collection:
            raise RequestInvalid("the collection in the query and in the body differ")
        name = head.collection if collection is None else collection
        await collection_of(request, name)
        await context_of(request).room.check()
        upload = Upload(name, limit=limit)
        await upload.read_documents(documents)
    key = key_of(request)
    job = responses.job_of(request, Kind.INGEST, upload.finish(), queue=Queue.BULK)
    if key is not None:
        job = replace(job, idempotency=(key, fingerprint.hex()))
    about = upload.intaken.public()

    def body(ended: Ended) -> dict[str, Any]:
        return {**views.batch(ended), **about}

    return await responses.respond(request, job, body=body, wait_default_s=0.0, accepted_with=about)


async def _hashed(chunks: AsyncIterator[bytes], fingerprint: Fingerprint) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        fingerprint.update(chunk)
        yield chunk
