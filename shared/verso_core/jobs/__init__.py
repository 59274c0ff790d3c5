"""Jobs on the wire: kinds, queues, states, and the shapes of requests and views.

A **job** is one accepted request. It is cut into **slices**: a slice is claimed, leased, retried
and committed as a whole, and is small enough that a retry costs little. Its payload and its result
are frames (:mod:`verso_core.frame`) whose header holds one object for each item, in order, so that
every item has a result or an error of its own and one bad text never fails its neighbours.

The gateway builds payloads with :func:`cut`, the worker reads them with :func:`read_slice`; what
the items of each kind hold is in ``docs/reference/ledger.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from verso_core import frame
from verso_core.errors import (
    ErrorBody,
    FrameInvalid,
)
from verso_core.texts import Scalar

TASK_WORK = "verso.work"
"""The one Celery task: a wake-up that names a queue and no job."""

SLICE_ITEMS = 64
SLICE_BYTES = 128 * 1024
RERANK_SHARE = 0.4
"""What a head's score counts in a search that it reranks, if nothing is said; chosen on training
questions (docs/research/search-quality.md)."""


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
    """Where work waits; each has workers' threads of its own, so bulk never delays a search."""

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
        """Whether the job will not change any more (but for a replay of a dead one)."""
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

    As a collection's setting ``hybrid`` keeps each chunk's words beside its vector.
    """

    DENSE = "dense"
    SPARSE = "sparse"
    HYBRID = "hybrid"


SearchSetting = Literal[SearchMode.DENSE, SearchMode.HYBRID]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", examples=["default"])]


class Wire(BaseModel):
    """A model of the API: unknown keys are refused, so that a typing error is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Collection(Wire):
    """A named set of documents whose vectors lie in one space.

    ``artifacts`` is append-only: a record names its codec by its place in this list.
    """

    name: Name
    precision: Precision
    text_policy: TextPolicy
    space: str
    dim: int
    int8_scale: float
    artifacts: tuple[str, ...]
    buckets: int
    checksum_key: str = Field(description="hex; keys the checksums of this collection's texts")
    created: datetime
    search: SearchSetting = SearchMode.DENSE


class CollectionRequest(Wire):
    """Body of ``POST /v1/collections``."""

    name: Name
    precision: Precision = Precision.FLOAT16
    text_policy: TextPolicy = TextPolicy.PATCH
    search: SearchSetting = Field(
        default=SearchMode.DENSE,
        description="hybrid keeps the words of each chunk beside its vector, and searches by both",
    )


class MigrateRequest(Wire):
    """Body of ``POST /v1/collections/{name}/migrate``."""

    artifact: str = Field(
        default="current",
        max_length=64,
        description="current, a codec id, or an artifact id",
    )


class Filter(Wire):
    """Which records a search may return: all conditions must hold."""

    metadata: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    time_gte: float | None = Field(default=None, description="Unix seconds, inclusive")
    time_lt: float | None = Field(default=None, description="Unix seconds, exclusive")


class SearchRequest(Wire):
    """Body of ``POST /v1/search``: exactly one of ``query``, ``vector`` and ``id``."""

    collection: Name = "default"
    query: str | None = None
    vector: list[float] | None = None
    id: str | None = Field(default=None, description="a document or record id: more like this one")
    limit: int = Field(default=10, ge=1, le=1000)
    mode: SearchMode | None = Field(
        default=None, description="by default as the collection's setting says"
    )
    filter: Filter | None = None
    with_text: bool = True
    rerank: Name | None = Field(default=None, description="a head that scores pairs, such as alike")
    rerank_from: int = Field(default=30, ge=1, le=256, description="nearest records it re-scores")
    rerank_share: float = Field(
        default=RERANK_SHARE,
        ge=0,
        le=1,
        description="what its score counts; the search's own counts the rest",
    )

    @model_validator(mode="after")
    def _one_query(self) -> SearchRequest:
        given = [n for n in ("query", "vector", "id") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of query, vector, id; got {given or 'none'}")
        if self.rerank is not None and self.query is None:
            raise ValueError("expected a query where hits are reranked: a head reads texts")
        return self


class ReconstructRequest(Wire):
    """Body of ``POST /v1/reconstruct``: stored texts by id, or guesses from bare vectors."""

    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=1024)
    vectors: list[list[float]] | None = Field(default=None, min_length=1, max_length=256)
    beam: int = Field(default=1, ge=1, le=16)
    max_tokens: int = Field(default=127, ge=1, le=127)

    @model_validator(mode="after")
    def _one_source(self) -> ReconstructRequest:
        if (self.ids is None) == (self.vectors is None):
            raise ValueError("expected exactly one of ids and vectors")
        return self


