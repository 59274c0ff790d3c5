"""``POST /v1/rerank`` as clients of Jina, vLLM, Infinity and Verso speak it.

Shapes: ``verso_core.jobs.heads.rerank``. Errors are Verso's own, whose ``detail`` Jina's clients
show.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs.heads.rerank import RankedDocument, RerankRequest, RerankResponse, RerankUsage
from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.routes.protocols import served

router = guarded("heads")


@router.post(
    "/v1/rerank",
    name="rerank",
    operation_id="rerank",
    responses=openapi.responses(RerankResponse),
    openapi_extra=openapi.body(RerankRequest),
)
async def rerank(request: Request) -> Response:
    """Order documents by how well they fit a query, best first; each by its best part.

    The best part is a sentence, or a passage where the head reads passages; `evidence` says where
    it is. The answer is never 202: what takes too long is 503 `not_ready`.
    """
    checked = await reading.read(request, RerankRequest)
    head = checked.head or await served.reranker_of(request, checked.model)
    texts = checked.texts
    found = await served.ranked(request, checked.query, texts, head=head)
    results = [
        RankedDocument(
            index=rank.index,
            relevance_score=rank.score,
            **({} if rank.evidence is None else {"evidence": rank.evidence}),
            **({"document": {"text": texts[rank.index]}} if checked.return_documents else {}),
        )
        for rank in found.ranks[: checked.top_n]
    ]
    content = RerankResponse(
        id=found.ended.record.job_id,
        object="list",
        model=checked.model or head,
        usage=RerankUsage(prompt_tokens=found.tokens, total_tokens=found.tokens),
        results=tuple(results),
        timings_ms=views.total_timings(found.ended.results),
    )
    fields = {"Server-Timing": views.server_timing(found.ended.results)}
    return responses.json_response(content, headers=fields)
