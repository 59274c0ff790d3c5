"""Rerank documents for a query, as Jina's clients ask; the job is a score."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from verso_core.jobs.heads.models import MAX_PAIRS, TextSpan
from verso_core.jobs.models import Name, OpenModel

_TextObject = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"required": ["text"], "properties": {"text": {"type": "string"}}}),
]


class RerankRequest(OpenModel):
    """Body of ``POST /v1/rerank``, as Jina's clients send it; other keys are taken and ignored."""

    query: str = Field(min_length=1)
    documents: list[str | _TextObject] = Field(min_length=1, max_length=MAX_PAIRS)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = True
    head: Name | None = Field(
        default=None, description="a head that scores pairs, or a task; default: relevance"
    )
    model: str | None = Field(
        default=None, description="in place of a head: verso, an alias of it, or a head's name"
    )

    @model_validator(mode="after")
    def _texts(self) -> RerankRequest:
        for index, document in enumerate(self.documents):
            if isinstance(document, dict) and not isinstance(document.get("text"), str):
                raise ValueError(f"documents/{index}: expected a string, or an object with text")
        return self

    @property
    def texts(self) -> list[str]:
        """Return the documents' texts."""
        return [one if isinstance(one, str) else str(one["text"]) for one in self.documents]


class RankedDocument(OpenModel):
    """A document with its score."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None
    evidence: TextSpan | None = Field(
        default=None,
        description="the sentence that counted, or the passage where the head reads passages",
    )


class RerankUsage(OpenModel):
    """Tokens of the query, once for each document, and of the documents."""

    prompt_tokens: int
    total_tokens: int


class RerankResponse(OpenModel):
    """Answer of ``POST /v1/rerank``, best first."""

    id: str
    object: str = "list"
    model: str
    usage: RerankUsage
    results: tuple[RankedDocument, ...]
    timings_ms: dict[str, float]
