"""Whose turn it is: fair between tenants, by urgency and age within one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import redis

from verso_core.errors import QueueFull
from verso_core.jobs import Kind, NoItem, Queue, Status
from verso_core.jobs.cluster import ClusterParams
from verso_ledger import Commit, Lease, Ledger, Limits, NewJob, Policy
from verso_ledger.keys import key

Jobs = Callable[..., NewJob]
Q = Queue.INTERACTIVE


def claimed(ledger: Ledger, n: int, queue: Queue = Queue.INTERACTIVE) -> list[str]:
    """Claim ``n`` slices one at a time, as busy workers would; returns their jobs."""
    found = []
    for _ in range(n):
        [lease] = ledger.leases.claim(queue, owner="w")
        assert (
            ledger.leases.commit(lease, b"r", ok=lease_items(lease.payload), errors=0)
            is Commit.DONE
        )
        found.append(lease.job_id)
    return found


def lease_items(_payload: bytes) -> int:
    return 2


def test_ten_jobs_of_one_tenant_do_not_wait_for_a_thousand_of_another(
    ledger: Ledger, new_job: Jobs
) -> None:
    for _ in range(20):
        ledger.jobs.accept(new_job(slices=50, tenant="large"))
    small = [ledger.jobs.accept(new_job(tenant="small")).job_id for _ in range(10)]
    order = claimed(ledger, 24)
    assert [job for job in order if job in small] == small
    # turn and turn about, so none of the ten waited for more than one of the thousand
    assert sum(job in small for job in order[:12]) >= 5


def test_who_brings_one_job_at_a_time_gets_no_more_than_every_other_turn(
    ledger: Ledger, new_job: Jobs
) -> None:
    many = ledger.jobs.accept(new_job(slices=40, tenant="many")).job_id
    order = []
    for _ in range(20):
        ledger.jobs.accept(new_job(tenant="one"))
        order += claimed(ledger, 1)
    assert 8 <= sum(job == many for job in order) <= 12


def test_who_was_idle_has_saved_up_nothing(ledger: Ledger, new_job: Jobs) -> None:
    steady = ledger.jobs.accept(new_job(slices=60, tenant="steady")).job_id
    claimed(ledger, 30)
    ledger.jobs.accept(new_job(slices=30, tenant="late"))
    assert sum(job == steady for job in claimed(ledger, 20)) >= 9


def test_a_large_slice_makes_a_long_turn(valkey_url: str, new_job: Jobs) -> None:
    ledger = Ledger.from_url(valkey_url, policy=Policy(turn_cost=1000))
    ledger.jobs.accept(new_job(slices=10, items=1, text=b"x" * 3000, tenant="large"))
    small = ledger.jobs.accept(new_job(slices=30, items=1, text=b"x", tenant="small")).job_id
    assert sum(job == small for job in claimed(ledger, 20)) >= 13
    ledger.close()


def priced(job: NewJob, cost: int) -> NewJob:
    """Set what each slice of a job costs."""
    return replace(job, slices=[replace(part, cost=cost) for part in job.slices])


def test_a_small_request_for_much_work_makes_a_long_turn(ledger: Ledger, new_job: Jobs) -> None:
    """A turn is as long as the work, however few bytes ask for it."""
    ledger.jobs.accept(priced(new_job(slices=10, text=b"x", tenant="costly"), 48 * 1024))
    small = ledger.jobs.accept(priced(new_job(slices=30, tenant="small"), 0)).job_id
    assert sum(job == small for job in claimed(ledger, 20)) >= 15


def test_heavy_slices_run_in_half_of_the_slots_whoever_brings_them(
    ledger: Ledger, new_job: Jobs
) -> None:
    for tenant in "abc":
        ledger.jobs.accept(priced(new_job(slices=3, tenant=tenant), 1 << 20))
    heavy = [one for _ in range(4) for one in ledger.leases.claim(Q, owner="w", slots=4)]
    assert len(heavy) == 2  # although two slots are free
    light = ledger.jobs.accept(new_job(tenant="d")).job_id
    assert [one.job_id for one in ledger.leases.claim(Q, owner="w", slots=4)] == [light]
    assert len(ledger.leases.claim(Q, owner="another", slots=4)) == 1
    ledger.leases.commit(heavy[0], b"r", ok=2, errors=0)
    assert len(ledger.leases.claim(Q, owner="w", slots=4)) == 1
    assert len(ledger.leases.claim(Q, owner="w", slots=1)) == 1  # a worker of one slot must


def test_groupings_leave_a_bulk_slot_to_what_others_take_in(ledger: Ledger, new_job: Jobs) -> None:
    """A worker has two. A grouping may take minutes; also its own key's ingests need not wait."""
    cost = ClusterParams().cost(NoItem())
    for _ in range(3):
        grouping = priced(new_job(Kind.CLUSTER, tenant="many"), cost)
        ledger.jobs.accept(replace(grouping, queue=Queue.BULK))

    def claim() -> list[Lease]:
        return ledger.leases.claim(Queue.BULK, owner="w", slots=2)

    [first] = claim()
    assert claim() == []
    for tenant in ("other", "many"):
        ingest = priced(new_job(Kind.INGEST, tenant=tenant), 128 * 1024)
        usual = ledger.jobs.accept(ingest).job_id
        [lease] = claim()
        assert lease.job_id == usual
        ledger.jobs.cancel(usual)
    ledger.leases.commit(first, b"r", ok=2, errors=0)
    assert len(claim()) == 1


