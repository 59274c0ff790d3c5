"""Who is awake hears of new work, and only who sleeps is rung for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
import redis

from verso_core.jobs import Item, Kind, Queue, Status, cut, read_slice
from verso_ledger import (
    Ahead,
    AsyncLedger,
    Commit,
    End,
    Lease,
    Ledger,
    NewJob,
    Phase,
    Policy,
    WorkSubscriber,
)
from verso_ledger.sync_client import connect


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    with closing(connect(valkey_url)) as opened:
        yield opened


def _job(kind: Kind = Kind.EMBED, queue: Queue = Queue.INTERACTIVE, *, items: int = 1) -> NewJob:
    slices = cut(kind, {}, [Item({}, b"text") for _ in range(items)], max_items=1)
    return NewJob(kind=kind, queue=queue, slices=list(slices))


def test_a_bell_is_needed_only_where_nobody_hears_and_nothing_waits(client: redis.Redis) -> None:
    ledger, ear = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    assert ledger.accept(_job()).bell
    assert not ledger.accept(_job()).bell  # rung for the one before
    assert ledger.claim(Queue.INTERACTIVE, owner="w", n=2)
    ear.enter()
    assert not ledger.accept(_job()).bell
    assert ledger.accept(_job(queue=Queue.BULK)).bell
    assert ledger.claim(Queue.INTERACTIVE, owner="w")
    ear.leave()
    assert ledger.accept(_job()).bell


def test_an_ear_hears_once_of_what_came_together_and_then_nothing(client: redis.Redis) -> None:
    ledger, ear = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    ear.enter()
    try:
        assert ear.hear(0.01) is None
        for _ in range(3):
            ledger.accept(_job())
        threading.Event().wait(0.1)  # the server may answer the last accept before it tells others
        assert ear.hear(5.0) == []
        assert ear.hear(0.05) is None
    finally:
        ear.leave()


def test_each_of_two_who_listen_is_reached(client: redis.Redis) -> None:
    ledger, ear = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    heard = threading.Semaphore(0)

    def listen() -> None:
        if ear.hear(10.0) is not None:
            heard.release()

    ear.enter()
    hands = [threading.Thread(target=listen) for _ in range(2)]
    for hand in hands:
        hand.start()
    for _ in hands:
        ledger.accept(_job())
        assert heard.acquire(timeout=5.0)
    for hand in hands:
        hand.join()
    ear.leave()


def test_an_ear_whose_connection_was_cut_listens_again(client: redis.Redis) -> None:
    ledger, ear = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    ear.enter()
    client.client_kill_filter(_type="pubsub")
    assert ledger.accept(_job()).bell  # nobody hears this, so it is rung for
    assert ear.hear(0.5) is None
    ledger.accept(_job())
    assert ear.hear(5.0) == []
    ear.leave()


def test_only_slices_of_one_kind_are_claimed_together(client: redis.Redis) -> None:
    ledger = Ledger(client)
    for kind in (Kind.EMBED, Kind.EMBED, Kind.SEARCH, Kind.SEARCH, Kind.EMBED):
        ledger.accept(_job(kind))
        threading.Event().wait(0.002)  # due one after another, in ms
    claims = []
    while found := ledger.claim(Queue.INTERACTIVE, owner="w", n=8, together=Kind.EMBED):
        claims.append([lease.kind for lease in found])
    assert claims == [[Kind.EMBED] * 2, [Kind.SEARCH], [Kind.SEARCH], [Kind.EMBED]]


def test_a_stale_end_among_several_is_refused_alone(client: redis.Redis) -> None:
    ledger = Ledger(client)
    jobs = [ledger.accept(_job()).job_id for _ in range(3)]
    leases = ledger.claim(Queue.INTERACTIVE, owner="w", n=3, together=Kind.EMBED)
    assert len(leases) == 3
    ledger.release(leases[1])
    ends = [End(lease, b"result", ok=1, errors=0) for lease in leases]
    assert ledger.commit_all(ends) == [Commit.DONE, Commit.STALE, Commit.DONE]
    assert ledger.commit_all(ends[:1]) == [Commit.DONE]  # the reply was lost, asked again
    done = {lease.job_id for lease in (leases[0], leases[2])}
    for job in jobs:
        assert (ledger.result(job) == b"result") == (job in done)


def test_ends_pass_a_server_that_has_forgotten_its_scripts(client: redis.Redis) -> None:
    ledger = Ledger(client)
    ledger.accept(_job())
    leases = ledger.claim(Queue.INTERACTIVE, owner="w")
    client.script_flush()
    assert ledger.commit_all([End(leases[0], b"r", ok=1, errors=0)]) == [Commit.DONE]


@pytest.fixture
def ear(client: redis.Redis) -> Iterator[WorkSubscriber]:
    listening = WorkSubscriber(client, Queue.INTERACTIVE)
    listening.enter()
    yield listening
    listening.leave()


def _given(ear: WorkSubscriber) -> list[Lease]:
    return [lease for lease in ear.hear(5.0) or [] if isinstance(lease, Lease)]


def _stand(ledger: Ledger, ear: WorkSubscriber) -> list[Lease]:
    hand = ear.hand(owner="w", lease_s=10.0)
    return ledger.claim(Queue.INTERACTIVE, owner="w", hand=hand, line_s=10.0)


def test_who_stands_in_line_is_given_the_slice_with_its_lease(
    client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger = Ledger(client)
    assert _stand(ledger, ear) == []
    accepted = ledger.accept(_job())
    assert not accepted.bell
    assert ledger.job(accepted.job_id).status is Status.RUNNING
    [lease] = _given(ear)
    assert (lease.job_id, lease.fence, lease.phase) == (accepted.job_id, 1, Phase.WORK)
    assert read_slice(lease.payload).items[0].blob == b"text"
    assert ledger.claim(Queue.INTERACTIVE, owner="other") == []
    assert ledger.beat([lease]) == set()
    assert ledger.commit(lease, b"result", ok=1, errors=0) is Commit.DONE
    assert ledger.result(accepted.job_id) == b"result"


def test_a_hand_is_given_one_slice_and_the_rest_waits(
    client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger = Ledger(client)
    assert _stand(ledger, ear) == []
    ledger.accept(_job(items=3))
    [first] = _given(ear)
    assert ear.hear(0.5) == []  # the rest, for who is free
    rest = ledger.claim(Queue.INTERACTIVE, owner="w", n=4)
    assert [lease.number for lease in (first, *rest)] == [0, 1, 2]


def test_who_finds_work_does_not_stand_in_line(client: redis.Redis, ear: WorkSubscriber) -> None:
    ledger = Ledger(client)
    ledger.accept(_job())
    assert len(_stand(ledger, ear)) == 1
    ledger.accept(_job())
    assert not ear.hear(0.5)
    assert len(ledger.claim(Queue.INTERACTIVE, owner="w")) == 1


def test_a_long_payload_is_fetched(client: redis.Redis, ear: WorkSubscriber) -> None:
    ledger = Ledger(client)
    assert _stand(ledger, ear) == []
    text = b"long " * 20_000
    slices = list(cut(Kind.EMBED, {}, [Item({}, text)], max_items=1))
    ledger.accept(NewJob(kind=Kind.EMBED, queue=Queue.INTERACTIVE, slices=slices))
    [lease] = _given(ear)
    assert read_slice(lease.payload).items[0].blob == text


def test_nothing_is_given_to_one_who_has_left_the_line(
    client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger = Ledger(client)
    assert _stand(ledger, ear) == []
    assert ledger.leave_line(Queue.INTERACTIVE, ear.channel)
    assert not ledger.leave_line(Queue.INTERACTIVE, ear.channel)
    ledger.accept(_job())
    assert not ear.hear(0.5)
    assert len(ledger.claim(Queue.INTERACTIVE, owner="w")) == 1


def test_who_leaves_the_line_too_late_learns_that_a_slice_is_on_its_way(
    client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger = Ledger(client)
    assert _stand(ledger, ear) == []
    ledger.accept(_job())
    assert not ledger.leave_line(Queue.INTERACTIVE, ear.channel)
    assert ear.hear(5.0)


def test_one_that_is_gone_is_passed_over(client: redis.Redis, ear: WorkSubscriber) -> None:
    ledger, gone = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    gone.enter()
    assert _stand(ledger, gone) == []
    gone.leave()  # killed: it never left the line
    assert _stand(ledger, ear) == []
    ledger.accept(_job())
    assert ear.hear(5.0)
    late = ear.hand(owner="w", lease_s=10.0)
    assert ledger.claim(Queue.INTERACTIVE, owner="w", hand=late, line_s=-1.0) == []
    ledger.accept(_job())
    assert not ear.hear(0.5)
    assert len(ledger.claim(Queue.INTERACTIVE, owner="w")) == 1


def test_a_slice_whose_hand_never_heard_is_given_out_again(
    valkey_url: str, client: redis.Redis, ear: WorkSubscriber
) -> None:
    hasty = Ledger.from_url(valkey_url, policy=Policy(backoff_ms=(0,)))
    hand = ear.hand(owner="w", lease_s=0.001)
    assert hasty.claim(Queue.INTERACTIVE, owner="w", hand=hand, line_s=10.0) == []
    hasty.accept(_job())
    threading.Event().wait(0.01)
    assert hasty.reap()[Queue.INTERACTIVE] == 1
    (again,) = hasty.claim(Queue.INTERACTIVE, owner="w")
    assert again.fence == 2
    [late] = _given(ear)
    assert hasty.commit(late, b"late", ok=1, errors=0) is Commit.STALE
    hasty.close()


@pytest.mark.parametrize("claimed", [False, True])
async def test_who_waits_has_the_result_before_the_commit_and_the_same_after_it(
    valkey_url: str, client: redis.Redis, ear: WorkSubscriber, *, claimed: bool
) -> None:
    ledger, front = Ledger(client), AsyncLedger.from_url(valkey_url)
    if not claimed:
        assert _stand(ledger, ear) == []
    job = replace(_job(), job_id="ab" * 16, wait=True, tenant="t", deadline_s=60.0)
    with front.watch("ab" * 16) as watch:
        await front.accept(job)
        if claimed:
            await asyncio.sleep(0.05)
            [lease] = ledger.claim(Queue.INTERACTIVE, owner="w", n=2)
        else:
            [lease] = await asyncio.to_thread(_given, ear)
        other = asyncio.create_task(front.wait("ab" * 16, 10.0))  # by the same idempotency key, say
        for _ in range(100):  # the gateway's own ear may not be on yet
            [end] = ledger.tell([End(lease, b"result", ok=1, errors=0)], spent_ms=7)
            if end.told:
                break
            await asyncio.sleep(0.05)
        early = await watch.end("ab" * 16, timeout_s=5.0, slices=1)
        assert ledger.job(lease.job_id).status is Status.RUNNING
        await asyncio.sleep(0.1)
        assert not other.done()
        assert ledger.commit(lease, b"result", ok=1, errors=0, told=True) is Commit.DONE
        assert (await other).status is Status.SUCCEEDED
    late = await front.outcome(lease.job_id, slices=1)
    assert early.results == late.results == [b"result"]
    started = early.record.started or 0.0
    assert (started > early.record.created) is claimed
    assert early.record.finished == pytest.approx(started + 0.007)
    # It was told before the server wrote the end, so only that time may differ.
    assert replace(early.record, finished=None) == replace(late.record, finished=None)
    await front.close()


def test_only_the_hand_of_a_job_that_is_waited_for_tells(
    client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger = Ledger(client)
    told = []
    for wait, items in ((False, 1), (True, 2), (True, 1)):
        assert _stand(ledger, ear) == []
        ledger.accept(replace(_job(items=items), wait=wait))
        [lease] = _given(ear)
        told.append(lease.awaited is not None)
        long, unheard = (End(lease, data, ok=1, errors=0) for data in (b"x" * 70_000, b"result"))
        assert not any(end.told for end in ledger.tell([long, unheard], spent_ms=1))
        for rest in (lease, *ledger.claim(Queue.INTERACTIVE, owner="w", n=4)):
            assert ledger.commit(rest, b"result", ok=1, errors=0) is Commit.DONE
        while ear.hear(0.05) is not None:
            pass
    assert told == [False, False, True]


async def test_who_stands_in_line_is_shown_a_job_before_it_is_accepted(
    valkey_url: str, client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger, front = Ledger(client), AsyncLedger.from_url(valkey_url)
    job = replace(_job(), job_id="ab" * 16, wait=True)
    assert not await front.ahead(job)  # nobody stands there
    assert _stand(ledger, ear) == []
    assert not await front.ahead(replace(_job(), job_id=None))
    before = {name: client.dump(name) for name in client.scan_iter()}
    assert await front.ahead(job)
    assert {name: client.dump(name) for name in client.scan_iter()} == before
    [ahead] = await asyncio.to_thread(ear.hear, 5.0) or []
    assert ahead == Ahead("ab" * 16, job.slices[0].payload)
    await front.accept(job)
    [lease] = await asyncio.to_thread(_given, ear)
    assert (lease.job_id, lease.payload) == (ahead.job_id, ahead.payload)
    assert _stand(ledger, ear) == []
    assert not await front.ahead(replace(_job(), job_id="cd" * 16))  # the queue is not idle
    await front.close()


def test_a_hand_that_ends_a_slice_stands_in_line_where_nothing_else_is_due(
    client: redis.Redis, ear: WorkSubscriber
) -> None:
    ledger = Ledger(client)
    hand = partial(ear.hand, owner="w", lease_s=10.0)
    first, second = (ledger.accept(_job()).job_id for _ in range(2))
    [lease] = ledger.claim(Queue.INTERACTIVE, owner="w")
    done = ledger.commit(lease, b"r", ok=1, errors=0, hand=hand(), line_s=10.0)
    assert (done, ledger.leave_line(Queue.INTERACTIVE, ear.channel)) == (Commit.DONE, False)
    [lease] = ledger.claim(Queue.INTERACTIVE, owner="w")
    done = ledger.commit(lease, b"r", ok=1, errors=0, hand=hand(), line_s=10.0)
    assert done is Commit.IDLE
    assert {ledger.job(job).status for job in (first, second)} == {Status.SUCCEEDED}
    third = ledger.accept(_job()).job_id
    while not (heard := _given(ear)):  # word of the first two
        pass
    assert heard[0].job_id == third
    stale = replace(lease, fence=9)
    assert ledger.commit(stale, b"r", ok=1, errors=0, hand=hand(), line_s=9.0) is Commit.STALE
