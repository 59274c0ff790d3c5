"""What a collection holds, counted in its stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field

from verso_core.jobs.collections import RolloverRule
from verso_core.jobs.fitting import GenerationState
from verso_core.jobs.models import (
    CodecPolicy,
    CollectionKind,
    IndexKind,
    ItemResult,
    MissingPartitions,
    Moment,
    OpenModel,
    Precision,
    SearchMode,
    TextPolicy,
)
from verso_core.record import Codec


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
    bytes_cold: int = Field(default=0, description="entries and blocks of lines in cold storage")
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
    bytes_cold: int = Field(default=0, description="blocks in cold storage, not in the ledger")
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
    partitions: int | None = Field(default=None, description="null of one that has none")
    rollover: RolloverRule | None = Field(default=None, description="of partitions by time")
    missing_partitions: MissingPartitions = ()
    lines: LineStatistics | None = Field(default=None, description="of a log collection")


@dataclass(frozen=True, slots=True)
class Share:
    """Records of one codec, and the size of their patches, one byte for the codec included."""

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerMemory:
    """What the ledger's server holds in memory for a collection, bytes.

    Names of keys, fields and what the allocator rounds up to are included.
    """

    entries: int
    texts: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """Sums over the entries of a collection. Sizes are bytes.

    ``unreadable`` entries are in no other count.
    """

    documents: int
    chunks: int
    verified: int
    unreadable: int
    bytes_text: int
    bytes_entries: int
    codecs: Mapping[Codec, Share]
    slots: Mapping[int, int] = field(default_factory=dict)
    """Records by artifact slot, of what was written since slots are counted."""
    bytes_cold: int = 0
    """Entries in cold storage; the sizes of patches among them are up to 2 bytes a record larger
    than they are."""
