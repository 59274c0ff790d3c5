"""``/v1/embeddings`` and ``/v1/models`` as clients of OpenAI's API speak them."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import RequestInvalid
from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.context import DEFAULT, context_of
from verso_gateway.protocols.openai import (
    MAX_INPUTS,
    EmbeddingsRequest,
    EmbeddingsResponse,
    ModelList,
    ModelView,
)
from verso_gateway.routes.protocols import served

router = guarded("openai")

_TOKENS = (
    "expected a string or an array of strings as input, got token ids: they mean nothing to this "
    "model's tokenizer; clients of LangChain set check_embedding_ctx_length=False"
)


@router.post(
    "/v1/embeddings",
    name="openai_embeddings",
    operation_id="createEmbedding",
    responses=openapi.responses(EmbeddingsResponse),
    openapi_extra=openapi.body(EmbeddingsRequest),
)
async def embeddings(request: Request) -> Response:
    """Turn texts into vectors, in the shape of OpenAI's API."""
    value = await reading.read_object(request)
    _check_input(request, value.get("input"))
    checked = reading.validate(request, value, model=EmbeddingsRequest)
    encoder = await served.encoder_of(request, checked.model)
    if checked.dimensions is not None:
        served.check_dimensions(request, checked.dimensions, by=encoder, key="dimensions")
    texts = [checked.input] if isinstance(checked.input, str) else checked.input
    vectors = await served.embedded(request, texts, by=encoder)
    as_base64 = checked.encoding_format == "base64"
    found = [item.public(vectors_base64=as_base64)["embedding"] for item in vectors.items]
    content = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(found)
        ],
        "model": encoder.name,
        "usage": {"prompt_tokens": vectors.tokens, "total_tokens": vectors.tokens},
    }
    fields = {"Server-Timing": views.server_timing(vectors.ended.results)}
    return responses.json_response(content, headers=fields)


@router.get(
    "/v1/models",
    name="openai_models",
    operation_id="listModels",
    responses=openapi.responses(ModelList),
)
async def models(request: Request) -> Response:
    """List the names that encoders are served under: `verso`, its aliases, the artifacts'."""
    found = await served.encoders(request)
    data = [await _model(request, one) for one in found.values()]
    return responses.json_response({"object": "list", "data": data})


@router.get(
    "/v1/models/{model}",
    name="openai_model",
    operation_id="retrieveModel",
    responses=openapi.responses(ModelView),
)
async def model(request: Request, model: str) -> Response:
    """Describe a model."""
    encoder = await served.encoder_of(request, model)
    return responses.json_response(await _model(request, encoder))


async def _model(request: Request, encoder: served.Encoder) -> dict[str, Any]:
    default = await context_of(request).collections.get(DEFAULT)
    return {
        "id": encoder.name,
        "object": "model",
        "created": int(default.created.timestamp()),
        "owned_by": "verso",
        "space": encoder.space,
        "dimensions": encoder.dim,
    }


def _check_input(request: Request, given: Any) -> None:
    request.state.pointer = "/input"
    if isinstance(given, list):
        if not 1 <= len(given) <= MAX_INPUTS:
            raise RequestInvalid(f"expected 1..{MAX_INPUTS} inputs, got {len(given)}")
        if any(isinstance(one, int | list) for one in given):
            raise RequestInvalid(_TOKENS)
    elif not isinstance(given, str):
        raise RequestInvalid("expected a string or an array of strings as input")
    request.state.pointer = None
