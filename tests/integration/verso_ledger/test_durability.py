"""Facts about what survives: acknowledged work after SIGKILL, and servers that would forget."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from verso_core.errors import DurabilityMissing, LedgerUnavailable
from verso_core.jobs import Kind, Queue, Status
from verso_ledger import Commit, Ledger, NewJob, await_ledger, check_durability
from verso_ledger.connection import connect
from verso_ledger.keys import key

Jobs = Callable[..., NewJob]


def test_every_accepted_job_is_there_after_the_server_was_killed(
    valkey_server: Callable[..., Any], new_job: Jobs
) -> None:
    server = valkey_server()
    accepted: list[str] = []
    over = threading.Event()

    def accept() -> None:
        ledger = Ledger(connect(server.url, timeout_s=2.0, retries=0))
        while not over.is_set():
            try:
                accepted.append(ledger.jobs.accept(new_job(Kind.INGEST, slices=3)).job_id)
            except LedgerUnavailable:
                time.sleep(0.02)
        ledger.close()

    threads = [threading.Thread(target=accept) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        before = len(accepted)
        while len(accepted) < before + 50:
            time.sleep(0.005)
        server.kill()
        server.start()
    over.set()
    for thread in threads:
        thread.join()

    ledger = Ledger.from_url(server.url)
    known = set()
    with redis.Redis.from_url(server.url) as raw:
        for job_id in accepted:
            record = ledger.jobs.get(job_id)
            assert (record.status, record.slices) == (Status.QUEUED, 3)
            assert raw.exists(*(key("payload", f"{job_id}.{n}") for n in range(3))) == 3
        known = {name.decode() for name in raw.zrange(key("lane", Queue.BULK, "default"), 0, -1)}
    assert {f"{job_id}.{n}" for job_id in accepted for n in range(3)} <= known
    ledger.close()


def test_a_commit_whose_reply_a_kill_swallowed_is_done_or_repeatable(
    valkey_server: Callable[..., Any], new_job: Jobs
) -> None:
    server = valkey_server()
    ledger = Ledger(connect(server.url, timeout_s=30.0, retries=0))
    for _ in range(8):
        job_id = ledger.jobs.accept(new_job()).job_id
        (lease,) = ledger.leases.claim(Queue.INTERACTIVE, owner="w", lease_s=60)
        killer = threading.Thread(target=server.kill)
        killer.start()
        with contextlib.suppress(LedgerUnavailable):
            ledger.leases.commit(lease, b"r", ok=2, errors=0)
        killer.join()
        server.start()
        assert ledger.leases.commit(lease, b"r", ok=2, errors=0) is Commit.DONE
        record = ledger.jobs.get(job_id)
        assert (record.status, record.n_ok, record.done) == (Status.SUCCEEDED, 2, 1)
    ledger.close()


@pytest.mark.parametrize(
    "flags",
    [
        {"appendonly": "no"},
        {"appendfsync": "no"},
        {"maxmemory_policy": "allkeys-lru"},
        {"no_appendfsync_on_rewrite": "yes"},
    ],
)
def test_a_server_that_would_forget_is_refused(
    valkey_server: Callable[..., Any], flags: dict[str, str]
) -> None:
    server = valkey_server(**flags)
    with redis.Redis.from_url(server.url) as client, pytest.raises(DurabilityMissing):
        check_durability(client)


def test_a_server_that_keeps_what_it_acknowledges_passes(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        check_durability(client)


def test_a_server_that_is_away_is_unavailable_and_not_wrong(
    valkey_server: Callable[..., Any],
) -> None:
    server = valkey_server()
    server.kill()
    with connect(server.url, timeout_s=1.0, retries=0) as client, pytest.raises(LedgerUnavailable):
        check_durability(client)


def test_a_server_that_is_away_is_waited_for_until_it_is_there_or_the_wait_is_over(
    valkey_server: Callable[..., Any],
) -> None:
    server = valkey_server()
    server.kill()
    over = threading.Event()
    with connect(server.url, timeout_s=2.0, retries=0) as client:
        first, second = (
            threading.Thread(target=await_ledger, args=(client, end))
            for end in (threading.Event(), over)
        )
        first.start()
        second.start()
        over.set()
        second.join(60)
        assert first.is_alive()
        assert not second.is_alive()
        server.start()
        first.join(60)
        assert not first.is_alive()
