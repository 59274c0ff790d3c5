"""The ledger behind a network that breaks, a server that dies, and a disk that loses its power.

Each test counts outside the ledger what was acknowledged, and looks for exactly that afterwards.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.chaos.proxy import Proxy
from tests.wire import Item, cut

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Kind, Queue, Status
from verso_ledger import Commit, Ledger, NewJob, Policy
from verso_ledger.connection import connect
from verso_ledger.keys import key

JOBS = 60
_POLICY = Policy(max_crashes=100)  # a busy machine lets leases run out that the faults did not


def new_job(job_id: str) -> NewJob:
    slices = list(cut(Kind.EMBED, {}, [Item({}, job_id.encode())]))
    return NewJob(
        kind=Kind.EMBED, queue=Queue.BULK, slices=slices, job_id=job_id,
        idempotency=(job_id, "body"),
    )  # fmt: skip


class Crowd:
    """Callers and workers over connections that break; every step is asked again until answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.accepted: list[str] = []
        self.committed: list[str] = []
        self.over = threading.Event()
        duties = (self._call, self._work, self._work)
        self._threads = [threading.Thread(target=duty) for duty in duties]

    def run(self, disturb: Callable[[], None]) -> None:
        """Let them work while ``disturb`` is called again and again, then to their end."""
        for thread in self._threads:
            thread.start()
        until = time.monotonic() + 400
        while len(self.committed) < JOBS and time.monotonic() < until:
            disturb()
            time.sleep(0.05)
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _ledger(self) -> Ledger:
        return Ledger(connect(self.url, timeout_s=0.5, retries=1), policy=_POLICY)

    def _call(self) -> None:
        ledger = self._ledger()
        for number in range(JOBS):
            job = new_job(f"{number:032x}")
            while not self.over.is_set():
                try:
                    assert ledger.jobs.accept(job).job_id == job.job_id
                except LedgerUnavailable:
                    continue
                self.accepted.append(str(job.job_id))
                break
        ledger.close()

    def _work(self) -> None:
        ledger = self._ledger()
        while not self.over.is_set():
            try:
                ledger.maintenance.reap()
                leases = ledger.leases.claim(Queue.BULK, owner="w", n=4, lease_s=1.0)
            except LedgerUnavailable:
                continue
            for lease in leases:
                while not self.over.is_set():
                    try:
                        done = ledger.leases.commit(lease, b"r", ok=1, errors=0)
                    except LedgerUnavailable:
                        continue
                    if done is Commit.DONE:
                        self.committed.append(lease.slice_id)
                    break
        ledger.close()


def judge(crowd: Crowd, url: str) -> None:
    """Every accepted job ended well, once, and was committed by exactly one lease."""
    assert len(crowd.accepted) == JOBS
    assert sorted(crowd.committed) == sorted(set(crowd.committed))
    ledger = Ledger.from_url(url)
    with redis.Redis.from_url(url) as raw:
        for job in crowd.accepted:
            record = ledger.jobs.get(job)
            assert (record.status, record.n_ok, record.done) == (Status.SUCCEEDED, 1, 1)
            ends = [e for _, e in raw.xrange(key("events", job)) if e[b"status"] == b"succeeded"]
            assert len(ends) == 1
        assert int(raw.hget(key("totals"), "jobs:embed:succeeded") or 0) == JOBS
    ledger.close()


@pytest.fixture
def proxy(valkey_url: str) -> Iterator[Proxy]:
    port = int(valkey_url.rsplit(":", 1)[1].partition("/")[0])
    found = Proxy(("127.0.0.1", port))
    yield found
    found.close()


@pytest.mark.parametrize("what", ["resets", "stalls", "lost answers"])
def test_a_network_that_breaks_costs_time_and_nothing_else(
    proxy: Proxy, valkey_url: str, what: str
) -> None:
    dice = random.Random(what)

    def disturb() -> None:
        match what:
            case "resets":
                proxy.reset()
            case "stalls" if dice.random() < 0.2:
                with proxy.stalled():
                    time.sleep(0.7)  # longer than the callers' patience
            case "lost answers":
                proxy.swallow = dice.random() < 0.3

    crowd = Crowd(f"redis://127.0.0.1:{proxy.port}/0")
    crowd.run(disturb)
    judge(crowd, valkey_url)


@pytest.mark.parametrize("sync", ["always", "everysec"])
def test_a_server_that_is_killed_again_and_again_forgets_nothing(
    valkey_server: Callable[..., Any], sync: str
) -> None:
    """What the process wrote is with the kernel, so SIGKILL costs nothing even with everysec."""
    server = valkey_server(appendfsync=sync)
    crowd = Crowd(server.url)
    kills = 0

    def disturb() -> None:
        nonlocal kills
        time.sleep(0.3)
        server.kill()
        server.start()
        kills += 1

    crowd.run(disturb)
    assert kills > 0
    judge(crowd, server.url)


def test_what_was_acknowledged_before_the_power_went_is_there_when_it_is_back(
    valkey_server: Callable[..., Any], tmp_path: Path, valkey_binary: str
) -> None:
    """The folder is copied while the server is stopped dead, and a new server starts from the copy.

    The copy holds what was written, synced or not, so this shows that the files are whole at any
    moment; that an answer waits for the sync is what ``appendfsync always`` means.
    """
    server = valkey_server()
    ledger = Ledger.from_url(server.url)
    acknowledged: list[str] = []
    over = threading.Event()

    def call() -> None:
        while not over.wait(0.001):
            job = new_job(f"{len(acknowledged):032x}")
            acknowledged.append(ledger.jobs.accept(job).job_id)

    thread = threading.Thread(target=call)
    thread.start()
    for cut_number in range(4):
        time.sleep(0.05)
        server.pause()
        known = list(acknowledged)
        copy = tmp_path / f"cut-{cut_number}"
        shutil.copytree(server.folder, copy)
        server.resume()
        second = type(server)(valkey_binary, copy, {"dir": str(copy)})
        found = Ledger.from_url(second.url)
        assert {found.jobs.get(job).status for job in known} <= {Status.QUEUED}
        assert found.maintenance.depths()[Queue.BULK].queued >= len(known)
        found.close()
        second.stop()
    over.set()
    thread.join()
    ledger.close()
    assert len(acknowledged) > 4
