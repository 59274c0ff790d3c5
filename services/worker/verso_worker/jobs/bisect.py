"""A slice that fails whole is halved, again and again, until the item to blame stands alone.

1. A slice of several items failed as a whole, so it is not known which item is to blame.
2. Each half is run for itself; one that fails is halved again. A slice of 64 items with one bad one
   costs at most 12 runs more.
3. An item that fails alone, for a reason that trying again does not help, gets the error in its
   place, and its neighbours their results.
4. An item that fails alone for a passing reason may be innocent: the engine may just be away. It is
   blamed only when it has had its tries (``condemn``) and a neighbour succeeded in this very run,
   which an engine that is away would not have let happen. Otherwise the slice is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verso_core.errors import (
    CollectionUnknown,
    DiskFull,
    LedgerUnavailable,
    VectorsUnavailable,
    VersoError,
)
from verso_core.jobs import AnySlice, Failed, Kind, Result
from verso_worker.rules.ports import SliceOutcome

KINDS = frozenset({Kind.EMBED, Kind.INGEST, Kind.RECONSTRUCT, Kind.DELETE})
"""Kinds whose items have nothing to do with one another."""
SUSPECT_AFTER = 3
"""Attempts after which an error that should have passed is looked into."""
CONDEMN_AFTER = 5
"""Attempts after which an item that fails alone for a passing reason is blamed."""
_OF_ALL = (CollectionUnknown, DiskFull, LedgerUnavailable, VectorsUnavailable)
"""Errors that have nothing to do with any one text."""
_log = logging.getLogger(__name__)

Run = Callable[[AnySlice], SliceOutcome]


def worth_bisecting(work: AnySlice, error: Exception, *, attempt: int) -> bool:
    """Whether halving a slice can help after this error.

    Args:
        work: the slice that failed.
        error: what it failed with.
        attempt: number of the attempt that failed, from 1.
    """
    if len(work.items) < 2 or work.kind not in KINDS or isinstance(error, _OF_ALL):
        return False
    return not _passing(error) or attempt >= SUSPECT_AFTER


def bisect_failures(run: Run, work: AnySlice, *, attempt: int) -> SliceOutcome:
    """Run a slice in parts; return the outcomes of all of them as one, in order.

    Raises:
        VersoError: the slice should be tried again, or fails for a reason of no item's own.
    """
    found = _Parts(run)
    found.halve(work.items, work)
    if found.suspects and not (attempt >= CONDEMN_AFTER and found.succeeded):
        raise found.suspects[0]
    _log.error(
        "slice bisected: items failed",
        extra={"count": found.blamed + len(found.suspects), "of": work.kind},
    )
    return found.joined()


@dataclass
class _Parts:
    """The outcomes of the parts, in order. ``suspects``: errors that should have passed."""

    run: Run
    outcomes: list[SliceOutcome] = field(default_factory=list)
    suspects: list[Exception] = field(default_factory=list)
    succeeded: bool = False
    blamed: int = 0

    def halve(self, items: Sequence[Any], work: AnySlice) -> None:
        """Run the two halves of a part that failed."""
        middle = len(items) // 2
        for part in (items[:middle], items[middle:]):
            self._try(part, work)

    def _try(self, items: Sequence[Any], work: AnySlice) -> None:
        try:
            outcome = self.run(replace(work, items=tuple(items)))
        except Exception as error:
            if isinstance(error, _OF_ALL):
                raise
            if len(items) > 1:
                self.halve(items, work)
                return
            if _passing(error):
                self.suspects.append(error)
            else:
                self.blamed += 1
            outcome = SliceOutcome(Result([_failed(items[0], error)]))
        else:
            self.succeeded = True
        self.outcomes.append(outcome)

    def joined(self) -> SliceOutcome:
        """Put the outcomes together as if they had been one."""
        # More than one name: the collection moved between two parts. The slice is tried again.
        [collection] = {
            part.collection for part in self.outcomes if part.writes or part.deletes
        } or {""}
        whole = SliceOutcome(Result([]), collection=collection)
        for part in self.outcomes:
            whole.result.items.extend(part.result.items)
            whole.writes.extend(part.writes)
            whole.deletes.extend(part.deletes)
            for phase, spent_ms in part.result.timings_ms.items():
                total = whole.result.timings_ms.get(phase, 0.0) + spent_ms
                whole.result.timings_ms[phase] = total
        return whole


def _passing(error: Exception) -> bool:
    """Whether trying again may help. What Verso did not foresee fails again, as a rule."""
    return isinstance(error, VersoError) and error.retryable


def _failed(item: Any, error: Exception) -> Failed:
    named = getattr(item, "id", None)  # some kinds' items name a document
    return Failed.of(error, **({"id": named} if named else {}))
