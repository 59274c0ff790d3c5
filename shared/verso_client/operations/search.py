"""Vectors: search and cluster records by them, make them of texts, guess texts from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verso_client.answers import Clustered, Embedded, Found, Guess
from verso_client.exchange import Steps
from verso_client.operations.jobs import answered, post, sole
from verso_client.retries import Retries
from verso_core.jobs import RERANK_SHARE, Filter, SearchMode
from verso_core.jobs.cluster import ClusterRequest


@dataclass(frozen=True, slots=True)
class Query:
    """A search for records near exactly one of ``text``, ``vector`` and ``id``."""

    text: str | None = None
    vector: Sequence[float] | None = None
    id: str | None = None
    collection: str = "default"
    limit: int = 10
    mode: SearchMode | None = None
    filter: Filter | None = None
    with_text: bool = True
    rerank: str | None = None
    rerank_from: int = 30
    rerank_share: float = RERANK_SHARE

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        body: dict[str, Any] = {
            "collection": self.collection,
            "limit": self.limit,
            "with_text": self.with_text,
        }
        if self.text is not None:
            body["query"] = self.text
        if self.vector is not None:
            body["vector"] = [float(value) for value in self.vector]
        if self.id is not None:
            body["id"] = self.id
        if self.mode is not None:
            body["mode"] = self.mode.value
        if self.filter is not None:
            body["filter"] = self.filter.model_dump(exclude_none=True)
        if self.rerank is not None:
            body |= {
                "rerank": self.rerank,
                "rerank_from": self.rerank_from,
                "rerank_share": self.rerank_share,
            }
        return body


def search(query: Query, retries: Retries) -> Steps[Found]:
    """Find the records nearest to a text, a vector or a stored record."""
    row = yield from answered(post("/v1/search", query.body()), retries)
    if "results" in row:
        row = {**row, **sole(row["results"])}
    return Found.model_validate(row)


def cluster(request: ClusterRequest, retries: Retries) -> Steps[Clustered]:
    """Group the records of a collection and wait for the groups."""
    row = yield from answered(post("/v1/cluster", request.model_dump(mode="json")), retries)
    if "results" in row:
        row = sole(row["results"])
    return Clustered.model_validate(row)


def guess(
    vectors: Sequence[Sequence[float]], retries: Retries, *, beam: int, max_tokens: int
) -> Steps[list[Guess]]:
    """Guess the texts of bare vectors; a guess is never exact."""
    body = {
        "vectors": [[float(value) for value in vector] for vector in vectors],
        "beam": beam,
        "max_tokens": max_tokens,
    }
    row = yield from answered(post("/v1/reconstruct", body), retries)
    return [Guess.model_validate(item) for item in row["results"]]


def embed(texts: Sequence[str], retries: Retries) -> Steps[list[Embedded]]:
    """Turn texts into vectors of unit length."""
    row = yield from answered(post("/v1/embed", {"texts": list(texts)}), retries)
    return [Embedded.model_validate(item) for item in row["results"]]
