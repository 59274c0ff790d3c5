"""Cluster and project: group a collection's records, and draw them as a map."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from verso_core.jobs.filters.times import MOMENT_SCHEMA, seconds
from verso_core.jobs.models import (
    READ_COST,
    Item,
    ItemResult,
    Name,
    OpenModel,
    Params,
    Text,
    given,
)

MAX_RECORDS = 100_000
"""Most records that are grouped: the vector or the text of each is in memory."""
CLUSTER_COST = 1024 * READ_COST
"""Cost of a grouping: how many records there are the request does not say."""
MAX_PROJECTED = 20_000
"""Most records of a map."""
PROJECT_COST = 64
"""Cost of a record on a map: its vector is read, and no text."""


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
    """The groups of a collection's records, the largest first.

    By templates a document is one line, however many records it has.
    """

    records: int
    clusters: int
    alone: int = Field(description="records in no group")
    unread: int = Field(description="records that could not be compared")
    groups: tuple[Group, ...]


class Colour(StrEnum):
    """What the points of a map are coloured by."""

    NONE = "none"
    GROUP = "group"
    """Groups of near vectors, by k-means."""
    LABEL = "label"
    """The value of a metadata key."""


class ProjectParams(Params):
    """Which records are drawn, and how they are coloured."""

    collection: Name = "default"
    limit: int = Field(
        default=MAX_PROJECTED, ge=1, le=MAX_PROJECTED, description="records of the sample"
    )
    colour: Colour = Colour.GROUP
    label_key: str | None = Field(
        default=None, min_length=1, max_length=512, description="metadata key, for colour label"
    )
    groups: int = Field(default=8, ge=2, le=12, description="how many, for colour group")

    def cost(self, item: Item) -> int:
        """Return the cost of the vectors that are read."""
        return super().cost(item) + PROJECT_COST * self.limit


class ProjectRequest(ProjectParams):
    """Body of ``POST /v1/project``."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        json_schema_extra={
            "if": {"properties": {"colour": {"const": "label"}}, "required": ["colour"]},
            "then": given("label_key"),
            "else": {"not": given("label_key")},
        },
    )

    @model_validator(mode="after")
    def _label(self) -> ProjectRequest:
        if (self.label_key is not None) != (self.colour is Colour.LABEL):
            raise ValueError("expected a label_key with colour label, and only there")
        return self

    def params(self) -> ProjectParams:
        """Return the params of the request's slice."""
        return ProjectParams(**{name: getattr(self, name) for name in ProjectParams.model_fields})


class ProjectedColour(OpenModel):
    """What one colour of a map stands for: a group or a value, and how many points have it."""

    label: str = Field(description="the value; of a group, the text nearest to its middle")
    points: int


class Projected(ItemResult):
    """A map: the two directions in which the vectors of a sample differ most, by PCA.

    Point ``n`` is ``ids[n]`` at ``x[n]``, ``y[n]``, of colour ``colours[colour[n]]``, or of none
    where ``colour[n]`` is -1. Of log lines a point is a statement, ``lines[n]`` how many it has.
    """

    records: int = Field(description="of the collection: records, or statements")
    unread: int = Field(default=0, description="records of the sample without a vector")
    explained: tuple[float, ...] = Field(
        description="share of the sample's variance in each direction"
    )
    ids: tuple[str, ...] = Field(
        description="of the record, document#chunk; of a statement, its id"
    )
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: tuple[int, ...] = ()
    colours: tuple[ProjectedColour, ...] = Field(default=(), description="most frequent first")
    lines: tuple[int, ...] = Field(default=(), description="of log lines: how many each point has")
    templates: tuple[str, ...] = Field(default=(), description="of log lines: of each statement")
