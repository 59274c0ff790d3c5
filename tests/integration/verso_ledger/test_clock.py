"""A server's clock that was ahead and is set right holds nothing up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from tests.simulation.server import Server

from verso_core.errors import EngineUnavailable
from verso_core.jobs import Queue
from verso_core.jobs.collections import Partitioned, RolloverRule, Stage, TimePart
from verso_ledger import AsyncLedger, Ledger, NewJob
from verso_ledger.keys import key
from verso_ledger.ledgers.router import Ledgers

Jobs = Callable[..., NewJob]
Q = Queue.INTERACTIVE
DAY_S = 86_400.0


@pytest.fixture
def valkey_url(timed_url: str) -> str:
    """A server whose clock a test sets."""
    return timed_url


def of_before(server: Server) -> None:
    """Leave in the ledger what the release before noted."""
    server.client.hdel(key("health"), "reap")


def as_it_is(server: Server) -> None:
    """Leave the ledger as it is."""


@pytest.mark.parametrize("release", [as_it_is, of_before])
def test_a_clock_set_back_by_a_day_keeps_nothing_waiting_for_a_day(
    ledger: Ledger, new_job: Jobs, server: Server, release: Callable[[Server], None]
) -> None:
    held, failed, dead = (ledger.jobs.accept(new_job()).job_id for _ in range(3))
    leases = {one.job_id: one for one in ledger.leases.claim(Q, owner="w", n=3)}
    for worker in ("w", "killed"):
        ledger.liveness.note_worker(worker)
    ledger.maintenance.reap()
    ledger.leases.retry(leases[failed], EngineUnavailable("gone"), delay_s=8.0)
    release(server)

    server.pass_s(-DAY_S)
    ledger.leases.renew([leases[held]])
    ledger.maintenance.reap()
    assert ledger.leases.claim(Q, owner="w", n=3) == []  # as if nothing had happened
    server.pass_s(9.0)
    ledger.leases.renew([leases[held]])
    server.pass_s(4.0)
    ledger.maintenance.reap()
    again = ledger.leases.claim(Q, owner="w", n=3)
    assert {one.job_id for one in again} == {failed, dead}
    assert ledger.leases.renew([leases[held]]) == set()


def test_a_worker_that_died_before_the_clock_was_set_back_does_not_look_alive(
    ledger: Ledger, server: Server
) -> None:
    ledger.liveness.note_worker("killed")
    ledger.maintenance.reap()
    server.pass_s(-DAY_S)
    ledger.maintenance.reap()
    server.pass_s(90.0)
    assert ledger.liveness.health().worker_beat_age_s == pytest.approx(90.0, abs=1.0)


def test_raw_texts_messages_and_reservations_keep_the_time_that_they_had_left(
    ledger: Ledger, server: Server
) -> None:
    client: redis.Redis = server.client
    ledger.maintenance.reap()
    now = _now_ms(client)
    left = {"drop": 900_000, "hooks": 30_000, "staged": 60_000, "gc": 2_000, "deadlines": 7_000}
    for kind, ms in left.items():
        client.zadd(key(kind), {"job 1 1": now + ms})
    server.pass_s(-DAY_S)
    ledger.maintenance.reap()
    found = {kind: client.zscore(key(kind), "job 1 1") for kind in left}
    assert found == {kind: _now_ms(client) + ms for kind, ms in left.items()}


def test_a_step_back_of_seconds_ends_no_lease(
    ledger: Ledger, new_job: Jobs, server: Server
) -> None:
    ledger.jobs.accept(new_job())
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.maintenance.reap()
    for _ in range(5):
        server.pass_s(-9.0)
        ledger.leases.renew([lease])
        server.pass_s(3.0)
        ledger.maintenance.reap()
    assert ledger.leases.renew([lease]) == set()


async def test_partitions_that_rolled_lately_by_the_ledgers_clock_are_asked_for_repeats(
    ledger: Ledger, server: Server
) -> None:
    rolled_s = ledger.now() - 3600.0  # years ago by the clock of this process
    old, new = (
        TimePart(number=0, stage=Stage.LIVE, since=0.0, rolled=rolled_s),
        TimePart(number=1, since=0.0),
    )
    noted = Partitioned(partitions=1, rollover=RolloverRule(), parts=(old, new), writing=1)
    server.client.hset(key("partitioned"), "logs", noted.model_dump_json())
    ledgers = Ledgers([AsyncLedger.from_url(server.url)])
    try:
        await ledgers.collections()
        assert ledgers.rolled_before("logs.1", within_s=3660.0) == ["logs.0"]
        assert ledgers.rolled_before("logs.1", within_s=3540.0) == []
    finally:
        await ledgers.close()


def _now_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return seconds * 1000 + micros // 1000
