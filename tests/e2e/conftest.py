"""A real platform: `verso up` with a small artifact, spoken to over HTTP and sometimes shot at.

The artifact is ``tests/data/artifact-tiny``: real graphs, tokenizers and tables of the shipped
layout, small enough for git. VERSO_TEST_ARTIFACT names another one.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import redis
from tests.conftest import ValkeyServer, server_folder
from typer.testing import CliRunner

from verso_client import Client, Document, Retries
from verso_client.cli.app import app
from verso_core import registry
from verso_core.errors import Unavailable
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.registry import Channel
from verso_standalone.valkey import find_program, free_port

ARTIFACT = Path(__file__).parents[1] / "data" / "artifact-tiny"
HEADS = Path(__file__).parents[1] / "data" / "heads-tiny" / "heads"
READY_TIMEOUT_S = 240.0  # imports alone take a minute where other suites share the cores

# A fit takes half a minute of a core, and verifies wait for it; tests of fits say otherwise.
_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "VERSO_FIT_AFTER_CHUNKS": "0",
    "VERSO_WAIT_DEFAULT_S": "60",  # a plain request is answered, however busy the machine is
}
_PARTS = {
    "worker": ("-m", "verso_worker"),
    "engine": ("-m", "verso_worker.engine"),
    "shard": ("-m", "verso_worker.stores.edge.process"),
    "keeper": ("-m", "verso_keeper"),
    "gateway": ("-m", "verso_gateway"),
}


def _hear_hang_ups() -> None:
    """Undo what `nohup` has done, if the tests were started by it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Platform:
    """One `verso up` on a data folder of its own."""

    def __init__(self, data: Path, artifact: Path, **settings: str) -> None:
        self.data = data
        self.artifact = artifact
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.options: list[str] = []
        self.prefix: list[str] = []
        self.key: str | None = None
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.output = data.parent / f"{data.name}.up.txt"

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start it and wait until it says that it is ready."""
        argv = [
            *self.prefix,
            sys.executable,
            "-m",
            "verso_standalone",
            "up",
            "--data",
            str(self.data),
        ]
        argv += ["--port", str(self.port), "--artifact", str(self.artifact), "--threads", "1"]
        argv += self.options
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                argv,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_SETTINGS, **self._settings},
                preexec_fn=_hear_hang_ups,  # noqa: PLW1509 - it calls nothing that takes a lock
            )
        deadline = time.monotonic() + timeout_s
        while b"ready at" not in self.output.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"verso up did not become ready:\n{self.output.read_text()}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit status."""
        assert self._process is not None
        members = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(how)
        status: int = self._process.wait(timeout=READY_TIMEOUT_S)
        self._process = None
        _, alive = psutil.wait_procs(members, timeout=READY_TIMEOUT_S)
        assert not alive, f"left behind: {alive}"
        return status

    @property
    def supervisor(self) -> psutil.Process:
        """Return the process that everything else descends from."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def close(self) -> None:
        """End it, whatever its state."""
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGKILL)

    def pid(self, part: str) -> int:
        """Return the process id of a part; it may be between two lives for a moment."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            for process in self.members():
                if self.runs(part, process):
                    return int(process.pid)
            time.sleep(0.05)
        pytest.fail(f"no {part} is running")

    def kill(self, part: str) -> int:
        """End a part with SIGKILL; returns the process id it had."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def client(self, patience_s: float = 90.0) -> Client:
        """Make a client that rides out restarts."""
        return Client(
            self.url, api_key=self.key, retries=Retries(patience_s=patience_s, longest_pause_s=0.5)
        )

    def await_verified(self, collection: str, count: int, timeout_s: float = 300.0) -> None:
        """Wait until so many documents have passed the independent verify."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while (stats := client.stats(collection)).verified < count:
                assert time.monotonic() < deadline, f"verified {stats.verified} of {count}"
                time.sleep(0.2)

    def read_all(self, collection: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Read documents back, many at a time; an error of one fails the test."""
        found: dict[str, bytes] = {}
        with self.client() as client:
            for start in range(0, len(ids), 64):
                batch = list(ids[start : start + 64])
                for text in client.reconstruct(batch, collection=collection):
                    assert text.error is None, text.error
                    found[text.id] = text.data
        return found

    def redis(self) -> redis.Redis:
        """Connect to the ledger, past every rule: only for tests that break things."""
        words = (self.data / "valkey" / "valkey.conf").read_text(encoding="utf-8").split()
        port = int(words[words.index("port") + 1])
        password = (self.data / "secret").read_text(encoding="ascii")
        return redis.Redis(port=port, password=password)

    def log(self, part: str) -> str:
        """Return what a part has logged."""
        return (self.data / "logs" / f"{part}.log").read_text(encoding="utf-8")

    def read_lines(self, request: LinesRequest) -> bytes:
        """Read lines as they are; again where the worker is busy, also in the middle of them."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        with self.client() as client:
            while True:
                try:
                    return b"".join(client.lines(request))
                except Unavailable:
                    if time.monotonic() > deadline:
                        raise

    def members(self) -> list[psutil.Process]:
        assert self._process is not None
        members: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return members

    @staticmethod
    def runs(part: str, process: psutil.Process) -> bool:
        try:
            command = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        if "-I" in command:  # the tether before it has become the program
            return False
        if part == "valkey":
            return bool(command) and "valkey-server" in command[0]
        flag, module = _PARTS[part]
        return any(pair == (flag, module) for pair in itertools.pairwise(command))


@pytest.fixture(scope="session")
def artifact() -> Path:
    """The artifact that platforms serve."""
    folder = Path(os.environ.get("VERSO_TEST_ARTIFACT", ARTIFACT))
    if not (folder / "manifest.json").is_file():
        pytest.fail(f"expected an artifact in {folder}")
    return folder


@contextmanager
def platforms(
    artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Platform]]:
    """Make platforms with settings of their own; all are ended in the end."""
    try:
        find_program()
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(error.detail)
    made: list[Platform] = []

    def make(**settings: str) -> Platform:
        data = tmp_path_factory.mktemp("up") / "data"
        platform = Platform(data, artifact, **settings)
        made.append(platform)
        return platform

    try:
        yield make
    finally:
        for platform in made:
            platform.close()


