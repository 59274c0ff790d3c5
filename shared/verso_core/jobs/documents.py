"""Documents by their metadata: list, count, facets, update, and delete what a filter passes."""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from verso_core.errors import RequestInvalid
from verso_core.jobs.filters.compiled import compiled
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.models import (
    Item,
    ItemResult,
    MissingPartitions,
    OpenModel,
    Params,
    StrictModel,
)
from verso_core.texts import Metadata, Scalar

MAX_LISTED = 1000
"""Most documents in a page of a list."""
MAX_FACET_DOCUMENTS = 100_000
"""Most documents whose values facets count: of each its metadata is read."""
ROW_COST = 64
"""Cost of a document whose metadata alone is read."""
DELETED_TOGETHER = 512
"""Documents that one slice of a delete looks at, about."""

FieldName = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class Order(StrEnum):
    """What a list of documents is ordered by.

    ``time`` puts documents without a time last; equal times are ordered by id.
    """

    ID = "id"
    TIME = "time"


class ListOptions(Params):
    """What a list shows; shared by its request and its slice."""

    filter: Filter | None = None
    order: Order = Order.ID
    descending: bool = False
    limit: int = Field(default=100, ge=1, le=MAX_LISTED)
    cursor: str | None = Field(
        default=None, max_length=65_536, description="next_cursor of the last page"
    )


class ListRequest(ListOptions):
    """Body of ``POST /v1/collections/{name}/documents/query``."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def params(self, collection: str) -> ListParams:
        """Return the params of the request's slice."""
        given = {name: getattr(self, name) for name in ListOptions.model_fields}
        return ListParams(collection=collection, **given)


class ListParams(ListOptions):
    """A list of a collection's documents; with ``ids`` of these, and nothing else counts."""

    collection: str
    ids: tuple[str, ...] | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of a page: payloads are read, and no text."""
        return super().cost(item) + ROW_COST * self.limit

    @property
    def page_end(self) -> PageEnd | None:
        """Return the last document of the page before; None for the first page.

        Raises:
            RequestInvalid: the cursor is none of a list in this order.
        """
        return None if self.cursor is None else PageEnd.read(self.cursor, self)


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The last document of a page; ``time`` is None for one without, and in a list by id."""

    id: str
    time: float | None = None

    def cursor(self, options: ListOptions) -> str:
        """Write the end of a page as a cursor."""
        row = json.dumps([options.order, options.descending, self.time, self.id])
        return base64.urlsafe_b64encode(row.encode()).decode().rstrip("=")

    @classmethod
    def read(cls, cursor: str, options: ListOptions) -> PageEnd:
        """Read a cursor of a list in the same order.

        Raises:
            RequestInvalid: it is none.
        """
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            row = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            order, descending, time, name = row
        except (binascii.Error, ValueError, TypeError, RecursionError) as exc:
            raise RequestInvalid("expected a cursor of this list") from exc
        timed = isinstance(time, float) and math.isfinite(time) and order == Order.TIME
        if (
            (order, descending) != (options.order, options.descending)
            or not isinstance(descending, bool)
            or not isinstance(name, str)
            or not (timed or time is None)
        ):
            raise RequestInvalid("expected a cursor of this list, in the same order")
        return cls(name, time)


class DocumentInfo(OpenModel):
    """A stored document in a list; ``written`` grows from job to job.

    A list without an order has neither metadata nor time.
    """

    id: str
    written: int = Field(
        description="number of the job that wrote it; later jobs have larger ones; 0 of a line"
    )
    bytes: int = Field(description="size of its text")
    verified: bool = Field(default=False, description="an independent decode has returned its text")
    chunks: int | None = None
    metadata: Metadata = Field(default_factory=dict)
    time: float | None = Field(default=None, description="Unix seconds")


class DocumentPage(ItemResult):
    """A page of a collection's documents; ``next_cursor`` is None on the last one."""

    documents: tuple[DocumentInfo, ...]
    next_cursor: str | None = None
    missing_partitions: MissingPartitions = ()


class CountRequest(StrictModel):
    """Body of ``POST /v1/collections/{name}/documents/count``."""

    filter: Filter | None = None


