"""Vectors: search and cluster records by them, make them of texts, guess texts from them."""

from __future__ import annotations

from collections.abc import Sequence

from verso_client.exchange import Retries, Steps
from verso_client.operations.jobs import answered, post, sole
from verso_core.jobs import SearchRequest
from verso_core.jobs.cluster import Clustered, ClusterRequest
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.reconstruct import Guess
from verso_core.jobs.search import Found


def search(query: SearchRequest, retries: Retries) -> Steps[Found]:
    """Find the records nearest to a text, a vector or a stored record."""
    row = yield from answered(
        post("/v1/search", query.model_dump(mode="json", exclude_defaults=True)), retries
    )
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
