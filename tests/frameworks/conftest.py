"""A platform for the suites of frameworks, whose environment does not have the platform itself.

``make integrations`` runs these tests. VERSO_URL names a platform that is there already; otherwise
one is started with the default artifact, by the Python that VERSO_PYTHON names.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from verso_client import Client
from verso_core.errors import Unavailable

ROOT = Path(__file__).parents[2]
_START_S = 300.0


def pytest_configure() -> None:
    """Draw the same examples each time."""
    from hypothesis import settings

    settings.register_profile("test", deadline=None, derandomize=True)
    settings.load_profile("test")


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a platform."""
    if given := os.environ.get("VERSO_URL"):
        yield given
        return
    python = os.environ.get("VERSO_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
    data = tmp_path_factory.mktemp("up")
    port = 20_000 + os.getpid() % 20_000
    address = f"http://127.0.0.1:{port}"
    with (data / "up.txt").open("wb") as output:
        process = subprocess.Popen(
            [
                *(python, "-m", "verso_standalone", "up", "--data", str(data / "data")),
                *("--port", str(port), "--threads", "1"),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "VERSO_FIT_AFTER_CHUNKS": "0"},
        )
    try:
        _await_ready(address, process, data / "up.txt")
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)


def _await_ready(address: str, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + _START_S
    with Client(address) as client:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if client.ready():
                    return
            except Unavailable:
                pass
            time.sleep(0.5)
    pytest.fail(f"no platform:\n{output.read_text()}")


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[Client]:
    """A client of the platform."""
    with Client(url) as made:
        yield made


@pytest.fixture
def collection(client: Client) -> Iterator[str]:
    """An empty collection of the test's own."""
    name = f"t{uuid.uuid4().hex[:16]}"
    client.create_collection(name)
    yield name
    client.delete_collection(name)
