"""OpenAI's embeddings and models: shapes and errors.

Source: ``CreateEmbeddingRequest``, ``CreateEmbeddingResponse``, ``Model`` and ``Error`` of
openai/openai-openapi. A model also says its space and dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped

MAX_INPUTS = 2048
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class EmbeddingsRequest(BaseModel):
    """Body of ``POST /v1/embeddings``; other keys are taken and ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = Field(default=None, examples=["verso"])
    input: str | list[str] = Field(json_schema_extra={"maxItems": MAX_INPUTS, "minItems": 1})
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
    """A name that a model is served under, with the space and the dimensions of its vectors."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    space: str
    dimensions: int


class ModelList(BaseModel):
    """The names that models are served under."""

    object: Literal["list"]
    data: list[ModelView]


def status_of(_code: str, status: int) -> int:
    """Return the HTTP status of an error: the protocol knows no 422."""
    return 400 if status == 422 else status


def shaped(scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error."""
    status = status_of(body["code"], status)
    kind = _TYPES.get(status)
    if kind is None:
        kind = "server_error" if status >= 500 else "invalid_request_error"
    pointer = scope.get("state", {}).get("pointer")
    param = pointer.split("/")[1] if pointer else None
    error = {"message": body["detail"], "type": kind, "param": param, "code": body["code"]}
    return Shaped(status, json.dumps({"error": error}).encode("ascii"), "application/json")


ERROR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
