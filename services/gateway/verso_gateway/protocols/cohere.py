"""Cohere's embed and rerank: shapes and errors.

Source: the API's version 2 as cohere-ai/cohere-python speaks it (``v2/raw_client.py``), and of
version 1 what the clients of LangChain still ask for.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from struct import unpack
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped

MAX_TEXTS = 2048
_DOCUMENTS_A_UNIT = 100

EmbeddingType = Literal["float", "int8", "base64"]
Truncate = Literal["NONE", "START", "END"]


class _Request(BaseModel):
    """A body; other keys are taken and ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = Field(default=None, examples=["verso"])
    priority: int | None = Field(default=None, description="ignored: the header Priority counts")


class TextPart(BaseModel):
    """A part of an input that is text; others cannot be embedded."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text"] = "text"
    text: str


class CohereEmbedInput(BaseModel):
    """An input in parts, which are joined by line feeds."""

    model_config = ConfigDict(extra="ignore")

    content: list[TextPart] = Field(min_length=1)


class CohereEmbedRequest(_Request):
    """Body of ``POST /v2/embed``: ``texts`` or ``inputs``."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [one], "properties": {one: {"type": "array"}}}
                for one in ("texts", "inputs")
            ]
        }
    )

    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_TEXTS)
    inputs: list[CohereEmbedInput] | None = Field(default=None, min_length=1, max_length=MAX_TEXTS)
    images: None = Field(default=None, description="there is no model that embeds images")
    input_type: (
        Literal["search_document", "search_query", "classification", "clustering"] | None
    ) = Field(default=None, description="ignored: the model embeds all of them alike")
    embedding_types: list[EmbeddingType] | None = Field(default=None, min_length=1)
    output_dimension: int | None = Field(default=None, ge=1)
    truncate: Truncate | None = Field(
        default=None, description="of a text that is too long: NONE and START are an error"
    )
    max_tokens: int | None = Field(default=None, description="ignored")

    @model_validator(mode="after")
    def _one_source(self) -> CohereEmbedRequest:
        if (self.texts is None) == (self.inputs is None):
            raise ValueError("expected exactly one of texts and inputs")
        return self

    @property
    def read(self) -> list[str]:
        """Return the texts of either form."""
        if self.texts is not None:
            return self.texts
        return ["\n".join(part.text for part in one.content) for one in self.inputs or ()]


class CohereRerankRequest(_Request):
    """Body of ``POST /v2/rerank``."""

    query: str = Field(min_length=1)
    documents: list[str | Mapping[str, Any]] = Field(min_length=1, max_length=MAX_TEXTS)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = Field(
        default=None, description="ignored: of a document its first 32 KiB are read"
    )

    @model_validator(mode="after")
    def _texts(self) -> CohereRerankRequest:
        for index, document in enumerate(self.documents):
            if not isinstance(document, str) and not isinstance(document.get("text"), str):
                raise ValueError(f"documents/{index}: expected a string, or an object with text")
        return self

    @property
    def texts(self) -> list[str]:
        """Return the documents' texts."""
        return [one if isinstance(one, str) else str(one["text"]) for one in self.documents]


class ApiVersion(BaseModel):
    """The version of the API."""

    version: str


class BilledUnits(BaseModel):
    """What was read; nothing is billed."""

    input_tokens: int | None = None
    search_units: int | None = None


class CohereMeta(BaseModel):
    """About a request."""

    api_version: ApiVersion
    billed_units: BilledUnits


class CohereEmbeddings(BaseModel):
    """The vectors of all texts, by type."""

    model_config = ConfigDict(populate_by_name=True)

    float_: list[list[float]] | None = Field(default=None, alias="float")
    int8: list[list[Annotated[int, Field(ge=-127, le=127)]]] | None = None
    base64: list[str] | None = Field(default=None, description="of float32, little endian")


class CohereEmbedResponse(BaseModel):
    """Answer of ``POST /v2/embed``."""

    response_type: Literal["embeddings_by_type"]
    id: str
    embeddings: CohereEmbeddings
    texts: list[str]
    meta: CohereMeta


class CohereRanked(BaseModel):
    """A document with its score, in [0, 1]."""

    index: int
    relevance_score: float = Field(ge=0, le=1)
    document: dict[str, str] | None = None


class CohereRerankResponse(BaseModel):
    """Answer of ``POST /v2/rerank``, best first."""

    id: str
    results: list[CohereRanked]
    meta: CohereMeta


def embeddings_of(
    vectors: Sequence[bytes], types: Sequence[EmbeddingType], *, int8_scale: float
) -> dict[str, list[Any]]:
    """Return vectors in each type that was asked for.

    Args:
        vectors: float32, little endian. Shape: (dim,) each.
        types: names of types.
        int8_scale: of the space: code = clip(round(v * int8_scale), -127, 127).
    """
    made: dict[str, list[Any]] = {}
    for name in dict.fromkeys(types):
        match name:
            case "base64":
                made[name] = [base64.b64encode(vector).decode() for vector in vectors]
            case "float":
                made[name] = [floats(vector) for vector in vectors]
            case "int8":
                made[name] = [_codes(vector, int8_scale) for vector in vectors]
    return made


def floats(vector: bytes) -> list[float]:
    """Return a vector as numbers. Shape: 4 D bytes -> (D,)."""
    return list(unpack(f"<{len(vector) // 4}f", vector))


def _codes(vector: bytes, scale: float) -> list[int]:
    return [max(-127, min(127, round(value * scale))) for value in floats(vector)]


def meta(*, version: str = "2", tokens: int | None = None, documents: int = 0) -> dict[str, Any]:
    """Return what an answer says about its request: tokens, or units of 100 documents."""
    units = {"search_units": math.ceil(documents / _DOCUMENTS_A_UNIT)}
    billed = units if tokens is None else {"input_tokens": tokens}
    return {"api_version": {"version": version}, "billed_units": billed}


def status_of(_code: str, status: int) -> int:
    """Return the HTTP status of an error: what cannot be accepted is 400."""
    return 400 if status == 422 else status


def shaped(_scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error."""
    content = json.dumps({"message": body["detail"]}).encode("ascii")
    return Shaped(status_of(body["code"], status), content, "application/json")


ERROR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}},
}
