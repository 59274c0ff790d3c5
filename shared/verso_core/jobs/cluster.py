"""Cluster: group a collection's records."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from verso_core.jobs.filters import MOMENT_SCHEMA, seconds
from verso_core.jobs.models import READ_COST, Item, ItemResult, Name, OpenModel, Params, Text

MAX_RECORDS = 100_000
"""Most records that are grouped: the vector or the text of each is in memory."""
CLUSTER_COST = 1024 * READ_COST
"""Cost of a grouping: how many records there are the request does not say."""


class Method(StrEnum):
    """How records are grouped: by near vectors, or by the template of their log line."""

    DBSCAN = "dbscan"
    HDBSCAN = "hdbscan"
    TEMPLATES = "templates"


def _unix_seconds(value: object) -> object:
    return seconds(value) if isinstance(value, str) else value


class ClusterParams(Params):
    """How a collection is grouped."""

    collection: Name = "default"
    method: Method | None = Field(
        default=None, description="default: templates in a log collection, else dbscan"
    )
    eps: float = Field(
        default=0.15, gt=0, le=2, description="dbscan: cosine distance of neighbours, at most"
    )
    min_samples: int = Field(
        default=2, ge=1, le=1000, description="neighbours, itself included, that make a core"
    )
    min_size: int = Field(default=2, ge=2, le=1000, description="hdbscan: smallest group")
    representatives: int = Field(default=1, ge=0, le=10, description="records shown of each group")
    limit: int = Field(default=100, ge=1, le=1000, description="groups given, the largest first")
    since: Annotated[
        float | None,
        BeforeValidator(_unix_seconds),
        WithJsonSchema({"anyOf": [*MOMENT_SCHEMA["anyOf"], {"type": "null"}]}),
    ] = Field(
        default=None,
        description="Unix seconds or RFC 3339: a group first seen from then on is new",
    )

    def cost(self, item: Item) -> int:
        """Return the cost of records that are compared, or read, by the thousand."""
        return super().cost(item) + CLUSTER_COST


class ClusterRequest(ClusterParams):
    """Body of ``POST /v1/cluster``."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def params(self) -> ClusterParams:
        """Return the params of the request's slice."""
        return ClusterParams(**{name: getattr(self, name) for name in ClusterParams.model_fields})


class Member(Text):
    """A record shown of a group; without a text if it cannot be decoded."""

    id: str = Field(examples=["boot-1#0"])
    time: float | None = None


class Group(OpenModel):
    """Records of one group; times in Unix seconds, of the documents that have one."""

    size: int
    template: str | None = None
    first_seen: float | None = None
    last_seen: float | None = None
    new: bool | None = Field(default=None, description="first seen since the time asked for")
    representatives: tuple[Member, ...] = ()


class Clustered(ItemResult):
    """The groups of a collection's records, the largest first."""

    records: int
    clusters: int
    alone: int = Field(description="records in no group")
    unread: int = Field(description="records that could not be compared")
    groups: tuple[Group, ...]
