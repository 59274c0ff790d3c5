"""``POST /v1/score`` and ``POST /v1/rerank``: how well texts fit each other.

``/v1/score`` takes pairs, or ``text_1`` and ``text_2`` as vLLM's clients send them. ``/v1/rerank``
and ``/v2/rerank`` take and answer what Jina's and Cohere's clients do.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import SLICE_COST, Kind, Queue, cut
from verso_core.jobs.heads import (
    PairView,
    RankedDocument,
    RerankRequest,
    RerankResponse,
    ScoreItem,
    ScoreParams,
    ScoreRequest,
    ScoreResponse,
)
from verso_core.texts import text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.headers import Preference, preference_of
from verso_gateway.job_service import Ended
from verso_ledger import NewJob

_JINAS = "/v1/rerank"
"""Jina's clients expect the documents in an answer, Cohere's, which call ``/v2``, do not."""
router = APIRouter(tags=["heads"])


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
    job = await _job(request, ScoreParams(head=checked.head), checked.asked)

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


@router.post(
    "/v1/rerank",
    name="rerank",
    operation_id="rerank",
    responses=openapi.job_responses(RerankResponse),
    openapi_extra=openapi.body(RerankRequest),
)
@router.post("/v2/rerank", name="rerank", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Order documents by how well they fit a query, best first; each by its best sentence.

    The clients of other servers take a 202 for a result: only a caller who sends ``Prefer`` gets
    one. Others wait as long as a caller may, and are then answered 503.
    """
    checked = await reading.read(request, RerankRequest)
    with_documents = checked.return_documents
    if with_documents is None:
        with_documents = request.url.path == _JINAS
    texts = checked.texts
    params = ScoreParams(head=checked.head, sentences=True)
    job = await _job(request, params, [(checked.query, text) for text in texts])

    def body(ended: Ended) -> RerankResponse:
        scores = [item.score for item in responses.all_items(ended)]
        best = sorted(range(len(texts)), key=lambda index: (-scores[index], index))
        ranked = [
            RankedDocument(
                index=index,
                relevance_score=scores[index],
                **({"document": {"text": texts[index]}} if with_documents else {}),
            )
            for index in best[: checked.top_n]
        ]
        return RerankResponse(
            id=ended.record.job_id,
            model=checked.head,
            results=tuple(ranked),
            timings_ms=views.total_timings(ended.results),
        )

    if preference_of(request) != Preference():
        return await responses.respond(request, job, body=body)
    longest_s = context_of(request).settings.wait_max_s
    ended = await responses.finish(request, job, wait_default_s=longest_s)
    fields = {"Server-Timing": views.server_timing(ended.results)}
    return responses.json_response(body(ended), headers=fields)


async def _job(request: Request, params: ScoreParams, pairs: Sequence[tuple[str, str]]) -> NewJob:
    items = [ScoreItem.of(text_bytes(first), text_bytes(second)) for first, second in pairs]
    slices = list(cut(Kind.SCORE, params, items, max_cost=SLICE_COST))
    job = responses.job_of(request, Kind.SCORE, slices, queue=Queue.INTERACTIVE)
    return await responses.repeatable(request, job)
