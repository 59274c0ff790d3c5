"""A short storm over a whole platform, and a worker told to stop in the middle of work."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.chaos.load import COLLECTION, Journal, Load, text_of
from tests.chaos.storm import Storm, judge
from tests.e2e.conftest import ARTIFACT, Platform

from verso_client import Document
from verso_core.jobs import Status

ROOT = Path(__file__).parents[2]


def test_the_command_of_make_chaos_starts_a_storm() -> None:
    make = ["make", "--dry-run", "chaos", f"VENV={sys.prefix}"]
    told = subprocess.run(make, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    [command] = [line for line in told.splitlines() if "tests.chaos.storm" in line]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(["sh", "-c", f"{command} --help"], cwd=ROOT, check=True, env=bare)


@pytest.mark.slow
def test_a_short_storm_breaks_no_promise_and_a_worker_leaves_in_time(tmp_path: Path) -> None:
    platform = Platform(
        tmp_path / "data",
        ARTIFACT,
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_SCRUB_SHARE="0",
        VERSO_DRAIN_S="2",
    )
    platform.start()
    try:
        with platform.client() as client:
            client.create_collection(COLLECTION)
            worker = psutil.Process(platform.pid("worker"))
            documents = [Document(text_of(f"d/{n}"), id=f"d/{n}") for n in range(600)]
            [job] = client.submit(documents, collection=COLLECTION)
            while client.job(job.id).ok == 0:
                time.sleep(0.02)
            platform.supervisor.suspend()  # it starts the next worker once this has been looked at
            os.kill(worker.pid, signal.SIGTERM)
            while worker.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.02)
            assert not client.job(job.id).status.terminal  # it left its slices to the next worker
            platform.supervisor.resume()
            assert client.wait(job.id, timeout_s=300).status is Status.SUCCEEDED
        journal = Journal(stored={str(d.id) for d in documents}, jobs={job.id})
        journal.calls["ingest"] += 1
        storm = Storm(platform, journal, random.Random(7), io.StringIO())
        load = Load(platform.client, journal, callers=2, seed=7)
        load.start()
        storm.rage(faults=3, until=time.monotonic() + 240)
        load.stop()
        verdict = judge(platform, journal)
        assert (verdict["lost"], verdict["twice"], verdict["broken"]) == (0, 0, [])
        platform.stop()
    finally:
        platform.close()
