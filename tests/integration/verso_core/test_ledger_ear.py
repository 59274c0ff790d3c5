"""Who is awake hears of new work, and only who sleeps is rung for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from verso_core.jobs import Item, Kind, Queue, cut
from verso_core.ledger import Commit, Ear, End, Ledger, NewJob
from verso_core.ledger.work import connect


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    with closing(connect(valkey_url)) as opened:
        yield opened


def _job(kind: Kind = Kind.EMBED, queue: Queue = Queue.INTERACTIVE, *, items: int = 1) -> NewJob:
    slices = cut(kind, {}, [Item({}, b"text") for _ in range(items)], max_items=1)
    return NewJob(kind=kind, queue=queue, slices=list(slices))


def test_a_bell_is_needed_only_where_nobody_hears_and_nothing_waits(client: redis.Redis) -> None:
    ledger, ear = Ledger(client), Ear(client, Queue.INTERACTIVE)
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
    ledger, ear = Ledger(client), Ear(client, Queue.INTERACTIVE)
    ear.enter()
    try:
        assert not ear.hear(0.01)
        for _ in range(3):
            ledger.accept(_job())
        assert ear.hear(5.0)
        assert not ear.hear(0.05)
    finally:
        ear.leave()


def test_each_of_two_who_listen_is_reached(client: redis.Redis) -> None:
    ledger, ear = Ledger(client), Ear(client, Queue.INTERACTIVE)
    heard = threading.Semaphore(0)

    def listen() -> None:
        if ear.hear(10.0):
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
    ledger, ear = Ledger(client), Ear(client, Queue.INTERACTIVE)
    ear.enter()
    client.client_kill_filter(_type="pubsub")
    assert ledger.accept(_job()).bell  # nobody hears this, so it is rung for
    assert not ear.hear(0.5)
    ledger.accept(_job())
    assert ear.hear(5.0)
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
