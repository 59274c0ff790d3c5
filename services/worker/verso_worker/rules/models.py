"""Show or change which models the channels serve, as a job: promote a canary, or roll back.

The job changes the registry; each worker follows the registry by itself
(:mod:`verso_worker.models.rollout`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from verso_core import registry
from verso_core.jobs import NoItem, Result, Slice
from verso_core.jobs.registry import ModelsParams, RegistryResult, RolloutState
from verso_core.registry import Rollout


@dataclass(frozen=True, slots=True)
class ModelOperations:
    """The registry of a models folder.

    compared: returns what is known of a canary's trial by its name; empty if nothing is.
    """

    models: Path
    compared: Callable[[str], Mapping[str, float]] = lambda _trial: {}

    def run(self, work: Slice[ModelsParams, NoItem]) -> Result[RegistryResult]:
        """Run a ``models`` slice, and return the registry after it.

        Raises:
            HeadUnknown: there is no head of this name.
            RequestInvalid: there is nothing to promote or to roll back to.
            ArtifactInvalid: the folder of what was served before is gone.
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
        heads = {name: self._state(rollout) for name, rollout in now.heads.items()}
        return Result([RegistryResult(artifact=self._state(now.artifact), heads=heads)])

    def _state(self, rollout: Rollout) -> RolloutState:
        trial = rollout.trial_of_canary
        return RolloutState.of(rollout, compared=self.compared(trial) if trial else {})
