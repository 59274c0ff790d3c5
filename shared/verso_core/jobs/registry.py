"""Show and change which models the channels serve."""

from __future__ import annotations

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


class RolloutState(OpenModel):
    """What the channels of a head, or of the artifact, serve."""

    stable: str | None = None
    canary: str | None = None
    share: float
    previous: str | None = None
    withdrawn: WithdrawnState | None = None

    @classmethod
    def of(cls, rollout: Rollout) -> RolloutState:
        """Describe a rollout."""
        return cls.model_validate(rollout.model_dump())


class RegistryResult(ItemResult):
    """Which models the channels serve."""

    artifact: RolloutState
    heads: dict[str, RolloutState]


class RegistryState(RegistryResult):
    """Which models the channels and each worker serve."""

    workers: tuple[dict[str, Any], ...] = Field(
        default=(), description="what each worker serves, and what it refused and why"
    )