@pytest.fixture(scope="module")
def new_platform(
    artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Platform]]:
    """Make platforms with settings of their own; all are ended with the file's last test."""
    with platforms(artifact, tmp_path_factory) as make:
        yield make


@pytest.fixture(scope="module")
def second_ledger() -> Iterator[ValkeyServer]:
    """A server that a platform may have as its second ledger, of the platform's own program.

    What one server dumps another version may not restore.
    """
    with server_folder() as folder:
        made = ValkeyServer(str(find_program()), folder, {})
        yield made
        made.kill()


@pytest.fixture(scope="session")
def platform(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One platform that all tests share which leave it as they found it."""
    with platforms(artifact, tmp_path_factory) as make:
        shared = make(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
        shared.start()
        yield shared


@pytest.fixture(scope="session")
def headed(platform: Platform) -> Platform:
    """The shared platform, with heads that were published to it while it was running."""
    publish_heads(platform)
    return platform


def command_line(url: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command line in this process: another would take longer to start than it works.

    That the program says the same and ends with the same status, ``test_command_line.py`` checks.
    """
    done = CliRunner().invoke(app, ["--url", url, *words], input=stdin, env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout_bytes, done.stderr_bytes)


def _serves(worker: Mapping[str, Any], heads: int) -> bool:
    """Return whether a worker said that it serves so many heads."""
    return sum(head["stable"] is not None for head in worker["heads"]) >= heads


def publish_heads(platform: Platform) -> None:
    """Publish the heads of the tests to a running platform and wait until they serve."""
    models = platform.data / "models"
    published = list(HEADS.glob("*/*"))
    for folder in published:
        shutil.copytree(folder, models / "heads" / folder.parent.name / folder.name)
        registry.assign(models, Channel.STABLE, folder.name, head=folder.parent.name)
    deadline = time.monotonic() + READY_TIMEOUT_S
    with platform.client() as client:
        while not all(_serves(worker, len(published)) for worker in client.registry().workers):
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture
def verso(platform: Platform) -> Iterator[Client]:
    """A client of the shared platform."""
    with platform.client(patience_s=60.0) as client:
        yield client


@pytest.fixture
def collection(verso: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A collection of the test's own, deleted after it."""
    name = f"t{abs(hash(request.node.nodeid)):x}"[:24]
    verso.create_collection(name)
    yield name
    verso.delete_collection(name)


@pytest.fixture(scope="session")
def lines() -> Callable[[int], list[Document]]:
    """Make log lines that differ, with metadata and times to filter on."""

    def make(count: int) -> list[Document]:
        return [
            Document(
                f"2026-11-21T12:00:{n % 60:02d}Z host-{n % 7} sshd[{1000 + n}]: session {n} "
                f"opened for user u{n * 7919 % 1000}",
                id=f"line/{n}",
                metadata={"host": f"host-{n % 7}", "even": n % 2 == 0},
                time=1_795_262_400.0 + n,
            )
            for n in range(count)
        ]

    return make


@pytest.fixture
def http(platform: Platform) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=platform.url, timeout=90.0) as made:
        yield made
