"""Reconstruct: stored texts by id, exactly; or guesses from bare vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from verso_core.jobs.models import (
    READ_COST,
    Item,
    ItemError,
    ItemResult,
    Name,
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
    error: ItemError | None = None
