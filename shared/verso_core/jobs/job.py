"""Jobs: kinds, queues and states; and jobs, webhooks and the platform as the API shows them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from verso_core.api_keys import Scope
from verso_core.errors import AttemptsExhausted, Cancelled, DeadlineExpired, JobEnded, VersoError
from verso_core.jobs.models import ItemError, Moment, OpenModel, StrictModel

TASK_WORK = "verso.work"
"""The one Celery task: a wake-up that names a queue and no job."""


URGENCY = 3
"""Urgency of a job that nothing else is known of (RFC 9218, section 4.1)."""


class Kind(StrEnum):
    """What a job does."""

    EMBED = "embed"
    INGEST = "ingest"
    INGEST_LINES = "ingest_lines"
    SEARCH = "search"
    RECONSTRUCT = "reconstruct"
    RECORDS = "records"
    DELETE = "delete"
    LIST = "list"
    LINES = "lines"
    VOLUME = "volume"
    LABELS = "labels"
    STATEMENTS = "statements"
    COUNT = "count"
    FACETS = "facets"
    UPDATE = "update"
    DELETE_MATCHING = "delete_matching"
    COLLECTION_CHANGE = "collection_change"
    COLLECTION_CREATE = "collection_create"
    COLLECTION_DELETE = "collection_delete"
    STATS = "stats"
    SCRUB = "scrub"
    CLUSTER = "cluster"
    PROJECT = "project"
    MIGRATE = "migrate"
    FIT = "fit"
    MODELS = "models"
    ROWS = "rows"
    TRAIN = "train"
    CLASSIFY = "classify"
    FEEDBACK = "feedback"
    ANSWER = "answer"
    SCORE = "score"
    HEADS = "heads"

    @property
    def urgency(self) -> int:
        """Return the urgency of a job whose caller did not say (RFC 9218, section 4.1).

        A kind that a person waits for precedes the bulk work of the same key.
        """
        return URGENCY - 1 if self in _WAITED_FOR else URGENCY

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing and its result is made for the one who asks."""
        return self in _READS


_WAITED_FOR = frozenset(
    {
        *(Kind.SEARCH, Kind.ANSWER, Kind.CLUSTER, Kind.STATS, Kind.HEADS),
        *(Kind.CLASSIFY, Kind.SCORE, Kind.FEEDBACK),
        *(Kind.LIST, Kind.COUNT, Kind.FACETS, Kind.LINES),
        *(Kind.VOLUME, Kind.LABELS, Kind.STATEMENTS, Kind.PROJECT, Kind.RECORDS),
    }
)
_READS = frozenset(
    {
        Kind.EMBED,
        Kind.SEARCH,
        Kind.CLUSTER,
        Kind.PROJECT,
        Kind.LIST,
        Kind.LINES,
        Kind.VOLUME,
        Kind.LABELS,
        Kind.STATEMENTS,
        Kind.COUNT,
        Kind.FACETS,
        Kind.RECONSTRUCT,
        Kind.RECORDS,
        Kind.STATS,
        Kind.CLASSIFY,
        Kind.ANSWER,
        Kind.SCORE,
        Kind.HEADS,
    }
)


class Queue(StrEnum):
    """A queue of jobs. Each has worker slots of its own, so bulk work never delays a search."""

    INTERACTIVE = "interactive"
    BULK = "bulk"
    SCRUB = "scrub"
    FIT = "fit"
    TRAIN = "train"

    @property
    def takes_wakeups(self) -> bool:
        """Whether wake-ups are sent for it; a trainer polls its queue instead."""
        return self is not Queue.TRAIN

    @property
    def celery_name(self) -> str:
        """Return the name of the Celery queue that carries this queue's wake-ups."""
        return f"verso.{self.value}"


class Status(StrEnum):
    """State of a job; a job reaches exactly one of the last five."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEAD = "dead"

    @property
    def terminal(self) -> bool:
        """Whether the job has ended; only a replay changes a dead job again."""
        return self not in (Status.QUEUED, Status.RUNNING)

    def exception(self) -> VersoError:
        """Return the error of a job that ended in this state with no error of its own."""
        match self:
            case Status.CANCELLED:
                return Cancelled("the job was cancelled")
            case Status.EXPIRED:
                return DeadlineExpired("the job's deadline passed before a worker started it")
            case Status.DEAD:
                return AttemptsExhausted("the job failed too often; it can be replayed")
            case _:
                return JobEnded(f"the job ended as {self}")


class Job(OpenModel):
    """State of a job. ``ok`` and ``failed`` count items."""

    id: str
    kind: Kind
    status: Status
    items: int
    ok: int = Field(description="items that succeeded so far")
    failed: int = Field(description="items that failed so far")
    slices: int = Field(default=0, description="parts the job is worked on in")
    slices_done: int = 0
    attempts: int = Field(default=0, description="largest number of attempts of one slice")
    urgency: int = Field(default=URGENCY, description="of RFC 9218: 0 first, 7 last")
    created: Moment | None = None
    started: Moment | None = None
    finished: Moment | None = None
    deadline: Moment | None = Field(default=None, description="work not started by then is dropped")
    error: ItemError | None = None

    def exception(self) -> VersoError:
        """Return the error of a job that ended without success."""
        return self.status.exception() if self.error is None else self.error.exception()


class JobView(Job):
    """A job with a page of its results, as ``GET /v1/jobs/{id}`` shows it."""

    results: list[dict[str, Any]] | None = None
    next_cursor: str | None = None


class Batch(JobView):
    """A job that ended in time, with all its results in order."""

    timings_ms: dict[str, float]


class JobList(OpenModel):
    """A page of jobs, the newest first."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None


