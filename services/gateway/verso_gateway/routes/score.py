"""``POST /v1/score``: how well texts fit each other.

Takes pairs, or ``text_1`` and ``text_2`` as vLLM's clients send them.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs import SLICE_COST, Kind, Queue, cut
from verso_core.jobs.heads.score import (
    PairView,
    ScoreItem,
    ScoreParams,
    ScoreRequest,
    ScoreResponse,
)
from verso_core.texts import text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.job_service import Ended

router = guarded("heads")


@router.post(
    "/v1/score",
    name="score",
    operation_id="score",
    responses=openapi.job_responses(ScoreResponse),
    openapi_extra=openapi.body(ScoreRequest),
)
async def score(request: Request) -> Response:
    """Score pairs of texts: larger is more alike."""
    checked = await reading.read(request, ScoreRequest)
    items = [ScoreItem.of(text_bytes(first), text_bytes(second)) for first, second in checked.asked]
    params = ScoreParams(head=checked.head)
    slices = list(cut(Kind.SCORE, params, items, max_cost=SLICE_COST))
    job = responses.job_of(request, Kind.SCORE, slices, queue=Queue.INTERACTIVE, collection=None)
    job = await responses.repeatable(request, job)

    def body(ended: Ended) -> ScoreResponse:
        return ScoreResponse(
            job_id=ended.record.job_id,
            object="list",
            model=checked.head,
            data=tuple(
                PairView(index=index, object="score", score=item.score)
                for index, item in enumerate(responses.all_items(ended))
            ),
            timings_ms=views.total_timings(ended.results),
        )

    return await responses.respond(request, job, body=body)
