"""The shapes of bodies and answers that only the gateway knows, for the OpenAPI document.

Answers are written directly and not passed through these models: results may be long, and the
fields of a worker's items are given on as they are.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from verso_core.jobs import Kind, Name, Precision, SearchSetting, Status, TextPolicy, Wire
from verso_core.texts import Scalar
from verso_ledger import Phase


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


class RegistryView(BaseModel):
    """Which models serve, as ``/v1/registry`` shows it."""

    artifact: dict[str, Any] = Field(
        description="stable, canary, share, previous, withdrawn (version, reason, time)"
    )
    heads: dict[str, dict[str, Any]] = Field(description="the same for each head, by name")
    workers: list[dict[str, Any]] = Field(
        description="what each worker serves, and what it refused and why"
    )


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
    urgency: int = Field(description="of RFC 9218: 0 first, 7 last")
    created: datetime
    started: datetime | None
    finished: datetime | None
    deadline: datetime | None = Field(description="work not begun by then never is")
    error: ErrorView | None
    results: list[dict[str, Any]] | None = None
    next_cursor: str | None = None


class JobList(BaseModel):
    """A page of jobs, the newest first."""

    jobs: list[JobView]
    next_cursor: str | None


class DeadLetterView(BaseModel):
    """A slice that crashed or failed too often."""

    job_id: str
    slice: int
    kind: Kind
    phase: Phase
    items: int
    bytes: int
    crashes: int
    errors: int
    error: ErrorView
    died: datetime


class DeadLetterList(BaseModel):
    """A page of dead letters, the newest first."""

    dead_letters: list[DeadLetterView]
    next_cursor: str | None


class Replayed(BaseModel):
    """Which jobs got new attempts."""

    jobs: list[str]
    more: bool = Field(description="more dead letters fit: ask again")


class WebhookRequest(Wire):
    """Body of ``POST /v1/webhooks``."""

    url: str = Field(examples=["https://example.org/verso"])


class WebhookView(BaseModel):
    """An address that is told of the ends of jobs which name it."""

    id: str = Field(examples=["wh_0f1e2d3c4b5a69788796a5b4c3d2e1f0"])
    url: str
    created: datetime
    secret: str | None = Field(default=None, description="only when it was made or rotated")


class WebhookList(BaseModel):
    """All webhooks of a caller."""

    webhooks: list[WebhookView]


class WebhookReplayed(BaseModel):
    """How many messages are sent again."""

    messages: int


class BatchView(JobView):
    """A job that ended in time, with all its results in order."""

    timings_ms: dict[str, float]


class HitView(BaseModel):
    """A record that a search found."""

    id: str = Field(examples=["boot-1#0"])
    document: str
    chunk: int
    score: float
    rerank_score: float | None = Field(default=None, description="the head's, of the best sentence")
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


class MemberView(BaseModel):
    """A record shown of a group; without a text where it does not read."""

    id: str = Field(examples=["boot-1#0"])
    time: float | None
    text: str | None = None
    text_base64: str | None = None


class GroupView(BaseModel):
    """Records that belong together; times in Unix seconds, of the documents that have one."""

    size: int
    template: str | None
    first_seen: float | None
    last_seen: float | None
    new: bool | None = Field(description="first seen since the time asked for")
    representatives: list[MemberView]


class ClusterView(BaseModel):
    """Answer of ``POST /v1/cluster``, the largest groups first."""

    records: int
    clusters: int
    alone: int = Field(description="records in no group")
    unread: int = Field(description="records that could not be compared")
    groups: list[GroupView]


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
    search: SearchSetting


class CollectionList(BaseModel):
    """All collections."""

    collections: list[CollectionView]


class DocumentRowView(BaseModel):
    """A stored document in a list."""

    id: str
    written: int = Field(description="number of the job that wrote it; later jobs have larger ones")
    bytes: int = Field(description="size of its text")
    verified: bool = Field(description="an independent decode has given it back")


class DocumentList(BaseModel):
    """A page of a collection's documents."""

    documents: list[DocumentRowView]
    next_cursor: str | None


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
    bytes_terms: int = Field(description="words kept for hybrid search, without their index")
    bytes_patches: int
    bytes_entries: int
    codecs: dict[str, CodecView]


class DamagedView(BaseModel):
    """A stored document that can neither be read as it was nor be repaired."""

    collection: str
    id: str


class MigrationView(BaseModel):
    """The newest migration of a collection."""

    collection: str
    stage: str = Field(description="recode, copy, seal, done or blocked")
    codec: str = Field(description="that documents move to")
    in_place: bool = Field(description="the space stays, documents are coded again where they lie")
    pass_number: int
    progress: float = Field(ge=0, le=1, description="of the pass under way")
    copied: int
    removed: int
    unread: list[str] = Field(description="documents that this pass could not read, the first 64")
    old_removed: bool
    started: datetime | None
    ended: datetime | None


class RecentWalkView(BaseModel):
    """The walk over documents written in the hour before an unclean start; goes before a pass."""

    progress: float = Field(ge=0, le=1)
    buckets_done: int
    buckets: int
    documents: int = Field(description="read so far")


class ScrubView(BaseModel):
    """The newest pass over all stored documents."""

    number: int = Field(description="of passes so far; 0 before the first")
    state: str = Field(description="none, recent (goes before a pass), running or ended")
    running: bool = Field(description="a pass has begun and not ended")
    asked: bool = Field(description="a pass was asked for and has not begun")
    progress: float = Field(ge=0, le=1)
    recent: RecentWalkView | None
    started: datetime | None
    ended: datetime | None
    documents: int
    sound: int
    repaired: int
    damaged: int
    bytes: int = Field(description="of text that read back")
    unread: int = Field(description="buckets that no worker could scrub")
    damaged_documents: list[DamagedView] = Field(description="the first 256")
