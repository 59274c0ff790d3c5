"""Facts about when the next buckets are scrubbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.wire import Result, read_slice

from verso_core.errors import JobUnknown
from verso_core.jobs import Collection, Kind, Precision, Queue, Status, TextPolicy
from verso_keeper.scrubber import Scrubber
from verso_ledger import (
    Accepted,
    Damage,
    Depth,
    JobRecord,
    Ledger,
    Move,
    NewJob,
    Recent,
    Scrub,
    ScrubStage,
    Walked,
)

START = Scrub(
    turn=1,
    number=1,
    started=1000.0,
    ended=None,
    collection="",
    bucket=0,
    job_id=None,
    tries=0,
    due=0.0,
    asked=False,
    now=1000.0,
)
FOUND = {
    "ok": True, "buckets": 6, "documents": 9, "sound": 7, "repaired": 1, "damaged": 1,
    "bytes": 50, "ids": ["d"],
}  # fmt: skip


class FakeLedger:
    """The parts of a ledger: remembers what was accepted, and moves the scrub as it is set up."""

    def __init__(self, state: Scrub, names: str = "ab") -> None:
        self.scrub_state = state
        self.names = names
        self.busy: dict[Queue, Depth] = {}
        self.accepted: list[NewJob] = []
        self.moves: list[Move] = []
        self.record: JobRecord | None = None
        self.found: dict[str, Any] | None = FOUND
        self.later: list[Scrub] = []  # what is found after each move

    def state(self) -> Scrub:
        return self.scrub_state

    def move(self, turn: int, move: Move) -> bool:
        self.moves.append(move)
        mine = turn == self.scrub_state.turn
        if self.later:
            self.scrub_state = self.later.pop(0)
        return mine

    def accept(self, job: NewJob) -> Accepted:
        self.accepted.append(job)
        return Accepted(job_id=f"j{len(self.accepted)}", replayed=False)

    def get(self, job_id: str) -> JobRecord:
        if self.record is None:
            raise JobUnknown(job_id)
        return self.record

    def result(self, job_id: str) -> bytes | None:
        return None if self.found is None else Result([self.found]).pack()

    def depths(self) -> dict[Queue, Depth]:
        return {queue: self.busy.get(queue, Depth(0, 9, 0, 0.0)) for queue in Queue}

    def here(self) -> dict[str, Collection]:
        return {name: _collection(name) for name in self.names}


def _collection(name: str) -> Collection:
    return Collection(
        name=name,
        precision=Precision.FLOAT16,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=384,
        int8_scale=0.3,
        artifacts=(),
        buckets=16,
        checksum_key="00ff",
        created=datetime.now(UTC),
    )


def _record(status: Status, *, started: float = 2000.0, finished: float = 2002.0) -> JobRecord:
    return JobRecord(
        job_id="j",
        kind=Kind.SCRUB,
        queue=Queue.SCRUB,
        tenant="verso",
        status=status,
        created=started,
        started=started,
        finished=finished if status.terminal else None,
        deadline=None,
        items=1,
        n_ok=1,
        n_err=0,
        slices=1,
        done=1,
        attempts=1,
        error=None,
    )


def _step(ledger: FakeLedger, *, share: float = 0.05) -> None:
    parts = SimpleNamespace(jobs=ledger, documents=ledger, scrub=ledger, maintenance=ledger)
    Scrubber(cast("Ledger", parts), share=share, every_s=100.0, pass_s=1600.0).step()


def _header(job: NewJob) -> Mapping[str, Any]:
    work = read_slice(job.slices[0].payload)
    return {**work.params, **work.items[0].header}


def test_one_job_names_a_collection_and_the_buckets_from_the_cursor_on() -> None:
    ledger = FakeLedger(replace(START, collection="a", bucket=5))
    _step(ledger)
    [job] = ledger.accepted
    assert (job.kind, job.queue, job.tenant) == (Kind.SCRUB, Queue.SCRUB, "verso")
    assert _header(job) == {"collection": "a", "first": 5, "count": 11, "spend_s": 2.0}
    assert ledger.moves == [Move(set={"collection": "a", "bucket": 5, "job": "j1"})]


def test_several_keepers_ask_for_the_same_job_under_one_key() -> None:
    ledger = FakeLedger(START)
    _step(ledger)
    _step(ledger)
    first, second = (job.idempotency for job in ledger.accepted)
    assert first == second
    ledger.scrub_state = replace(START, number=2)
    _step(ledger)
    assert ledger.accepted[-1].idempotency != first


def test_a_job_under_way_is_waited_for() -> None:
    ledger = FakeLedger(replace(START, job_id="j"))
    ledger.record = _record(Status.RUNNING)
    _step(ledger)
    assert (ledger.accepted, ledger.moves) == ([], [])


@pytest.mark.parametrize("queue", list(Queue))
@pytest.mark.parametrize("depth", [Depth(1, 0, 0, 0.0), Depth(0, 0, 1, 0.0)])
def test_no_job_while_others_wait_or_run(queue: Queue, depth: Depth) -> None:
    ledger = FakeLedger(START)
    ledger.busy = {queue: depth}
    _step(ledger)
    assert ledger.accepted == []


def test_a_pass_behind_its_pace_does_not_wait_for_quiet_but_for_its_budget() -> None:
    # 1600 s for 32 buckets: after 200 s four should be done
    ledger = FakeLedger(replace(START, collection="a", bucket=4, now=1199.0))
    ledger.busy = {Queue.BULK: Depth(5, 0, 1, 9.0)}
    _step(ledger)
    assert ledger.accepted == []
    ledger.scrub_state = replace(ledger.scrub_state, now=1201.0)
    _step(ledger)
    assert len(ledger.accepted) == 1
    ledger.scrub_state = replace(ledger.scrub_state, due=1202.0)
    _step(ledger)
    assert len(ledger.accepted) == 1


def test_after_a_job_the_rest_follows_from_its_duration_and_the_share() -> None:
    ledger = FakeLedger(replace(START, collection="a", bucket=3, job_id="j", now=2003.0))
    ledger.record = _record(Status.SUCCEEDED)
    _step(ledger)
    [move] = ledger.moves
    assert move.set == {"job": None, "tries": 0, "bucket": 9, "due": pytest.approx(2040.0)}
    assert move.add == {
        "documents": 9,
        "sound": 7,
        "repaired": 1,
        "damaged": 1,
        "bytes": 50,
        "orphans": 0,
    }
    assert move.damaged == [Damage("a", "d")]


@pytest.mark.parametrize(("due", "jobs"), [(2002.0, 1), (2040.0, 0)])
def test_where_no_rest_is_due_the_next_job_is_asked_for_in_the_same_round(
    due: float, jobs: int
) -> None:
    ran = replace(START, collection="a", bucket=3, job_id="j", now=2003.0)
    ledger = FakeLedger(ran)
    ledger.record = _record(Status.SUCCEEDED)
    ledger.later = [replace(ran, turn=ran.turn + 1, bucket=9, job_id=None, due=due)]
    _step(ledger, share=1.0)
    assert [_header(job)["first"] for job in ledger.accepted] == [9] * jobs


def test_a_collection_that_vanished_is_passed_over() -> None:
    ledger = FakeLedger(replace(START, collection="b", bucket=3), names="ac")
    _step(ledger)
    assert _header(ledger.accepted[0])["collection"] == "c"


def test_behind_the_last_bucket_the_pass_ends() -> None:
    ledger = FakeLedger(replace(START, collection="b", bucket=16))
    _step(ledger)
    assert (ledger.accepted, ledger.moves) == ([], [Move(end=True)])


@pytest.mark.parametrize(
    ("state", "begins"),
    [
        (replace(START, number=0, started=None), True),
        (replace(START, ended=1010.0, now=1099.0), False),
        (replace(START, ended=1010.0, now=1100.0), True),
        (replace(START, ended=1010.0, now=1020.0, asked=True), True),
    ],
    ids=["never yet", "too soon", "due", "asked for"],
)
def test_a_pass_begins_when_it_is_due_or_asked_for(state: Scrub, begins: bool) -> None:
    ledger = FakeLedger(state)
    _step(ledger)
    assert ledger.moves == ([Move(begin=True)] if begins else [])


def test_a_share_of_nothing_asks_for_nothing() -> None:
    ledger = FakeLedger(replace(START, number=0, started=None))
    _step(ledger, share=0.0)
    assert ledger.moves == []


def test_a_job_that_is_gone_is_asked_for_under_a_new_key() -> None:
    ledger = FakeLedger(replace(START, collection="a", job_id="j"))
    _step(ledger)
    assert ledger.moves == [Move(set={"job": None, "tries": 1})]


@pytest.mark.parametrize("status", [Status.FAILED, Status.DEAD, Status.CANCELLED, Status.EXPIRED])
def test_a_failed_job_is_tried_again_with_one_bucket_and_then_left_out(status: Status) -> None:
    ledger = FakeLedger(replace(START, collection="a", bucket=3, job_id="j", tries=2))
    ledger.record = _record(status)
    _step(ledger)
    assert ledger.moves[-1] == Move(set={"job": None, "tries": 3, "due": 1000.0 + 240.0})
    ledger.scrub_state = replace(ledger.scrub_state, job_id=None, tries=3)
    _step(ledger)
    assert _header(ledger.accepted[0])["count"] == 1
    ledger.scrub_state = replace(ledger.scrub_state, job_id="j", tries=4)
    _step(ledger)
    assert ledger.moves[-1] == Move(set={"job": None, "tries": 0, "bucket": 4}, add={"unread": 1})


def test_recent_documents_are_counted_by_their_own_walk_and_harm_by_the_pass() -> None:
    ledger = FakeLedger(replace(START, recent=Recent(5, "a", 2, 30), of_recent=True, job_id="j"))
    ledger.record = _record(Status.SUCCEEDED)
    _step(ledger)
    assert ledger.moves[0].add == {"repaired": 1, "damaged": 1}
    assert ledger.moves[0].set["recent_documents"] == 39
    assert ledger.moves[0].set["recent_bucket"] == 8


def test_a_job_of_a_walk_that_begins_again_names_no_document() -> None:
    """A worker that starts after a kill has the walk restart; the job's collection is forgotten."""
    ledger = FakeLedger(replace(START, recent=Recent(5, "", 0), of_recent=True, job_id="j"))
    ledger.record = _record(Status.SUCCEEDED)
    _step(ledger)
    assert ledger.moves == [Move(set={"job": None, "walk": None}, add={"repaired": 1})]


def test_what_the_scrub_is_at_is_told_with_how_far_it_is() -> None:
    collections = {name: _collection(name) for name in "ab"}
    assert START.stage is ScrubStage.RUNNING
    assert START.recent_walked(collections) is None
    assert replace(START, ended=1010.0).stage is ScrubStage.ENDED
    assert replace(START, number=0, started=None).stage is ScrubStage.NONE
    first = replace(START, recent=Recent(5, "b", 4))
    assert first.stage is ScrubStage.RECENT
    assert first.recent_walked(collections) == Walked(20, 32)
    assert replace(START, recent=Recent(5, "", 0)).recent_walked({}) == Walked(0, 0)
    assert Walked(0, 0).part == 1.0
