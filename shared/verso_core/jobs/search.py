"""Search: find records by a text, a vector, or another record."""

from __future__ import annotations

import math
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
    MissingPartitions,
    Name,
    OpenModel,
    Params,
    RecordText,
    SearchMode,
    StoredName,
    Text,
    needs,
    one_of,
)
from verso_core.texts import Metadata

MAX_HITS = 1000
"""The most hits of a search."""
DENSE_SHARE = 0.5
"""What the vector's cosine counts where vectors and words are compared, in [0, 1]."""
RERANK_SHARE = 0.4
"""Default share of a head's score in a reranked search; chosen on training questions
(docs/research/search-quality.md)."""


class SearchOptions(Params):
    """How a search is done: every option that its request and its slice share."""

    collection: StoredName = "default"
    limit: int = Field(default=10, ge=1, le=MAX_HITS)
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


class SearchParams(SearchOptions):
    """How a search is done, and what partitions of one collection are told of each other."""

    count_words: bool = Field(
        default=False, description="only tell how many chunks have each word of the query"
    )
    rarity: dict[str, float] | None = Field(
        default=None, description="what each word counts more, or less, than here, by its hash"
    )


class SearchRequest(SearchOptions):
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
        options = {name: getattr(self, name) for name in SearchOptions.model_fields}
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


class Scale(OpenModel):
    """What a hybrid search spreads cosines and weights over: those of all that it compares."""

    lowest: float = Field(description="cosine")
    highest: float = Field(description="cosine")
    heaviest: float = Field(description="weight of the words")


class Explanation(OpenModel):
    """The parts of a hit's score, as far as its search has them."""

    dense: float | None = Field(default=None, description="cosine of the vectors, -1..1")
    sparse: float | None = Field(default=None, description="BM25 weight of the words, >= 0")
    fused: float | None = Field(default=None, description="hybrid: both joined, 0..1")
    rerank_score: float | None = Field(default=None, description="the head's, of the best sentence")
    rerank_share: float | None = Field(default=None, description="what the head's score counts")
    scale: Scale | None = Field(default=None, description="hybrid: what the two are joined on")
    values: bool | None = Field(
        default=None, description="of log lines: whether they have all values that were asked for"
    )


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


class Words(OpenModel):
    """How often the words of a query are in a collection; a word is named by its hash."""

    chunks: int = Field(description="in all")
    having: dict[str, float] = Field(description="chunks that have the word")

    def rarity(self, word: str) -> float:
        """Return what a word counts in BM25, as the vector store reckons it (Lucene's idf, > 0)."""
        have = self.having.get(word, 0.0)
        return math.log((self.chunks - have + 0.5) / (have + 0.5) + 1)


class Hits(ItemResult):
    """What one query found, best hit first."""

    hits: tuple[Hit, ...]
    words: Words | None = Field(default=None, description="where only they were asked for")


class Found(OpenModel):
    """Answer of ``POST /v1/search``, best hit first."""

    job_id: str = ""
    collection: str = ""
    hits: tuple[Hit, ...]
    timings_ms: dict[str, float] = Field(default_factory=dict)
    missing_partitions: MissingPartitions = ()
