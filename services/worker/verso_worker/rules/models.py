"""Show or change which models the channels serve, as a job: promote a canary, or roll back.

The job changes the registry; each worker follows the registry by itself
(:mod:`verso_worker.models.rollout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verso_core import registry
from verso_core.jobs import NoItem, Result, Slice
from verso_core.jobs.registry import ModelsParams, RegistryResult, RolloutState


@dataclass(frozen=True, slots=True)
class ModelOperations:
    """The registry of a models folder."""

    models: Path

    def run(self, work: Slice[ModelsParams, NoItem]) -> Result[RegistryResult]:
        """Run a ``models`` slice, and return the registry after it.

        Raises:
            HeadUnknown: there is no head of this name.
            RequestInvalid: there is nothing to promote or to roll back to.
            DiskFull: the registry cannot be written; it is not changed.
        """
        asked = work.params
        match asked.change:
            case "show":
                now = registry.read(self.models)
            case "promote":
                now = registry.promote(self.models, head=asked.head, token=asked.token)
            case "rollback":
                now = registry.rollback(self.models, head=asked.head, token=asked.token)
        heads = {name: RolloutState.of(rollout) for name, rollout in now.heads.items()}
        return Result([RegistryResult(artifact=RolloutState.of(now.artifact), heads=heads)])
