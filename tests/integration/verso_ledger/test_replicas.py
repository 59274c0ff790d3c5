"""Steps that wait for replicas, on a real primary and its replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import redis
from tests.conftest import ValkeyServer
from tests.wire import Item, cut

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Kind, Queue
from verso_ledger import AsyncLedger, Commit, Ledger, NewJob, scripts
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_ledger.models import Finished

Start = Callable[..., ValkeyServer]


def new_job(name: str) -> NewJob:
    return NewJob(
        kind=Kind.EMBED, queue=Queue.BULK, slices=list(cut(Kind.EMBED, {}, [Item({}, b"t")])),
        job_id=name * 32, idempotency=("k" + name, "body"),
    )  # fmt: skip


def follow(primary: ValkeyServer, start: Start) -> ValkeyServer:
    """Start a replica, and wait until the primary counts it."""
    address = primary.url.removeprefix("redis://").removesuffix("/0").replace(":", " ")
    replica = start(replicaof=address)
    with redis.Redis.from_url(primary.url) as raw:
        until = time.monotonic() + 60
        while not raw.wait(1, 100):
            assert time.monotonic() < until
    return replica


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Say how long a step waits for replicas; else a busy machine has eight seconds."""

    def wait(seconds: float) -> None:
        monkeypatch.setattr(scripts, "_WAIT_MS", round(1000 * seconds))

    wait(8.0)  # less than the ledger's clients wait for an answer
    return wait


@pytest.fixture
def pair(valkey_server: Start) -> tuple[ValkeyServer, ValkeyServer]:
    """A primary, and a replica that follows it."""
    primary = valkey_server(repl_diskless_sync_delay="0")
    return primary, follow(primary, valkey_server)


@pytest.fixture
def ledger(pair: tuple[ValkeyServer, ValkeyServer]) -> Iterator[Ledger]:
    with closing(Ledger.from_url(pair[0].url, replicas=1)) as found:
        yield found


def test_what_is_acknowledged_is_with_the_replica(
    pair: tuple[ValkeyServer, ValkeyServer], ledger: Ledger
) -> None:
    ledger.jobs.accept(new_job("a"))
    (lease,) = ledger.leases.claim(Queue.BULK, owner="w")
    assert ledger.leases.commit_all([Finished(lease, b"r", ok=1, errors=0)]) == [Commit.DONE]
    pair[0].kill()
    with closing(Ledger.from_url(pair[1].url)) as replica:
        assert replica.jobs.get("a" * 32).n_ok == 1


def test_a_step_is_refused_until_a_replica_has_it_also_when_it_is_repeated(
    pair: tuple[ValkeyServer, ValkeyServer], ledger: Ledger, patience: Callable[[float], None]
) -> None:
    ledger.jobs.accept(new_job("a"))
    pair[1].pause()
    patience(1.0)
    for _ in range(2):  # the second attempt writes nothing: its own connection has nothing to await
        with pytest.raises(LedgerUnavailable, match="expected 1 replicas"):
            ledger.jobs.accept(new_job("b"))
    with pytest.raises(LedgerUnavailable):
        ledger.leases.claim(Queue.BULK, owner="w")
    assert ledger.jobs.get("a" * 32).n_ok == 0  # reads go on
    assert ledger.maintenance.depths()[Queue.BULK].queued >= 0
    pair[1].resume()
    patience(8.0)
    assert ledger.jobs.accept(new_job("b")).job_id == "b" * 32


async def test_a_gateway_acknowledges_nothing_without_its_replica(
    pair: tuple[ValkeyServer, ValkeyServer], patience: Callable[[float], None]
) -> None:
    ledger = AsyncLedger.from_url(pair[0].url, replicas=1, timeout_s=10.0)
    try:
        assert (await ledger.accept(new_job("a"))).job_id == "a" * 32
        hook = await ledger.webhooks.add("t", "https://example.org/")
        pair[1].pause()
        patience(1.0)
        with pytest.raises(LedgerUnavailable):
            await ledger.accept(new_job("b"))
        with pytest.raises(LedgerUnavailable):
            await ledger.webhooks.remove("t", hook.id)
        pair[1].resume()
        patience(8.0)
        assert (await ledger.accept(new_job("b"))).job_id == "b" * 32
    finally:
        await ledger.close()


def test_a_number_that_no_replica_has_is_not_returned_as_reached(
    pair: tuple[ValkeyServer, ValkeyServer], ledger: Ledger, patience: Callable[[float], None]
) -> None:
    reached = ledger.epoch.current()
    pair[1].pause()
    patience(1.0)
    with closing(Ledger.from_url(pair[0].url)) as alone:
        alone.jobs.accept(new_job("a"))
        assert alone.epoch.current().seq > reached.seq
    with pytest.raises(LedgerUnavailable):
        ledger.epoch.current()
    pair[1].resume()


def test_a_replica_refuses_steps(pair: tuple[ValkeyServer, ValkeyServer]) -> None:
    for replicas in (0, 1):
        ledger = Ledger(connect(pair[1].url, retries=0), replicas=replicas)
        with closing(ledger), pytest.raises(LedgerUnavailable):
            ledger.jobs.accept(new_job("a"))


def test_nothing_waits_by_default(valkey_server: Start) -> None:
    server = valkey_server()
    with closing(Ledger.from_url(server.url)) as ledger, redis.Redis.from_url(server.url) as raw:
        raw.config_resetstat()
        ledger.jobs.accept(new_job("a"))
        (lease,) = ledger.leases.claim(Queue.BULK, owner="w")
        assert ledger.leases.commit(lease, b"r", ok=1, errors=0) is Commit.DONE
        assert "cmdstat_wait" not in raw.info("commandstats")
        assert raw.pubsub_numsub(key("replicated")) == [(key("replicated").encode(), 0)]
