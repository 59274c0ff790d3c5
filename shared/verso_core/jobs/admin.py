"""Work on whole collections and models: create, describe, scrub, migrate, export rows, roll out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from verso_core.heads import Portion
from verso_core.jobs.fitting import Fitting, GenerationState
from verso_core.jobs.models import (
    CodecPolicy,
    CollectionKind,
    IndexKind,
    Item,
    ItemResult,
    Moment,
    Name,
    OpenModel,
    Params,
    Precision,
    SearchMode,
    SearchSetting,
    StrictModel,
    TextPolicy,
)
from verso_core.registry import Rollout

MAX_INDEXES = 16
"""Most metadata fields of a collection that are indexed."""
FAILED_LISTED = 64
"""Most unreadable documents that a migration names."""


Indexes = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=512)], IndexKind],
    Field(
        max_length=MAX_INDEXES,
        description="metadata keys to index: keyword for strings and booleans, number for numbers",
        examples=[{"host": "keyword"}],
    ),
]
RetentionDays = Annotated[
    float | None,
    Field(
        gt=0,
        le=36_500,
        description="documents whose time is longer ago are deleted; null keeps them",
    ),
]


class Collection(StrictModel):
    """A named set of documents whose vectors lie in one space.

    A record names its codec by its index in ``artifacts``. An entry stays as long as a record may
    name it: that of a deleted generation of fitted tables is empty, and is used again.
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
    owner: str | None = Field(default=None, description="tenant that made it; none: everyone's")
    codec_policy: CodecPolicy = CodecPolicy.SMALLEST  # as it was before there was a choice
    indexes: dict[str, IndexKind] = Field(default_factory=dict)
    retention_days: float | None = None
    fitting: Fitting = Field(default_factory=Fitting)
    kind: CollectionKind = CollectionKind.DOCUMENTS
    auto_fit: bool = True


class CollectionSettings(Params):
    """What is chosen when a collection is made."""

    name: Name
    kind: CollectionKind = Field(
        default=CollectionKind.DOCUMENTS,
        description="logs keeps lines together, with one vector a statement",
    )
    precision: Precision = Precision.INT8
    text_policy: TextPolicy = TextPolicy.PATCH
    search: SearchSetting = Field(
        default=SearchMode.HYBRID,
        description="hybrid keeps the words of each chunk beside its vector, and searches by both",
    )
    codec_policy: CodecPolicy = Field(
        default=CodecPolicy.BALANCED,
        description="smallest stores the fewest bytes, fast is read fastest, balanced weighs both",
    )
    indexes: Indexes = Field(default_factory=dict)
    retention_days: RetentionDays = None
    auto_fit: bool = Field(
        default=True,
        description="fit its codec to its own texts, unless it is of logs or its policy fast",
    )


