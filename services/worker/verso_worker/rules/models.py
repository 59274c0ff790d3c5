"""Change which models the channels serve, as a job: promote a canary, roll back, look.

The change is one of the registry; every worker that follows it takes it up by itself
(:mod:`verso_worker.models.rollout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verso_core import registry
from verso_core.errors import RequestInvalid
from verso_core.jobs import Result, Slice
from verso_core.registry import Registry

CHANGES = ("show", "promote", "rollback")


@dataclass(frozen=True, slots=True)
class ModelOperations:
    """The registry of a models folder."""

    models: Path

    def run(self, work: Slice) -> Result:
        """Do what a ``models`` slice asks for, and give what the registry says then.

        Raises:
            HeadUnknown: there is no head of this name.
            RequestInvalid: there is nothing to promote or to go back to.
            DiskFull: the registry cannot be written; it stays as it was.
        """
        head, token = work.params.get("head"), work.params.get("token")
        match work.params["change"]:
            case "show":
                now = registry.read(self.models)
            case "promote":
                now = registry.promote(self.models, head=head, token=token)
            case "rollback":
                now = registry.rollback(self.models, head=head, token=token)
            case other:
                raise RequestInvalid(f"expected one of {', '.join(CHANGES)}, got {other!r}")
        return Result([{"ok": True} | public(now)])


def public(now: Registry) -> dict[str, Any]:
    """Describe a registry to its users."""
    return {
        "artifact": now.artifact.model_dump(mode="json"),
        "heads": {name: rollout.model_dump(mode="json") for name, rollout in now.heads.items()},
    }
