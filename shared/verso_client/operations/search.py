"""Vectors: search, cluster and draw records by them, make them of texts, guess texts from them."""

from __future__ import annotations

from collections.abc import Sequence

from verso_client.exchange import Call, Steps, path_of
from verso_client.operations.jobs import answered, answered_one, post
from verso_core.jobs import SearchRequest
from verso_core.jobs.cluster import Clustered, ClusterRequest, Projected, ProjectRequest
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.reconstruct import Guess, StoredRecords
from verso_core.jobs.search import Found


def search(request: SearchRequest) -> Steps[Found]:
    """Find the records nearest to a text, a vector or a stored record."""
    return Found.model_validate((yield from answered_one(post(path_of("search"), request))))


def cluster(request: ClusterRequest) -> Steps[Clustered]:
    """Group the records of a collection and wait for the groups."""
    return Clustered.model_validate((yield from answered_one(post(path_of("cluster"), request))))


def project(request: ProjectRequest) -> Steps[Projected]:
    """Draw a sample of a collection as a map and wait for it."""
    return Projected.model_validate((yield from answered_one(post(path_of("project"), request))))


def records(
    document: str, *, collection: str, vector: bool, draft: bool, limit: int
) -> Steps[StoredRecords]:
    """Describe how a document or record (``document#n``) is stored."""
    options = {"vector": str(vector).lower(), "draft": str(draft).lower(), "limit": str(limit)}
    params = {"collection": collection, **options}
    reply = yield Call("GET", path_of("records", document), params=params)
    return StoredRecords.model_validate(reply.json())


def guess(vectors: Sequence[Sequence[float]], *, beam: int, max_tokens: int) -> Steps[list[Guess]]:
    """Guess the texts of bare vectors; a guess is never exact."""
    body = {
        "vectors": [[float(value) for value in vector] for vector in vectors],
        "beam": beam,
        "max_tokens": max_tokens,
    }
    row = yield from answered(post(path_of("reconstruct"), body))
    return [Guess.model_validate(item) for item in row["results"]]


def embed(texts: Sequence[str], *, artifact: str | None) -> Steps[list[Embedded]]:
    """Turn texts into vectors of unit length."""
    named = {} if artifact is None else {"artifact": artifact}
    row = yield from answered(post(path_of("embed"), {"texts": list(texts), **named}))
    return [Embedded.model_validate(item) for item in row["results"]]
