"""What the platform answers, as typed values.

Fields that a newer platform adds are ignored. A text comes as ``text`` where its bytes are UTF-8
and as ``text_base64`` where they are not; :attr:`Text.data` always gives the bytes.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from verso_core.errors import (
    AttemptsExhausted,
    Cancelled,
    DeadlineExpired,
    JobEnded,
    VersoError,
    from_body,
)
from verso_core.jobs import Kind, Precision, SearchMode, Status, TextPolicy
from verso_core.texts import Scalar


class Answer(BaseModel):
    """Root of all answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ItemError(Answer):
    """Why one item of a batch failed."""

    code: str
    detail: str
    retryable: bool = False

    def exception(self) -> VersoError:
        """Return the error as the exception that it was."""
        return from_body({"code": self.code, "detail": self.detail, "retryable": self.retryable})


class Text(Answer):
    """Something that carries a text."""

    text: str | None = None
    text_base64: str | None = None

    @property
    def data(self) -> bytes:
        """The exact bytes of the text.

        Raises:
            ValueError: the answer carries no text.
        """
        if self.text_base64 is not None:
            return base64.b64decode(self.text_base64, validate=True)
        if self.text is None:
            raise ValueError("this answer carries no text")
        return self.text.encode("utf-8")


class Ingested(Answer):
    """What became of one document that was sent."""

    id: str | None = None
    chunks: int = 0
    bytes_text: int = 0
    bytes_patch: int = 0
    codecs: dict[str, int] = Field(default_factory=dict, description="chunks by codec")
    error: ItemError | None = None


class StoredText(Text):
    """A stored document or record, read back: ``text`` is exactly what came in."""

    id: str
    chunk: int | None = None
    chunks: int | None = None
    exact: bool = True
    metadata: dict[str, Scalar] = Field(default_factory=dict)
    time: float | None = None
    error: ItemError | None = None


class Guess(Text):
    """A text guessed from a bare vector. It is never presented as exact."""

    exact: bool = False
    confidence: float = Field(default=0.0, description="the model's own, 0..1")
    log_probability: float = Field(default=0.0, description="normalised by length; <= 0")
    error: ItemError | None = None


class Hit(Text):
    """A record that a search found."""

    id: str = Field(description="of the record: document#chunk")
    document: str
    chunk: int
    score: float = Field(
        description="dense: cosine, -1..1; sparse: BM25, > 0; hybrid: both joined, 0..1"
    )
    rerank_score: float | None = Field(default=None, description="the head's, of the best sentence")
    metadata: dict[str, Scalar] = Field(default_factory=dict)
    time: float | None = None
    error: ItemError | None = None


class Found(Answer):
    """The answer to a search, best hit first."""

    hits: tuple[Hit, ...]
    timings_ms: dict[str, float] = Field(default_factory=dict)


class Member(Text):
    """A record shown of a group; without a text where it does not read."""

    id: str
    time: float | None = None


class Group(Answer):
    """Records that belong together; times in Unix seconds."""

    size: int
    template: str | None = None
    first_seen: float | None = None
    last_seen: float | None = None
    new: bool | None = None
    representatives: tuple[Member, ...] = ()


class Clustered(Answer):
    """The groups of a collection's records, the largest first."""

    records: int
    clusters: int
    alone: int
    unread: int
    groups: tuple[Group, ...]


class Embedded(Answer):
    """The vector of one text, as the encoder gives it: unit length, float32."""

    tokens: int = 0
    embedding: tuple[float, ...] = ()
    error: ItemError | None = None


class CollectionInfo(Answer):
    """A collection and its settings."""

    name: str
    precision: Precision
    text_policy: TextPolicy
    space: str
    dim: int
    artifacts: tuple[str, ...] = ()
    created: datetime | None = None
    search: SearchMode = SearchMode.DENSE


class DocumentInfo(Answer):
    """A stored document in a list; ``written`` grows from job to job."""

    id: str
    written: int
    bytes: int
    verified: bool = False


class DocumentPage(Answer):
    """A page of a collection's documents; ``next_cursor`` is None on the last one."""

    documents: tuple[DocumentInfo, ...]
    next_cursor: str | None = None


class CodecShare(Answer):
    """How much of a collection one codec holds."""

    records: int
    bytes: int


