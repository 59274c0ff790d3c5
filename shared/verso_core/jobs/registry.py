"""Show and change which models the channels serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from verso_core.jobs.models import (
    ItemResult,
    Moment,
    Name,
    OpenModel,
    Params,
    StrictModel,
)
from verso_core.registry import Rollout


class ReleaseRequest(StrictModel):
    """Body of ``POST /v1/registry/promote`` and ``/rollback``; without a head, the artifact."""

    head: Name | None = None


class ModelsParams(Params):
    """A change of the registry. ``token`` names it, so that a repeated job changes it once."""

    change: Literal["show", "promote", "rollback"]
    head: str | None = None
    token: str | None = None


class WithdrawnState(OpenModel):
    """A canary that was taken back."""

    version: str
    reason: str
    time: Moment


class ComparisonState(OpenModel):
    """What is known of a canary beside the stable version, added up over all workers."""

    pairs: int = Field(description="jobs that both have run")
    agreed: int = Field(description="items on which both say the same")
    differed: int = 0
    p95_ms_stable: float | None = Field(default=None, description="of the time of one item")
    p95_ms_canary: float | None = None
    labels: int = Field(default=0, description="texts whose labels came back as feedback")
    brier_stable: float | None = Field(default=None, description="on these; 0 best, 2 worst")
    brier_canary: float | None = None
    read_back: int = Field(default=0, description="records of the canary that were verified")


class RolloutState(OpenModel):
    """What the channels of a head, or of the artifact, serve."""

    stable: str | None = None
    canary: str | None = None
    share: float
    previous: str | None = None
    withdrawn: WithdrawnState | None = None
    comparison: ComparisonState | None = None

    @classmethod
    def of(cls, rollout: Rollout, *, compared: Mapping[str, float]) -> RolloutState:
        """Describe a rollout; ``compared``: what is known of its canary, if anything is."""
        found = rollout.model_dump()
        return cls.model_validate(found | ({"comparison": compared} if compared else {}))


class RegistryResult(ItemResult):
    """Which models the channels serve."""

    artifact: RolloutState
    heads: dict[str, RolloutState]


class RegistryState(RegistryResult):
    """Which models the channels and each worker serve."""

    workers: tuple[dict[str, Any], ...] = Field(
        default=(), description="what each worker serves, and what it refused and why"
    )
