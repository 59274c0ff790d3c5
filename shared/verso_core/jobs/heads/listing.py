"""List the heads and what their channels serve."""

from __future__ import annotations

from pydantic import Field

from verso_core.heads import Portion, Reads, SignalName, Task, TextUnit
from verso_core.jobs.models import ItemError, ItemResult, Moment, OpenModel, Params
from verso_core.registry import Channel


class HeadsParams(Params):
    """All heads; or, with ``report``, the report of the version that a channel serves."""

    report: str | None = None
    channel: Channel = Channel.STABLE


class HeadVersion(OpenModel):
    """A version of a head that a channel serves; only the error if it cannot be served."""

    version: str
    created: Moment | None = None
    task: Task | None = None
    reads: Reads | None = None
    space: str | None = None
    labels: tuple[str, ...] = ()
    none_label: str | None = Field(default=None, description="the label for what fits no other")
    chunk: Portion | None = Field(default=None, description="which chunks it reads by default")
    text_unit: TextUnit | None = Field(
        default=None, description="what of a text rerank has it score; default: sentence"
    )
    metrics: dict[str, float] = Field(default_factory=dict)
    accept_by: SignalName | None = None
    accept_errors: tuple[str, ...] = Field(
        default=(), description="error rates that accept_error may be bounded by"
    )
    data: tuple[str, ...] = ()
    licence: str | None = None
    error: ItemError | None = None


class HeadInfo(OpenModel):
    """A head and what its channels serve."""

    name: str
    share: float = Field(description="part of the jobs that a canary gets")
    tasks: tuple[str, ...] = Field(default=(), description="what else it is known as")
    stable: HeadVersion | None = None
    canary: HeadVersion | None = None


class HeadList(ItemResult):
    """All heads, by name."""

    heads: tuple[HeadInfo, ...]
