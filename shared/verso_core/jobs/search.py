"""Search: find records by a text, a vector, or another record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.models import (
    READ_COST,
    WINDOW_COST,
    Item,
    ItemError,
    ItemResult,
    Name,
    OpenModel,
    Params,
    RecordText,
    SearchMode,
    Text,
    needs,
    one_of,
)
from verso_core.texts import Metadata

RERANK_SHARE = 0.4
"""Default share of a head's score in a reranked search; chosen on training questions
(docs/research/search-quality.md)."""


class SearchParams(Params):
    """How a search is done: every option that its request and its slice share."""

    collection: Name = "default"
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
    explain: bool = Field(default=False, description="add the parts of each hit's score")
    lines: bool = Field(
        default=False, description="of a log collection: hits are lines, not statements"
    )

    def cost(self, item: Item) -> int:
        """Return the cost of a query, of the texts read back, and of those that a head reads."""
        read = READ_COST * (self.limit if self.with_text else 0)
        scored = 0 if self.rerank is None else (READ_COST + WINDOW_COST) * self.rerank_from
        return min(super().cost(item), WINDOW_COST) + read + scored


class SearchRequest(SearchParams):
    """Body of ``POST /v1/search``: exactly one of ``query``, ``vector`` and ``id``."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra=one_of("query", "vector", "id") | needs("rerank", "query"),
    )

    query: str | None = None
    vector: list[float] | None = None
    id: str | None = Field(default=None, description="a document or record id: more like this one")

    @model_validator(mode="after")
    def _one_query(self) -> SearchRequest:
        given = [n for n in ("query", "vector", "id") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of query, vector, id; got {given or 'none'}")
        if self.rerank is not None and self.query is None:
            raise ValueError("expected a query where hits are reranked: a head reads texts")
        return self

    def params(self, mode: SearchMode) -> SearchParams:
        """Return the params of the request's slice, with the given mode."""
        options = {name: getattr(self, name) for name in SearchParams.model_fields}
        for option in ("explain", "lines"):
            if not options[option]:
                del options[option]  # the slice has the same bytes as before the option existed
        return SearchParams(**options | {"mode": mode})


@dataclass(frozen=True, slots=True)
class SearchItem(Item):
    """A query: a text; or a vector (float32, little endian); or a stored record by its name."""

    BLOB: ClassVar = "data"

    data: bytes | None = None
    vector: bool = False
    id: str | None = None
    chunk: int | None = None


class Explanation(OpenModel):
    """The parts of a hit's score, as far as its search has them."""

    dense: float | None = Field(default=None, description="cosine of the vectors, -1..1")
    sparse: float | None = Field(default=None, description="BM25 weight of the words, >= 0")
    fused: float | None = Field(default=None, description="hybrid: both joined, 0..1")
    rerank_score: float | None = Field(default=None, description="the head's, of the best sentence")
    rerank_share: float | None = Field(default=None, description="what the head's score counts")


class StatementLine(Text):
    """One of the newest lines of a statement."""

    id: str = Field(examples=["3:1042"])
    time: str | None = Field(default=None, description="RFC 3339, UTC")


class Hit(RecordText):
    """A record that a search found; of a log collection a statement, and its newest line."""

    id: str = Field(description="of the record: document#chunk", examples=["boot-1#0"])
    document: str
    chunk: int
    score: float = Field(
        description="dense: cosine, -1..1; sparse: BM25, > 0; hybrid: both joined, 0..1"
    )
    rerank_score: float | None = Field(default=None, description="the head's, of the best sentence")
    metadata: Metadata = Field(default_factory=dict)
    time: float | None = None
    error: ItemError | None = None
    explain: Explanation | None = Field(default=None, description="where it was asked for")
    statement: str | None = Field(
        default=None, description="of a log collection: the template of its lines"
    )
    statement_id: str | None = Field(
        default=None, description="by which `/v1/logs/query` and `/v1/logs/statements` name it"
    )
    count: int | None = Field(default=None, description="lines of the statement that pass")
    first_seen: float | None = Field(default=None, description="Unix seconds")
    last_seen: float | None = Field(default=None, description="Unix seconds")
    lines: tuple[StatementLine, ...] = Field(default=(), description="the newest of them")


class Hits(ItemResult):
    """What one query found, best hit first."""

    hits: tuple[Hit, ...]


class Found(OpenModel):
    """Answer of ``POST /v1/search``, best hit first."""

    job_id: str = ""
    collection: str = ""
    hits: tuple[Hit, ...]
    timings_ms: dict[str, float] = Field(default_factory=dict)
