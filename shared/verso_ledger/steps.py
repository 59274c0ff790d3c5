"""What both halves of the blocking ledger stand on: one client, and its steps by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from verso_core import tracing
from verso_ledger import codec
from verso_ledger.connection import translated
from verso_ledger.models import Policy
from verso_ledger.scripts import source


class Steps:
    """Runs the ledger's scripts over a blocking client."""

    def __init__(self, client: redis.Redis, *, policy: Policy | None = None) -> None:
        self._redis = client
        self._policy = policy or Policy()
        self._scripts: dict[str, Any] = {}

    def _run(self, step: str, args: Sequence[codec.Arg]) -> Any:
        with tracing.inner(f"ledger {step}"), translated():
            return self._script(step)(args=args)

    def _script(self, step: str) -> Any:
        script = self._scripts.get(step)
        if script is None:
            script = self._redis.register_script(source(step, self._policy))
            self._scripts[step] = script
        return script
