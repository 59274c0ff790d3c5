"""Facts about the life of a job, against a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
import redis

from verso_core.errors import (
    BodyTooLarge,
    EngineUnavailable,
    IdempotencyConflict,
    JobUnknown,
    LedgerUnavailable,
    QueueFull,
    VectorsUnavailable,
    VersoError,
)
from verso_core.jobs import Kind, Queue, Status
from verso_ledger import Commit, DocumentWrite, Ledger, Limits, NewJob, Phase, Policy
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts
from verso_ledger.sync_client import Jobs as SyncJobs

Jobs = Callable[..., NewJob]
Time = Callable[[float], None]
Q = Queue.INTERACTIVE


@pytest.fixture
def valkey_url(timed_url: str) -> str:
    """The server whose time tests let pass: what is not due yet stays so on a busy machine."""
    return timed_url


@pytest.fixture
def hasty(valkey_url: str) -> Iterator[Ledger]:
    """A ledger that gives up soon and does not wait between attempts."""
    found = Ledger.from_url(
        valkey_url, policy=Policy(max_errors=3, backoff_ms=(0, 0, 0), gc_delay_ms=0)
    )
    yield found
    found.close()


@pytest.fixture
def raw(valkey_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look behind the ledger."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


def test_work_of_a_later_release_waits_for_its_workers_beside_others(
    hasty: Ledger, raw: redis.Redis, new_job: Jobs, pass_s: Time
) -> None:
    """However often a worker of this release comes by, it is no dead letter."""
    theirs = hasty.jobs.accept(new_job(kind=Kind.INGEST)).job_id
    raw.hset(key("slice", f"{theirs}.0"), "kind", "of a later release")
    ours = hasty.jobs.accept(new_job(kind=Kind.INGEST)).job_id
    for turn in range(12):
        found = [lease.job_id for lease in hasty.leases.claim(Queue.BULK, owner="w", n=5)]
        assert found == ([ours] if turn == 0 else [])
        pass_s(1.1)
    behind = hasty.jobs.accept(new_job(kind=Kind.INGEST)).job_id
    assert [one.job_id for one in hasty.leases.claim(Queue.BULK, owner="w", n=1)] == [behind]
    pass_s(1.1)
    raw.hset(key("slice", f"{theirs}.0"), "kind", Kind.INGEST)
    [lease] = hasty.leases.claim(Queue.BULK, owner="new", n=5)
    assert lease.job_id == theirs


def test_an_accepted_job_is_queued_claimed_and_succeeds(ledger: Ledger, new_job: Jobs) -> None:
    job_id = ledger.jobs.accept(new_job(slices=2, items=2)).job_id
    assert ledger.jobs.get(job_id).status is Status.QUEUED
    first, second = ledger.leases.claim(Q, owner="w", n=5)
    assert (first.number, second.number) == (0, 1)
    assert first.seq < second.seq
    assert first.phase is Phase.WORK
    assert first.fence == 1
    assert ledger.jobs.get(job_id).status is Status.RUNNING
    assert ledger.leases.commit(first, b"r0", ok=2, errors=0) is Commit.DONE
    assert ledger.jobs.get(job_id).done == 1
    assert ledger.leases.commit(second, b"r1", ok=1, errors=1) is Commit.DONE
    record = ledger.jobs.get(job_id)
    assert record.status is Status.SUCCEEDED
    assert (record.items, record.n_ok, record.n_err, record.done) == (4, 3, 1, 2)
    assert record.created <= (record.started or 0) <= (record.finished or 0)
    assert record.attempts == 1


def test_a_job_whose_items_all_failed_has_failed(ledger: Ledger, new_job: Jobs) -> None:
    job_id = ledger.jobs.accept(new_job()).job_id
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.leases.commit(lease, b"r", ok=0, errors=2)
    assert ledger.jobs.get(job_id).status is Status.FAILED


def test_a_commit_repeated_by_the_same_fence_is_done_and_counts_once(
    ledger: Ledger, new_job: Jobs
) -> None:
    job_id = ledger.jobs.accept(new_job()).job_id
    (lease,) = ledger.leases.claim(Q, owner="w")
    assert ledger.leases.commit(lease, b"r", ok=2, errors=0) is Commit.DONE
    assert ledger.leases.commit(lease, b"other", ok=2, errors=0) is Commit.DONE
    assert ledger.jobs.get(job_id).n_ok == 2


def test_a_stale_fence_commits_nothing(hasty: Ledger, new_job: Jobs, pass_s: Time) -> None:
    job_id = hasty.jobs.accept(new_job()).job_id
    (stale,) = hasty.leases.claim(Q, owner="slow", lease_s=0.001)
    pass_s(0.01)
    assert hasty.maintenance.reap()[Q] == 1
    (fresh,) = hasty.leases.claim(Q, owner="quick")
    assert fresh.fence == stale.fence + 1
    assert hasty.leases.commit(stale, b"stale", ok=2, errors=0) is Commit.STALE
    assert hasty.leases.retry(stale, EngineUnavailable("gone"), delay_s=0) is Commit.STALE
    assert hasty.leases.fail(stale, VersoError("no")) is Commit.STALE
    assert hasty.leases.renew([stale, fresh]) == {stale.slice_id}
    assert hasty.jobs.get(job_id).status is Status.RUNNING
    assert hasty.leases.commit(fresh, b"r", ok=2, errors=0) is Commit.DONE
    assert hasty.leases.commit(stale, b"stale", ok=2, errors=0) is Commit.STALE
    assert hasty.jobs.get(job_id).attempts == 2


def test_a_claim_whose_reply_was_lost_gives_the_same_slices_again(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    ledger.jobs.accept(new_job(slices=3))
    args: list[str | int] = [Q, "w", 2, 10_000, "one-token"]
    first = ledger._scripts.run("claim", args)
    again = ledger._scripts.run("claim", args)
    assert [row[:4] for row in first] == [row[:4] for row in again]
    assert len(ledger.leases.claim(Q, owner="w", n=5)) == 1
    assert raw.pttl(key("claim", "one-token")) > 0


def test_an_accept_repeated_with_its_job_id_makes_one_job(ledger: Ledger, new_job: Jobs) -> None:
    job = new_job(job_id="a" * 32)
    assert ledger.jobs.accept(job) == ledger.jobs.accept(job)
    assert len(ledger.leases.claim(Q, owner="w", n=5)) == 1


def test_a_lost_lease_comes_back_and_the_third_crash_is_a_dead_letter(
    hasty: Ledger, new_job: Jobs, pass_s: Time
) -> None:
    job_id = hasty.jobs.accept(new_job()).job_id
    for _ in range(3):
        assert len(hasty.leases.claim(Q, owner="w", lease_s=0.001)) == 1
        pass_s(0.01)
        hasty.maintenance.reap()
    record = hasty.jobs.get(job_id)
    assert record.status is Status.DEAD
    assert record.error is not None
    assert record.error["code"] == "attempts_exhausted"
    assert (record.n_err, record.done) == (2, 1)
    assert hasty.maintenance.backlog().dead == 1


def test_a_crashed_slice_waits_longer_each_time(
    ledger: Ledger, new_job: Jobs, pass_s: Time
) -> None:
    ledger.jobs.accept(new_job())
    assert len(ledger.leases.claim(Q, owner="w", lease_s=0.001)) == 1
    pass_s(0.01)
    assert ledger.maintenance.reap()[Q] == 1  # at once
    assert len(ledger.leases.claim(Q, owner="w", lease_s=0.001)) == 1
    pass_s(0.01)
    assert ledger.maintenance.reap()[Q] == 0  # in two seconds
    assert ledger.leases.claim(Q, owner="w") == []
    assert ledger.maintenance.depths()[Q].delayed == 1


def test_retryable_errors_are_counted_apart_from_crashes(hasty: Ledger, new_job: Jobs) -> None:
    job_id = hasty.jobs.accept(new_job()).job_id
    for _ in range(3):
        (lease,) = hasty.leases.claim(Q, owner="w")
        assert hasty.leases.retry(lease, EngineUnavailable("gone"), delay_s=0) is Commit.DONE
        assert hasty.leases.retry(lease, EngineUnavailable("gone"), delay_s=0) is Commit.DONE
    record = hasty.jobs.get(job_id)
    assert record.status is Status.DEAD
    assert record.error == {"code": "engine_unavailable", "detail": "gone", "retryable": True}


def test_work_that_took_too_long_twice_has_failed_and_a_promise_is_kept(
    ledger: Ledger, new_job: Jobs
) -> None:
    """Else one request that takes too long would be run eight times, each time for as long."""
    for kind, queue, status in (
        (Kind.SEARCH, Queue.INTERACTIVE, Status.FAILED),
        (Kind.INGEST, Queue.BULK, Status.RUNNING),
    ):
        job = ledger.jobs.accept(new_job(kind)).job_id
        for _ in range(2):
            [lease] = ledger.leases.claim(queue, owner="w")
            late = VectorsUnavailable("no answer within 60 s")
            ledger.leases.retry(lease, late, delay_s=0.0, timed_out=True)
        assert ledger.jobs.get(job).status is status


def test_a_released_slice_is_not_counted(hasty: Ledger, new_job: Jobs) -> None:
    job_id = hasty.jobs.accept(new_job()).job_id
    for _ in range(10):
        (lease,) = hasty.leases.claim(Q, owner="w")
        assert hasty.leases.release(lease) is Commit.DONE
    assert hasty.jobs.get(job_id).status is Status.RUNNING


def test_a_delayed_retry_is_not_due_yet(ledger: Ledger, new_job: Jobs, pass_s: Time) -> None:
    ledger.jobs.accept(new_job())
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.leases.retry(lease, EngineUnavailable("gone"), delay_s=1.0)
    assert ledger.leases.claim(Q, owner="w") == []
    pass_s(1.05)
    assert len(ledger.leases.claim(Q, owner="w")) == 1


def test_the_delay_doubles_with_every_error_of_a_slice(
    hasty: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    hasty.jobs.accept(new_job())
    waits = []
    for _ in range(2):
        (lease,) = hasty.leases.claim(Q, owner="w")
        hasty.leases.retry(lease, EngineUnavailable("gone"), delay_s=20)
        due_ms = raw.zscore(key("ready", Q), lease.slice_id)
        assert due_ms is not None
        waits.append(due_ms / 1000 - raw.time()[0])
        raw.zadd(key("ready", Q), {lease.slice_id: 0})
    assert waits == [pytest.approx(20, abs=2), pytest.approx(30, abs=2)]  # 40 passes the bound


def test_a_failed_embed_has_failed_and_a_failed_ingest_keeps_its_texts(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    embed = ledger.jobs.accept(new_job()).job_id
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.leases.fail(lease, VersoError("no"))
    assert ledger.jobs.get(embed).status is Status.FAILED
    assert raw.exists(key("payload", lease.slice_id)) == 0

    ingest = ledger.jobs.accept(new_job(Kind.INGEST)).job_id
    (lease,) = ledger.leases.claim(Queue.BULK, owner="w")
    ledger.leases.fail(lease, VersoError("no"))
    assert ledger.jobs.get(ingest).status is Status.DEAD
    assert raw.get(key("payload", lease.slice_id)) == lease.payload
    assert raw.ttl(key("payload", lease.slice_id)) == -1
    assert raw.ttl(key("job", ingest)) == -1


def test_a_dead_job_can_be_replayed_once_and_then_succeeds(hasty: Ledger, new_job: Jobs) -> None:
    job_id = hasty.jobs.accept(new_job(Kind.INGEST, slices=2)).job_id
    good, bad = hasty.leases.claim(Queue.BULK, owner="w", n=2)
    hasty.leases.commit(good, b"r", ok=2, errors=0)
    hasty.leases.fail(bad, VersoError("no"))
    assert hasty.jobs.get(job_id).status is Status.DEAD
    assert hasty.jobs.replay(job_id) is Status.QUEUED
    assert hasty.jobs.replay(job_id) is Status.QUEUED
    assert hasty.maintenance.backlog().dead == 0
    (again,) = hasty.leases.claim(Queue.BULK, owner="w", n=2)
    assert (again.slice_id, again.seq) == (bad.slice_id, bad.seq)
    assert again.fence == bad.fence + 1
    hasty.leases.commit(again, b"r", ok=2, errors=0)
    record = hasty.jobs.get(job_id)
    assert record.status is Status.SUCCEEDED
    assert (record.n_ok, record.n_err, record.done, record.error) == (4, 0, 2, None)


def test_cancel_ends_a_job_and_refuses_the_slice_that_runs(ledger: Ledger, new_job: Jobs) -> None:
    job_id = ledger.jobs.accept(new_job(slices=3)).job_id
    done, runs = ledger.leases.claim(Q, owner="w", n=2)
    ledger.leases.commit(done, b"r", ok=2, errors=0)
    assert ledger.jobs.cancel(job_id) is Status.CANCELLED
    assert ledger.jobs.cancel(job_id) is Status.CANCELLED
    assert ledger.leases.renew([runs]) == {runs.slice_id}
    assert ledger.leases.commit(runs, b"r", ok=2, errors=0) is Commit.STALE
    assert ledger.leases.claim(Q, owner="w") == []
    record = ledger.jobs.get(job_id)
    assert record.status is Status.CANCELLED
    assert (record.n_ok, record.n_err, record.done) == (2, 4, 3)
    assert ledger.maintenance.depths()[Q].queued == ledger.maintenance.depths()[Q].running == 0


def test_a_job_past_its_deadline_is_never_run(ledger: Ledger, new_job: Jobs, pass_s: Time) -> None:
    claimed = ledger.jobs.accept(new_job(deadline_s=0.01)).job_id
    pass_s(0.03)
    assert ledger.leases.claim(Q, owner="w") == []
    reaped = ledger.jobs.accept(new_job(slices=2, deadline_s=0.01)).job_id
    pass_s(0.03)
    ledger.maintenance.reap()
    for job_id in (claimed, reaped):
        record = ledger.jobs.get(job_id)
        assert record.status is Status.EXPIRED
        assert record.n_err == record.items
        assert record.error is not None
        assert record.error["code"] == "deadline_expired"


def test_a_slice_that_runs_past_the_deadline_may_still_commit(
    ledger: Ledger, new_job: Jobs, pass_s: Time
) -> None:
    job_id = ledger.jobs.accept(new_job(deadline_s=0.5)).job_id
    (lease,) = ledger.leases.claim(Q, owner="w")
    assert lease.not_after is not None
    pass_s(0.55)
    ledger.maintenance.reap()
    assert ledger.leases.commit(lease, b"r", ok=2, errors=0) is Commit.DONE
    assert ledger.jobs.get(job_id).status is Status.SUCCEEDED


def test_a_slice_that_crashed_past_the_deadline_expires_without_any_worker(
    ledger: Ledger, new_job: Jobs, pass_s: Time
) -> None:
    job_id = ledger.jobs.accept(new_job(deadline_s=0.5)).job_id
    assert len(ledger.leases.claim(Q, owner="w", lease_s=1.0)) == 1
    pass_s(0.55)
    ledger.maintenance.reap()
    assert ledger.jobs.get(job_id).status is Status.RUNNING
    pass_s(1.1)
    ledger.maintenance.reap()
    assert ledger.jobs.get(job_id).status is Status.EXPIRED


def test_an_idempotency_key_gives_the_same_job_and_refuses_another_body(
    ledger: Ledger, new_job: Jobs
) -> None:
    first = ledger.jobs.accept(new_job(idempotency=("k", "h1")))
    again = ledger.jobs.accept(new_job(idempotency=("k", "h1")))
    assert (again.job_id, again.replayed, first.replayed) == (first.job_id, True, False)
    with pytest.raises(IdempotencyConflict):
        ledger.jobs.accept(new_job(idempotency=("k", "h2")))
    other = ledger.jobs.accept(new_job(idempotency=("k", "h2"), tenant="other"))
    assert other.job_id != first.job_id


def test_a_full_queue_that_drained_fast_before_a_pause_is_short_to_wait_for(
    ledger: Ledger, new_job: Jobs, pass_s: Time
) -> None:
    limits = Limits(max_slices=3)
    ledger.jobs.accept(new_job(slices=3, limits=limits))
    for _ in range(3):
        [lease] = ledger.leases.claim(Q, owner="w")
        pass_s(0.1)
        ledger.leases.commit(lease, b"", ok=1, errors=0)
    pass_s(2.0)
    ledger.jobs.accept(new_job(slices=3, limits=limits))
    with pytest.raises(QueueFull) as full:
        ledger.jobs.accept(new_job(limits=limits))
    assert full.value.retry_after_s <= 1
    pass_s(2.0)
    with pytest.raises(QueueFull) as full:  # nothing has ended for so long
        ledger.jobs.accept(new_job(limits=limits))
    assert full.value.retry_after_s >= 2


def test_a_full_queue_says_when_to_come_back(ledger: Ledger, new_job: Jobs) -> None:
    limits = Limits(max_slices=3, max_bytes=1 << 20)
    ledger.jobs.accept(new_job(slices=3, limits=limits))
    with pytest.raises(QueueFull) as full:
        ledger.jobs.accept(new_job(limits=limits))
    assert 1 <= full.value.retry_after_s <= 300
    with pytest.raises(BodyTooLarge):
        ledger.jobs.accept(new_job(slices=4, limits=limits))
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.leases.commit(lease, b"r", ok=2, errors=0)
    ledger.jobs.accept(new_job(limits=limits))


def test_a_job_beyond_its_tenants_part_is_not_asked_to_come_back(
    ledger: Ledger, new_job: Jobs
) -> None:
    limits = Limits(max_slices=10, tenant_share=0.3)
    with pytest.raises(BodyTooLarge):
        ledger.jobs.accept(new_job(slices=4, limits=limits))
    ledger.jobs.accept(new_job(slices=3, limits=limits))
    few = Limits(max_bytes=4000, tenant_share=0.5)
    with pytest.raises(BodyTooLarge):
        ledger.jobs.accept(new_job(text=b"x" * 1000, limits=few))


def test_bytes_fill_a_queue_too(ledger: Ledger, new_job: Jobs) -> None:
    limits = Limits(max_slices=100, max_bytes=1000)
    ledger.jobs.accept(new_job(text=b"x" * 300, limits=limits))
    with pytest.raises(QueueFull):
        ledger.jobs.accept(new_job(text=b"x" * 300, limits=limits))


def _large(new_job: Jobs, **about: Any) -> NewJob:
    """Return a job whose payloads are stored before it is accepted."""
    return new_job(Kind.INGEST, slices=9, items=1, text=b"x" * 600_000, **about)


def test_a_large_job_is_staged_and_accepted_whole(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    job = _large(new_job)
    job_id = ledger.jobs.accept(job).job_id
    leases = ledger.leases.claim(Queue.BULK, owner="w", n=20)
    assert [lease.payload for lease in leases] == [part.payload for part in job.slices]
    assert {raw.ttl(key("payload", f"{job_id}.{n}")) for n in range(9)} == {-1}


def test_a_large_job_is_accepted_once_and_kept_however_often_it_is_sent(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    large = _large(new_job, job_id="b" * 32, limits=Limits(max_slices=9))  # no room for a second
    for _ in range(3):
        assert ledger.jobs.accept(large).job_id == "b" * 32
        assert {raw.ttl(key("payload", f"{'b' * 32}.{n}")) for n in range(9)} == {-1}
    assert len(ledger.leases.claim(Queue.BULK, owner="w", n=20)) == 9
    assert ledger.maintenance.backlog().staged_bytes == 0


def test_a_payload_that_was_accepted_is_not_staged_again(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    class Overtaken(Scripts):
        """The steps of a call that repeats another one, whose own last step comes in between."""

        def run(self, step: str, args: Sequence[Any]) -> Any:
            reply = super().run(step, args)
            if step == "stage":
                ledger.jobs.accept(large)
            return reply

    large = _large(new_job, job_id="b" * 32)
    SyncJobs(Overtaken(raw)).accept(large)
    assert {raw.ttl(key("payload", f"{'b' * 32}.{n}")) for n in range(9)} == {-1}
    assert ledger.maintenance.backlog().staged_bytes == 0


def test_what_was_staged_for_a_job_that_is_refused_is_gone(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    ledger.jobs.accept(new_job(Kind.INGEST, idempotency=("key", "a")))
    before = set(raw.keys(key("payload", "*")))
    with pytest.raises(IdempotencyConflict):
        ledger.jobs.accept(_large(new_job, idempotency=("key", "b")))
    with pytest.raises(QueueFull):  # refused before a byte of it is stored
        ledger.jobs.accept(_large(new_job, limits=Limits(max_bytes=5_400_850)))
    assert set(raw.keys(key("payload", "*"))) == before
    assert ledger.maintenance.backlog().staged_bytes == 0


def test_what_is_staged_counts_as_waiting_until_it_is_accepted_or_too_old(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    from verso_ledger.codec.admission import Admission

    abandoned = _large(new_job)
    ledger._scripts.run("stage", Admission.of(abandoned).reservation)
    staged = ledger.maintenance.backlog().staged_bytes
    assert staged > 9 * 600_000
    with pytest.raises(QueueFull):
        ledger.jobs.accept(new_job(Kind.INGEST, limits=Limits(max_bytes=staged)))
    for name in cast("list[bytes]", raw.zrange(key("staged"), 0, -1)):
        raw.zadd(key("staged"), {name: 1})
    ledger.maintenance.reap()
    assert ledger.maintenance.backlog().staged_bytes == 0
    ledger.jobs.accept(new_job(Kind.INGEST, limits=Limits(max_bytes=staged)))


def test_staged_payloads_that_vanished_are_never_accepted(ledger: Ledger, new_job: Jobs) -> None:
    from verso_ledger.codec.admission import STAGE_BYTES, Admission, accepted

    large = new_job(items=1, text=bytes(STAGE_BYTES), job_id="b" * 32)
    args = Admission.of(large).args
    with pytest.raises(LedgerUnavailable):
        accepted(ledger._scripts.run("accept", args))
    with pytest.raises(JobUnknown):
        ledger.jobs.get("b" * 32)


def test_a_finished_job_expires_and_an_unfinished_one_does_not(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    job_id = ledger.jobs.accept(new_job(keep_s=60)).job_id
    assert raw.ttl(key("job", job_id)) == -1
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.leases.commit(lease, b"r", ok=2, errors=0)
    for kind in ("job", "result", "events"):
        assert 0 < raw.ttl(key(kind, job_id)) <= 60
    assert raw.ttl(key("slice", lease.slice_id)) > 0
    assert raw.exists(key("payload", lease.slice_id)) == 0


def test_an_unknown_job_is_unknown(ledger: Ledger) -> None:
    with pytest.raises(JobUnknown):
        ledger.jobs.get("nope")


def test_a_job_of_no_slices_has_succeeded(ledger: Ledger) -> None:
    job_id = ledger.jobs.accept(NewJob(Kind.EMBED, Q, [])).job_id
    assert ledger.jobs.get(job_id).status is Status.SUCCEEDED


def test_health_tells_how_old_the_signs_of_life_are(ledger: Ledger) -> None:
    assert ledger.liveness.health().last_embed_age_s is None
    ledger.liveness.note_embed()
    ledger.liveness.note_worker("w1")
    health = ledger.liveness.health()
    assert health.last_embed_age_s is not None
    assert health.worker_beat_age_s is not None
    assert 0 <= health.last_embed_age_s < 5
    ledger.liveness.forget_worker("w1")
    assert ledger.liveness.health().worker_beat_age_s is None


def test_the_beat_of_a_worker_that_was_killed_is_forgotten_after_an_hour(
    ledger: Ledger, raw: redis.Redis
) -> None:
    ledger.liveness.note_worker("lives")
    raw.hset(key("health"), mapping={"beat:killed": 1, "embed": 1})
    ledger.maintenance.reap()
    assert sorted(raw.hkeys(key("health"))) == [b"beat:lives", b"embed", b"reap"]


def test_a_fault_inside_a_script_is_not_called_an_outage(ledger: Ledger) -> None:
    with pytest.raises(redis.exceptions.ResponseError):
        ledger._scripts.run("accept", [])


def test_depths_count_what_waits_and_runs(ledger: Ledger, new_job: Jobs) -> None:
    ledger.jobs.accept(new_job(slices=3))
    ledger.leases.claim(Q, owner="w")
    depth = ledger.maintenance.depths()[Q]
    assert (depth.queued, depth.delayed, depth.running) == (2, 0, 1)
    assert 0 <= depth.oldest_s < 5


def test_a_server_out_of_memory_refuses_new_work_and_still_drains(
    ledger: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    job_id = ledger.jobs.accept(new_job()).job_id
    raw.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(LedgerUnavailable):
            ledger.jobs.accept(new_job())
        (lease,) = ledger.leases.claim(Q, owner="w")
        assert ledger.leases.commit(lease, b"r" * 10_000, ok=2, errors=0) is Commit.DONE
    finally:
        raw.config_set("maxmemory", "0")
    assert ledger.jobs.get(job_id).status is Status.SUCCEEDED


def test_a_dead_server_is_ledger_unavailable(valkey_server: Callable[..., Any]) -> None:
    server = valkey_server()
    ledger = Ledger.from_url(server.url)
    server.kill()
    with pytest.raises(LedgerUnavailable):
        ledger.jobs.get("x")
    server.start()
    assert ledger.jobs.known(["x"]) == set()
    ledger.close()


# Faults that the simulation of the ledger found.


def test_a_cancelled_job_leaves_no_dead_letter(
    hasty: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    job_id = hasty.jobs.accept(new_job(Kind.INGEST, slices=2)).job_id
    first, _ = hasty.leases.claim(Queue.BULK, owner="w", n=2)
    hasty.leases.fail(first, VersoError("no"))
    assert hasty.maintenance.backlog().dead == 1
    assert hasty.jobs.cancel(job_id) is Status.CANCELLED
    assert hasty.maintenance.backlog().dead == 0
    assert raw.zcard(key("pending")) == 0
    assert raw.keys(key("payload", "*")) == []
    record = hasty.jobs.get(job_id)
    assert (record.done, record.n_err) == (2, 4)


def test_a_replayed_job_has_no_deadline_while_other_slices_run(
    hasty: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    job_id = hasty.jobs.accept(new_job(Kind.INGEST, slices=2, deadline_s=60.0)).job_id
    first, second = hasty.leases.claim(Queue.BULK, owner="w", n=2)
    hasty.leases.fail(first, VersoError("no"))
    raw.hset(key("job", job_id), "n_unverified", 1)  # another slice's texts did not read back
    assert hasty.jobs.replay(job_id) is Status.QUEUED
    assert raw.zcard(key("deadlines")) == 0
    assert hasty.leases.commit(second, b"r", ok=2, errors=0) is Commit.DONE


def test_a_job_is_kept_until_its_texts_are_verified(
    ledger: Ledger,
    new_job: Jobs,
    new_collection: Callable[..., Any],
    new_entry: Callable[..., bytes],
    raw: redis.Redis,
) -> None:
    ledger.documents.collection_put(new_collection())
    job_id = ledger.jobs.accept(new_job(Kind.INGEST, keep_s=100)).job_id
    (lease,) = ledger.leases.claim(Queue.BULK, owner="w")
    write = DocumentWrite("c", "d0", new_entry(lease.seq))
    ledger.leases.commit(lease, b"r", ok=2, errors=0, documents=[write], verify_delay_s=0)
    assert ledger.jobs.get(job_id).status is Status.SUCCEEDED
    assert raw.ttl(key("job", job_id)) == -1
    (verify,) = ledger.leases.claim(Queue.SCRUB, owner="w")
    ledger.leases.commit_verified(verify, [("c", "d0", lease.seq)])
    assert 0 < raw.ttl(key("job", job_id)) <= 100


def test_a_slice_whose_job_is_gone_makes_no_other_job(
    ledger: Ledger,
    new_job: Jobs,
    new_collection: Callable[..., Any],
    new_entry: Callable[..., bytes],
    raw: redis.Redis,
) -> None:
    ledger.documents.collection_put(new_collection())
    job_id = ledger.jobs.accept(new_job(Kind.INGEST)).job_id
    (lease,) = ledger.leases.claim(Queue.BULK, owner="w")
    write = DocumentWrite("c", "d0", new_entry(lease.seq))
    ledger.leases.commit(lease, b"r", ok=2, errors=0, documents=[write], verify_delay_s=0)
    (verify,) = ledger.leases.claim(Queue.SCRUB, owner="w")
    raw.delete(key("job", job_id))
    assert ledger.leases.report_progress(verify, {"at": 1}) is Commit.DONE
    assert ledger.leases.fail(verify, VersoError("no")) is Commit.DONE
    assert raw.exists(key("job", job_id)) == 0


def test_a_replayed_job_stays_dead_while_a_slice_of_it_cannot_be_revived(
    hasty: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    job_id = hasty.jobs.accept(new_job(Kind.INGEST, slices=2)).job_id
    for lease in hasty.leases.claim(Queue.BULK, owner="w", n=2):
        hasty.leases.fail(lease, VersoError("no"))
    raw.delete(key("payload", f"{job_id}.0"))
    assert hasty.jobs.replay(job_id) is Status.QUEUED
    (lease,) = hasty.leases.claim(Queue.BULK, owner="w", n=2)
    hasty.leases.commit(lease, b"r", ok=2, errors=0)
    assert hasty.jobs.get(job_id).status is Status.DEAD


def test_a_repeated_claim_returns_no_lease_of_a_later_one(
    hasty: Ledger, new_job: Jobs, raw: redis.Redis
) -> None:
    hasty.jobs.accept(new_job())
    step = hasty.leases._scripts.run
    call: list[str | int] = [Q, "w", 1, 60_000, "token", "", 0]
    (first,) = step("claim", call)
    (again,) = step("claim", call)
    assert again[:4] == first[:4]  # the slice and its fence; how long it has waited differs
    raw.zadd(key("leased", Q), {first[0]: 0})  # its lease is over before the token is
    hasty.maintenance.reap()
    (later,) = hasty.leases.claim(Q, owner="w")
    assert later.fence == 2
    assert step("claim", call) == []
