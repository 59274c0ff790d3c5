"""Ingest and delete documents; embed texts."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from verso_core.jobs.job import Batch, JobView
from verso_core.jobs.models import (
    ALWAYS,
    WINDOW_COST,
    Item,
    ItemError,
    ItemResult,
    Name,
    OpenModel,
    Params,
    StrictModel,
)
from verso_core.texts import Metadata


class Document(StrictModel):
    """A document to ingest: exactly one of ``text`` and ``text_base64``."""

    id: str | None = Field(
        default=None,
        description="1..256 bytes; by default a new, time-ordered one",
        examples=["boot-1"],
    )
    text: str | None = Field(default=None, examples=["kernel: eth0: link is up"])
    text_base64: str | None = Field(default=None, description="for bytes that are not UTF-8")
    metadata: Metadata = Field(
        default_factory=dict,
        examples=[{"host": "a"}],
        description="scalars, null, lists of scalars, nested objects; up to 4096 bytes",
    )
    time: Annotated[
        float | str | None, Field(description="Unix seconds or RFC 3339 with an offset")
    ] = None


class IngestRequest(StrictModel):
    """Body of ``POST /v1/ingest``; each document is checked by itself."""

    collection: Name = "default"
    documents: list[Document]


MAX_REFUSALS = 20
"""Refused documents whose reasons an answer shows; a job's results have all of them."""


class Refusal(OpenModel):
    """Why a document was refused at once; ``detail`` starts with its line or position."""

    id: str | None = None
    error: ItemError


class Intaken(OpenModel):
    """How many documents of a request were accepted, and how many refused at once."""

    accepted: int
    refused: int
    refusals: tuple[Refusal, ...] = Field(description=f"the first {MAX_REFUSALS}, in order")


class IngestAccepted(Intaken, JobView):
    """The job of an ingest, before it has ended."""


class IngestBatch(Intaken, Batch):
    """The job of an ingest that ended in time, with all its results in order."""


class IngestParams(Params):
    """The collection that the documents of a slice are written to."""

    collection: str


@dataclass(frozen=True, slots=True)
class IngestItem(Item):
    """A document. ``time``: Unix seconds."""

    BLOB: ClassVar = "text"

    id: str
    text: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict, metadata=ALWAYS)
    time: float | None = field(default=None, metadata=ALWAYS)


class Ingested(ItemResult):
    """The result of one document."""

    id: str | None = None
    chunks: int = 0
    bytes_text: int = 0
    bytes_patch: int = 0
    codecs: dict[str, int] = Field(default_factory=dict, description="chunks by codec")
    error: ItemError | None = None


class DeleteParams(Params):
    """The collection that the documents of a slice are deleted from."""

    collection: str


@dataclass(frozen=True, slots=True)
class DeleteItem(Item):
    """A document to delete."""

    id: str


class Deleted(ItemResult):
    """Whether the document existed."""

    id: str
    deleted: bool


class DocumentDeleted(Deleted):
    """A document that was deleted."""

    deleted: Literal[True]


class EmbedRequest(StrictModel):
    """Body of ``POST /v1/embed``."""

    texts: list[str] = Field(min_length=1, max_length=2048)
    encoding: Literal["float", "base64"] = "float"
    artifact: Name | None = Field(
        default=None, description="artifact that makes the vectors; null is the stable one"
    )


class EmbedParams(Params):
    """The artifact that encodes; None is the stable one, or its canary."""

    artifact: str | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of a text, of which one window is read."""
        return min(super().cost(item), WINDOW_COST)


@dataclass(frozen=True, slots=True)
class EmbedItem(Item):
    """A text to encode."""

    BLOB: ClassVar = "text"

    text: bytes


class Embedded(ItemResult):
    """The vector of one text, as the encoder returns it: unit length, float32.

    In a frame it is ``vector``, float32, little endian. Shape: (dim,).
    """

    tokens: int = Field(default=0, description="tokens of the text that were read")
    truncated: bool = Field(
        default=False,
        description="the text is longer than the encoder's window: only its beginning",
    )
    embedding: Annotated[
        tuple[float, ...],
        WithJsonSchema(
            {
                "anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}],
                "description": "numbers, or base64 of float32, little endian",
            }
        ),
    ] = ()
    error: ItemError | None = None
    vector: SkipJsonSchema[bytes] = Field(default=b"", exclude=True, repr=False)

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object for this result, and append its vector to ``blobs``."""
        blobs.append(self.vector)
        header: dict[str, Any] = {"tokens": self.tokens, "blob": len(blobs) - 1}
        return header | {"truncated": True} if self.truncated else header

    @classmethod
    def from_frame(cls, header: Mapping[str, Any], blobs: list[bytes]) -> Embedded:
        """Read what :meth:`frame_header` wrote."""
        return cls(
            tokens=header["tokens"],
            truncated=header.get("truncated", False),
            vector=blobs[header["blob"]],
        )

    def public(self, *, vectors_base64: bool = False) -> dict[str, Any]:
        """Return the JSON object that the API answers; the vector as base64 if asked."""
        size = len(self.vector) // 4
        embedding: str | tuple[float, ...] = (
            base64.b64encode(self.vector).decode()
            if vectors_base64
            else struct.unpack(f"<{size}f", self.vector)
        )
        return {"tokens": self.tokens, "truncated": self.truncated, "embedding": embedding}
