"""A replica takes over when the primary is killed or hangs, and everybody follows it.

``python -m tests.chaos.failovers --count 50`` does more of them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import redis
from tests.chaos.load import COLLECTION, Journal
from tests.chaos.load import Load as Calls
from tests.chaos.parts import Parts
from tests.chaos.sentinels import group
from tests.chaos.storm import judge as look
from tests.chaos.storm import probe
from tests.conftest import ValkeyServer
from tests.integration.verso_ledger.test_replicas import follow, new_job

from verso_ledger import Ledger
from verso_ledger.epoch import Epoch
from verso_worker.jobs.ledger_watch import HighWaterMark

_LOST_S = 240.0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_done_twice(valkey_binary: str, tmp_path: Path) -> None:
    assert valkey_binary
    command = [sys.executable, "-m", "tests.chaos.failovers", "--count", "2", "--as-replica"]
    run = subprocess.run(
        [*command, "--folder", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert (found["killed"], found["hung"]) == (1, 1)
    assert (found["lost"], found["doubled"], found["read_only"], found["faults"]) == (
        0,
        0,
        False,
        [],
    )
    assert found["acknowledged"] > 0


@pytest.mark.slow
def test_a_platform_follows_its_ledger_and_its_broker(valkey_binary: str, tmp_path: Path) -> None:
    with group(valkey_binary, tmp_path / "servers") as servers:
        platform = Parts(
            tmp_path,
            redis_url=servers.url(0),
            broker_url=servers.url(1),
            VERSO_LEDGER_REPLICAS="1",
        )
        try:
            platform.start()
            before = platform.deaths()
            with platform.client() as client:
                client.create_collection(COLLECTION)
            journal = Journal()
            calls = Calls(lambda: platform.client(patience_s=_LOST_S), journal, callers=2, seed=7)
            calls.start()
            with platform.client(patience_s=_LOST_S) as client:
                probe(client, "before/all", journal)
                old = servers.primary()
                old.send(signal.SIGKILL)
                servers.await_other_primary(old)
                probe(client, "after/all", journal)
            calls.stop()
            verdict = look(platform, journal)
            assert (verdict["lost"], verdict["twice"], verdict["broken"]) == (0, 0, [])
            assert platform.deaths() == before
        finally:
            platform.close()


def test_a_promoted_replica_is_accepted_and_an_older_one_is_refused(
    valkey_server: Callable[..., ValkeyServer], tmp_path: Path
) -> None:
    primary = valkey_server(repl_diskless_sync_delay="0")
    older = follow(primary, valkey_server)
    with redis.Redis.from_url(older.url) as raw:
        raw.replicaof("NO", "ONE")  # it receives nothing from now on
    newer = follow(primary, valkey_server)
    with closing(Ledger.from_url(primary.url, replicas=1)) as ledger:
        mark = HighWaterMark(tmp_path, ledger.epoch)
        assert mark.check()
        ledger.jobs.accept(new_job("a"))
        assert mark.check()
    primary.kill()
    with redis.Redis.from_url(newer.url) as raw:
        raw.replicaof("NO", "ONE")
    for server, accepted in ((newer, True), (older, False)):
        with closing(Epoch.from_url(server.url)) as epoch:
            assert HighWaterMark(tmp_path, epoch).check() is accepted
            assert (epoch.read_only() is None) is accepted
