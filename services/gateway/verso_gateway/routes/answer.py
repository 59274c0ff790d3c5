"""``POST /v1/answer``: answers to a question, from texts or from a collection."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import Kind
from verso_core.jobs.heads import Answered, AnswerItem, AnswerRequest, AnswerResponse
from verso_core.texts import text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of
from verso_gateway.bodies import reading
from verso_gateway.job_service import Ended

router = APIRouter(tags=["heads"])


@router.post(
    "/v1/answer",
    name="answer",
    operation_id="answer",
    responses=openapi.job_responses(AnswerResponse),
    openapi_extra=openapi.body(AnswerRequest),
)
async def answer(request: Request) -> Response:
    """Answer a question with parts of given texts, or of the records of a collection.

    ``answered`` is false where the best part is not better than "there is no answer"; the parts
    are given anyway, with both scores. Offsets index the original text, in bytes and, where it is
    UTF-8, in characters.
    """
    checked = await reading.read(request, AnswerRequest)
    if checked.collection is not None:
        await collection_of(request, checked.collection)
    texts = [text_bytes(text) for text in (checked.question, *checked.given_contexts)]
    item = AnswerItem.of(texts)
    job = responses.job_of_one(request, Kind.ANSWER, checked.params(), item)
    return await responses.respond(request, await responses.repeatable(request, job), body=_body)


def _body(ended: Ended) -> AnswerResponse:
    found: Answered = responses.sole(ended)
    return AnswerResponse(
        job_id=ended.record.job_id,
        timings_ms=views.total_timings(ended.results),
        **dict(found),
    )
