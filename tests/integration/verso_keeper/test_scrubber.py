"""The scrub's pace and cursor on a real ledger: kills and company change nothing of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from tests.wire import Result, read_slice

from verso_core.jobs import Collection, Precision, Queue, TextPolicy
from verso_keeper.scrubber import Scrubber
from verso_ledger import Lease, Ledger

BUCKETS = 6
STRIDE = 2


class FakeWorker:
    """Does what a worker would: it scrubs two buckets a job, and remembers which."""

    def __init__(self, url: str, *, takes_s: float = 0.0) -> None:
        self.ledger = Ledger.from_url(url)
        self.seen: list[tuple[str, int]] = []
        self.leases: list[Lease] = []
        self._takes_s = takes_s

    def work(self) -> bool:
        """Do one job, if there is one; never are there two."""
        leases = self.ledger.leases.claim(Queue.SCRUB, owner="worker", n=10)
        assert len(leases) <= 1
        for lease in leases:
            work = read_slice(lease.payload)
            [item] = work.items
            first = int(item.header["first"])
            self.seen.append((work.params["collection"], first))
            self.leases.append(lease)
            time.sleep(self._takes_s)
            found = {"documents": 3, "sound": 2, "repaired": 0, "damaged": 1, "bytes": 9}
            buckets = min(STRIDE, int(item.header["count"]))
            result = Result([{"ok": True, "buckets": buckets, "ids": [f"d{first}"]} | found])
            self.ledger.leases.commit(lease, result.pack(), ok=1, errors=0)
        return bool(leases)


@pytest.fixture
def ledger(valkey_url: str) -> Iterator[Ledger]:
    with closing(Ledger.from_url(valkey_url)) as ledger:
        for name in ("a", "b"):
            ledger.documents.collection_put(_collection(name))
        yield ledger


@pytest.fixture
def keeper(valkey_url: str, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start keepers that rest after a job four times as long as it took."""
    started: list[subprocess.Popen[bytes]] = []
    settings = {
        "VERSO_REDIS_URL": valkey_url,
        "VERSO_BROKER_URL": valkey_url.replace("/0", "/1"),
        "VERSO_SCRUB_SHARE": "0.2",
        "VERSO_PROBE_AFTER_S": "1000",
    }

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            command = [sys.executable, "-m", "verso_keeper"]
            process = subprocess.Popen(command, env=os.environ | settings, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            assert process.wait(timeout=60) == 0, (tmp_path / "log").read_text()


def _collection(name: str) -> Collection:
    return Collection(
        name=name,
        precision=Precision.FLOAT16,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=384,
        int8_scale=0.3,
        artifacts=(),
        buckets=BUCKETS,
        checksum_key="00ff",
        created=datetime.now(UTC),
    )


EVERY = [(name, first) for name in "ab" for first in range(0, BUCKETS, STRIDE)]


def _clear_probe(ledger: Ledger) -> None:
    """Take the first probe out of the way: a job that waits is no quiet."""
    for lease in ledger.leases.claim(Queue.INTERACTIVE, owner="worker", n=10):
        ledger.liveness.note_embed()
        ledger.leases.commit(lease, b"r", ok=1, errors=0)


def _until(fact: Callable[[], bool], worker: FakeWorker, *, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < end, "it did not come true in time"
        _clear_probe(worker.ledger)
        worker.work()
        time.sleep(0.05)


@pytest.mark.parametrize("idle", [True, False], ids=["between jobs", "while a job runs"])
def test_a_pass_goes_on_where_it_was_when_its_keeper_was_killed(
    ledger: Ledger,
    valkey_url: str,
    keeper: Callable[[], subprocess.Popen[bytes]],
    idle: bool,
) -> None:
    worker = FakeWorker(valkey_url, takes_s=0.3 if idle else 0.0)
    first = keeper()
    _until(lambda: len(worker.seen) == 3, worker)
    if idle:
        _until(lambda: ledger.scrub.state().job_id is None, worker)
    first.kill()
    first.wait()
    middle = ledger.scrub.state()
    assert 0 < middle.progress(ledger.documents.collections()) < 1
    keeper()
    _until(lambda: ledger.scrub.state().ended is not None, worker)
    after = ledger.scrub.state()
    assert worker.seen == EVERY
    assert (after.number, after.counts["documents"], after.counts["damaged"]) == (1, 18, 6)
    assert [(one.collection, one.document) for one in after.damaged] == [
        (name, f"d{place}") for name, place in EVERY
    ]
    assert ledger.maintenance.backlog().totals["jobs:scrub:succeeded"] == len(EVERY)
    worker.ledger.close()


def test_several_keepers_keep_the_pace_of_one(ledger: Ledger, valkey_url: str) -> None:
    worker = FakeWorker(valkey_url, takes_s=0.1)
    over = threading.Event()

    def keep() -> None:
        with closing(Ledger.from_url(valkey_url)) as own:
            scrubber = Scrubber(own, share=0.25, every_s=1000.0, pass_s=1000.0)
            while not over.is_set():
                scrubber.step()

    with ThreadPoolExecutor(4) as pool:
        keepers = [pool.submit(keep) for _ in range(4)]
        _until(lambda: ledger.scrub.state().ended is not None, worker)
        over.set()
        for keeping in keepers:
            keeping.result()
    assert worker.seen == EVERY
    state = ledger.scrub.state()
    assert (state.number, state.counts["documents"], state.counts["sound"]) == (1, 18, 12)
    records = [ledger.jobs.get(lease.job_id) for lease in worker.leases]
    for before, after in pairwise(records):
        assert before.started is not None
        assert before.finished is not None
        # at a quarter of a core a job is followed by three times its own length of rest
        rest = 3 * (before.finished - before.started)
        assert after.created >= before.finished + rest - 0.01
    worker.ledger.close()


def test_a_pass_asked_for_begins_at_once_and_once(ledger: Ledger, valkey_url: str) -> None:
    worker = FakeWorker(valkey_url)
    scrubber = Scrubber(ledger, share=1.0, every_s=1000.0, pass_s=1000.0)

    def run() -> None:
        for _ in range(40):
            scrubber.step()
            worker.work()

    run()
    assert (ledger.scrub.state().number, worker.seen) == (1, EVERY)
    ledger.scrub.request()
    run()
    assert (ledger.scrub.state().number, worker.seen) == (2, EVERY + EVERY)
    assert ledger.scrub.state().counts["documents"] == 18
    assert ledger.maintenance.backlog().totals["scrub:documents"] == 36
    worker.ledger.close()


def test_a_collection_deleted_in_mid_pass_is_passed_over(ledger: Ledger, valkey_url: str) -> None:
    worker = FakeWorker(valkey_url)
    scrubber = Scrubber(ledger, share=1.0, every_s=1000.0, pass_s=1000.0)
    while len(worker.seen) < 1:
        scrubber.step()
        worker.work()
    ledger.documents.collection_delete("a")
    for _ in range(40):
        scrubber.step()
        worker.work()
    assert worker.seen == [("a", 0), ("b", 0), ("b", 2), ("b", 4)]
    assert ledger.scrub.state().ended is not None
    worker.ledger.close()
