"""Halve a slice that fails as a whole until the items at fault are alone.

1. A slice of several items failed as a whole, so it is not known which item is at fault.
2. Each half is run alone, and a half that fails is halved again. A slice of 64 items with one bad
   item costs at most 12 more runs.
3. An item that fails alone with an error that is not retryable gets that error as its result, and
   the other items get their results.
4. An item that fails alone with a retryable error may not be at fault: the engine may be
   unavailable. It gets the error only after :data:`CONDEMN_AFTER` attempts, and only if another
   item succeeded in the same run, so that the engine is available. Otherwise the slice is tried
   again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verso_core.errors import (
    Cancelled,
    CollectionUnknown,
    DiskFull,
    LedgerUnavailable,
    NotReady,
    VectorsDamaged,
    VectorsUnavailable,
    VersoError,
)
from verso_core.jobs import AnySlice, Failed, Kind, Result
from verso_worker.rules.ports.outcome import SliceOutcome

KINDS = frozenset({Kind.EMBED, Kind.INGEST, Kind.RECONSTRUCT, Kind.DELETE, Kind.UPDATE})
"""Kinds whose items are independent of one another."""
SUSPECT_AFTER = 3
"""Attempts after which a slice with a retryable error is halved."""
CONDEMN_AFTER = 5
"""Attempts after which an item that fails alone with a retryable error gets that error."""
_OF_ALL = (
    *(Cancelled, CollectionUnknown, DiskFull, LedgerUnavailable, NotReady),
    *(VectorsDamaged, VectorsUnavailable),
)
"""Errors that no single item causes."""
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
    """Run a slice in parts; return their outcomes as one, in order.

    Raises:
        VersoError: the slice should be tried again, or no single item causes the error.
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
    """The outcomes of the parts, in order. ``suspects``: retryable errors of single items."""

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
        """Return the outcomes as one."""
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
    """Whether trying again may help; an error that is not Verso's usually occurs again."""
    return isinstance(error, VersoError) and error.retryable


def _failed(item: Any, error: Exception) -> Failed:
    named = getattr(item, "id", None)  # some kinds' items name a document
    return Failed.of(error, **({"id": named} if named else {}))