def test_what_a_person_waits_for_does_not_wait_for_the_same_keys_ingest(
    ledger: Ledger, new_job: Jobs
) -> None:
    """A worker of two usual slots and one that is kept; all ingests came first."""

    def claim() -> list[str]:
        found = ledger.leases.claim(Queue.BULK, owner="w", slots=3, kept=1)
        return [lease.job_id for lease in found]

    def bulk(kind: Kind, cost: int) -> str:
        job = priced(new_job(kind, urgency=kind.urgency, tenant="one"), cost)
        return ledger.jobs.accept(replace(job, queue=Queue.BULK)).job_id

    ingests = [bulk(Kind.INGEST, 128 * 1024) for _ in range(4)]
    assert [claim(), claim(), claim()] == [[ingests[0]], [ingests[1]], []]
    grouping = bulk(Kind.CLUSTER, ClusterParams().cost(NoItem()))
    assert [claim(), claim()] == [[grouping], []]
    many_texts = bulk(Kind.CLASSIFY, 128 * 1024)
    ledger.jobs.cancel(ingests[0])
    assert claim() == [many_texts]  # it passes the ingests that wait
    ledger.jobs.cancel(grouping)
    assert [claim(), claim()] == [[ingests[2]], []]  # whichever slot runs them


def test_heavy_ingests_leave_the_kept_slot_to_a_grouping(ledger: Ledger, new_job: Jobs) -> None:
    def bulk(kind: Kind) -> str:
        job = priced(new_job(kind, urgency=kind.urgency), 1 << 20)
        return ledger.jobs.accept(replace(job, queue=Queue.BULK)).job_id

    def claim() -> list[str]:
        found = ledger.leases.claim(Queue.BULK, owner="w", slots=3, kept=1)
        return [lease.job_id for lease in found]

    heavy = [bulk(Kind.INGEST) for _ in range(2)]
    assert [claim(), claim()] == [heavy[:1], []]  # one of the two usual slots stays free
    groupings = [bulk(Kind.CLUSTER) for _ in range(2)]
    assert [claim(), claim()] == [groupings[:1], []]


def test_a_wake_up_is_sent_for_a_grouping_although_ingests_wait(
    ledger: Ledger, new_job: Jobs
) -> None:
    """No slot listens. What waits was announced, to slots that it may take."""

    def accepted(kind: Kind) -> bool:
        job = replace(new_job(kind, urgency=kind.urgency), queue=Queue.BULK)
        return ledger.jobs.accept(job).wakeup

    wakes = [accepted(kind) for kind in (Kind.INGEST, Kind.INGEST, Kind.CLUSTER)]
    assert wakes == [True, False, True]


