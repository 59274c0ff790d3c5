"""Vectors: search and cluster records by them, make them of texts, guess texts from them."""

from __future__ import annotations

from collections.abc import Sequence

from verso_client.exchange import Steps, path_of
from verso_client.operations.jobs import answered, answered_one, post
from verso_core.jobs import SearchRequest
from verso_core.jobs.cluster import Clustered, ClusterRequest
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.reconstruct import Guess
from verso_core.jobs.search import Found


def search(request: SearchRequest) -> Steps[Found]:
    """Find the records nearest to a text, a vector or a stored record."""
    return Found.model_validate((yield from answered_one(post(path_of("search"), request))))


def cluster(request: ClusterRequest) -> Steps[Clustered]:
    """Group the records of a collection and wait for the groups."""
    return Clustered.model_validate((yield from answered_one(post(path_of("cluster"), request))))


def guess(vectors: Sequence[Sequence[float]], *, beam: int, max_tokens: int) -> Steps[list[Guess]]:
    """Guess the texts of bare vectors; a guess is never exact."""
    body = {
        "vectors": [[float(value) for value in vector] for vector in vectors],
        "beam": beam,
        "max_tokens": max_tokens,
    }
    row = yield from answered(post(path_of("reconstruct"), body))
    return [Guess.model_validate(item) for item in row["results"]]


def embed(texts: Sequence[str]) -> Steps[list[Embedded]]:
    """Turn texts into vectors of unit length."""
    row = yield from answered(post(path_of("embed"), {"texts": list(texts)}))
    return [Embedded.model_validate(item) for item in row["results"]]
