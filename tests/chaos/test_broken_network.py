"""Gateway, worker and keeper behind a network that breaks between them and their ledger.

Real processes under mixed load. All that they say to the ledger goes through a proxy that cuts
connections with RST, lets nothing through for a while, or does what was asked and swallows the
answer; the broker's bells go the same way.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.chaos.load import COLLECTION, Journal, Load
from tests.chaos.proxy import Proxy
from tests.chaos.storm import judge, probe
from tests.e2e.conftest import ARTIFACT, READY_TIMEOUT_S, Platform

from verso_core.registry import Channel, assign
from verso_core.supervise import Process

_ENDS = ("gateway", "worker", "keeper")
_LOST_S = 240.0
_ROUNDS = int(os.environ.get("NETWORK_ROUNDS", "2"))


class Apart(Platform):
    """The parts of a platform as they run on many machines, with a proxy before their ledger."""

    def __init__(self, folder: Path, server: str) -> None:
        super().__init__(folder / "data", ARTIFACT)
        self._server = server
        self.proxy = Proxy(("127.0.0.1", int(server.rpartition(":")[2].partition("/")[0])))
        models = self.data / "models"
        models.mkdir(parents=True)
        (models / ARTIFACT.name).symlink_to(ARTIFACT)
        assign(models, Channel.STABLE, ARTIFACT.name)
        self._parts = [self._part(name) for name in _ENDS]

    def _part(self, name: str) -> Process:
        behind = f"redis://127.0.0.1:{self.proxy.port}"
        settings = {
            "VERSO_REDIS_URL": f"{behind}/0",
            "VERSO_BROKER_URL": f"{behind}/1",
            "VERSO_DATA": str(self.data),
            "VERSO_RUN": str(self.data / "run"),
            "VERSO_MODELS": str(self.data / "models"),
            "VERSO_RESULTS": str(self.data / "results"),
            "VERSO_PORT": str(self.port),
            "VERSO_THREADS": "1",
            "VERSO_VERIFY_DELAY_S": "0.1",
            "VERSO_RAW_TEXT_RETENTION_S": "0",
            "VERSO_SCRUB_SHARE": "0",
            "OMP_NUM_THREADS": "1",
        }
        log = self.data / f"{name}.log"
        argv = [sys.executable, "-m", f"verso_{name}"]
        return Process(name, argv, log_path=log, environment=settings)

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the parts and wait until they can work."""
        for part in self._parts:
            part.start()
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while not client.ready():
                assert time.monotonic() < deadline, [part.last_words() for part in self._parts]
                time.sleep(0.2)

    def close(self) -> None:
        """End the parts and the proxy."""
        for part in self._parts:
            part.stop(grace_s=15.0)
        self.proxy.close()

    def redis(self) -> redis.Redis:
        """Connect to the ledger past the proxy."""
        return redis.Redis.from_url(self._server)

    def deaths(self) -> int:
        """Count how often a part ended by itself: a network is no reason to."""
        return sum(part.deaths for part in self._parts)


@pytest.fixture
def apart(valkey_server: Callable[..., Any], tmp_path: Path) -> Iterator[Apart]:
    found = Apart(tmp_path, valkey_server().url)
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_broken_network_costs_time_and_nothing_else(apart: Apart) -> None:
    before = apart.deaths()  # an engine may take too long to start on a busy machine
    with apart.client() as client:
        client.create_collection(COLLECTION)
    journal, dice = Journal(), random.Random(5)
    load = Load(lambda: apart.client(patience_s=_LOST_S), journal, callers=2, seed=5)
    load.start()
    for what in ("reset", "swallow", "stall") * _ROUNDS:
        match what:
            case "reset":
                apart.proxy.reset()
            case "swallow":
                apart.proxy.swallow = True
                time.sleep(0.5)
                apart.proxy.swallow = False
            case "stall":
                with apart.proxy.stalled():
                    time.sleep(dice.choice([0.5, 2.5]))  # the longer outlasts a gateway's patience
        time.sleep(dice.uniform(0.1, 0.8))
    load.stop()
    with apart.client(patience_s=_LOST_S) as client:
        probe(client, "after/all", journal)
    verdict = judge(apart, journal)
    assert (verdict["lost"], verdict["twice"], verdict["broken"]) == (0, 0, [])
    assert verdict["documents"] > 1
    assert apart.deaths() == before
    assert "never retrieved" not in (apart.data / "gateway.log").read_text()
