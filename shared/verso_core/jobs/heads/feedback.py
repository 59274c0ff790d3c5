"""Check what heads say of texts whose labels people know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from verso_core.jobs.heads.classify import ClassifyParams
from verso_core.jobs.heads.models import MAX_PAIRS, HeadResult
from verso_core.jobs.models import Item, ItemError, ItemResult, Name, Params, StrictModel, one_of


class FeedbackRequest(StrictModel):
    """Body of ``POST /v1/feedback``: the right labels of texts, or of stored documents."""

    model_config = ConfigDict(json_schema_extra=one_of("texts", "ids"))

    head: Name = Field(description="a head that classifies", examples=["log-failures"])
    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    labels: list[str] = Field(
        min_length=1, max_length=MAX_PAIRS, description="the right label of each, in order"
    )

    @model_validator(mode="after")
    def _one_each(self) -> FeedbackRequest:
        if (self.texts is None) == (self.ids is None):
            raise ValueError("expected exactly one of texts and ids")
        given = len(self.texts if self.texts is not None else self.ids or [])
        if given != len(self.labels):
            raise ValueError(f"expected as many labels as texts or ids, got {len(self.labels)}")
        return self

    def params(self) -> FeedbackParams:
        """Return the params of the request's slices."""
        collection = None if self.ids is None else self.collection
        return FeedbackParams(head=self.head, collection=collection)


class FeedbackParams(Params):
    """Which head the labels of a slice's items are feedback on."""

    head: str
    collection: str | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of classifying the item."""
        return ClassifyParams(heads=(self.head,), collection=self.collection).cost(item)


@dataclass(frozen=True, slots=True)
class FeedbackItem(Item):
    """A text, or a stored document or record by its name, and its right label."""

    BLOB: ClassVar = "text"

    id: str = ""
    chunk: int | None = None
    label: str = ""
    text: bytes | None = None


class FeedbackTaken(HeadResult, ItemResult):
    """What a head says of an item that feedback was given on; it is counted from now on."""

    id: str | None = None
    chunk: int | None = None
    label: str = Field(description="the head's own, whether it would have been withheld or not")
    right: bool
    error: ItemError | None = None
