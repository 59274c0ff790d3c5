"""What all workers have counted of a canary, as sums that any of them may add to.

They decide whether a canary is withdrawn (:mod:`verso_worker.models.comparison`), and are worth
nothing once it is promoted or withdrawn: they expire. They are statistics: what a worker that is
killed has not added yet is lost, and an addition whose reply is lost is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts

KEPT_S = 30 * 24 * 3600
"""How long the sums stay after the last addition, seconds."""


class Trials:
    """The sums of each trial of a canary."""

    def __init__(self, scripts: Scripts) -> None:
        self._redis = scripts.client

    def add(self, trial: str, counts: Mapping[str, int]) -> None:
        """Add to the sums of a trial, all of them in one step.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        name = key("trial", trial)
        with translated(), self._redis.pipeline() as step:
            for field, count in counts.items():
                step.hincrby(name, field, count)
            step.expire(name, KEPT_S)
            step.execute()

    def counts(self, trial: str) -> dict[str, int]:
        """Return the sums of a trial by name; none of a trial that nobody has added to.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with translated():
            found = cast("dict[bytes, bytes]", self._redis.hgetall(key("trial", trial)))
        return {name.decode(): int(count) for name, count in found.items()}