class JobEvent(OpenModel):
    """Something that happened to a job: its state or its progress."""

    id: str
    name: str
    data: dict[str, Any]


class JobFailure(OpenModel):
    """An item of a job that failed, or several that failed together."""

    item: int | None = Field(
        description="place in the request, from 0; null if it is not known any more"
    )
    items: int = Field(default=1, description="so many from this one on failed together")
    id: str | None = Field(default=None, description="of the document, if the item named one")
    chunk: int | None = None
    error: ItemError


class JobFailures(OpenModel):
    """A page of the items of a job that failed, in order."""

    failures: tuple[JobFailure, ...]
    next_cursor: str | None = None


class DeadLetterView(OpenModel):
    """A slice that crashed or failed too often; its text is not shown."""

    job_id: str
    slice: int
    kind: Kind
    phase: str = Field(description="work or verify")
    items: int
    bytes: int
    crashes: int
    errors: int
    error: ItemError
    died: Moment


class DeadLetterList(OpenModel):
    """A page of dead letters, the newest first."""

    dead_letters: tuple[DeadLetterView, ...]
    next_cursor: str | None = None


class Replayed(OpenModel):
    """Which jobs got new attempts."""

    jobs: tuple[str, ...]
    more: bool = Field(description="more dead letters fit: ask again")


class SessionView(OpenModel):
    """What the session of a browser may do, and until when."""

    name: str = Field(description="of the API key, which is also the tenant", examples=["ops"])
    scopes: tuple[Scope, ...]
    expires: Moment


class CallerView(OpenModel):
    """Who sent a request, and what it may do."""

    name: str = Field(description="of the API key, which is also the tenant", examples=["ops"])
    scopes: tuple[Scope, ...]
    keys: bool = Field(description="whether API keys are in use; without them all is allowed")


class QueueView(OpenModel):
    """What waits and runs in one queue, slices of all callers."""

    queue: Queue
    queued: int = Field(description="due")
    delayed: int = Field(description="wait for a retry, or before they are verified")
    running: int
    oldest_s: float = Field(description="how long the oldest due slice has been due")


class BacklogView(OpenModel):
    """What waits outside the queues, of all callers."""

    dead: int = Field(description="dead letters")
    unverified: int = Field(description="committed slices whose texts were not read back yet")
    bytes_unverified: int
    webhooks: int = Field(description="messages that wait to be sent")
    orphans: int = Field(description="points that the scrub found no entry to name")
    read_only: bool = Field(description="the ledger is older than what it has acknowledged")


class DiskView(OpenModel):
    """The file system of a worker's data folder, bytes."""

    bytes_free: int
    bytes_total: int
    bytes_floor: int = Field(description="free space below which writes are refused")


class WorkerView(OpenModel):
    """A worker that lives."""

    worker: str
    engines: int = Field(default=0, description="engine processes that run")
    disk_full: bool = False
    disk: DiskView | None = Field(default=None, description="absent of an earlier version")
    replication: tuple[str, ...] = Field(
        default=(),
        description="collections that Qdrant keeps otherwise than the worker's settings ask",
    )


class StatusView(OpenModel):
    """The state of the platform. Ages are seconds; null where there was no such sign."""

    ready: bool
    reason: str | None = Field(description="why it is not ready")
    last_embed_age_s: float | None
    worker_beat_age_s: float | None
    trainer_beat_age_s: float | None
    queues: tuple[QueueView, ...]
    backlog: BacklogView
    scrubbed: dict[str, int] = Field(
        description="documents that all passes of the scrub have read, by what they were"
    )
    workers: tuple[WorkerView, ...]
    ledgers_away: tuple[str, ...] = Field(
        default=(), description="ledgers that do not answer; what is said is of the others"
    )


class LedgerView(OpenModel):
    """A ledger of the platform. Sizes are null while it does not answer."""

    name: str = Field(examples=["home"])
    answers: bool
    draining: bool = Field(description="no new collection is made on it")
    collections: int = Field(description="of all callers, as read last")
    leaving: int | None = Field(
        default=None, description="of them, those that are being moved to other ledgers"
    )
    bytes_memory: int | None = Field(description="that its data takes")
    bytes_memory_limit: int | None = Field(description="that it may take")


class LedgerList(OpenModel):
    """The ledgers of the platform, the home ledger first."""

    ledgers: tuple[LedgerView, ...]


class LedgerChange(StrictModel):
    """Body of ``PATCH /v1/ledgers/{name}``."""

    draining: bool = Field(description="whether new collections are made on others only")
    move: bool = Field(
        default=False, description="with draining: move its collections to the others as well"
    )


class WebhookRequest(StrictModel):
    """Body of ``POST /v1/webhooks``."""

    url: str = Field(examples=["https://example.org/verso"])


class WebhookView(OpenModel):
    """An address that is notified of the ends of jobs that name it."""

    id: str = Field(examples=["wh_0f1e2d3c4b5a69788796a5b4c3d2e1f0"])
    url: str
    created: Moment
    secret: str | None = Field(default=None, description="only when it was made or rotated")


class WebhookList(OpenModel):
    """All webhooks of a caller."""

    webhooks: tuple[WebhookView, ...]


class WebhookReplayed(OpenModel):
    """How many messages are sent again."""

    messages: int
