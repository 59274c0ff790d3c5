"""``/v2/embed`` and ``/v2/rerank`` as Cohere's clients speak them.

Below ``/cohere`` is the same, and version 1, whose paths are Verso's own elsewhere: LangChain's
class of Cohere's embeddings asks for it.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.protocols import COHERE_PATH
from verso_gateway.protocols.cohere import (
    CohereEmbedRequest,
    CohereEmbedResponse,
    CohereRerankRequest,
    CohereRerankResponse,
    embeddings_of,
    floats,
    meta,
)
from verso_gateway.routes.protocols import served
from verso_gateway.routes.protocols.served import Encoder, Vectors

router = guarded("cohere")


@router.post(
    "/v2/embed",
    name="cohere_embed",
    operation_id="cohereEmbed",
    responses=openapi.responses(CohereEmbedResponse),
    openapi_extra=openapi.body(CohereEmbedRequest),
)
@router.post(f"{COHERE_PATH}/v2/embed", name="cohere_embed", include_in_schema=False)
async def embed(request: Request) -> Response:
    """Turn texts into vectors, in the shape of Cohere's API."""
    checked = await reading.read(request, CohereEmbedRequest)
    encoder, vectors = await _embedded(request, checked)
    return _by_type(checked, vectors, encoder, version="2")


@router.post(f"{COHERE_PATH}/v1/embed", name="cohere_embed", include_in_schema=False)
async def embed_v1(request: Request) -> Response:
    """Turn texts into vectors, in the shape of the first version of Cohere's API."""
    checked = await reading.read(request, CohereEmbedRequest)
    encoder, vectors = await _embedded(request, checked)
    if checked.embedding_types is not None:
        return _by_type(checked, vectors, encoder, version="1")
    about = _about(checked, vectors, version="1")
    own = {
        "response_type": "embeddings_floats",
        "embeddings": [floats(item.vector) for item in vectors.items],
    }
    return responses.json_response(about | own, headers=_timing(vectors))


@router.post(
    "/v2/rerank",
    name="cohere_rerank",
    operation_id="cohereRerank",
    responses=openapi.responses(CohereRerankResponse),
    openapi_extra=openapi.body(CohereRerankRequest),
)
@router.post(f"{COHERE_PATH}/v2/rerank", name="cohere_rerank", include_in_schema=False)
@router.post(f"{COHERE_PATH}/v1/rerank", name="cohere_rerank", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Order documents by how well they fit a query, best first, in the shape of Cohere's API."""
    checked = await reading.read(request, CohereRerankRequest)
    head = await served.reranker_of(request, checked.model)
    texts = checked.texts
    found = await served.ranked(request, checked.query, texts, head=head)
    results: list[dict[str, Any]] = [
        {"index": rank.index, "relevance_score": served.in_unit(rank.score)}
        for rank in found.ranks[: checked.top_n]
    ]
    if checked.return_documents:
        for one in results:
            one["document"] = {"text": texts[one["index"]]}
    version = "1" if request.url.path.startswith(f"{COHERE_PATH}/v1") else "2"
    content = {
        "id": found.ended.record.job_id,
        "results": results,
        "meta": meta(version=version, documents=len(texts)),
    }
    fields = {"Server-Timing": views.server_timing(found.ended.results)}
    return responses.json_response(content, headers=fields)


async def _embedded(request: Request, checked: CohereEmbedRequest) -> tuple[Encoder, Vectors]:
    encoder = await served.encoder_of(request, checked.model)
    if checked.output_dimension is not None:
        dimensions = checked.output_dimension
        served.check_dimensions(request, dimensions, by=encoder, key="output_dimension")
    vectors = await served.embedded(request, checked.read, by=encoder)
    if checked.truncate in ("NONE", "START"):
        key = "inputs" if checked.texts is None else "texts"
        served.check_whole(request, vectors, key=key)
    return encoder, vectors


def _by_type(
    checked: CohereEmbedRequest, vectors: Vectors, encoder: Encoder, *, version: str
) -> Response:
    types = checked.embedding_types or ["float"]
    found = [item.vector for item in vectors.items]
    own = {
        "response_type": "embeddings_by_type",
        "embeddings": embeddings_of(found, types, int8_scale=encoder.int8_scale),
    }
    about = _about(checked, vectors, version=version)
    return responses.json_response(about | own, headers=_timing(vectors))


def _about(checked: CohereEmbedRequest, vectors: Vectors, *, version: str) -> dict[str, Any]:
    return {
        "id": vectors.ended.record.job_id,
        "texts": checked.read,
        "meta": meta(version=version, tokens=vectors.tokens),
    }


def _timing(vectors: Vectors) -> dict[str, str]:
    return {"Server-Timing": views.server_timing(vectors.ended.results)}
