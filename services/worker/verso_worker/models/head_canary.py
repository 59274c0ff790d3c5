"""Do jobs with heads' canaries in their turn, and with what is stable where these fail.

A canary has passed its golden samples, and may still fail on what people send. Such a job is done
again without canaries at once, and the failure is noted: :mod:`verso_worker.models.canary` says
how many
are too many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from verso_core.errors import HeadUnknown
from verso_worker.models.canary import NOT_ITS_FAULT
from verso_worker.rules.head_ports import Heads

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeadCanary:
    """Runs jobs that ask heads."""

    heads: Heads

    def run(self, params: Mapping[str, Any], do: Callable[[str | None], T], *, job: str) -> T:
        """Do a job, again without canaries if one of them may be to blame.

        Args:
            params: of the slice; they name the heads.
            do: does it: for the job's own channels, or with None for stable versions only.
            job: chooses the channels.
        """
        names = [*params.get("heads", ()), params.get("head"), params.get("rerank")]
        tried = {
            str(name): version
            for name in names
            if name is not None and (version := self.heads.canary(str(name), job)) is not None
        }
        if not tried:
            return do(job)
        try:
            found = do(job)
        except Exception as error:
            if isinstance(error, NOT_ITS_FAULT):
                raise
            again = self._again(do, error)
            self._note(tried, error)
            return again
        self._note(tried, None)
        return found

    def _again(self, do: Callable[[str | None], T], error: Exception) -> T:
        try:
            return do(None)
        except HeadUnknown:
            raise error from None  # there is nothing stable that could do it

    def _note(self, tried: Mapping[str, str], error: Exception | None) -> None:
        """Note what came of it; what fails with stable versions too has been raised by now."""
        if error is not None:
            _log.warning("done without canaries of %s: %s", sorted(tried), type(error).__name__)
        for name, version in tried.items():
            self.heads.tried(name, version, error)
