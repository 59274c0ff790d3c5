"""The shapes of bodies and answers that only the gateway knows, for the OpenAPI document.

Answers are written directly and not passed through these models: results may be long, and the
fields of a worker's items are given on as they are.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from verso_core.jobs import Kind, Name, Precision, Scalar, Status, TextPolicy, Wire


class Document(Wire):
    """A document as it comes in: exactly one of ``text`` and ``text_base64``."""

    id: str | None = Field(
        default=None,
        description="1..256 bytes; by default derived from the content",
        examples=["boot-1"],
    )
    text: str | None = Field(default=None, examples=["kernel: eth0: link is up"])
    text_base64: str | None = Field(default=None, description="for bytes that are not UTF-8")
    metadata: dict[str, Scalar] = Field(default_factory=dict, examples=[{"host": "a"}])
    time: Annotated[
        float | str | None, Field(description="Unix seconds or RFC 3339 with an offset")
    ] = None


class IngestRequest(Wire):
    """Body of ``POST /v1/ingest``; each document is judged for itself."""

    collection: Name = "default"
    documents: list[Document]


class ErrorView(BaseModel):
    """An error of one item or of a job."""

    code: str
    detail: str
    retryable: bool


class JobView(BaseModel):
    """A job as ``GET /v1/jobs/{id}`` shows it."""

    id: str
    kind: Kind
    status: Status
    items: int
    ok: int = Field(description="items that succeeded so far")
    failed: int = Field(description="items that failed so far")
    slices: int = Field(description="parts the job is worked on in")
    slices_done: int
    attempts: int = Field(description="most times one slice was begun")
    created: datetime
    started: datetime | None
    finished: datetime | None
    error: ErrorView | None
    results: list[dict[str, Any]] | None = None
    next_cursor: str | None = None


class BatchView(JobView):
    """A job that ended in time, with all its results in order."""

    timings_ms: dict[str, float]


class HitView(BaseModel):
    """A record that a search found."""

    id: str = Field(examples=["boot-1#0"])
    document: str
    chunk: int
    score: float
    metadata: dict[str, Scalar]
    time: float | None
    text: str | None = None
    text_base64: str | None = None
    error: ErrorView | None = None


class SearchView(BaseModel):
    """Answer of ``POST /v1/search``."""

    job_id: str
    collection: str
    hits: list[HitView]
    timings_ms: dict[str, float]


class DocumentView(BaseModel):
    """A document given back."""

    id: str
    text: str | None = None
    text_base64: str | None = None
    exact: bool
    chunks: int
    metadata: dict[str, Scalar]
    time: float | None


class CollectionView(BaseModel):
    """A collection's settings."""

    name: str
    precision: Precision
    text_policy: TextPolicy
    space: str
    dim: int
    int8_scale: float
    artifacts: list[str]
    buckets: int
    created: datetime


class CollectionList(BaseModel):
    """All collections."""

    collections: list[CollectionView]


class CodecView(BaseModel):
    """What one codec holds."""

    records: int
    bytes: int


class StatsView(CollectionView):
    """A collection with what it holds; sizes in bytes."""

    documents: int
    chunks: int
    verified: int
    unreadable: int
    points: int
    bytes_text: int
    bytes_vectors: int
    bytes_patches: int
    bytes_entries: int
    codecs: dict[str, CodecView]


class DamagedView(BaseModel):
    """A stored document that can neither be read as it was nor be repaired."""

    collection: str
    id: str


class ScrubView(BaseModel):
    """The newest pass over all stored documents."""

    number: int = Field(description="of passes so far; 0 before the first")
    running: bool
    asked: bool = Field(description="a pass was asked for and has not begun")
    progress: float = Field(ge=0, le=1)
    started: datetime | None
    ended: datetime | None
    documents: int
    sound: int
    repaired: int
    damaged: int
    bytes: int = Field(description="of text that read back")
    unread: int = Field(description="buckets that no worker could scrub")
    damaged_documents: list[DamagedView] = Field(description="the first 256")
