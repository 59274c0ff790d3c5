"""Does publishing models while serving fail a call, or make a worker grow?

The limit is the start of engines. Threads encode, code and read through a worker's artifact store
while artifacts of one space are published: every tenth is corrupt and refused, every tenth is
rolled back, the others take over. The bench counts the calls that failed and measures the resident
memory of this process and of its engines when only the one that serves is left.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from prometheus_client import CollectorRegistry

from studies.benches.serving.publishing import fate, run_and_print, variant
from verso_core import registry
from verso_core.registry import Channel
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.rollout import RegistryWatcher

TEXTS = [f"Jan 12 10:00:{n % 60:02d} host sshd[{n}]: session {n} opened".encode() for n in range(8)]


def run(root: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Publish so many artifacts under load."""
    models = root / "models"
    models.mkdir()
    model_store = ArtifactStore(root / "keep", root, threads=1, device="cpu", idle_s=0.2)
    watcher = RegistryWatcher(
        models, model_store, Metrics(CollectorRegistry()), publish=lambda _: None
    )
    memory: dict[str, dict[str, float]] = {}
    seconds: list[float] = []
    with closing(model_store):
        registry.assign(models, Channel.STABLE, variant(arguments.artifact, models, 0))
        watcher.open()
        load = Load(model_store, arguments.callers)
        refused = rolled_back = 0
        for number in range(1, arguments.publishes + 1):
            corrupt, back = fate(number)
            name = variant(arguments.artifact, models, number, spoil=corrupt)
            registry.assign(models, Channel.STABLE, name)
            started = time.monotonic()
            watcher.step()
            seconds.append(time.monotonic() - started)
            refused += bool(watcher.state()["artifact"]["refused"])
            if corrupt or back:
                registry.rollback(models)
                watcher.step()
                rolled_back += back
            wait_for_one_engine(model_store)
            if number in (5, arguments.publishes):
                memory[f"after_{number}"] = resident_mib()
            clean(models, root / "keep", watcher)
        load.end()
    first, last = memory["after_5"], memory[f"after_{arguments.publishes}"]
    return {
        "publishes": arguments.publishes,
        "refused": refused,
        "rolled_back": rolled_back,
        "calls": load.calls,
        "failed_calls": load.failed,
        "median_swap_s": sorted(seconds)[len(seconds) // 2],
        "worker_mib_after_5": first["worker"],
        "worker_mib_at_end": last["worker"],
        "engine_mib_after_5": first["engines"],
        "engine_mib_at_end": last["engines"],
        "growth_percent": 100 * (sum(last.values()) / sum(first.values()) - 1),
    }


class Load:
    """Threads that call the current engine until the end."""

    def __init__(self, model_store: ArtifactStore, callers: int) -> None:
        self._model_store = model_store
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.calls = 0
        self.failed = 0
        self._threads = [threading.Thread(target=self._call) for _ in range(callers)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End the threads."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        while not self._over.is_set():
            ok = self._once()
            with self._lock:
                self.calls += 3
                self.failed += not ok
            time.sleep(0.01)

    def _once(self) -> bool:
        try:
            engine = self._model_store.current().recorder.engine
            vectors = engine.encode(TEXTS).vectors
            payloads = [payload or b"" for payload in engine.code(TEXTS, vectors)]
            return engine.read(payloads, vectors) == TEXTS
        except Exception:  # noqa: BLE001 - counted, whatever it is
            return False


def wait_for_one_engine(model_store: ArtifactStore) -> None:
    """Wait until only the engine that serves is left."""
    while len(model_store.running()) > 1:
        time.sleep(0.1)
        model_store.tidy()


def clean(models: Path, keep: Path, watcher: RegistryWatcher) -> None:
    """Remove the folders of what is over, so that the bench needs little disk."""
    state = registry.read(models).artifact
    for folder in models.glob("v*"):
        if folder.name not in (state.stable, state.previous):
            shutil.rmtree(folder)
    stable = watcher.state()["artifact"]["stable"]
    for folder in keep.iterdir():
        if not folder.name.endswith(stable["codec"]):
            shutil.rmtree(folder)


def resident_mib() -> dict[str, float]:
    """Measure the resident memory of this process and of its children, MiB."""
    me = psutil.Process()
    engines = sum(child.memory_info().rss for child in me.children(recursive=True))
    return {"worker": me.memory_info().rss / 2**20, "engines": engines / 2**20}


if __name__ == "__main__":
    run_and_print("swap", run, title="Publishing while serving", publishes=50, callers=2)
