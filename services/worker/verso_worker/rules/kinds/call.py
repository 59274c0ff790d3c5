"""How a slice is run, and the shapes of the rules that run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from verso_core.jobs import Collection, Result
from verso_worker.records.outputs import Timings
from verso_worker.rules.ports.outcome import OnPart, OnProgress, SliceOutcome, no_part


@dataclass(frozen=True, slots=True)
class Call:
    """How a slice is run.

    seq: the job's sequence number: of two writes of a document the later one wins.
    on_progress: receives the progress of work that takes minutes, and may end it.
    on_part: receives parts of a result whose caller waits for them.
    timings: what the slice spent in each phase.
    """

    seq: int
    on_progress: OnProgress
    on_part: OnPart = no_part
    timings: Timings = field(default_factory=Timings)


Rule = Callable[[Any, Call], SliceOutcome]
"""Runs the slices of one kind: ``(slice, call) -> outcome``."""

CollectionRule = Callable[[Any, Any, Call], SliceOutcome]
"""Runs the slices of one kind in a collection: ``(slice, collection, call) -> outcome``.

The collection is None where a slice brings the texts itself.
"""


class TimedRule(Protocol):
    """Runs a slice in a collection, and adds to its timings."""

    def __call__(self, work: Any, collection: Any, *, timings: Timings) -> Result[Any]:
        """Return the results of the slice's items."""


class ReportingRule(Protocol):
    """Runs a slice in a collection, and reports its progress."""

    def __call__(self, work: Any, collection: Any, *, on_progress: OnProgress) -> Result[Any]:
        """Return the results of the slice's items."""


def reading(rule: Callable[[Any, Collection], Result[Any]]) -> CollectionRule:
    """Return a rule as tables hold it."""
    return lambda work, collection, _: SliceOutcome(rule(work, collection))


def viewing(rule: Callable[[Collection, Any], Any]) -> CollectionRule:
    """Return a rule whose one result follows from the params, as tables hold it."""
    return lambda work, collection, _: SliceOutcome(Result([rule(collection, work.params)]))


def timed(rule: TimedRule) -> CollectionRule:
    """Return a rule that adds to the timings of its slice, as tables hold it."""
    return lambda work, collection, call: SliceOutcome(rule(work, collection, timings=call.timings))


def reporting(rule: ReportingRule) -> CollectionRule:
    """Return a rule that reports its progress, as tables hold it."""
    return lambda work, collection, call: SliceOutcome(
        rule(work, collection, on_progress=call.on_progress)
    )
