"""Text Embeddings Inference of Hugging Face: shapes and errors.

Source: ``router/src/http/types.rs``, ``router/src/lib.rs`` and ``router/src/http/server.rs`` of
huggingface/text-embeddings-inference. A batch that is too large is 413, as its description says;
an empty one is 400, but of ``predict`` 422, since there it is no value of ``inputs``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel
from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped

MAX_BATCH = 2048
LABEL = "LABEL_0"
"""The label of the one score that a pair of texts has."""

_Side = Literal["left", "right", "Left", "Right"]
_Batch = Annotated[list[str], Field(json_schema_extra={"minItems": 1, "maxItems": MAX_BATCH})]
_Pair = Annotated[list[str], Field(min_length=1, max_length=2)]


class _Cut(BaseModel):
    """How a text that is too long is cut; other keys are taken and ignored."""

    model_config = ConfigDict(extra="ignore")

    truncate: bool | None = Field(
        default=None, description="whether a text beyond the window is cut; false: an error"
    )
    truncation_direction: _Side | None = Field(
        default=None, description="left is an error where a text would be cut"
    )

    @property
    def refuses_cuts(self) -> bool:
        """Whether a text that is too long is an error: only its end can be cut off."""
        return self.truncate is False or (self.truncation_direction or "").lower() == "left"


class _Embedded(_Cut):
    prompt_name: None = Field(default=None, description="the model has no prompts")


class TeiEmbedRequest(_Embedded):
    """Body of ``POST /tei/embed``."""

    inputs: str | _Batch
    normalize: bool | None = Field(default=None, description="vectors are always of unit length")
    dimensions: int | None = Field(default=None, ge=1)

    @property
    def texts(self) -> list[str]:
        """Return the inputs as a list."""
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs


class TeiPredictRequest(_Cut):
    """Body of ``POST /tei/predict``: a text, a pair, or a list of lists of one or two texts."""

    inputs: str | _Pair | Annotated[list[_Pair], Field(min_length=1)]
    raw_scores: Literal[False] | None = Field(
        default=None, description="scores are calibrated probabilities"
    )


class TeiRerankRequest(_Cut):
    """Body of ``POST /tei/rerank``."""

    query: str = Field(min_length=1)
    texts: _Batch
    raw_scores: bool = Field(default=False, description="scores as the head gives them")
    return_text: bool = False


class TeiSimilarityInput(BaseModel):
    """A sentence, and those it is compared with."""

    model_config = ConfigDict(extra="ignore")

    source_sentence: str
    sentences: _Batch


class TeiSimilarityRequest(BaseModel):
    """Body of ``POST /tei/similarity``."""

    model_config = ConfigDict(extra="ignore")

    inputs: TeiSimilarityInput
    parameters: _Embedded | None = None


class TeiAnyRequest(BaseModel):
    """Body of ``POST /tei``: of embed, rerank or similarity, as the keys say."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"anyOf": [{"required": ["inputs"]}, {"required": ["query", "texts"]}]},
    )


class TeiPrediction(BaseModel):
    """A label with its probability."""

    score: float
    label: str


class TeiRank(BaseModel):
    """A text with its score."""

    index: int
    score: float
    text: str | None = None


class TeiVectors(RootModel[list[list[float]]]):
    """Answer of ``POST /tei/embed``: a vector for each input."""


class TeiPredictions(RootModel[list[TeiPrediction] | list[list[TeiPrediction]]]):
    """Answer of ``POST /tei/predict``, best first; of a batch a list for each input."""


class TeiRanks(RootModel[list[TeiRank]]):
    """Answer of ``POST /tei/rerank``, best first."""


class TeiSimilarities(RootModel[list[float]]):
    """Answer of ``POST /tei/similarity``: the cosine of each sentence."""


class TeiAnyResponse(RootModel[list[Any]]):
    """Answer of ``POST /tei``: that of embed, rerank or similarity."""


class TeiEmbeddingModel(BaseModel):
    """How a text's vector is made of its tokens'."""

    pooling: str


class TeiModelType(BaseModel):
    """What the model is."""

    embedding: TeiEmbeddingModel


class TeiInfo(BaseModel):
    """Answer of ``GET /tei/info``: the artifact that serves, and the limits here."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str = Field(description="name of the artifact")
    model_sha: str | None = Field(description="ids of its space and codec")
    model_dtype: str = Field(description="that the encoder computes in")
    served_model_name: str
    model_type: TeiModelType
    max_concurrent_requests: int = Field(description="connections of one gateway")
    max_input_length: int = Field(description="tokens of a text that are read")
    max_batch_tokens: int = Field(description="of a batch of the encoder, padding included")
    max_batch_requests: int | None = Field(description="texts of a batch of the encoder")
    max_client_batch_size: int = Field(description="texts of a request")
    auto_truncate: bool
    tokenization_workers: int = Field(description="threads of the encoder of a worker")
    version: str = Field(description="of Verso")
    sha: str | None
    docker_label: str | None


class ErrorType(StrEnum):
    """What went wrong."""

    UNHEALTHY = "Unhealthy"
    BACKEND = "Backend"
    OVERLOADED = "Overloaded"
    VALIDATION = "Validation"
    TOKENIZER = "Tokenizer"
    EMPTY = "Empty"


_OF_CODES = {
    "queue_full": ErrorType.OVERLOADED,
    "not_ready": ErrorType.OVERLOADED,
    "text_not_encodable": ErrorType.TOKENIZER,
    "batch_empty": ErrorType.EMPTY,
}
_STATUSES = {
    ErrorType.EMPTY: 400,
    ErrorType.BACKEND: 424,
    ErrorType.OVERLOADED: 429,
    ErrorType.UNHEALTHY: 503,
}
_OWN_FAULTS = ("head_unknown", "cancelled", "result_lost")
"""Codes that are the backend's, as the caller names neither heads nor jobs."""


def error_type_of(code: str, status: int) -> ErrorType:
    """Return the type of an error."""
    if code in _OF_CODES:
        return _OF_CODES[code]
    if status == 503:
        return ErrorType.UNHEALTHY
    if status >= 500 or code in _OWN_FAULTS:
        return ErrorType.BACKEND
    return ErrorType.VALIDATION


def status_of(code: str, status: int) -> int:
    """Return the HTTP status of an error."""
    return _STATUSES.get(error_type_of(code, status), status)


def shaped(_scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error."""
    kind = error_type_of(body["code"], status)
    content = json.dumps({"error": body["detail"], "error_type": kind}).encode("ascii")
    return Shaped(status_of(body["code"], status), content, "application/json")


ERROR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["error", "error_type"],
    "properties": {
        "error": {"type": "string"},
        "error_type": {"type": "string", "enum": [one.value for one in ErrorType]},
    },
}
