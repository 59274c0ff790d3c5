"""Reconstruct: stored texts by id, exactly; guesses from bare vectors; how records are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from verso_core.jobs.heads.models import TextSpan
from verso_core.jobs.models import (
    READ_COST,
    Item,
    ItemError,
    ItemResult,
    Name,
    OpenModel,
    Params,
    StrictModel,
    Text,
    one_of,
)
from verso_core.texts import Metadata

MAX_TOKENS = 127
"""Longest guess."""
_STEP_COST = 128  # a step of the decoder takes as long as so many bytes take the encoder
_BEAM_COST = 32  # and each prefix that it follows so much more


class ReconstructRequest(StrictModel):
    """Body of ``POST /v1/reconstruct``: stored texts by id, or guesses from bare vectors."""

    model_config = ConfigDict(json_schema_extra=one_of("ids", "vectors"))

    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=1024)
    vectors: list[list[float]] | None = Field(default=None, min_length=1, max_length=256)
    beam: int = Field(default=1, ge=1, le=16)
    max_tokens: int = Field(default=MAX_TOKENS, ge=1, le=MAX_TOKENS)

    @model_validator(mode="after")
    def _one_source(self) -> ReconstructRequest:
        if (self.ids is None) == (self.vectors is None):
            raise ValueError("expected exactly one of ids and vectors")
        return self


class ReconstructParams(Params):
    """The collection of the documents of a slice; None for bare vectors."""

    collection: str | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of reading a text back, or of the decoder's steps of a guess."""
        if not isinstance(item, ReconstructItem) or not item.vector:
            return READ_COST
        return (item.max_tokens or MAX_TOKENS) * (_STEP_COST + _BEAM_COST * (item.beam or 1))


@dataclass(frozen=True, slots=True)
class ReconstructItem(Item):
    """A document or record by name, or a bare vector (float32, little endian) to guess from."""

    BLOB: ClassVar = "data"

    id: str = ""
    chunk: int | None = None
    vector: bool = False
    beam: int | None = None
    max_tokens: int | None = None
    data: bytes | None = None


class StoredText(Text, ItemResult):
    """A stored document or record, decoded: ``text`` is exactly what was ingested."""

    id: str
    chunk: int | None = None
    chunks: int | None = None
    exact: bool = True
    metadata: Metadata = Field(default_factory=dict)
    time: float | None = None
    error: ItemError | None = None


class Guess(Text, ItemResult):
    """A text guessed from a bare vector. It is never presented as exact."""

    exact: bool = False
    confidence: float = Field(default=0.0, description="the model's own, 0..1")
    log_probability: float = Field(default=0.0, description="normalised by length; <= 0")
    cosine: float | None = Field(
        default=None,
        description="of the guess's own vector with the one given, -1..1: how good it is",
    )
    error: ItemError | None = None


MAX_RECORDS = 64
"""Most records of a document that are described at once."""


class RecordsParams(Params):
    """What is shown of the records of a document besides their sizes."""

    collection: str
    vector: bool = False
    draft: bool = False
    limit: int = 16

    def cost(self, item: Item) -> int:  # noqa: ARG002 - all items cost the same
        """Return the cost of reading the records' texts and, for drafts, of the decoder's steps."""
        guessed = MAX_TOKENS * (_STEP_COST + _BEAM_COST) if self.draft else 0
        return (READ_COST + guessed) * self.limit


@dataclass(frozen=True, slots=True)
class RecordsItem(Item):
    """A document, or one record of it, by name."""

    id: str
    chunk: int | None = None


class Correction(TextSpan):
    """A part of the text that the decoder would have written otherwise; the patch corrects it."""

    guess: str = Field(description="what it would have written; empty where it would have ended")


class Draft(OpenModel):
    """What the decoder makes of a record's vector, without and with the patch."""

    guess: str = Field(description="from the vector alone")
    confidence: float = Field(description="the model's own, 0..1")
    log_probability: float = Field(description="normalised by length; <= 0")
    tokens: int = Field(description="of the text; 0 where the decoder cannot read it")
    right: int = Field(description="tokens that it guesses first, given those before")
    corrections: tuple[Correction, ...] = ()


class StoredRecord(OpenModel):
    """How one chunk of a document is stored."""

    id: str = Field(examples=["boot-1#0"])
    codec: str = Field(examples=["neural"])
    artifact: str = Field(description="id of the codec's artifact, or of fitted tables")
    bytes_text: int | None = Field(default=None, description="null if it cannot be decoded")
    bytes_patch: int = Field(description="the payload, and one byte for the codec")
    bytes_vector: int
    vector_hash: str = Field(description="hex; of the vector's bytes")
    vector: tuple[float, ...] | None = Field(default=None, description="where it was asked for")
    draft: Draft | None = Field(default=None, description="likewise")
    error: ItemError | None = None


class StoredRecords(ItemResult):
    """How a document is stored: its first records, and the sizes of the whole."""

    id: str
    chunks: int
    written: int
    verified: bool
    bytes_text: int
    bytes_entry: int = Field(description="patches, hashes and checksums of all records")
    records: tuple[StoredRecord, ...]
