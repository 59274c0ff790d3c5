"""Work begun before its job was accepted is done once, whenever its lease comes."""

from __future__ import annotations

from verso_core.jobs import Kind, Queue, Result
from verso_ledger import Lease, Phase
from verso_worker.jobs.headstart import HeadStarts
from verso_worker.rules.ports import SliceOutcome


def _lease(job_id: str, fence: int = 1) -> Lease:
    return Lease(
        slice_id=f"{job_id}.0",
        job_id=job_id,
        number=0,
        fence=fence,
        kind=Kind.EMBED,
        phase=Phase.WORK,
        payload=b"",
        seq=1,
        queue=Queue.INTERACTIVE,
        not_after=None,
        waited_ms=0,
    )


def test_a_lease_that_comes_while_it_runs_is_ended_by_who_runs_it() -> None:
    starts = HeadStarts()
    assert not starts.left(_lease("a"))
    starts.begin("a")
    assert starts.take("a") is None
    assert starts.left(_lease("a"))
    assert starts.left(_lease("a", fence=2))  # the first ran out meanwhile
    assert starts.end("a", SliceOutcome(Result([]))) == _lease("a", fence=2)
    assert starts.take("a") is None


def test_a_lease_that_comes_later_finds_what_was_done_once() -> None:
    starts = HeadStarts()
    starts.begin("a")
    outcome = SliceOutcome(Result([]))
    assert starts.end("a", outcome) is None
    assert not starts.left(_lease("a"))
    assert starts.take("a") is outcome
    assert starts.take("a") is None


def test_what_failed_leaves_nothing() -> None:
    starts = HeadStarts()
    starts.begin("a")
    assert starts.end("a", None) is None
    assert starts.take("a") is None
    starts.begin("b")
    assert starts.left(_lease("b"))
    assert starts.end("b", None) == _lease("b")
    assert not starts.left(_lease("b"))


def test_a_few_whose_lease_never_comes_are_kept_and_what_runs_is_not_forgotten() -> None:
    starts = HeadStarts()
    starts.begin("runs")
    for number in range(100):
        starts.begin(str(number))
        starts.end(str(number), SliceOutcome(Result([])))
    assert len(starts._starts) == 17
    assert starts.take("99")
    assert starts.left(_lease("runs"))
