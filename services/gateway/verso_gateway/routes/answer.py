"""``POST /v1/answer``: answers to a question, from texts or from a collection."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import Item, Kind
from verso_core.jobs.heads import AnswerRequest
from verso_core.texts import text_bytes
from verso_gateway import bodies, openapi, responses, results
from verso_gateway.context import context_of
from verso_gateway.head_views import AnswerView
from verso_gateway.job_service import Ended

router = APIRouter(tags=["heads"])


@router.post(
    "/v1/answer",
    name="answer",
    operation_id="answer",
    responses=openapi.job_responses(AnswerView),
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
        await context_of(request).catalogue.get(checked.collection)
    texts = [text_bytes(text) for text in (checked.question, *checked.given_contexts)]
    params = {
        "head": checked.head,
        "collection": checked.collection,
        "limit": checked.limit,
        "top_k": checked.top_k,
        "filter": None if checked.filter is None else checked.filter.model_dump(),
    }
    item = Item({"split": [len(text) for text in texts]}, b"".join(texts))
    slices = responses.one_slice(Kind.ANSWER, params, [item])
    order = responses.order_of(request, Kind.ANSWER, slices=slices)
    return await responses.respond(request, await responses.repeatable(request, order), body=_body)


def _body(ended: Ended) -> dict[str, Any]:
    return {
        "job_id": ended.record.job_id,
        **responses.sole(Kind.ANSWER, ended),
        "timings_ms": results.total_timings(ended.results),
    }
