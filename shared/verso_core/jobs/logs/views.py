"""Questions about many log lines at once: how many when, which labels, which statements."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.logs.lines import LineTime, Waiting, span_ns, time_ns
from verso_core.jobs.models import (
    Item,
    ItemResult,
    MissingPartitions,
    Name,
    OpenModel,
    Params,
    StrictModel,
)

MAX_INTERVALS = 2000
"""Most intervals of a volume."""
MAX_STATEMENT_INTERVALS = 240
"""Most intervals that lines of statements are counted in."""
MAX_INTERVAL_S = 1e9
STATEMENT_ID = r"^[0-9]{1,15}$"
_WANTED = 60
_DAY_S = 86_400
_NICE_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_COST = 64 * 1024  # as a page of lines: most of these read no line


def interval_length_s(span_ns: int) -> float:
    """Return the length of intervals of which some sixty are as long as a span, seconds."""
    least = span_ns / 1_000_000_000 / _WANTED
    days = -(-least // _DAY_S) * _DAY_S
    return float(next((one for one in _NICE_S if one >= least), days))


class LinesWhere(StrictModel):
    """Which lines of a log collection are meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collection: Name = "default"
    from_: LineTime = Field(default=None, alias="from")
    to: LineTime = None
    filter: Filter | None = None

    def where(self) -> dict[str, object]:
        """Return the fields of the params that say which lines."""
        where = {} if self.filter is None else {"filter": self.filter}
        return {"collection": self.collection, **where, **span_ns(self.from_, self.to)}


class WhereParams(Params):
    """Which lines are meant; their times are in [``start_ns``, ``end_ns``)."""

    collection: str
    filter: Filter | None = None
    start_ns: int | None = None
    end_ns: int | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of a question about many lines."""
        return super().cost(item) + _COST


class VolumeRequest(LinesWhere):
    """The query of ``GET /v1/logs/volume``."""

    contains: str | None = Field(default=None, min_length=1, max_length=4096)
    interval_s: float | None = Field(default=None, ge=0.001, le=MAX_INTERVAL_S)
    by: str | None = Field(default=None, min_length=1, max_length=512)
    limit: int = Field(default=50, ge=1, le=1000)

    def params(self) -> VolumeParams:
        """Return the params of the request's slice."""
        given = {"interval_s": self.interval_s, "by": self.by, "limit": self.limit}
        if self.contains is not None:
            given["contains"] = self.contains
        return VolumeParams.model_validate(self.where() | given)


class VolumeParams(WhereParams):
    """How lines are counted: in intervals of so many seconds, None for some sixty of them.

    ``contains``: only lines with this text in them, each of which is read.
    """

    contains: str | None = None
    interval_s: float | None = None
    by: str | None = None
    limit: int = 50


class VolumeSeries(OpenModel):
    """The lines whose label has one value; None: they lack the label."""

    value: str | None
    lines: int
    counts: tuple[int, ...] = Field(description="lines in each interval")


class Volume(ItemResult):
    """How many lines there are in each interval."""

    lines: int
    interval_s: float
    starts: tuple[float, ...] = Field(description="of the intervals, Unix seconds")
    counts: tuple[int, ...] = Field(description="lines in each interval")
    series: tuple[VolumeSeries, ...] = Field(
        default=(), description="by the values of a label, the most frequent first"
    )
    missing_partitions: MissingPartitions = ()


class LabelsRequest(LinesWhere):
    """The query of ``GET /v1/logs/labels``."""

    name: str | None = Field(default=None, min_length=1, max_length=512)
    limit: int = Field(default=100, ge=1, le=10_000)

    def params(self) -> LabelsParams:
        """Return the params of the request's slice."""
        return LabelsParams.model_validate(self.where() | {"name": self.name, "limit": self.limit})


class LabelsParams(WhereParams):
    """Which labels are shown: all by name, or the values of one.

    ``all_values``: partitions are asked for the values of each.
    """

    name: str | None = None
    limit: int = 100
    all_values: bool = False


class LabelValue(OpenModel):
    """A value of a label, and how many lines have it."""

    value: str
    lines: int


class Label(OpenModel):
    """A label of lines."""

    name: str
    lines: int = Field(description="that have the label")
    distinct: int = Field(description="values in all")
    values: tuple[LabelValue, ...] = Field(
        default=(), description="of the label that was asked for, the most frequent first"
    )


class Labels(ItemResult):
    """The labels of lines, by name."""

    lines: int
    labels: tuple[Label, ...]
    missing_partitions: MissingPartitions = ()


class StatementsRequest(LinesWhere):
    """The query of ``GET /v1/logs/statements``."""

    new_since: LineTime = None
    statement: str | None = Field(default=None, pattern=STATEMENT_ID)
    interval_s: float | None = Field(default=None, ge=0.001, le=MAX_INTERVAL_S)
    limit: int = Field(default=100, ge=1, le=1000)

    def params(self) -> StatementsParams:
        """Return the params of the request's slice."""
        given: dict[str, object] = {"statement": self.statement, "interval_s": self.interval_s}
        if self.new_since is not None:
            given["new_since_ns"] = time_ns(self.new_since)
        present = {name: value for name, value in given.items() if value is not None}
        return StatementsParams.model_validate(self.where() | present | {"limit": self.limit})


class StatementsParams(WhereParams):
    """Which statements are shown.

    ``template``: only the one whose template this is, as partitions are asked.
    ``new_since_ns``: only those without a line before it. ``statement``: only the one of this id.
    ``interval_s``: lines of each are counted in intervals of so many seconds, too.
    """

    new_since_ns: int | None = None
    statement: str | None = None
    template: str | None = None
    interval_s: float | None = None
    limit: int = 100


class StatementView(OpenModel):
    """A statement: what its lines have in common, and how many there are."""

    id: str = Field(description="names it in queries; it stays when the template widens")
    statement: str = Field(examples=["Accepted key for <*>"])
    count: int = Field(description="lines that pass")
    first_seen: float = Field(description="Unix seconds")
    last_seen: float = Field(description="Unix seconds")
    counts: tuple[int, ...] = Field(
        default=(), description="lines in each interval, if interval_s was given"
    )


class Statements(ItemResult):
    """The statements of lines, the most frequent first."""

    lines: int = Field(description="that pass, of all statements")
    distinct: int = Field(description="statements in all")
    interval_s: float | None = None
    starts: tuple[float, ...] = Field(
        default=(), description="of the intervals, Unix seconds, if interval_s was given"
    )
    statements: tuple[StatementView, ...]
    missing_partitions: MissingPartitions = ()


class VolumeAnswer(Volume):
    """Answer of ``GET /v1/logs/volume``."""

    waiting: Waiting = Waiting(lines=0)


class LabelsAnswer(Labels):
    """Answer of ``GET /v1/logs/labels``."""

    waiting: Waiting = Waiting(lines=0)


class StatementsAnswer(Statements):
    """Answer of ``GET /v1/logs/statements``."""

    waiting: Waiting = Waiting(lines=0)
