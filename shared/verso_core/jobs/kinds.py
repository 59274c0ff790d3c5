"""The words of the job API: kinds, queues, states and the settings of a collection."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

TASK_WORK = "verso.work"
"""The one Celery task: a wake-up that names a queue and no job."""

RERANK_SHARE = 0.4
"""Default share of a head's score in a reranked search; chosen on training questions
(docs/research/search-quality.md)."""


class Kind(StrEnum):
    """What a job does."""

    EMBED = "embed"
    INGEST = "ingest"
    SEARCH = "search"
    RECONSTRUCT = "reconstruct"
    DELETE = "delete"
    COLLECTION_CREATE = "collection_create"
    COLLECTION_DELETE = "collection_delete"
    STATS = "stats"
    SCRUB = "scrub"
    CLUSTER = "cluster"
    MIGRATE = "migrate"
    MODELS = "models"
    ROWS = "rows"
    TRAIN = "train"
    CLASSIFY = "classify"
    ANSWER = "answer"
    SCORE = "score"
    HEADS = "heads"


class Queue(StrEnum):
    """Where jobs wait. Each queue has worker slots of its own: bulk work never delays a search."""

    INTERACTIVE = "interactive"
    BULK = "bulk"
    SCRUB = "scrub"
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


class Precision(StrEnum):
    """How a collection's vectors are stored."""

    FLOAT16 = "float16"
    INT8 = "int8"


class TextPolicy(StrEnum):
    """What a collection keeps of a text once its patch is verified."""

    PATCH = "patch"
    BOTH = "both"


class SearchMode(StrEnum):
    """What a search compares: vectors, or the words of the text as well.

    As a collection's setting ``hybrid`` stores each chunk's words beside its vector.
    """

    DENSE = "dense"
    SPARSE = "sparse"
    HYBRID = "hybrid"


SearchSetting = Literal[SearchMode.DENSE, SearchMode.HYBRID]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", examples=["default"])]