class CollectionRequest(CollectionSettings):
    """Body of ``POST /v1/collections``."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CollectionParams(CollectionSettings):
    """Settings of a collection to create, and the tenant that it will belong to."""

    owner: str | None = None


class CollectionChange(StrictModel):
    """Body of ``PATCH /v1/collections/{name}``; what is absent stays."""

    indexes: Indexes = Field(default_factory=dict)
    retention_days: RetentionDays = None
    codec_policy: CodecPolicy | None = Field(
        default=None, description="of records written from now on; null leaves it as it is"
    )
    auto_fit: bool | None = Field(
        default=None, description="whether fits go on; null leaves it as it is"
    )


class CollectionChangeParams(Params):
    """What changes of a collection: the fields that are set. ``indexes`` are added."""

    name: str
    indexes: dict[str, IndexKind] = Field(default_factory=dict)
    retention_days: float | None = None
    codec_policy: CodecPolicy | None = None
    auto_fit: bool | None = None


class CollectionName(Params):
    """A collection to describe or delete."""

    name: str


class CollectionInfo(ItemResult):
    """A collection and its settings, without the secret key of its checksums."""

    name: str
    precision: Precision
    text_policy: TextPolicy
    space: str
    dim: int
    int8_scale: float = 0.0
    artifacts: tuple[str, ...] = ()
    buckets: int = 0
    created: Moment | None = None
    search: SearchMode = SearchMode.DENSE
    owner: str | None = Field(default=None, description="tenant that made it; none: everyone's")
    codec_policy: CodecPolicy = CodecPolicy.SMALLEST
    indexes: dict[str, IndexKind] = Field(default_factory=dict)
    retention_days: float | None = None
    kind: CollectionKind = CollectionKind.DOCUMENTS
    auto_fit: bool = True

    @classmethod
    def settings(cls, collection: Collection) -> dict[str, Any]:
        """Return the fields that a collection has."""
        return {name: getattr(collection, name) for name in CollectionInfo.model_fields}

    @classmethod
    def of(cls, collection: Collection) -> CollectionInfo:
        """Describe a collection."""
        return CollectionInfo(**cls.settings(collection))


class CollectionList(OpenModel):
    """All collections."""

    collections: tuple[CollectionInfo, ...]


class CollectionDeleted(ItemResult):
    """A collection that was deleted."""

    name: str


class CodecShare(OpenModel):
    """How much of a collection one codec holds."""

    records: int
    bytes: int


class Kept(OpenModel):
    """All that is kept for a collection, bytes, as the stores hold it."""

    bytes_entries: int = Field(description="memory of the ledger for entries, patches included")
    bytes_texts: int = Field(description="memory of the ledger for texts, if they are kept too")
    bytes_vectors: int | None = Field(default=None, description="dense vectors on disk")
    bytes_index: int | None = Field(default=None, description="index over them, on disk")
    bytes_words: int | None = Field(default=None, description="words and their index, on disk")
    bytes_points: int | None = Field(
        default=None, description="ids, payloads and indexes over them, on disk"
    )
    bytes_fitted: int = Field(
        default=0, description="memory of the ledger for tables fitted to the collection's texts"
    )
    bytes_lines: int = Field(
        default=0, description="memory of the ledger for all that is kept of lines"
    )
    bytes_memory: int = Field(description="all in memory")
    bytes_disk: int | None = Field(
        default=None, description="all of the vector store on disk; null where it does not say"
    )
    bytes_tables: int = Field(
        description="files that its codecs decode with, shared by all collections of the codecs"
    )


class LineStatistics(OpenModel):
    """What a log collection holds of lines, in the ledger. Sizes are bytes."""

    lines: int = Field(description="in blocks, without deleted ones")
    records: int = Field(default=0, description="further lines, which are stored as documents")
    deleted: int = Field(default=0, description="in blocks, until these are rewritten")
    verified: int = 0
    streams: int = 0
    segments: int = 0
    shapes: int = 0
    statements: int = 0
    bytes_text: int = Field(default=0, description="of the lines, with their line ends")
    bytes_segments: int = Field(default=0, description="blocks, filters and headers")
    bytes_shapes: int = 0
    bytes_statements: int = Field(default=0, description="vectors of templates")
    bytes_tables: int = Field(default=0, description="fitted tables of the codec")
    bytes_memory: int = Field(
        default=0, description="all keys of the lines, with the server's overhead"
    )


class Statistics(ItemResult):
    """A collection with what it holds, counted in its stores. Sizes are bytes."""

    name: str = ""
    documents: int
    chunks: int = 0
    verified: int = 0
    unreadable: int = 0
    points: int = 0
    bytes_text: int
    bytes_vectors: int = 0
    bytes_terms: int = Field(
        default=0, description="words kept for hybrid search, without their index"
    )
    bytes_patches: int = 0
    bytes_entries: int = 0
    kept: Kept | None = None
    fits: int = Field(default=0, description="fits so far, also those that gained nothing")
    generations: tuple[GenerationState, ...] = Field(
        default=(), description="of fitted tables that records may name, oldest first"
    )
    codecs: dict[str, CodecShare] = Field(default_factory=dict)
    precision: Precision | None = None
    text_policy: TextPolicy | None = None
    search: SearchMode | None = None
    codec_policy: CodecPolicy | None = None
    space: str | None = None
    dim: int | None = None
    int8_scale: float | None = None
    artifacts: tuple[str, ...] = ()
    buckets: int | None = None
    created: Moment | None = None
    owner: str | None = None
    indexes: dict[str, IndexKind] = Field(default_factory=dict)
    retention_days: float | None = None
    kind: CollectionKind | None = None
    auto_fit: bool | None = None
    lines: LineStatistics | None = Field(default=None, description="of a log collection")


SCRUB_COUNTS = ("documents", "sound", "repaired", "damaged", "bytes", "orphans")
"""What a scrub counts: documents, each of which is in one of the next three counts, bytes of text,
and orphans removed."""


class ScrubParams(Params):
    """The collection whose records are read again."""

    collection: str


class Scrubbed(ItemResult):
    """What a scrub of some buckets found.

    ``buckets`` were read; each of ``documents`` is in one of the next three counts; ``bytes`` of
    text were decoded; ``orphans`` were removed; ``ids`` name damaged documents. Lines count as
    documents; the id of a damaged block is that of its first line, and what all lines of a
    collection share is named by its kind, in parentheses.
    """

    buckets: int
    documents: int = 0
    sound: int = 0
    repaired: int = 0
    damaged: int = 0
    bytes: int = 0
    orphans: int = 0
    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, buckets: int, counts: Mapping[str, int], ids: Sequence[str] = ()) -> Scrubbed:
        """Return the result of a scrub with these counts."""
        known = {name: counts.get(name, 0) for name in SCRUB_COUNTS}
        return cls(buckets=buckets, ids=tuple(ids), **known)


class Damaged(OpenModel):
    """A stored document that can neither be decoded to its text nor be repaired."""

    collection: str
    id: str


class RecentWalk(OpenModel):
    """The walk over documents written in the hour before an unclean start; goes before a pass."""

    progress: float = Field(ge=0, le=1)
    buckets_done: int
    buckets: int
    documents: int = Field(description="read so far")


class ScrubState(OpenModel):
    """The newest pass over all stored documents.

    ``state`` is "" from a gateway of an earlier version.
    """

    number: int = Field(description="of passes so far; 0 before the first")
    state: str = Field(
        default="", description="none, recent (goes before a pass), running or ended"
    )
    running: bool = Field(description="a pass is running")
    asked: bool = Field(description="a pass is requested and has not started")
    progress: float = Field(ge=0, le=1)
    recent: RecentWalk | None = None
    started: Moment | None = None
    ended: Moment | None = None
    documents: int
    sound: int
    repaired: int
    damaged: int
    bytes: int = Field(description="of text that read back")
    unread: int = Field(description="buckets that no worker could scrub")
    orphans: int = Field(default=0, description="points removed that no record names")
    damaged_documents: tuple[Damaged, ...] = Field(default=(), description="the first 256")


class MigrateRequest(StrictModel):
    """Body of ``POST /v1/collections/{name}/migrate``; a setting that is absent stays."""

    artifact: str = Field(
        default="current",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="current, a codec id, or an artifact id",
    )
    precision: Precision | None = None
    search: SearchSetting | None = None
    codec_policy: CodecPolicy | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings that the collection will have."""
        return self.model_dump(mode="json", exclude={"artifact"}, exclude_none=True)


