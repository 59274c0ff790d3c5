"""``POST /v1/score`` and ``POST /v1/rerank``: how well texts fit each other.

``/v1/score`` takes pairs, or ``text_1`` and ``text_2`` as vLLM's clients send them. ``/v1/rerank``
and ``/v2/rerank`` take and answer what Jina's and Cohere's clients do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import Item, Kind
from verso_core.jobs.heads import RerankRequest, ScoreRequest
from verso_core.texts import text_bytes
from verso_gateway import bodies, openapi, responses, results
from verso_gateway.head_views import RerankView, ScoreView
from verso_gateway.job_service import Ended, Order

router = APIRouter(tags=["heads"])


@router.post(
    "/v1/score",
    name="score",
    operation_id="score",
    responses=openapi.job_responses(ScoreView),
    openapi_extra=openapi.body(ScoreRequest),
)
async def score(request: Request) -> Response:
    """Score pairs of texts: larger is more alike."""
    value = await bodies.read_object(request)
    checked = bodies.validate(request, value, model=ScoreRequest)
    order = await _order(request, {"head": checked.head}, checked.asked)

    def body(ended: Ended) -> dict[str, Any]:
        items = _items(ended)
        return {
            "job_id": ended.record.job_id,
            "object": "list",
            "model": checked.head,
            "data": [
                {"index": place, "object": "score", "score": item["score"]}
                for place, item in enumerate(items)
            ],
            "timings_ms": results.total_timings(ended.results),
        }

    return await responses.respond(request, order, body=body)


@router.post(
    "/v1/rerank",
    name="rerank",
    operation_id="rerank",
    responses=openapi.job_responses(RerankView),
    openapi_extra=openapi.body(RerankRequest),
)
@router.post("/v2/rerank", name="rerank", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Order documents by how well they fit a query, best first; each by its best sentence."""
    value = await bodies.read_object(request)
    checked = bodies.validate(request, value, model=RerankRequest)
    texts = checked.texts
    params = {"head": checked.head, "sentences": True}
    order = await _order(request, params, [(checked.query, text) for text in texts])

    def body(ended: Ended) -> dict[str, Any]:
        scores = [item["score"] for item in _items(ended)]
        places = sorted(range(len(texts)), key=lambda place: (-scores[place], place))
        return {
            "id": ended.record.job_id,
            "model": checked.head,
            "results": [
                {"index": place, "relevance_score": scores[place]}
                | ({"document": {"text": texts[place]}} if checked.return_documents else {})
                for place in places[: checked.top_n]
            ],
            "timings_ms": results.total_timings(ended.results),
        }

    return await responses.respond(request, order, body=body)


async def _order(
    request: Request, params: Mapping[str, Any], pairs: Sequence[tuple[str, str]]
) -> Order:
    items = []
    for first, second in pairs:
        left, right = text_bytes(first), text_bytes(second)
        items.append(Item({"split": len(left)}, left + right))
    slices = responses.one_slice(Kind.SCORE, params, items)
    order = responses.order_of(request, Kind.SCORE, slices=slices)
    return await responses.repeatable(request, order)


def _items(ended: Ended) -> list[dict[str, Any]]:
    """Return the scores of all pairs.

    Raises:
        VersoError: one of them failed; these shapes have no error of one pair.
    """
    items = [item for result in ended.results for item in results.render(Kind.SCORE, result)]
    for item in items:
        if "error" in item:
            raise responses.item_error(item)
    return items
