"""Create, change, describe and delete collections, and count what is stored."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from verso_core.jobs.fitting import Fitting
from verso_core.jobs.models import (
    CodecPolicy,
    CollectionKind,
    IndexKind,
    ItemResult,
    MissingPartitions,
    Moment,
    Name,
    OpenModel,
    Params,
    Precision,
    SearchMode,
    SearchSetting,
    StoredName,
    StrictModel,
    TextPolicy,
)
from verso_core.record import MAX_SLOT

FREE_SLOT = ""
"""What the artifact slot of a deleted generation holds."""
MAX_PARTITIONS = 64
"""Most partitions of a collection."""
_HASH_BITS = 64  # of an id, by which documents are spread
STREAMS = 1 << 16
"""Most streams of a partition by time; those of partition N are numbered from N times as many on
(``reserve.lua``)."""
MAX_TIME_PARTITIONS = (1 << 32) // STREAMS
"""Most partitions by time that a collection ever has: numbers of streams have 32 bits."""
STATEMENTS = 10**9
"""Ids of the statements of partition N by time are those that it has itself, and N times this."""
_MOST_BYTES = 1 << 40
MAX_INDEXES = 16
"""Most metadata fields of a collection that are indexed."""
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


class RolloverRule(OpenModel):
    """When a log collection gets a new partition, into which lines are written from then on."""

    span_s: float = 86_400.0
    max_bytes: int | None = None


class Rollover(StrictModel):
    """When a log collection gets a new partition, as a request says it."""

    span_s: float = Field(
        default=86_400.0, ge=1, le=366 * 86_400, description="once the newest took lines so long"
    )
    max_bytes: int | None = Field(
        default=None, ge=1, le=_MOST_BYTES, description="or once it takes about so much memory"
    )

    @property
    def rule(self) -> RolloverRule:
        """The rule, as it is kept."""
        return RolloverRule(span_s=self.span_s, max_bytes=self.max_bytes)


class Collection(StrictModel):
    """A named set of documents whose vectors lie in one space.

    A record names its codec by its index in ``artifacts``. An entry stays as long as a record may
    name it: that of a deleted generation of fitted tables is empty, and is used again.
    """

    name: StoredName
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
    partitions: int = Field(default=1, exclude=True, description="never stored: a ledger has one")
    parted: Partitioned | None = Field(default=None, exclude=True, description="likewise")

    @cached_property
    def made(self) -> str:
        """Return when it was made, as it is stored; no other one of its name has the same."""
        return str(self.model_dump(mode="json", include={"created"})["created"])

    def uses_slot(self, slot: int) -> bool:
        """Whether an artifact slot names a codec."""
        return slot < len(self.artifacts) and self.artifacts[slot] != FREE_SLOT

    def with_slot(self, codec: str) -> tuple[str, ...] | None:
        """Return the slots with one for a codec: its own or a free one; None if all are used."""
        if codec in self.artifacts:
            return self.artifacts
        if FREE_SLOT in self.artifacts:
            slot = self.artifacts.index(FREE_SLOT)
            return (*self.artifacts[:slot], codec, *self.artifacts[slot + 1 :])
        return (*self.artifacts, codec) if len(self.artifacts) <= MAX_SLOT else None


class Stage(StrEnum):
    """What is done with a collection of partitions, or with one of them; a live one is served.

    ``MISSING``: of a partition by time, which its ledger no longer has.
    """

    MAKING = "making"
    LIVE = "live"
    DELETING = "deleting"
    MISSING = "missing"


class TimePart(BaseModel):
    """A partition by time; times are Unix seconds.

    ``rolled``: since when it takes no more lines. ``first`` and ``last``: of all its lines, once
    each that was accepted is stored.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    number: int
    stage: Stage = Stage.MAKING
    since: float
    rolled: float | None = None
    first: float | None = None
    last: float | None = None


