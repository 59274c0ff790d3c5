"""Listening workers receive announcements; only others need a wake-up through the broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import redis
from tests.wire import Item, cut

from verso_core.jobs import Kind, Queue, Status
from verso_ledger import (
    AsyncLedger,
    Commit,
    Finished,
    Ledger,
    NewJob,
    WorkSubscriber,
)
from verso_ledger.connection import connect


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    with closing(connect(valkey_url)) as opened:
        yield opened


def _job(kind: Kind = Kind.EMBED, queue: Queue = Queue.INTERACTIVE, *, items: int = 1) -> NewJob:
    slices = cut(kind, {}, [Item({}, b"text") for _ in range(items)], max_items=1)
    return NewJob(kind=kind, queue=queue, slices=list(slices))


def test_a_wakeup_is_needed_only_where_nobody_listens_and_nothing_waits(
    client: redis.Redis,
) -> None:
    ledger, subscriber = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    assert ledger.jobs.accept(_job()).wakeup
    assert not ledger.jobs.accept(_job()).wakeup  # sent for the one before
    assert ledger.leases.claim(Queue.INTERACTIVE, owner="w", n=2)
    subscriber.open()
    assert not ledger.jobs.accept(_job()).wakeup
    assert ledger.jobs.accept(_job(queue=Queue.BULK)).wakeup
    assert ledger.leases.claim(Queue.INTERACTIVE, owner="w")
    subscriber.close()
    assert ledger.jobs.accept(_job()).wakeup


def test_announcements_that_came_together_are_received_once(client: redis.Redis) -> None:
    ledger, subscriber = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    subscriber.open()
    try:
        assert not subscriber.receive(0.01)
        for _ in range(3):
            ledger.jobs.accept(_job())
        client.ping()  # the server may answer the last accept before it publishes
        threading.Event().wait(0.1)
        assert subscriber.receive(60.0)
        assert not subscriber.receive(0.05)
    finally:
        subscriber.close()


def test_each_of_two_listeners_receives_an_announcement(client: redis.Redis) -> None:
    ledger, subscriber = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    received = threading.Semaphore(0)

    def listen() -> None:
        if subscriber.receive(60.0):
            received.release()

    subscriber.open()
    slots = [threading.Thread(target=listen) for _ in range(2)]
    for slot in slots:
        slot.start()
    for _ in slots:
        ledger.jobs.accept(_job())
        assert received.acquire(timeout=60.0)
    for slot in slots:
        slot.join()
    subscriber.close()


def test_a_subscriber_whose_connection_was_cut_listens_again(client: redis.Redis) -> None:
    ledger, subscriber = Ledger(client), WorkSubscriber(client, Queue.INTERACTIVE)
    subscriber.open()
    client.client_kill_filter(_type="pubsub")
    assert ledger.jobs.accept(_job()).wakeup  # nobody receives this, so a wake-up is sent
    assert not subscriber.receive(0.5)
    ledger.jobs.accept(_job())
    assert subscriber.receive(60.0)
    subscriber.close()


def test_only_slices_of_one_kind_are_claimed_together(client: redis.Redis) -> None:
    ledger = Ledger(client)
    for kind in (Kind.EMBED, Kind.EMBED, Kind.SEARCH, Kind.SEARCH, Kind.EMBED):
        ledger.jobs.accept(_job(kind))
        threading.Event().wait(0.002)  # due one after another, in ms
    claims = []
    while found := ledger.leases.claim(Queue.INTERACTIVE, owner="w", n=8, together=Kind.EMBED):
        claims.append([lease.kind for lease in found])
    assert claims == [[Kind.EMBED] * 2, [Kind.SEARCH], [Kind.SEARCH], [Kind.EMBED]]


def test_a_stale_end_among_several_is_refused_alone(client: redis.Redis) -> None:
    ledger = Ledger(client)
    jobs = [ledger.jobs.accept(_job()).job_id for _ in range(3)]
    leases = ledger.leases.claim(Queue.INTERACTIVE, owner="w", n=3, together=Kind.EMBED)
    assert len(leases) == 3
    ledger.leases.release(leases[1])
    ends = [Finished(lease, b"result", ok=1, errors=0) for lease in leases]
    assert ledger.leases.commit_all(ends) == [Commit.DONE, Commit.STALE, Commit.DONE]
    assert ledger.leases.commit_all(ends[:1]) == [Commit.DONE]  # the reply was lost, asked again
    done = {lease.job_id for lease in (leases[0], leases[2])}
    for job in jobs:
        assert (ledger.jobs.result(job) == b"result") == (job in done)


def test_ends_pass_a_server_that_has_forgotten_its_scripts(client: redis.Redis) -> None:
    ledger = Ledger(client)
    ledger.jobs.accept(_job())
    leases = ledger.leases.claim(Queue.INTERACTIVE, owner="w")
    client.script_flush()
    assert ledger.leases.commit_all([Finished(leases[0], b"r", ok=1, errors=0)]) == [Commit.DONE]


@pytest.mark.parametrize("together", [1, 2])
async def test_a_waiting_caller_has_the_result_before_the_commit_and_the_same_after_it(
    valkey_url: str, client: redis.Redis, together: int
) -> None:
    ledger, front = Ledger(client), AsyncLedger.from_url(valkey_url)
    job = replace(_job(), job_id="ab" * 16, wait=True, tenant="t", deadline_s=60.0)
    with front.watch("ab" * 16) as watch:
        await front.accept(job)
        await asyncio.sleep(0.05)
        [lease] = ledger.leases.claim(Queue.INTERACTIVE, owner="w", n=together)
        other = asyncio.create_task(front.wait("ab" * 16, 60.0))  # by the same idempotency key, say
        while True:  # the gateway's own subscription may not stand yet
            [end] = ledger.leases.notify_callers(
                [Finished(lease, b"result", ok=1, errors=0)], spent_ms=7
            )
            if end.notified:
                break
            await asyncio.sleep(0.05)
        early = await watch.end("ab" * 16, timeout_s=60.0, slices=1)
        assert ledger.jobs.get(lease.job_id).status is Status.RUNNING
        await asyncio.sleep(0.1)
        assert not other.done()
        assert ledger.leases.commit(lease, b"result", ok=1, errors=0, notified=True) is Commit.DONE
        assert (await other).status is Status.SUCCEEDED
    late = await front.outcome(lease.job_id, slices=1)
    assert early.results == late.results == [b"result"]
    started = early.record.started or 0.0
    assert started > early.record.created
    assert early.record.finished == pytest.approx(started + 0.007)
    # It was published before the server wrote the end, so only that time may differ.
    assert replace(early.record, finished=None) == replace(late.record, finished=None)
    await front.close()


def test_only_a_whole_job_that_is_waited_for_is_published_early(client: redis.Redis) -> None:
    ledger = Ledger(client)
    awaited = []
    for wait, items in ((False, 1), (True, 2), (True, 1)):
        ledger.jobs.accept(replace(_job(items=items), wait=wait))
        [lease] = ledger.leases.claim(Queue.INTERACTIVE, owner="w")
        awaited.append(lease.awaited is not None)
        long, unheard = (
            Finished(lease, data, ok=1, errors=0) for data in (b"x" * 70_000, b"result")
        )
        assert not any(
            end.notified for end in ledger.leases.notify_callers([long, unheard], spent_ms=1)
        )
        for rest in (lease, *ledger.leases.claim(Queue.INTERACTIVE, owner="w", n=4)):
            assert ledger.leases.commit(rest, b"result", ok=1, errors=0) is Commit.DONE
    assert awaited == [False, False, True]
