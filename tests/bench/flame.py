"""Where does each process spend its time while one-text embeds come in?

    python tests/bench/flame.py --seconds 20 --callers 64 --out flame      (`make flame`)

py-spy samples worker, engine, shard, keeper and gateway fifty times a second while callers send the
shipped corpus's texts one by one. Of the engine, which computes outside the interpreter, it takes
the threads that are not idle; of the others the one that holds the interpreter. Each process gets a
file of folded stacks, which speedscope.app and flamegraph.pl draw; the table shows in which package
the top of the stack was. What a library does in C stands at the line that called it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import sheet
import texts
from bench_serve import platform
from traffic import Route, send

from verso_standalone.stack import Stack, find_artifact, usable_cores

_LONGEST, _TEXTS, _WARM_S = 160, 256, 5
_WAITS = ("wait", "_wait", "_try_wait", "select", "poll", "accept", "_read", "serve_forever")
_PARTS = {
    "verso_worker": "worker",
    "verso_worker.engine": "engine",
    "verso_worker.stores.edge.process": "shard",
    "verso_keeper": "keeper",
    "verso_gateway": "gateway",
}


def parts_of(stack: Stack) -> dict[str, int]:
    """Return the process id of each part that is written in Python."""
    found = {}
    for process in stack.processes:
        top = psutil.Process(process.pid)
        for one in (top, *top.children(recursive=True)):
            words = one.cmdline()
            if "-m" in words and (part := _PARTS.get(words[words.index("-m") + 1])):
                found[part] = one.pid
    return found


def record(pids: Mapping[str, int], folder: Path, *, seconds: int) -> None:
    """Sample processes at the same time; writes ``{part}.folded``."""
    runs = [
        subprocess.Popen(
            ["py-spy", "record", "--pid", str(pid), "--duration", str(seconds), "--rate", "50",
             "--format", "raw", "--output", str(folder / f"{part}.folded"),
             *([] if part == "engine" else ["--gil"])],
            stdout=subprocess.DEVNULL,
        )
        for part, pid in pids.items()
    ]  # fmt: skip
    if any(run.wait() for run in runs):
        sys.exit("py-spy could not read every process; it may need to be root")


def tops(file: Path, *, count: int) -> tuple[int, list[tuple[str, float]]]:
    """Count the samples of a process; return the most frequent tops of its stack, by share."""
    counts: Counter[str] = Counter()
    for line in file.read_text(encoding="utf-8").splitlines():
        stack, _, number = line.rpartition(" ")
        name, _, where = stack.rpartition(";")[2].rpartition(" (")
        if name.rpartition(".")[2] in _WAITS:  # on a busy machine it may look as if it ran
            continue
        counts[where.partition("/")[0].partition(":")[0].removesuffix(".py")] += int(number)
    total = counts.total()
    return total, [(name, n / total) for name, n in counts.most_common(count)]


def load(stack: Stack, strings: Sequence[str], *, callers: int, over: threading.Event) -> int:
    """Send texts one by one until it is over; returns how many were answered."""
    route = Route(
        f"{stack.url}/v1/embed",
        body=lambda text: {"texts": [text]},
        dim=lambda body: len(json.loads(body)["results"][0]["embedding"]),
    )
    answered = 0
    while not over.is_set():
        answered += send(route, strings, concurrency=callers).answered
    return answered


def main() -> None:
    """Record the processes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, default=None)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--top", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("flame"))
    options = parser.parse_args()
    report = sheet.Sheet("flame")
    options.out.mkdir(parents=True, exist_ok=True)
    short = [text for text in texts.corpus() if len(text) <= _LONGEST]
    strings = [text.decode() for text in texts.chosen(short, _TEXTS)]
    over = threading.Event()
    with (
        platform(options.artifact or find_artifact(), threads=usable_cores()) as stack,
        ThreadPoolExecutor(1) as pool,
    ):
        answered = pool.submit(load, stack, strings, callers=options.callers, over=over)
        try:
            time.sleep(_WARM_S)
            pids = parts_of(stack)
            record(pids, options.out, seconds=options.seconds)
        finally:
            over.set()
        requests = answered.result()
    shown = {part: tops(options.out / f"{part}.folded", count=options.top) for part in pids}
    for part, (samples, rows) in shown.items():
        sheet.table(
            f"{part}: functions by their share of {samples} samples",
            ("top of the stack", "share"),
            [(name, f"{share:.0%}") for name, share in rows],
        )
    report.finish(
        {
            "callers": options.callers,
            "seconds": options.seconds,
            "answered": requests,
            "parts": {part: {"samples": n, "top": rows} for part, (n, rows) in shown.items()},
        }
    )


if __name__ == "__main__":
    main()
