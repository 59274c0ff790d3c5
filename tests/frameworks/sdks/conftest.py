"""A platform with keys, aliases and room for few slices, whose queue can be filled."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from verso_core import api_keys
from verso_core.api_keys import Scope

ROOT = Path(__file__).parents[3]
_START_S = 300.0
_SETTINGS = {
    "VERSO_FIT_AFTER_CHUNKS": "0",
    "VERSO_MODEL_ALIASES": "text-embedding-3-small,rerank-v3.5",
    "VERSO_QUEUE_LIMIT_SLICES": "4",
    "VERSO_WAIT_MAX_S": "20",
}


@dataclass(frozen=True)
class Served:
    """A platform: its address, a key, and the process that runs it."""

    url: str
    key: str
    process: subprocess.Popen[bytes]

    def post(self, path: str, body: object, **headers: str) -> httpx2.Response:
        """Post JSON with the key."""
        fields = {"Authorization": f"Bearer {self.key}"} | headers
        return httpx2.post(f"{self.url}{path}", json=body, headers=fields, timeout=60)

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """Return the platform's own vectors."""
        answer = self.post("/v1/embed", {"texts": texts}, Prefer="wait=20")
        return [one["embedding"] for one in answer.json()["results"]]

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill the queue, while the worker is stopped."""
        pid = self._worker()
        os.kill(pid, signal.SIGSTOP)
        try:
            until = time.monotonic() + 60
            late = {"texts": ["late"]}
            while self.post("/v1/embed", late, Prefer="respond-async").status_code != 429:
                assert time.monotonic() < until
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
        until = time.monotonic() + 60
        while self.post("/v1/embed", {"texts": ["a"]}, Prefer="wait=20").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.2)

    def _worker(self) -> int:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if words[1:3] == [b"-m", b"verso_worker"] and parent == self.process.pid:
                return int(entry.name)
        raise AssertionError("no worker is running")


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A platform by the Python that VERSO_PYTHON names, which has its libraries."""
    python = os.environ.get("VERSO_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
    folder = tmp_path_factory.mktemp("up")
    secret, key = api_keys.mint("app", scopes=[Scope.READ, Scope.INGEST])
    api_keys.add(folder / api_keys.FILE_NAME, key)
    port = 20_000 + os.getpid() % 20_000
    with (folder / "up.txt").open("wb") as output:
        process = subprocess.Popen(
            [
                *(python, "-m", "verso_standalone", "up", "--data", str(folder / "data")),
                *("--port", str(port), "--threads", "1"),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ | _SETTINGS | {"VERSO_API_KEYS_FILE": str(folder / api_keys.FILE_NAME)},
        )
    try:
        until = time.monotonic() + _START_S
        while b"ready at" not in (folder / "up.txt").read_bytes():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        yield Served(f"http://127.0.0.1:{port}", secret, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
