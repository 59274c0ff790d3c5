"""Requests to heads: classify, answer, score and rerank."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from verso_core.heads import Portion
from verso_core.jobs import Filter, Name, Wire

MAX_PAIRS = 2048
MAX_CONTEXTS = 256


class ClassifyRequest(Wire):
    """Body of ``POST /v1/classify``: texts, or stored documents and records."""

    head: Name | list[Name] = Field(description="a head, or several", examples=["intents"])
    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    top_k: int = Field(default=3, ge=1, le=1000)
    signals: bool = Field(default=False, description="give every confidence signal")
    chunk: Portion | None = Field(
        default=None,
        description="which chunks of a long text or document are read: the first, the last, or all "
        "by the mean of their logits; default: what the head says",
    )
    accept_error: float | None = Field(
        default=None, gt=0, lt=1, description="withhold labels so that at most this share is wrong"
    )

    @model_validator(mode="after")
    def _one_source(self) -> ClassifyRequest:
        if (self.texts is None) == (self.ids is None):
            raise ValueError("expected exactly one of texts and ids")
        if isinstance(self.head, list) and not 1 <= len(set(self.head)) == len(self.head) <= 8:
            raise ValueError("expected 1..8 heads, all different")
        return self

    @property
    def heads(self) -> list[str]:
        """Return the names of the heads."""
        return [self.head] if isinstance(self.head, str) else list(self.head)


class AnswerRequest(Wire):
    """Body of ``POST /v1/answer``: a question, and contexts or the collection to find them in."""

    question: str = Field(min_length=1, examples=["which disk is full"])
    context: str | None = None
    contexts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_CONTEXTS)
    collection: Name | None = None
    limit: int = Field(default=5, ge=1, le=100, description="records read of a collection")
    top_k: int = Field(default=3, ge=1, le=50, description="answers to give")
    filter: Filter | None = None
    head: Name = "qa"

    @model_validator(mode="after")
    def _one_source(self) -> AnswerRequest:
        names = ("context", "contexts", "collection")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of {', '.join(names)}; got {given or 'none'}")
        if not self.question.strip():
            raise ValueError("expected a question, got white space")
        if any(not text.strip() for text in self.given_contexts):
            raise ValueError("expected contexts with words in them, got an empty one")
        if self.filter is not None and self.collection is None:
            raise ValueError("expected a collection where there is a filter")
        return self

    @property
    def given_contexts(self) -> list[str]:
        """Return the contexts of the request itself."""
        return [self.context] if self.context is not None else list(self.contexts or [])


class ScoreRequest(Wire):
    """Body of ``POST /v1/score``: pairs, or the common shape of two texts or lists of texts."""

    head: Name = Field(
        default="pairs", description="whether one text answers the other; alike: how alike they are"
    )
    pairs: list[tuple[str, str]] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    model: str | None = Field(default=None, description="taken and ignored: clients send it")

    @model_validator(mode="after")
    def _one_shape(self) -> ScoreRequest:
        common = self.text_1 is not None and self.text_2 is not None
        if (self.pairs is not None) == common or (self.text_1 is None) != (self.text_2 is None):
            raise ValueError("expected either pairs, or text_1 and text_2")
        first, second = _listed(self.text_1), _listed(self.text_2)
        if common and (not second or len(first) not in (1, len(second))):
            raise ValueError(
                f"expected one text_1 or as many as of text_2, got {len(first)} and {len(second)}"
            )
        if len(second) > MAX_PAIRS:
            raise ValueError(f"expected at most {MAX_PAIRS} pairs, got {len(second)}")
        return self

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Return the pairs, whatever shape they came in."""
        if self.pairs is not None:
            return list(self.pairs)
        first, second = _listed(self.text_1), _listed(self.text_2)
        return list(zip(first * len(second) if len(first) == 1 else first, second, strict=True))


class RerankRequest(Wire):
    """Body of ``POST /v1/rerank``, in the shape that Jina's and Cohere's clients send."""

    query: str = Field(min_length=1)
    documents: list[str | dict[str, Any]] = Field(min_length=1, max_length=MAX_PAIRS)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False
    head: Name = "pairs"
    model: str | None = Field(default=None, description="taken and ignored: clients send it")
    max_tokens_per_doc: int | None = Field(default=None, description="taken and ignored")

    @model_validator(mode="after")
    def _texts(self) -> RerankRequest:
        for place, document in enumerate(self.documents):
            if isinstance(document, dict) and not isinstance(document.get("text"), str):
                raise ValueError(f"documents/{place}: expected a string, or an object with text")
        return self

    @property
    def texts(self) -> list[str]:
        """Return the documents' texts."""
        return [one if isinstance(one, str) else str(one["text"]) for one in self.documents]


def _listed(texts: str | list[str] | None) -> list[str]:
    if texts is None:
        return []
    return [texts] if isinstance(texts, str) else list(texts)