class Partitioned(BaseModel):
    """What the home ledger keeps of a collection of partitions.

    By a hash of ids there are ``partitions``. By time there are ``parts``, the oldest first;
    ``writing`` is the number of the one that takes lines. What a later release has added stays.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    partitions: int
    owner: str | None = None
    stage: Stage = Stage.MAKING
    rollover: RolloverRule | None = None
    parts: tuple[TimePart, ...] = ()
    writing: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """The partitions that are served."""
        if self.rollover is None:
            return tuple(range(self.partitions))
        return tuple(one.number for one in self.parts if one.stage is Stage.LIVE)

    @property
    def every_number(self) -> tuple[int, ...]:
        """The partitions that there are, or may be."""
        return self.numbers if self.rollover is None else tuple(one.number for one in self.parts)

    @property
    def missing(self) -> tuple[int, ...]:
        """The partitions by time that their ledgers no longer have."""
        return tuple(one.number for one in self.parts if one.stage is Stage.MISSING)

    def part(self, number: int) -> TimePart | None:
        """Return a partition by time."""
        return next((one for one in self.parts if one.number == number), None)

    def following(self, number: int) -> int | None:
        """Return the number of the live partition behind one by time, which takes lines next."""
        return min((one for one in self.numbers if one > number), default=None)

    def changed(self, number: int, **changes: Any) -> Partitioned:
        """Return the state with one partition by time changed."""
        parts = (
            one.model_copy(update=changes) if one.number == number else one for one in self.parts
        )
        return self.model_copy(update={"parts": tuple(parts)})


Collection.model_rebuild()


def partition_name(collection: str, number: int) -> str:
    """Return the name of a partition. A dot is in no name that users give."""
    return f"{collection}.{number}"


def number_of_partition(name: str) -> int:
    """Return the number of a partition by its name."""
    return int(name.rpartition(".")[2])


def partition_names(collection: str, partitions: int) -> list[str]:
    """Return the names of a collection's partitions by a hash, by number."""
    return [partition_name(collection, number) for number in range(partitions)]


def collection_of_partition(name: str) -> str | None:
    """Return the collection that a name is a partition of; None if it is no partition's."""
    collection, dot, _ = name.rpartition(".")
    return collection if dot else None


def partition_of(document: str, partitions: int) -> int:
    """Return the number of the partition that has a document, or would have it.

    The range of a 64-bit hash of the id is cut into equal parts.
    """
    digest = hashlib.blake2b(document.encode(), digest_size=_HASH_BITS // 8).digest()
    return int.from_bytes(digest) * partitions >> _HASH_BITS


class CollectionSettings(Params):
    """What is chosen when a collection is made."""

    name: Name
    kind: CollectionKind = Field(
        default=CollectionKind.DOCUMENTS,
        description="logs keeps lines together, with one vector a statement",
    )
    precision: Precision = Field(
        default=Precision.INT4,
        description="how vectors are stored: 4 bits a dimension find as much as 8 or 16 do",
    )
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
    artifact: Name | None = Field(
        default=None, description="artifact that makes its vectors; null is the stable one"
    )


class CollectionRequest(CollectionSettings):
    """Body of ``POST /v1/collections``."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    partitions: int = Field(
        default=1,
        ge=1,
        le=MAX_PARTITIONS,
        description="documents are spread over so many by a hash of their ids, each on one ledger",
    )
    rollover: Rollover | None = Field(
        default=None, description="of a log collection: partitions by time, each on one ledger"
    )


class CollectionParams(CollectionSettings):
    """Settings of a collection to create, and the tenant that it will belong to."""

    name: StoredName
    owner: str | None = None
    space: str | None = Field(default=None, description="of a partition: that of its collection")


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
    partitions: int | None = Field(default=None, description="null of one that has none")
    rollover: RolloverRule | None = Field(default=None, description="of partitions by time")
    missing_partitions: MissingPartitions = ()

    @classmethod
    def settings(cls, collection: Collection) -> dict[str, Any]:
        """Return the fields that a collection has."""
        own = CollectionInfo.model_fields.keys() - {"partitions", "rollover", "missing_partitions"}
        found = {name: getattr(collection, name) for name in own}
        if collection.parted is not None:
            found["partitions"] = collection.partitions
            if collection.parted.rollover is not None:
                found["rollover"] = collection.parted.rollover
            if names := [partition_name(collection.name, one) for one in collection.parted.missing]:
                found["missing_partitions"] = tuple(names)
        return found

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
