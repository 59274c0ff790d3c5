"""What does a start of the platform cost, and its end?

`verso up` on an empty folder until it is ready, a pause in which the first checks end, then
SIGTERM: core seconds of each process over its whole life, and seconds on the wall. ``--before``
starts another checkout's code in turn with this one's, in this environment: both in one run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import sheet

from verso_standalone.stack import find_artifact
from verso_standalone.valkey import free_port

_PARTS = {  # the first that a command line holds
    "verso_worker.engine": "engine",
    "verso_worker.stores.edge.process": "vector store",
    "verso_worker": "worker",
    "verso_gateway": "gateway",
    "verso_keeper": "keeper",
    "verso_training.service": "training service",
    "valkey-server": "ledger",
    "verso_standalone": "supervisor",
}
_PACKAGES = (
    *("shared", "training", "services/gateway", "services/worker", "services/keeper"),
    "services/standalone",
)
_PAUSE_S = 6.0
_COMPILED_S = 90.0  # an engine checks its codecs after it is ready, and compiles them then
_LOOK_S = 0.02
_READY_S = 300.0
Figures = dict[str, float]


def main() -> None:
    """Start, end, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    paper = sheet.Sheet("start")
    root = Path(__file__).parents[2]
    checkouts = {"before": options.before, "now": root} if options.before else {"now": root}
    artifact = (options.artifact or find_artifact(None)).resolve()
    found: dict[str, list[Figures]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as kernels:  # compiled by a first start that does not count
        for number in range(options.rounds + 1):
            for name, checkout in checkouts.items():
                pause_s = _PAUSE_S if number else _COMPILED_S
                figures = _once(checkout, artifact, kernels=Path(kernels), pause_s=pause_s)
                found[name] += [figures] if number else []
    medians = {name: _medians(rounds) for name, rounds in found.items()}
    _show(medians, rounds=options.rounds)
    paper.finish({"artifact": artifact.name, "rounds": options.rounds, **medians})


def _show(medians: dict[str, Figures], *, rounds: int) -> None:
    rows = [
        [row, *(f"{figures.get(row, 0):.2f}" for figures in medians.values())]
        for row in medians["now"]
    ]
    sheet.table(f"seconds, the median of {rounds} starts", ["", *medians], rows)


def _medians(rounds: Sequence[Figures]) -> Figures:
    return {row: statistics.median(one.get(row, 0.0) for one in rounds) for row in rounds[0]}


def _once(checkout: Path, artifact: Path, *, kernels: Path, pause_s: float) -> Figures:
    """Start and end a platform once."""
    with tempfile.TemporaryDirectory() as folder:
        began, spent_before = time.monotonic(), _children_s()
        with _up(checkout, artifact, Path(folder), kernels=kernels) as process:
            ready_s = time.monotonic() - began
            time.sleep(pause_s)
            parts = psutil.Process(process.pid).children(recursive=True)
            named = {one: _part(one) for one in (*parts, psutil.Process(process.pid))}
            began = time.monotonic()
            process.terminate()
            spent: dict[psutil.Process, float] = {}
            while process.poll() is None:
                _look(named, spent)
                time.sleep(_LOOK_S)
            end_s = time.monotonic() - began
        whole_s = _children_s() - spent_before
    by_part: Figures = defaultdict(float)
    for one, seconds in spent.items():
        by_part[named[one]] += seconds
    cores = {part: by_part[part] for part in _PARTS.values()}
    wall = {"ready after": ready_s, "ended after": end_s}
    return {**cores, "all, of a core": whole_s, **wall}


def _children_s() -> float:
    """Return the core seconds of all processes that ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _look(named: dict[psutil.Process, str], spent: dict[psutil.Process, float]) -> None:
    """Note what each process has spent so far: its last look is the last 20 ms before its end."""
    for one in named:
        with contextlib.suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE:
                times = one.cpu_times()
                spent[one] = times.user + times.system


def _part(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    return next((part for name, part in _PARTS.items() if name in command), "supervisor")


@contextlib.contextmanager
def _up(
    checkout: Path, artifact: Path, folder: Path, *, kernels: Path
) -> Iterator[subprocess.Popen[bytes]]:
    port = free_port()
    argv = [sys.executable, "-m", "verso_standalone", "up", "--data", str(folder / "data")]
    argv += ["--artifact", str(artifact), "--port", str(port), "--threads", "1"]
    path = os.pathsep.join(str(checkout / package) for package in _PACKAGES)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    environment["NUMBA_CACHE_DIR"] = str(kernels)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    said = folder / "up.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, env=environment)
    try:
        until = time.monotonic() + _READY_S
        while b"ready at" not in said.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"it did not start:\n{said.read_text()}")
            time.sleep(_LOOK_S)
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
