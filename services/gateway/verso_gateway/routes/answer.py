"""``POST /v1/answer``: answers to a question, from texts or from a collection.

A caller who asks for a stream is sent what the question has found, then the spans that the reader
finds in each few contexts, and last the answer. A caller who goes away cancels the work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import orjson
from fastapi import Request
from fastapi.sse import EventSourceResponse, ServerSentEvent, format_sse_event
from pydantic import BaseModel
from starlette.responses import Response

from verso_core.api_keys import Scope
from verso_core.errors import JobUnknown, Unavailable
from verso_core.jobs import Kind
from verso_core.jobs.heads.answer import (
    Answered,
    AnswerHits,
    AnswerItem,
    AnswerRequest,
    AnswerResponse,
    AnswerSpans,
)
from verso_core.jobs.models import ItemError
from verso_core.texts import text_bytes
from verso_gateway import events, openapi, responses, views
from verso_gateway.access import collection_of, guarded, refused
from verso_gateway.bodies import reading
from verso_gateway.context import Context, context_of
from verso_gateway.job_service import Ended
from verso_gateway.partitions import search as partitioned
from verso_ledger import NewJob

router = guarded("heads")
_SSE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_KINDS: dict[str, type[BaseModel] | None] = {
    "hits": AnswerHits,
    "spans": AnswerSpans,
    "end": AnswerResponse,
    "error": ItemError,
}


@router.post(
    "/v1/answer",
    name="answer",
    operation_id="answer",
    responses=openapi.or_events(openapi.job_responses(AnswerResponse), _KINDS),
    openapi_extra=openapi.body(AnswerRequest),
)
async def answer(request: Request) -> Response:
    """Answer a question with parts of given texts, or of the records of a collection.

    ``answered`` is false where the best part is not better than "there is no answer"; the parts
    are given anyway, with both scores. Offsets index the original text, in bytes and, where it is
    UTF-8, in characters and UTF-16 units.

    With ``stream`` or `Accept: text/event-stream` the answer is server-sent events: ``hits`` with
    what was found, ``spans`` with the best parts of the contexts that were read since the last one,
    and ``end`` with the answer, or ``error``. If ``hits`` comes again, what came before counts no
    more. Of a collection with partitions ``end`` alone comes.
    """
    checked = await reading.read(request, AnswerRequest)
    collection = None
    if checked.collection is not None:
        collection = await collection_of(request, checked.collection, partitioned=True)
    texts = [text_bytes(text) for text in (checked.question, *checked.given_contexts)]
    item = AnswerItem.of(texts)
    stream = checked.stream or _SSE in request.headers.get("accept", "")
    params = checked.params().model_copy(update={"stream": stream})
    if collection is not None and collection.parted is not None:
        ended = await partitioned.answered(request, collection, params, item)
        if not stream:
            return responses.json_response(_body(ended))
        return EventSourceResponse(_whole(ended), headers=_HEADERS)
    job = responses.job_of_one(request, Kind.ANSWER, params, item)
    job = await responses.repeatable(request, job)
    if stream:
        return await _streamed(request, job, collection=checked.collection)
    return await responses.respond(request, job, body=_body)


async def _streamed(request: Request, job: NewJob, *, collection: str | None) -> Response:
    """Submit a job and answer with the parts of its result as they come.

    Raises:
        VersoError: the job was not accepted.
    """
    context = context_of(request)
    accepted = await context.job_service.submit(job, followed=True)
    request.state.job_id = accepted.job_id
    kept = accepted.replayed or job.idempotency is not None
    until = context.closing.wait(), refused(request, Scope.READ, collection=collection)
    coming = _events(context, accepted.job_id, cancel=not kept)
    fields = _HEADERS | {"Verso-Job-Id": accepted.job_id}
    return EventSourceResponse(events.parts(coming, until=until), headers=fields)


async def _whole(ended: Ended) -> AsyncGenerator[bytes]:
    """Yield an answer that came in one part."""
    data = orjson.dumps(_body(ended).public()).decode()
    yield format_sse_event(event="end", data_str=data)


async def _events(
    context: Context, job_id: str, *, cancel: bool
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the parts of a result and at last the answer; cancel a job that no one follows."""
    over = False
    try:
        with context.metrics.streams.track_inprogress():
            async with aclosing(context.job_service.parts(job_id)) as coming:
                async for part in coming:
                    over = isinstance(part, Ended)
                    name, data = ("end", _body(part).public()) if isinstance(part, Ended) else part
                    yield ServerSentEvent(event=name, raw_data=orjson.dumps(data).decode())
    finally:
        if cancel and not over:
            events.run_soon(_cancel(context, job_id))


async def _cancel(context: Context, job_id: str) -> None:
    with suppress(JobUnknown, Unavailable):
        await context.ledgers.of_job(job_id).cancel(job_id)


def _body(ended: Ended) -> AnswerResponse:
    found: Answered = responses.sole(ended)
    return AnswerResponse(
        job_id=ended.record.job_id,
        timings_ms=views.total_timings(ended.results),
        **dict(found),
    )
