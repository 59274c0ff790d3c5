"""Facts about when a probe is asked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from tests.wire import read_slice

from verso_core.jobs import Kind, Queue
from verso_keeper.periodic import Prober
from verso_ledger import Accepted, Health, Ledger, NewJob


class FakeLedger:
    """A ledger that remembers what it was asked."""

    def __init__(self, age_s: float | None) -> None:
        self.age_s = age_s
        self.accepted: list[NewJob] = []

    def health(self) -> Health:
        return Health(last_embed_age_s=self.age_s, worker_beat_age_s=None)

    def accept(self, job: NewJob) -> Accepted:
        known = [old.idempotency for old in self.accepted]
        self.accepted.append(job)
        return Accepted(job_id="j", replayed=job.idempotency in known)


def _prober(ledger: FakeLedger, *, after_s: float, clock: Callable[[], float]) -> Prober:
    parts = SimpleNamespace(jobs=ledger, liveness=ledger)
    return Prober(cast("Ledger", parts), after_s=after_s, clock=clock)


def test_a_recent_embed_needs_no_probe() -> None:
    jobs = FakeLedger(age_s=9.9)
    assert not _prober(jobs, after_s=10.0, clock=lambda: 0.0).step()
    assert jobs.accepted == []


def test_a_ledger_that_never_saw_an_embed_is_probed_with_one_short_text() -> None:
    jobs = FakeLedger(age_s=None)
    assert _prober(jobs, after_s=10.0, clock=lambda: 25.0).step()
    (job,) = jobs.accepted
    assert (job.kind, job.queue, job.tenant) == (Kind.EMBED, Queue.INTERACTIVE, "verso")
    assert job.deadline_s is not None
    work = read_slice(job.slices[0].payload)
    assert [len(item.blob or b"") > 0 for item in work.items] == [True]


def test_one_span_of_time_is_probed_once_by_any_number_of_keepers() -> None:
    jobs, now = FakeLedger(age_s=60.0), [21.0]
    keepers = [_prober(jobs, after_s=10.0, clock=lambda: now[0]) for _ in range(2)]
    assert [keeper.step() for keeper in keepers] == [True, False]
    assert [keeper.step() for keeper in keepers] == [False, False]
    assert len(jobs.accepted) == 2  # the second keeper asked once, and was given the first's job
    now[0] = 31.0
    assert [keeper.step() for keeper in keepers] == [True, False]
