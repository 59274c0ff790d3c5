"""The parts of a platform as processes of their own, as they run on many machines."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import redis
from tests.e2e.conftest import ARTIFACT, READY_TIMEOUT_S, Platform

from verso_core.registry import Channel, assign
from verso_core.supervise import Process
from verso_ledger.connection import connect

_ENDS = ("gateway", "worker", "keeper")


class Parts(Platform):
    """Gateway, worker and keeper on a ledger and a broker that somebody else runs."""

    def __init__(self, folder: Path, *, redis_url: str, broker_url: str, **settings: str) -> None:
        super().__init__(folder / "data", ARTIFACT)
        self._redis_url = redis_url
        self._environment = {
            "VERSO_REDIS_URL": redis_url,
            "VERSO_BROKER_URL": broker_url,
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
            **settings,
        }
        models = self.data / "models"
        models.mkdir(parents=True)
        (models / ARTIFACT.name).symlink_to(ARTIFACT)
        assign(models, Channel.STABLE, ARTIFACT.name)
        self._parts = [self._part(name) for name in _ENDS]

    def _part(self, name: str) -> Process:
        log = self.data / f"{name}.log"
        argv = [sys.executable, "-m", f"verso_{name}"]
        return Process(name, argv, log_path=log, environment=self._environment)

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
        """End the parts."""
        for part in self._parts:
            part.stop(grace_s=15.0)

    def redis(self) -> redis.Redis:
        """Connect to the ledger."""
        return connect(self._redis_url)

    def deaths(self) -> int:
        """Count how often a part ended by itself: a ledger that is away is no reason to."""
        return sum(part.deaths for part in self._parts)
