"""Removes the files of large results whose jobs the ledger has let go, a part of them at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from verso_core.result_files import SHARDS, ResultFiles


class ResultSweeper:
    """Sweeps one part of the folder each round, and all of it in 256 rounds.

    Args:
        files: the folder.
        known: gives those of some jobs that have not expired.
    """

    def __init__(self, files: ResultFiles, known: Callable[[Sequence[str]], set[str]]) -> None:
        self._files = files
        self._known = known
        self._shards = itertools.cycle(SHARDS)

    def step(self) -> int:
        """Do one round; returns the number of jobs whose files were removed.

        Raises:
            LedgerUnavailable: the ledger did not say which jobs it has; nothing is removed then.
            ResultsUnavailable: the folder cannot be read.
        """
        return self._files.sweep(next(self._shards), self._known)
