"""Gateway, worker and keeper behind a network that breaks between them and their ledger.

Real processes under mixed load. All that they say to the ledger goes through a proxy that cuts
connections with RST, lets nothing through for a while, or does what was asked and swallows the
answer; the broker's bells go the same way.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.chaos.load import COLLECTION, Journal, Load
from tests.chaos.parts import Parts
from tests.chaos.proxy import Proxy
from tests.chaos.storm import judge, probe

_LOST_S = 240.0
_ROUNDS = int(os.environ.get("NETWORK_ROUNDS", "2"))


class Apart(Parts):
    """Parts with a proxy before their ledger."""

    def __init__(self, folder: Path, server: str) -> None:
        self._server = server
        self.proxy = Proxy(("127.0.0.1", int(server.rpartition(":")[2].partition("/")[0])))
        behind = f"redis://127.0.0.1:{self.proxy.port}"
        super().__init__(folder, redis_url=f"{behind}/0", broker_url=f"{behind}/1")

    def close(self) -> None:
        """End the parts and the proxy."""
        super().close()
        self.proxy.close()

    def redis(self) -> redis.Redis:
        """Connect to the ledger past the proxy."""
        return redis.Redis.from_url(self._server)


@pytest.fixture
def apart(valkey_server: Callable[..., Any], tmp_path: Path) -> Iterator[Apart]:
    found = Apart(tmp_path, valkey_server().url)
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.mark.slow
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