def test_an_urgent_job_passes_its_own_tenants_jobs_and_nobody_elses(
    ledger: Ledger, new_job: Jobs
) -> None:
    names = {}
    for name, urgency, tenant in (
        ("late", 7, "a"), ("usual", 3, "a"), ("other", 3, "b"), ("urgent", 0, "a"),
    ):  # fmt: skip
        job = ledger.jobs.accept(new_job(urgency=urgency, tenant=tenant))
        names[job.job_id] = name
    order = [names[job] for job in claimed(ledger, 4)]
    assert [name for name in order if name != "other"] == ["urgent", "usual", "late"]
    assert order.index("other") <= 1
    assert ledger.jobs.get(next(iter(names))).urgency == 7


def test_a_full_queue_asks_nobody_to_wait_for_long(ledger: Ledger, new_job: Jobs) -> None:
    limits = Limits(max_slices=4000)
    ledger.jobs.accept(new_job(slices=4000, limits=limits))
    with pytest.raises(QueueFull) as refused:
        ledger.jobs.accept(new_job(slices=4000, limits=limits))
    assert refused.value.retry_after_s == 30


def test_a_slice_given_back_is_the_first_of_its_lane_again(ledger: Ledger, new_job: Jobs) -> None:
    first = ledger.jobs.accept(new_job()).job_id
    second = ledger.jobs.accept(new_job()).job_id
    [lease] = ledger.leases.claim(Queue.INTERACTIVE, owner="w")
    ledger.leases.release(lease)
    assert claimed(ledger, 2) == [first, second]


def test_a_tenant_may_hold_its_share_and_leaves_room_for_others(
    ledger: Ledger, new_job: Jobs
) -> None:
    limits = Limits(max_slices=10, tenant_share=0.8)
    accepted = ledger.jobs.accept(new_job(slices=7, tenant="large", limits=limits))
    assert accepted.left == 1
    with pytest.raises(QueueFull) as caught:
        ledger.jobs.accept(new_job(slices=2, tenant="large", limits=limits))
    assert 1 <= caught.value.retry_after_s <= 300
    assert ledger.jobs.accept(new_job(slices=2, tenant="small", limits=limits)).left == 1
    ledger.jobs.cancel(accepted.job_id)
    assert ledger.jobs.accept(new_job(slices=8, tenant="large", limits=limits)).left == 0


def test_slices_of_a_ledger_from_before_there_were_lanes_are_worked_on(
    ledger: Ledger, new_job: Jobs, valkey_url: str
) -> None:
    """They lay in `ready`, due, and named no tenant."""
    job = ledger.jobs.accept(new_job(Kind.EMBED, slices=2))
    with redis.Redis.from_url(valkey_url) as raw:
        for number in range(2):
            raw.hdel(key("slice", f"{job.job_id}.{number}"), "ten", "u")
            raw.zadd(key("ready", Queue.INTERACTIVE), {f"{job.job_id}.{number}": 1})
        raw.delete(key("lane", Queue.INTERACTIVE, "default"), key("turns", Queue.INTERACTIVE))
    assert ledger.maintenance.depths()[Queue.INTERACTIVE].queued == 2
    assert claimed(ledger, 2) == [job.job_id] * 2
    assert ledger.jobs.get(job.job_id).status is Status.SUCCEEDED


def test_nothing_of_a_drained_queue_is_left_behind(
    ledger: Ledger, new_job: Jobs, valkey_url: str
) -> None:
    for tenant in ("a", "b"):
        ledger.jobs.accept(new_job(slices=3, tenant=tenant))
    claimed(ledger, 6)
    with redis.Redis.from_url(valkey_url) as raw:
        assert raw.keys(key("lane", "*")) == []
        assert raw.exists(key("turns", Queue.INTERACTIVE)) == 0
        assert not [name for name in raw.hkeys(key("load")) if name.count(b":") > 1]
