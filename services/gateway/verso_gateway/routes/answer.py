"""``POST /v1/answer``: answers to a question, from texts or from a collection."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import Kind
from verso_core.jobs.heads import Answered, AnswerItem, AnswerRequest, AnswerResponse
from verso_core.texts import text_bytes
from verso_gateway import bodies, openapi, responses, views
from verso_gateway.context import context_of
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
    value = await bodies.read_object(request)
    checked = bodies.validate(request, value, model=AnswerRequest)
    if checked.collection is not None:
        await context_of(request).collections.get(checked.collection)
    texts = [text_bytes(text) for text in (checked.question, *checked.given_contexts)]
    slices = responses.one_slice(Kind.ANSWER, checked.params(), [AnswerItem.of(texts)])
    order = responses.order_of(request, Kind.ANSWER, slices=slices)
    return await responses.respond(request, await responses.repeatable(request, order), body=_body)


def _body(ended: Ended) -> AnswerResponse:
    found: Answered = responses.sole(ended)
    return AnswerResponse(
        job_id=ended.record.job_id,
        timings_ms=views.total_timings(ended.results),
        **dict(found),
    )