class MigrateParams(Params):
    """What is done with a collection's migration."""

    collection: str
    step: Literal["begin", "work", "remove"]


@dataclass(frozen=True, slots=True)
class MigrateItem(Item):
    """``begin``: artifact and settings. ``work``: buckets, and seconds after which to stop."""

    artifact: str | None = None
    settings: dict[str, str] | None = None
    first: int = -1
    count: int = 0
    spend_s: float = -1.0


class Stage(StrEnum):
    """What a migration does now."""

    RECODE = "recode"
    """Code every document again in its collection: the space stays."""
    COPY = "copy"
    """Fill the new collection, pass after pass, until almost nothing is new."""
    SEAL = "seal"
    """The last pass, while commits into the old one are refused."""
    DONE = "done"
    BLOCKED = "blocked"
    """Some documents cannot be read; nothing was switched."""


class Migration(StrictModel):
    """The state of a collection's migration. Times are Unix seconds.

    ``source`` and ``target`` are own names, the same for a recode. ``codec`` is the codec that
    documents move to. ``number`` counts passes from 1, ``bucket`` is the next one to read,
    ``moved`` and ``failed`` count this pass, ``copied`` and ``removed`` all passes.
    """

    collection: str
    source: str
    target: str
    codec: str
    stage: Stage
    buckets: int
    number: int = 1
    bucket: int = 0
    moved: int = 0
    failed: int = 0
    copied: int = 0
    removed: int = 0
    unread: tuple[str, ...] = ()
    job: str | None = None
    tries: int = 0
    due: float = 0.0
    started: float
    ended: float | None = None
    old_removed: bool = False

    @property
    def running(self) -> bool:
        """Whether it has more to do."""
        return self.stage not in (Stage.DONE, Stage.BLOCKED)

    @property
    def in_place(self) -> bool:
        """Whether documents are coded again in their collection."""
        return self.source == self.target


