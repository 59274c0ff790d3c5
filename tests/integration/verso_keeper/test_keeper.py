"""Facts about the keeper as a process, against a real server as ledger and broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.wire import Item, cut

from verso_core.jobs import Kind, Queue, Status
from verso_keeper.periodic import TENANT
from verso_keeper.wakeup import WakeupSender
from verso_ledger import Ledger, NewJob
from verso_standalone.valkey import free_port


def _until(fact: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


def _job() -> NewJob:
    parts = list(cut(Kind.EMBED, {}, [Item({}, b"a text")]))
    return NewJob(Kind.EMBED, Queue.BULK, parts)


def _messages(broker_url: str, queue: Queue) -> list[Any]:
    with redis.Redis.from_url(broker_url) as client:
        return [json.loads(row) for row in client.lrange(queue.celery_name, 0, -1)]


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start keepers; each must end well on SIGTERM."""
    started: list[subprocess.Popen[bytes]] = []

    def start(url: str, **settings: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "VERSO_REDIS_URL": url,
            "VERSO_BROKER_URL": url.replace("/0", "/1"),
            "VERSO_HEARTBEAT_FILE": str(tmp_path / "beat"),
            **settings,
        }
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "verso_keeper"], env=environment, stderr=log
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            assert process.wait(timeout=60) == 0, (tmp_path / "log").read_text()


def test_wakeups_name_the_queue_and_stop_when_no_worker_takes_them(valkey_url: str) -> None:
    broker = valkey_url.replace("/0", "/1")
    wakeups = WakeupSender(broker)
    assert wakeups.notify({Queue.BULK: 3, Queue.SCRUB: 0}) == [Queue.BULK]
    for _ in range(10):
        wakeups.notify({Queue.BULK: 3})
    wakeups.close()
    sent = _messages(broker, Queue.BULK)
    assert 1 <= len(sent) <= 4
    assert sent[0]["headers"]["task"] == "verso.work"
    assert sent[0]["content-type"] == "application/json"
    assert _messages(broker, Queue.SCRUB) == []


def test_a_killed_workers_slice_is_due_again_and_woken_for(
    valkey_url: str, keeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ledger = Ledger.from_url(valkey_url)
    ledger.jobs.accept(_job())
    (lost,) = ledger.leases.claim(Queue.BULK, owner="killed", lease_s=1.0)
    keeper(valkey_url)
    _until(lambda: ledger.maintenance.depths()[Queue.BULK].queued == 1)
    _until(lambda: len(_messages(valkey_url.replace("/0", "/1"), Queue.BULK)) > 0)
    (again,) = ledger.leases.claim(Queue.BULK, owner="other")
    assert (again.slice_id, again.fence) == (lost.slice_id, lost.fence + 1)
    ledger.close()


def test_the_keeper_probes_while_no_text_is_embedded(
    valkey_url: str, keeper: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    ledger = Ledger.from_url(valkey_url)
    keeper(valkey_url, VERSO_PROBE_AFTER_S="1")
    _until(lambda: ledger.maintenance.depths()[Queue.INTERACTIVE].queued > 0)
    (lease,) = ledger.leases.claim(Queue.INTERACTIVE, owner="w")
    record = ledger.jobs.get(lease.job_id)
    assert (record.kind, record.tenant) == (Kind.EMBED, TENANT)
    ledger.leases.commit(lease, b"r", ok=1, errors=0)
    assert ledger.jobs.get(lease.job_id).status is Status.SUCCEEDED
    _until((tmp_path / "beat").exists)
    ledger.close()


def test_a_scrape_shows_the_queues(
    valkey_url: str, keeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    port = free_port()
    ledger = Ledger.from_url(valkey_url)
    ledger.jobs.accept(_job())
    ledger.liveness.note_embed()
    keeper(valkey_url, VERSO_METRICS_PORT=str(port))

    def scrape() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
                return str(page.read().decode())
        except OSError:
            return ""

    _until(lambda: 'verso_queue_slices{queue="bulk",status="queued"} 1.0' in scrape())
    ledger.close()


def test_the_keeper_outlives_a_restart_of_redis_and_says_so_once(
    valkey_server: Callable[..., Any],
    keeper: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    server = valkey_server()
    process = keeper(server.url, VERSO_LEASE_S="1")
    _until((tmp_path / "beat").exists)
    server.kill()
    _until(lambda: "reap waits" in (tmp_path / "log").read_text())
    time.sleep(3)
    server.start()
    _until(lambda: "reap resumed" in (tmp_path / "log").read_text())
    ledger = Ledger.from_url(server.url)
    ledger.jobs.accept(_job())
    ledger.leases.claim(Queue.BULK, owner="killed", lease_s=0.5)
    _until(lambda: ledger.maintenance.depths()[Queue.BULK].queued == 1)
    ledger.close()
    assert process.poll() is None
    log = (tmp_path / "log").read_text()
    assert log.count("reap waits") == log.count("reap resumed") == 1


def test_the_keeper_waits_for_a_ledger_that_is_not_there_yet(
    valkey_server: Callable[..., Any],
    keeper: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    server = valkey_server()
    server.kill()
    keeper(server.url)
    _until(lambda: "waiting for the ledger" in (tmp_path / "log").read_text())
    server.start()
    _until((tmp_path / "beat").exists)


def test_the_keeper_refuses_a_ledger_that_forgets(
    valkey_server: Callable[..., Any],
    keeper: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    process = keeper(valkey_server(appendonly="no").url)
    assert process.wait(timeout=60) == 1
    assert "expected appendonly yes, got no" in (tmp_path / "log").read_text()


def test_sigterm_ends_the_keeper_well(
    valkey_url: str, keeper: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = keeper(valkey_url)
    _until((tmp_path / "beat").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()
