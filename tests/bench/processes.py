"""The platform's processes as on many machines, on one: for benches that read what each costs.

No supervisor stands between: a process that ends stays ended, and a bench that needs it fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from verso_standalone.models import adopt
from verso_standalone.valkey import Valkey, find_program, free_port

_CHILDREN = {"verso_worker.engine": "engine", "verso_worker.stores.edge.process": "shard"}
"""Modules that a worker runs as processes of their own, as benches name them."""
_LOOK_S = 0.25
_READY_S = 300.0


class Site:
    """So many gateways and workers, a keeper, and their ledger."""

    def __init__(
        self,
        folder: Path,
        *,
        artifact: Path,
        each: int,
        threads: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        adopt(artifact, folder / "models", pinned=True)
        store = folder / "valkey"
        store.mkdir()
        valkey = Valkey(find_program(), store, free_port(), secrets.token_hex(16))
        common = {
            "VERSO_REDIS_URL": valkey.url(0),
            "VERSO_BROKER_URL": valkey.url(1),
            "VERSO_MODELS": str(folder / "models"),
            "VERSO_THREADS": str(threads),
            "VERSO_SCRUB_SHARE": "0",
            "OMP_NUM_THREADS": "1",
            **(settings or {}),
        }
        self.folder = folder
        self.processes: dict[str, psutil.Process] = {}
        self.ports: dict[str, int] = {}
        self._start("valkey", valkey.argv(), {})
        await_true(valkey.answers, "valkey")
        for part in ("gateway", "worker"):
            for number in range(each):
                self._part(f"{part}-{number}", part, common)
        self._part("keeper", "keeper", common)
        for name in self.ports:
            await_true(partial(self._answers, name), name)

    def url(self, name: str) -> str:
        """Return the address of a process."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def total(self, part: str, series: str) -> float:
        """Add a series up over the processes of a part; ``series`` is a regular expression."""
        pages = [_fetched(self.url(name) + "/metrics") for name in self.ports if part in name]
        lines = [line for page in pages for line in (page or "").splitlines()]
        return sum(float(line.split()[-1]) for line in lines if re.match(series + " ", line))

    def spent(self) -> dict[str, float]:
        """Return the core seconds of each process so far; a worker's children are told apart."""
        found = {}
        for name, process in self.processes.items():
            found[name] = _cpu_s(process)
            for child in process.children(recursive=True):
                module = child.cmdline()[2]
                found[f"{name} {_CHILDREN.get(module, module)}"] = _cpu_s(child)
        return found

    def stop(self) -> None:
        """End everything."""
        for process in reversed(self.processes.values()):
            with contextlib.suppress(psutil.Error):
                process.terminate()
        _, left = psutil.wait_procs(list(self.processes.values()), timeout=30)
        for process in left:
            process.kill()

    def _answers(self, name: str) -> bool:
        path = "/readyz" if name.startswith("gateway") else "/metrics"
        return _fetched(self.url(name) + path) is not None

    def _part(self, name: str, part: str, common: Mapping[str, str]) -> None:
        self.ports[name] = port = free_port()
        own = {
            "VERSO_PORT": str(port),
            # the gateway serves its metrics on its own port
            "VERSO_METRICS_PORT": "0" if part == "gateway" else str(port),
            "VERSO_DATA": str(self.folder / name),
            "VERSO_WORKER_NAME": name,
        }
        self._start(name, [sys.executable, "-m", f"verso_{part}"], {**common, **own})

    def _start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **environment}
            )
        self.processes[name] = psutil.Process(started.pid)


@contextlib.contextmanager
def running(artifact: Path, each: int, **options: Any) -> Iterator[Site]:
    """Yield a site in a folder of its own, and end it; ``options`` as :class:`Site` has them."""
    with tempfile.TemporaryDirectory(prefix="verso-scale-", ignore_cleanup_errors=True) as folder:
        site = Site(Path(folder), artifact=artifact, each=each, **options)
        try:
            yield site
        finally:
            site.stop()


def await_true(true: Callable[[], bool], what: str) -> None:
    """Wait until something holds, or end the bench."""
    until = time.monotonic() + _READY_S
    while not true():
        if time.monotonic() > until:
            sys.exit(f"{what} did not get ready")
        time.sleep(_LOOK_S)


def _fetched(address: str) -> str | None:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own address
            page: str = answer.read().decode()
    except OSError:
        return None
    return page


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def own_s() -> float:
    """Return the core seconds of this process so far."""
    return _cpu_s(psutil.Process())


def machine_s() -> float:
    """Return the core seconds that the whole machine has worked so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
