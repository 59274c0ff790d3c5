"""Run slices that heads may read: the job chooses each head's channel, and a canary is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from verso_core.jobs import Result, Slice
from verso_core.jobs.heads.answer import AnswerParams
from verso_core.jobs.heads.classify import ClassifyParams
from verso_core.jobs.search import SearchParams
from verso_worker.records.outputs import Timings
from verso_worker.rules.kinds.call import Call, CollectionRule
from verso_worker.rules.ports.models import Heads, StableRun
from verso_worker.rules.ports.outcome import SliceOutcome, no_progress

_MOST_PAIRED = 64 * 1024
"""Largest cost of a slice that is run a second time, to compare a canary: half a second or so."""


class HeadRule(Protocol):
    """Runs a slice in a collection, with the heads that a job chooses."""

    def __call__(
        self, work: Any, collection: Any, *, job: str | None, timings: Timings
    ) -> Result[Any]:
        """Return the results of the slice's items; None as the job chooses stable versions."""


@dataclass(frozen=True, slots=True)
class HeadJobs:
    """Runs slices that only read and may need heads."""

    heads: Heads

    def run(
        self,
        names: Sequence[str],
        work: Slice[Any, Any],
        do: Callable[[str | None, Call], Result[Any]],
        call: Call,
    ) -> SliceOutcome:
        """Run a slice with the heads of these names.

        To compare a canary a slice may be run again, unless that takes longer than a person waits.
        """
        beside = None
        if sum(work.params.cost(item) for item in work.accepted.values()) <= _MOST_PAIRED:
            beside = StableRun(work, partial(do, None, Call(call.seq, no_progress)))
        found = self.heads.run_job(
            names, lambda job: do(job, call), job=str(call.seq), beside=beside
        )
        return SliceOutcome(found)

    def search(self, rule: HeadRule) -> CollectionRule:
        """Return the rule of searches, as tables hold it."""

        def named(params: SearchParams) -> Sequence[str]:
            return [] if params.rerank is None else [params.rerank]

        return self._asking(named, rule)

    def classify(self, rule: HeadRule) -> CollectionRule:
        """Return the rule of classifications, as tables hold it."""

        def named(params: ClassifyParams) -> Sequence[str]:
            return params.heads

        return self._asking(named, rule)

    def answer(self, rule: Callable[[Any, Any, str | None, Call], Result[Any]]) -> CollectionRule:
        """Return the rule of answers, as tables hold it: ``(slice, collection, job, call)``."""

        def run(work: Slice[AnswerParams, Any], collection: Any, call: Call) -> SliceOutcome:
            return self.run(
                [work.params.head], work, lambda job, own: rule(work, collection, job, own), call
            )

        return run

    def _asking(self, named: Callable[[Any], Sequence[str]], rule: HeadRule) -> CollectionRule:
        """Return a rule that asks the heads that a slice's params name."""

        def run(work: Slice[Any, Any], collection: Any, call: Call) -> SliceOutcome:
            return self.run(
                named(work.params),
                work,
                lambda job, own: rule(work, collection, job=job, timings=own.timings),
                call,
            )

        return run
