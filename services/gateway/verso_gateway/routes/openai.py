"""``/v1/embeddings`` and ``/v1/models`` as clients of OpenAI's API speak them.

Follows ``CreateEmbeddingRequest`` and ``CreateEmbeddingResponse`` of openai/openai-openapi. Unknown
keys are ignored, because clients of the protocol send some of their own. Errors have the protocol's
shape (:mod:`verso_gateway.problems`).
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from verso_core.errors import NotFound, RequestInvalid
from verso_core.jobs import EmbedItem, EmbedParams, Kind
from verso_core.jobs.ingest import Embedded
from verso_gateway import openapi, responses, views
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.job_service import Ended
from verso_gateway.routes.embed import cut_texts, text_items

router = APIRouter(tags=["openai"])

MODEL = "verso"
_MAX_INPUTS = 2048
_TOKENS = (
    "expected a string or an array of strings as input, got token ids: they mean nothing to this "
    "model's tokenizer; clients of LangChain set check_embedding_ctx_length=False"
)


class EmbeddingsRequest(BaseModel):
    """Body of ``POST /v1/embeddings``."""

    model_config = ConfigDict(extra="ignore")

    model: str = MODEL
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)


class Embedding(BaseModel):
    """The vector of one input: numbers, or base64 of float32 (little endian)."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """Answer of ``POST /v1/embeddings``."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class ModelView(BaseModel):
    """A model, with the space and the dimensions of its vectors."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    space: str
    dimensions: int


class ModelList(BaseModel):
    """The models; ``serving`` is what each worker serves."""

    object: Literal["list"]
    data: list[ModelView]
    serving: dict[str, dict[str, Any]]


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
    texts = [checked.input] if isinstance(checked.input, str) else checked.input
    if checked.dimensions is not None:
        await _check_dimensions(request, checked.dimensions)
    items = text_items(texts, EmbedItem, faults={})
    slices, queue = cut_texts(Kind.EMBED, EmbedParams(), items)
    job = responses.job_of(request, Kind.EMBED, slices, queue=queue)
    ended = await responses.finish(request, await responses.repeatable(request, job))
    return responses.json_response(
        _response(ended, model=checked.model, as_base64=checked.encoding_format == "base64"),
        headers={"Server-Timing": views.server_timing(ended.results)},
    )


@router.get(
    "/v1/models",
    name="openai_models",
    operation_id="listModels",
    responses=openapi.responses(ModelList),
)
async def models(request: Request) -> Response:
    """List the one model that serves embeddings, and what each worker serves."""
    serving = await context_of(request).ledger.serving()
    content = {"object": "list", "data": [await _model(request)], "serving": serving}
    return responses.json_response(content)


@router.get(
    "/v1/models/{model}",
    name="openai_model",
    operation_id="retrieveModel",
    responses=openapi.responses(ModelView),
)
async def model(request: Request, model: str) -> Response:
    """Describe a model."""
    if model != MODEL:
        raise NotFound(f"expected the model {MODEL!r}")
    return responses.json_response(await _model(request))


async def _model(request: Request) -> dict[str, Any]:
    default = await context_of(request).collections.get("default")
    return {
        "id": MODEL,
        "object": "model",
        "created": int(default.created.timestamp()),
        "owned_by": "verso",
        "space": default.space,
        "dimensions": default.dim,
    }


def _check_input(request: Request, given: Any) -> None:
    request.state.pointer = "/input"
    if isinstance(given, list):
        if not 1 <= len(given) <= _MAX_INPUTS:
            raise RequestInvalid(f"expected 1..{_MAX_INPUTS} inputs, got {len(given)}")
        if any(isinstance(one, int | list) for one in given):
            raise RequestInvalid(_TOKENS)
    elif not isinstance(given, str):
        raise RequestInvalid("expected a string or an array of strings as input")
    request.state.pointer = None


async def _check_dimensions(request: Request, dimensions: int) -> None:
    default = await context_of(request).collections.get("default")
    if dimensions != default.dim:
        request.state.pointer = "/dimensions"
        raise RequestInvalid(f"expected dimensions {default.dim}, got {dimensions}")


def _response(ended: Ended, *, model: str, as_base64: bool) -> dict[str, Any]:
    items: list[Embedded] = responses.all_items(ended)  # the protocol has no error of one input
    tokens = sum(item.tokens for item in items)
    vectors = [item.public(vectors_base64=as_base64)["embedding"] for item in items]
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