class MigrationResult(ItemResult):
    """The result of a migrate job.

    Of ``begin`` and ``remove`` the migration, None if it is given up. Of ``work``: ``buckets`` and
    ``documents`` were read, except those of ``ids``, which could not be.
    """

    migration: Migration | None = None
    buckets: int = 0
    documents: int = 0
    copied: int = 0
    removed: int = 0
    failed: int = 0
    ids: tuple[str, ...] = ()

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object: the migration's own fields, or the counts."""
        if self.migration is not None:
            return self.migration.model_dump(mode="json")
        return super().frame_header(blobs) if self.buckets else {}

    def public(self, *, vectors_base64: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Return the JSON object that the API answers: as the frame's."""
        return self.frame_header([])

    @classmethod
    def from_frame(cls, header: dict[str, Any], blobs: list[bytes]) -> MigrationResult:  # noqa: ARG003
        """Read what :meth:`frame_header` wrote."""
        if "stage" in header:
            fields = {name: header[name] for name in Migration.model_fields if name in header}
            return cls(migration=Migration.model_validate(fields))
        return cls.model_validate(header)


class MigrationState(OpenModel):
    """The newest migration of a collection."""

    collection: str
    stage: str = Field(description="recode, copy, seal, done or blocked; given up")
    codec: str = Field(default="", description="that documents move to")
    in_place: bool = Field(
        default=False, description="the space stays, documents are coded again where they lie"
    )
    pass_number: int = 0
    progress: float = Field(default=0.0, ge=0, le=1, description="of the pass under way")
    copied: int = 0
    removed: int = 0
    unread: tuple[str, ...] = Field(
        default=(), description="documents that this pass could not read, the first 64"
    )
    old_removed: bool = False
    started: Moment | None = None
    ended: Moment | None = None

    @property
    def running(self) -> bool:
        """Whether it has more to do."""
        return self.stage in (Stage.RECODE, Stage.COPY, Stage.SEAL)


class MigrationEnded(OpenModel):
    """A migration whose old side was removed, or that was aborted."""

    collection: str
    stage: str = Field(description="done, or given up")


class ReleaseRequest(StrictModel):
    """Body of ``POST /v1/registry/promote`` and ``/rollback``; without a head, the artifact."""

    head: Name | None = None


class ModelsParams(Params):
    """A change of the registry. ``token`` names it, so that a repeated job changes it once."""

    change: Literal["show", "promote", "rollback"]
    head: str | None = None
    token: str | None = None


class WithdrawnState(OpenModel):
    """A canary that was taken back."""

    version: str
    reason: str
    time: Moment


class RolloutState(OpenModel):
    """What the channels of a head, or of the artifact, serve."""

    stable: str | None = None
    canary: str | None = None
    share: float
    previous: str | None = None
    withdrawn: WithdrawnState | None = None

    @classmethod
    def of(cls, rollout: Rollout) -> RolloutState:
        """Describe a rollout."""
        return cls.model_validate(rollout.model_dump())


class RegistryResult(ItemResult):
    """Which models the channels serve."""

    artifact: RolloutState
    heads: dict[str, RolloutState]


class RegistryState(RegistryResult):
    """Which models the channels and each worker serve."""

    workers: tuple[dict[str, Any], ...] = Field(
        default=(), description="what each worker serves, and what it refused and why"
    )


class RowsParams(Params):
    """Which records are exported with a label; ``texts``: as texts, else as vectors."""

    collection: str
    label_key: str
    chunk: Portion | None = None
    texts: bool = False


@dataclass(frozen=True, slots=True)
class RowsItem(Item):
    """A range of buckets, and the most rows wanted of it."""

    first: int
    count: int
    most: int


class Rows(ItemResult):
    """Labelled rows of a range of buckets.

    ``data``: vectors of shape (rows, dim), float32, little endian; or, of texts, what
    :func:`verso_core.jobs.train.pack_rows` writes.
    """

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    data: SkipJsonSchema[bytes] = Field(default=b"", exclude=True, repr=False)

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object for this result, and append its rows to ``blobs``."""
        blobs.append(self.data)
        return {"ids": list(self.ids), "labels": list(self.labels), "blob": len(blobs) - 1}

    @classmethod
    def from_frame(cls, header: dict[str, Any], blobs: list[bytes]) -> Rows:
        """Read what :meth:`frame_header` wrote."""
        return cls(ids=header["ids"], labels=header["labels"], data=blobs[header["blob"]])