class EmbedRequest(Wire):
    """Body of ``POST /v1/embed``."""

    texts: list[str] = Field(min_length=1, max_length=2048)
    encoding: Literal["float", "base64"] = "float"


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """A slice as it enters the ledger."""

    payload: bytes
    items: int


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a slice: its header object and, where it has one, its blob."""

    header: dict[str, Any]
    blob: bytes | None = None

    @property
    def rejected(self) -> ErrorBody | None:
        """Return the error that the gateway found, which the worker passes on in the item's
        place.
        """
        body: ErrorBody | None = self.header.get("rejected")
        return body


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice as the worker sees it."""

    kind: Kind
    params: dict[str, Any]
    items: tuple[Item, ...]


def cut(
    kind: Kind,
    params: Mapping[str, Any],
    items: Iterable[Item],
    *,
    max_items: int = SLICE_ITEMS,
    max_bytes: int = SLICE_BYTES,
) -> Iterator[SliceSpec]:
    """Cut items into slices, in order; an item larger than ``max_bytes`` makes one alone."""
    batch: list[Item] = []
    size = 0
    for item in items:
        item_bytes = len(item.blob or b"")
        if batch and (len(batch) >= max_items or size + item_bytes > max_bytes):
            yield _spec(kind, params, batch)
            batch, size = [], 0
        batch.append(item)
        size += item_bytes
    if batch:
        yield _spec(kind, params, batch)


def _spec(kind: Kind, params: Mapping[str, Any], items: Sequence[Item]) -> SliceSpec:
    blobs: list[bytes] = []
    headers = []
    for item in items:
        header = dict(item.header)
        if item.blob is not None:
            header["blob"] = len(blobs)
            blobs.append(item.blob)
        headers.append(header)
    payload = frame.pack({"kind": kind, "params": dict(params), "items": headers}, blobs)
    return SliceSpec(payload=payload, items=len(items))


def read_slice(payload: bytes) -> Slice:
    """Read what :func:`cut` wrote.

    Raises:
        FrameInvalid: the payload is not a slice.
    """
    header, blobs = frame.unpack(payload)
    try:
        items = tuple(
            Item(item, None if item.get("blob") is None else blobs[item["blob"]])
            for item in header["items"]
        )
        return Slice(kind=Kind(header["kind"]), params=header["params"], items=items)
    except (KeyError, IndexError, TypeError, ValueError) as exc:
        raise FrameInvalid(f"expected a slice, got a frame with {sorted(header)}") from exc


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a slice: one object for each item, and the blobs they point into."""

    items: list[dict[str, Any]]
    blobs: list[bytes] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)

    def add_blob(self, blob: bytes) -> int:
        """Keep a blob and give the index by which an item names it."""
        self.blobs.append(blob)
        return len(self.blobs) - 1

    @property
    def ok(self) -> int:
        """Count the items that succeeded."""
        return sum(1 for item in self.items if item["ok"])

    def pack(self) -> bytes:
        """Write the result as a frame."""
        return frame.pack({"items": self.items, "timings_ms": self.timings_ms}, self.blobs)

    @classmethod
    def unpack(cls, data: bytes) -> Result:
        """Read what :meth:`pack` wrote."""
        header, blobs = frame.unpack(data)
        return cls(items=header["items"], blobs=blobs, timings_ms=header["timings_ms"])
