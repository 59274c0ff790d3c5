"""Answer questions from given contexts, or from a collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, field_validator, model_validator

from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.heads.models import HeadResult, TextSpan
from verso_core.jobs.models import (
    READ_COST,
    WINDOW_COST,
    Item,
    ItemError,
    ItemResult,
    MissingPartitions,
    Name,
    OpenModel,
    Params,
    RecordText,
    StrictModel,
    needs,
    one_of,
)
from verso_core.texts import Metadata

MAX_CONTEXTS = 256
MAX_CONTEXT_BYTES = 256 * 1024
"""Most bytes of the contexts of one question: about 250 windows, some seconds of two cores."""
_Words = Annotated[str, Field(json_schema_extra={"pattern": "\\S"})]


class AnswerRequest(StrictModel):
    """Body of ``POST /v1/answer``: a question, and contexts or the collection to find them in."""

    model_config = ConfigDict(
        json_schema_extra=one_of("context", "contexts", "collection")
        | needs("filter", "collection")
    )

    question: _Words = Field(min_length=1, examples=["which disk is full"])
    context: _Words | None = None
    contexts: list[_Words] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CONTEXTS,
        description=f"at most {MAX_CONTEXT_BYTES} bytes together",
    )
    collection: Name | None = None
    limit: int = Field(default=5, ge=1, le=100, description="records read of a collection")
    top_k: int = Field(default=3, ge=1, le=50, description="answers to give")
    filter: Filter | None = None
    head: Name = "qa"
    stream: bool = Field(
        default=False, description="answer with server-sent events, as Accept may ask for, too"
    )

    @field_validator("context", "contexts")
    @classmethod
    def _readable(cls, value: str | list[str] | None) -> str | list[str] | None:
        texts = [value] if isinstance(value, str) else value or []
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        if size > MAX_CONTEXT_BYTES:
            raise ValueError(
                f"expected <= {MAX_CONTEXT_BYTES} bytes of contexts, got {size}: ingest them into "
                "a collection and ask that"
            )
        return value

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

    def params(self) -> AnswerParams:
        """Return the params of the request's slice."""
        return AnswerParams(**{name: getattr(self, name) for name in AnswerParams.model_fields})

    @property
    def given_contexts(self) -> list[str]:
        """Return the contexts of the request itself."""
        return [self.context] if self.context is not None else list(self.contexts or [])


class AnswerParams(Params):
    """Which head answers, from which collection, and how much is read.

    ``stream``: what is found is reported while the rest is read.
    """

    head: str
    collection: str | None = None
    limit: int = 5
    top_k: int = 3
    filter: Filter | None = None
    stream: bool = False

    def cost(self, item: Item) -> int:
        """Return the cost of the contexts, whose windows overlap by half."""
        found = 0 if self.collection is None else (READ_COST + WINDOW_COST) * self.limit
        return 2 * super().cost(item) + found


@dataclass(frozen=True, slots=True)
class AnswerItem(Item):
    """The question and the given contexts, concatenated; ``split``: their sizes in bytes."""

    BLOB: ClassVar = "texts"

    split: list[int]
    texts: bytes

    @classmethod
    def of(cls, texts: list[bytes]) -> AnswerItem:
        """Join the question and its contexts."""
        return cls([len(text) for text in texts], b"".join(texts))


class AnswerPart(RecordText, TextSpan):
    """A part of a text that may be the answer; offsets are into its context or record."""

    score: float
    null_score: float = Field(description="of 'there is no answer in this context'")
    confidence: float | None = Field(
        default=None, description="calibrated: the probability that it is right; null of some heads"
    )
    evidence: TextSpan = Field(description="the sentence or line it stands in")
    context: int | None = Field(default=None, description="index of the given context")
    id: str | None = Field(default=None, description="of the record: document#chunk")
    document: str | None = None
    chunk: int | None = None
    search_score: float | None = None
    metadata: Metadata = Field(default_factory=dict)
    document_start_byte: int | None = None
    document_end_byte: int | None = None
    page: int | None = Field(
        default=None, description="of an ingested file: page, slide or sheet, counted from 1"
    )


class UnreadRecord(RecordText):
    """A record that a search found and that could not be read back."""

    id: str
    document: str
    chunk: int
    search_score: float
    error: ItemError


class Answered(HeadResult, ItemResult):
    """Answers to a question, best first; ``answered`` is false where "no answer" is the answer."""

    answered: bool = Field(description="the best part passes the head's threshold")
    null_threshold: float
    contexts: int = Field(description="how many were read")
    answers: tuple[AnswerPart, ...] = Field(description="best first")
    failed: tuple[UnreadRecord, ...] = Field(
        default=(), description="records that could not be read back"
    )
    missing_partitions: MissingPartitions = ()


class AnswerHit(RecordText):
    """A record that was found and will be read."""

    id: str
    document: str
    chunk: int
    search_score: float
    metadata: Metadata = Field(default_factory=dict)


class AnswerHits(OpenModel):
    """What a question has found, best first; nothing where the request has the texts itself.

    They come again if another worker repeats the job; the later ones replace the earlier ones.
    """

    hits: tuple[AnswerHit, ...]


class AnswerSpans(OpenModel):
    """The best parts of the contexts that were read since the last event, best first.

    Whether one is the answer is known at the end. Offsets are into the context or record.
    """

    read: int = Field(description="contexts read so far")
    contexts: int = Field(description="that will be read")
    answers: tuple[AnswerPart, ...]


class AnswerResponse(Answered):
    """Answer of ``POST /v1/answer``."""

    job_id: str
    timings_ms: dict[str, float]


class AnswerEvent(OpenModel):
    """An event of an answer that is streamed, as the client yields it: one of the three."""

    hits: AnswerHits | None = None
    spans: AnswerSpans | None = None
    end: AnswerResponse | None = None
