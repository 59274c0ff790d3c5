"""Classify texts, or stored documents and records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, model_validator

from verso_core.heads import Portion
from verso_core.jobs.heads.models import MAX_PAIRS, HeadResult
from verso_core.jobs.models import (
    READ_COST,
    WINDOW_COST,
    Item,
    ItemError,
    ItemResult,
    Name,
    OpenModel,
    Params,
    StrictModel,
    one_of,
)

_Heads = Annotated[
    list[Name], Field(json_schema_extra={"minItems": 1, "maxItems": 8, "uniqueItems": True})
]


class ClassifyRequest(StrictModel):
    """Body of ``POST /v1/classify``: texts, or stored documents and records."""

    model_config = ConfigDict(json_schema_extra=one_of("texts", "ids"))

    head: Name | _Heads = Field(description="a head, or several", examples=["intents"])
    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    top_k: int = Field(default=3, ge=1, le=1000)
    signals: bool = Field(default=False, description="give every confidence signal")
    chunk: Portion | None = Field(
        default=None,
        description="which chunks of a long text or document are read: the first, the last, or all "
        "by the mean of their logits; default: what the head says",
    )
    accept_error: float | None = Field(
        default=None, gt=0, lt=1, description="withhold labels so that at most this share is wrong"
    )

    @model_validator(mode="after")
    def _one_source(self) -> ClassifyRequest:
        if (self.texts is None) == (self.ids is None):
            raise ValueError("expected exactly one of texts and ids")
        if isinstance(self.head, list) and not 1 <= len(set(self.head)) == len(self.head) <= 8:
            raise ValueError("expected 1..8 heads, all different")
        return self

    @property
    def heads(self) -> list[str]:
        """Return the names of the heads."""
        return [self.head] if isinstance(self.head, str) else list(self.head)

    def params(self) -> ClassifyParams:
        """Return the params of the request's slices."""
        return ClassifyParams(
            heads=tuple(self.heads),
            collection=None if self.ids is None else self.collection,
            top_k=self.top_k,
            signals=self.signals,
            accept_error=self.accept_error,
            chunk=self.chunk,
        )


class ClassifyParams(Params):
    """Which heads classify the items of a slice, and how; ``collection`` of stored items."""

    heads: tuple[str, ...]
    collection: str | None = None
    top_k: int = 3
    signals: bool = False
    accept_error: float | None = None
    chunk: Portion | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of a text that each head reads a window of, or of a stored one."""
        stored = READ_COST if self.collection is not None else 0
        return stored + min(super().cost(item), WINDOW_COST) * max(1, len(self.heads))


@dataclass(frozen=True, slots=True)
class ClassifyItem(Item):
    """A text, or a stored document or record by its name."""

    BLOB: ClassVar = "text"

    id: str = ""
    chunk: int | None = None
    text: bytes | None = None


class Label(OpenModel):
    """A label with its calibrated probability."""

    label: str
    score: float


class Classification(HeadResult):
    """The labels that a head predicts for a text; ``label`` is None if it was not sure enough."""

    label: str | None
    abstained: bool
    confidence: float = Field(default=0.0, description="probability that the best label is right")
    scores: tuple[Label, ...] = Field(default=(), description="best first")
    out_of_scope: bool | None = None
    shifted: bool | None = Field(
        default=None,
        description="whether the texts read together lie further from the head's training texts "
        "than those it was calibrated on; null of a head that cannot tell",
    )
    signals: dict[str, float | None] | None = Field(default=None, description="larger is surer")


class Classified(ItemResult):
    """One text, or one stored document or record."""

    id: str | None = None
    chunk: int | None = None
    heads: tuple[Classification, ...] = ()
    error: ItemError | None = None