class CountParams(Params):
    """Which documents are counted."""

    collection: str
    filter: Filter | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of a count, which may look at many documents."""
        return super().cost(item) + ROW_COST * MAX_LISTED


class Counted(ItemResult):
    """How many documents a filter passes."""

    documents: int
    exact: bool = Field(
        default=True,
        description="false where documents come and go, too many to look at each",
    )
    missing_partitions: MissingPartitions = ()


class FacetsRequest(StrictModel):
    """Body of ``POST /v1/collections/{name}/facets``."""

    fields: list[FieldName] = Field(
        min_length=1,
        max_length=8,
        description="metadata keys, as in filters",
        examples=[["host"]],
        json_schema_extra={"uniqueItems": True},
    )
    filter: Filter | None = None
    limit: int = Field(default=10, ge=1, le=1000, description="values of each field")

    @model_validator(mode="after")
    def _own_values(self) -> FacetsRequest:
        if len(set(self.fields)) != len(self.fields):
            raise ValueError("expected fields that are all different")
        return self

    def params(self, collection: str) -> FacetsParams:
        """Return the params of the request's slice."""
        return FacetsParams(
            collection=collection,
            fields=tuple(self.fields),
            filter=self.filter,
            limit=self.limit,
        )


class FacetsParams(Params):
    """Whose values are counted."""

    collection: str
    fields: tuple[str, ...]
    filter: Filter | None = None
    limit: int = 10

    def cost(self, item: Item) -> int:
        """Return the cost of facets, which read the metadata of every document that passes."""
        return super().cost(item) + 10 * ROW_COST * MAX_LISTED


class FacetValue(OpenModel):
    """A value, and how many documents have it."""

    value: Scalar
    documents: int


class Facet(OpenModel):
    """The values of a field, the most frequent first, equal ones by value."""

    field: str
    values: tuple[FacetValue, ...]
    distinct: int = Field(description="values in all")
    missing: int = Field(description="documents without a value")


class Facets(ItemResult):
    """The most frequent values of fields, of the documents that the filter passes."""

    documents: int
    facets: tuple[Facet, ...]
    missing_partitions: MissingPartitions = ()


class UpdateRequest(StrictModel):
    """Body of ``PATCH /v1/documents/{id}``: metadata and time; the text stays as it is."""

    metadata: dict[str, Any] | None = Field(
        default=None,
        description="set these keys, or with replace all metadata",
        examples=[{"reviewed": True}],
    )
    replace: bool = Field(default=False, description="metadata is all that there is then")
    remove: list[str] = Field(
        default_factory=list, max_length=256, description="keys of metadata that go"
    )
    time: Annotated[
        float | str | None,
        Field(description="Unix seconds or RFC 3339; null removes it, absent it stays"),
    ] = None
    written: int | None = Field(
        default=None, ge=0, description="refuse if the document was written by another job"
    )

    def changed(self, metadata: Metadata) -> Metadata:
        """Return metadata as the request changes it."""
        kept = {} if self.replace else metadata
        merged = kept | (self.metadata or {})
        return {key: value for key, value in merged.items() if key not in self.remove}


class UpdateParams(Params):
    """Where the documents of a slice are."""

    collection: str


@dataclass(frozen=True, slots=True)
class UpdateItem(Item):
    """A document's new metadata and time; ``written`` by the job whose write they are for."""

    id: str
    metadata: Metadata
    time: float | None
    written: int


class Updated(ItemResult):
    """A document whose metadata and time are new; its text and vectors are what they were."""

    id: str
    written: int = Field(description="number of the job that changed it")


class DeleteMatchingRequest(StrictModel):
    """Body of ``POST /v1/collections/{name}/documents/delete``."""

    filter: Filter

    @model_validator(mode="after")
    def _not_all(self) -> DeleteMatchingRequest:
        if compiled(self.filter) is True:
            raise ValueError("expected a filter that does not pass every document")
        return self


class DeleteMatchingParams(Params):
    """Which documents of a collection go."""

    collection: str
    filter: Filter

    def cost(self, item: Item) -> int:
        """Return the cost of one part of the collection."""
        return super().cost(item) + ROW_COST * DELETED_TOGETHER


@dataclass(frozen=True, slots=True)
class PartItem(Item):
    """One of equal parts of a collection: ``part`` of ``parts``, from 0."""

    part: int
    parts: int


class DeletedMatching(ItemResult):
    """How many documents were deleted."""

    deleted: int


class DeleteMatchingResponse(OpenModel):
    """Answer of ``POST /v1/collections/{name}/documents/delete``."""

    job_id: str
    deleted: int


def parts_of(documents: int) -> list[PartItem]:
    """Return the parts in which a collection of so many documents is gone through."""
    count = min(16_384, max(1, math.ceil(documents / DELETED_TOGETHER)))
    return [PartItem(part, count) for part in range(count)]