class Statistics(Answer):
    """What a collection holds, counted in its stores. Sizes are bytes."""

    name: str
    documents: int
    chunks: int
    verified: int
    unreadable: int = 0
    points: int
    bytes_text: int
    bytes_vectors: int
    bytes_terms: int = 0
    bytes_patches: int
    bytes_entries: int
    codecs: dict[str, CodecShare]
    precision: Precision | None = None
    search: SearchMode | None = None
    space: str | None = None
    dim: int | None = None


class Damaged(Answer):
    """A stored document that can neither be read as it was nor be repaired."""

    collection: str
    id: str


class RecentWalk(Answer):
    """How far the walk over recent documents is, which goes first after an unclean start."""

    progress: float
    buckets_done: int
    buckets: int
    documents: int


class ScrubState(Answer):
    """The newest pass over all stored documents; ``bytes`` of text read back well.

    ``state`` is ``none``, ``recent``, ``running`` or ``ended``; "" from an older gateway.
    """

    number: int
    state: str = ""
    running: bool
    asked: bool
    progress: float
    recent: RecentWalk | None = None
    started: datetime | None = None
    ended: datetime | None = None
    documents: int
    sound: int
    repaired: int
    damaged: int
    bytes: int
    unread: int
    damaged_documents: tuple[Damaged, ...] = ()


class WithdrawnState(Answer):
    """A canary that was taken back."""

    version: str
    reason: str
    time: datetime


class RolloutState(Answer):
    """What the channels of a head, or of the artifact, serve."""

    stable: str | None = None
    canary: str | None = None
    share: float
    previous: str | None = None
    withdrawn: WithdrawnState | None = None


class RegistryState(Answer):
    """Which models serve; ``workers`` says what each worker took up, and what it refused."""

    artifact: RolloutState
    heads: dict[str, RolloutState]
    workers: tuple[dict[str, Any], ...] = ()


class MigrationState(Answer):
    """The newest migration of a collection; ``progress`` is that of the pass under way."""

    collection: str
    stage: str
    codec: str = ""
    in_place: bool = False
    pass_number: int = 0
    progress: float = 0.0
    copied: int = 0
    removed: int = 0
    unread: tuple[str, ...] = ()
    old_removed: bool = False
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def running(self) -> bool:
        """Whether it has more to do."""
        return self.stage in ("recode", "copy", "seal")


class Job(Answer):
    """State of a job. ``ok`` and ``failed`` count items."""

    id: str
    kind: Kind
    status: Status
    items: int
    ok: int
    failed: int
    attempts: int = 0
    created: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    error: ItemError | None = None

    def exception(self) -> VersoError:
        """Return the error of a job that ended otherwise than in success."""
        if self.error is not None:
            return self.error.exception()
        return {
            Status.CANCELLED: Cancelled("the job was cancelled"),
            Status.EXPIRED: DeadlineExpired("the job's deadline passed before it could run"),
            Status.DEAD: AttemptsExhausted("the job failed too often; it can be replayed"),
        }.get(self.status, JobEnded(f"the job ended as {self.status}"))


class JobEvent(Answer):
    """Something that happened to a job: its state or its progress."""

    id: str
    name: str
    data: dict[str, Any]


class IngestReport(Answer):
    """What became of all documents of one :meth:`Client.ingest`."""

    jobs: tuple[str, ...]
    documents: int
    chunks: int
    bytes_text: int
    bytes_patches: int
    codecs: dict[str, int]
    failed: tuple[Ingested, ...]

    @classmethod
    def of(cls, jobs: Iterable[str], items: Iterable[Ingested]) -> IngestReport:
        """Sum the items of some ingest jobs."""
        documents = chunks = bytes_text = bytes_patches = 0
        codecs: Counter[str] = Counter()
        failed: list[Ingested] = []
        for item in items:
            if item.error is not None:
                failed.append(item)
                continue
            documents += 1
            chunks += item.chunks
            bytes_text += item.bytes_text
            bytes_patches += item.bytes_patch
            codecs.update(item.codecs)
        return cls(
            jobs=tuple(jobs),
            documents=documents,
            chunks=chunks,
            bytes_text=bytes_text,
            bytes_patches=bytes_patches,
            codecs=dict(codecs),
            failed=tuple(failed),
        )
