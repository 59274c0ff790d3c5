"""The request to group a collection's records."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from verso_core.jobs import Name, Wire

MAX_RECORDS = 100_000
"""Most records that are grouped: of each its vector is held, or its text decoded."""


class Method(StrEnum):
    """What makes records belong together: near vectors, or one template of a log line."""

    DBSCAN = "dbscan"
    HDBSCAN = "hdbscan"
    TEMPLATES = "templates"


class ClusterRequest(Wire):
    """Body of ``POST /v1/cluster``."""

    collection: Name = "default"
    method: Method = Method.DBSCAN
    eps: float = Field(
        default=0.15, gt=0, le=2, description="dbscan: cosine distance of neighbours, at most"
    )
    min_samples: int = Field(
        default=2, ge=1, le=1000, description="neighbours, itself included, that make a core"
    )
    min_size: int = Field(default=2, ge=2, le=1000, description="hdbscan: smallest group")
    representatives: int = Field(default=1, ge=0, le=10, description="records shown of each group")
    limit: int = Field(default=100, ge=1, le=1000, description="groups given, the largest first")
    since: float | None = Field(
        default=None, description="Unix seconds: a group first seen from then on is new"
    )
