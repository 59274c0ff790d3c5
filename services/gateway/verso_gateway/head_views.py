"""The shapes of what heads answer, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from verso_core.heads import Portion, Reads, SignalName, Task
from verso_core.registry import Channel
from verso_core.texts import Scalar
from verso_gateway.schemas import ErrorView, JobView


class HeadVersionView(BaseModel):
    """A version of a head, as a channel serves it; of one that cannot be served only the error."""

    version: str
    created: datetime | None = None
    task: Task | None = None
    reads: Reads | None = None
    space: str | None = None
    labels: list[str] = Field(default_factory=list)
    none_label: str | None = Field(default=None, description="the label for what fits no other")
    chunk: Portion | None = Field(default=None, description="which chunks it reads unless told")
    metrics: dict[str, float] = Field(default_factory=dict)
    accept_by: SignalName | None = None
    accept_errors: list[str] = Field(
        default_factory=list, description="error rates that accept_error may be bounded by"
    )
    data: list[str] = Field(default_factory=list)
    licence: str | None = None
    error: ErrorView | None = None


class HeadView(BaseModel):
    """A head and what its channels serve."""

    name: str
    share: float = Field(description="part of the jobs that a canary gets")
    stable: HeadVersionView | None
    canary: HeadVersionView | None


class HeadList(BaseModel):
    """All heads."""

    heads: list[HeadView]


class HeadReportView(BaseModel):
    """The report that a version of a head was published with."""

    head: str
    version: str
    report: str = Field(description="Markdown")


class ClassifyView(JobView):
    """Answer of ``POST /v1/classify``."""

    timings_ms: dict[str, float]


class PlaceView(BaseModel):
    """A part of a text: bytes and, where the text is UTF-8, characters (code points)."""

    start: int | None = None
    end: int | None = None
    start_byte: int
    end_byte: int


class AnswerPartView(PlaceView):
    """A part of a context that may be the answer."""

    text: str | None = None
    text_base64: str | None = None
    score: float
    null_score: float = Field(description="of 'there is no answer in this context'")
    evidence: PlaceView = Field(description="the sentence or line it stands in")
    context: int | None = Field(default=None, description="index of the given context")
    id: str | None = Field(default=None, description="of the record: document#chunk")
    document: str | None = None
    chunk: int | None = None
    search_score: float | None = None
    metadata: dict[str, Scalar] | None = None
    document_start_byte: int | None = None
    document_end_byte: int | None = None


class AnswerView(BaseModel):
    """Answer of ``POST /v1/answer``."""

    job_id: str
    head: str
    version: str
    channel: Channel
    answered: bool = Field(description="the best part passes the head's threshold")
    null_threshold: float
    contexts: int = Field(description="how many were read")
    answers: list[AnswerPartView] = Field(description="best first")
    failed: list[ErrorView] = Field(description="records that could not be read back")
    timings_ms: dict[str, float]


class PairView(BaseModel):
    """The score of one pair."""

    index: int
    object: str
    score: float


class ScoreView(BaseModel):
    """Answer of ``POST /v1/score``."""

    job_id: str
    object: str
    model: str
    data: list[PairView]
    timings_ms: dict[str, float]


class RankedView(BaseModel):
    """A document with its score."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class RerankView(BaseModel):
    """Answer of ``POST /v1/rerank``."""

    id: str
    model: str
    results: list[RankedView]
    timings_ms: dict[str, float]
