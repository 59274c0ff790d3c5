"""A Valkey as the platform sets it up, for benches that need nothing else of the platform."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from verso_core.supervise import Process
from verso_standalone.valkey import Valkey, find_program, free_port


@contextmanager
def serving() -> Iterator[tuple[str, psutil.Process]]:
    """Start an empty ledger; return its address and its process."""
    with tempfile.TemporaryDirectory(prefix="verso-bench-") as name:
        valkey = Valkey(find_program(), Path(name), port=free_port(), password="bench")
        process = Process("valkey", valkey.argv(), log_path=Path(name) / "log", environment={})
        process.start()
        try:
            while not valkey.answers():
                time.sleep(0.05)
            yield valkey.url(0), psutil.Process(process.pid)
        finally:
            process.stop(grace_s=10)


def server_s(server: psutil.Process) -> float:
    """Return the core seconds that a process has taken so far."""
    times = server.cpu_times()
    return float(times.user + times.system)
