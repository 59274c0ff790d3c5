"""Is this tree faster than another one, and what does it add to the bare graph?

Two platforms run side by side, this source tree's and another's (``git worktree add OTHER REV``),
and the same texts go to one and the other in turn, in short rounds and in random order. Load of a
shared machine slows both alike: compare only the two rows of one run. With real time priority
(``chrt -f 10``) other work disturbs less; it disturbs the tenth percentile less than the median.

With one caller the graph is run in this process between the rounds, and the latency above it is
reported. CPU milliseconds a text are those of all processes of a platform. Where those of the bare
graph rise as well, the machine became slower: a virtual one does, by a quarter and for minutes.
Without ``--other`` this tree is compared with the bare graph alone. Bounded by computation, and by
the syncs of the ledger's file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import sheet
import texts
from bench_serve import platform
from rival_server import load_encoder
from traffic import Route, send

from verso_standalone.stack import find_artifact

_HERE = Path(__file__).resolve().parents[2]
_PACKAGES = (
    "shared", "services/gateway", "services/worker", "services/keeper", "services/standalone",
    "training",
)  # fmt: skip
_START_S = 300.0


@dataclass
class Side:
    """The platform of one tree, and the figures of its rounds."""

    name: str
    route: Route
    process: psutil.Process
    per_s: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    def ask(self, strings: Sequence[str], *, callers: int) -> None:
        """Send one round of requests."""
        before = self._cpu_s()
        traffic = send(self.route, strings, concurrency=callers)
        self.cpu_s += self._cpu_s() - before
        self.per_s.append(traffic.per_s)
        self.latencies += traffic.latencies

    def _cpu_s(self) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in self.process.children(recursive=True))


def serve(folder: Path, url_file: Path, *, threads: int) -> None:
    """Run one side's platform until the file is removed."""
    with platform(folder, threads=threads) as stack:
        url_file.write_text(stack.url)
        while url_file.exists():
            time.sleep(0.2)


@contextmanager
def side(tree: Path, folder: Path, *, name: str, threads: int) -> Iterator[Side]:
    """Start a tree's platform."""
    with tempfile.TemporaryDirectory(prefix="verso-bench-") as scratch:
        file = Path(scratch) / "url"
        paths = [tree / part for part in _PACKAGES]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        # The tree's own copy of this file: modules are named differently from tree to tree.
        script = str(tree / "tests/bench" / Path(__file__).name)
        argv = [sys.executable, script, "--serve", str(file), "--artifact", str(folder)]
        process = subprocess.Popen([*argv, "--threads", str(threads)], env=environment)
        end = time.monotonic() + _START_S
        while not (file.exists() and (url := file.read_text())):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"expected a platform of {tree}, got none")
            time.sleep(0.2)
        route = Route(
            f"{url}/v1/embed",
            body=lambda text: {"texts": [text]},
            dim=lambda body: len(json.loads(body)["results"][0]["embedding"]),
        )
        try:
            yield Side(name, route, psutil.Process(process.pid))
        finally:
            file.unlink()
            process.wait()


def compare(sides: Sequence[Side], strings: Sequence[str], arguments: argparse.Namespace) -> None:
    """Send rounds in turn for each number of callers, and print the figures."""
    encoder = load_encoder(arguments.artifact, threads=arguments.threads)
    results = []
    for callers in arguments.callers:
        bare: list[float] = []
        bare_cpu_s = 0.0
        size = arguments.round if callers == 1 else max(4 * callers, arguments.round)
        for one in sides:
            one.ask(strings[:size], callers=callers)  # warm
            one.per_s, one.latencies, one.cpu_s = [], [], 0.0
        for number in range(arguments.rounds):
            first = number * size
            asked = [strings[(first + place) % len(strings)] for place in range(size)]
            for one in random.sample(list(sides), len(sides)):
                one.ask(asked, callers=callers)
            spent_s = time.process_time()
            for text in asked if callers == 1 else ():
                began = time.perf_counter()
                encoder.run(encoder.tokenise([text.encode()]))
                bare.append(time.perf_counter() - began)
            bare_cpu_s += time.process_time() - spent_s
        for one in sides:
            p50 = 1000 * statistics.median(one.latencies)
            p10 = 1000 * statistics.quantiles(one.latencies, n=10)[0]
            results.append(
                {
                    "tree": one.name,
                    "callers": callers,
                    "texts_per_s": statistics.median(one.per_s),
                    "ratio": statistics.median(
                        mine / others
                        for mine, others in zip(one.per_s, sides[0].per_s, strict=True)
                    ),
                    "p10_ms": p10,
                    "p50_ms": p50,
                    "added_p10_ms": p10 - 1000 * statistics.quantiles(bare, n=10)[0]
                    if bare
                    else None,
                    "added_ms": p50 - 1000 * statistics.median(bare) if bare else None,
                    "cpu_ms": 1000 * one.cpu_s / (size * arguments.rounds),
                    "bare_cpu_ms": 1000 * bare_cpu_s / len(bare) if bare else None,
                }
            )
    columns = list(results[0])
    sheet.table(
        "two trees, measured in alternation",
        columns,
        [[row[name] for name in columns] for row in results],
    )
    arguments.paper.finish({"rows": results})


def main() -> None:
    """Start both platforms, compare them and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--other", type=Path, help="root of the other source tree")
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--round", type=int, default=16, help="texts of a round, at least")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--longest", type=int, default=160, help="leave out longer texts, bytes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", type=Path, help="be one side, for the bench itself")
    arguments = parser.parse_args()
    arguments.artifact = arguments.artifact or find_artifact()
    if arguments.serve:
        serve(arguments.artifact, arguments.serve, threads=arguments.threads)
        return
    arguments.paper = sheet.Sheet("pair")
    found = [text for text in texts.corpus() if len(text) <= arguments.longest]
    strings = [text.decode() for text in texts.chosen(found, 384)]
    trees = [("this", _HERE)]
    if arguments.other is not None:
        trees.insert(0, ("other", arguments.other.resolve()))
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                side(tree, arguments.artifact, name=name, threads=arguments.threads)
            )
            for name, tree in trees
        ]
        compare(sides, strings, arguments)


if __name__ == "__main__":
    main()
