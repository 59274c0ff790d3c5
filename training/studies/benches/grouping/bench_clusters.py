"""What does it take to group more records than can be compared in pairs, and are they the groups?

The limit is the vector store, which returns the neighbours of each distinct vector beside searches.
Real vectors of texts go into the embedded store as int8: those that `make evaluate` keeps in its
working folder (.npy, float32). The bench reports the processor seconds of store and worker, the
worker's memory, the time of a search during grouping and without it, and how the groups agree with
those of all pairs (adjusted Rand index; 1 is the same). DBSCAN is compared at full size, HDBSCAN on
the first ``--pairs`` vectors, since all pairs take minutes.

    bench_clusters.py --vectors work/vectors --records 20000 --records 50000
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psutil
import sheet
from sklearn.metrics import adjusted_rand_score

from verso_core import manifest
from verso_core.jobs import Precision
from verso_standalone.stack import find_artifact
from verso_worker.records.points import BATCH, Point
from verso_worker.records.space import Space, Stored, Vector
from verso_worker.rules.grouping import by_graph, by_pairs
from verso_worker.rules.grouping.neighbours import NEAREST, Nodes, graph_of, unit_of
from verso_worker.rules.ports.outcome import no_progress
from verso_worker.stores.edge.client import EdgeVectors, shard_child

_NAME = "bench"
_LOOK_S = 0.2


def read(folder: Path, space: Space) -> Stored:
    """Read all vectors of a folder, rounded and in an order that mixes the sets."""
    rows = np.concatenate([np.load(path) for path in sorted(folder.glob("*.npy"))])
    stored = space.round(rows)
    return stored[np.random.default_rng(0).permutation(len(stored))]


@contextmanager
def filled(folder: Path, space: Space, stored: Stored) -> Iterator[tuple[EdgeVectors, int]]:
    """Yield a store that holds vectors, the n-th as point n, and its process."""
    child = shard_child(folder / "vectors", socket_path=folder / "v.sock")
    child.start()
    try:
        with closing(EdgeVectors(folder / "v.sock")) as vectors:
            vectors.create(
                _NAME, dim=space.dim, precision=space.precision, int8_scale=space.int8_scale
            )
            for start in range(0, len(stored), BATCH):
                batch = stored[start : start + BATCH]
                points = [Point(UUID(int=start + n), row, {}) for n, row in enumerate(batch)]
                vectors.put(_NAME, points)
            [process] = [
                one
                for one in psutil.Process().children(recursive=True)
                if "verso_worker.stores.edge.process" in one.cmdline()
            ]
            yield vectors, process.pid
    finally:
        child.stop()


@contextmanager
def searched(vectors: EdgeVectors, queries: Vector) -> Iterator[list[float]]:
    """Search from time to time in a thread; the list fills with milliseconds."""
    spent: list[float] = []
    over = threading.Event()

    def look() -> None:
        for query in queries:
            start = time.perf_counter()
            vectors.search(_NAME, query, limit=10, where=None)
            spent.append(1e3 * (time.perf_counter() - start))
            if over.wait(_LOOK_S):
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield spent
    finally:
        over.set()
        thread.join()


def cpu_s(pid: int | None = None) -> float:
    """Return the processor seconds that a process has taken; None is this one."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Do something and count this process's processor seconds."""
    start = cpu_s()
    return work(), cpu_s() - start


def measure(space: Space, stored: Stored, *, eps: float, pairs: int) -> dict[str, Any]:
    """Group vectors both ways."""
    unit = unit_of(space.widen(stored))
    with tempfile.TemporaryDirectory() as folder, filled(Path(folder), space, stored) as opened:
        vectors, pid = opened

        def ask(rows: Stored, limit: int) -> list[list[int]]:
            found = vectors.neighbours(_NAME, rows, limit=limit)
            return [[point.int for point in near] for near in found]

        queries = np.random.default_rng(1).permutation(unit)
        with searched(vectors, queries[:50]) as quiet:
            time.sleep(50 * _LOOK_S)
        nodes = Nodes.of(space, stored)
        store_s, own_s, began = cpu_s(pid), cpu_s(), time.perf_counter()
        with searched(vectors, queries) as beside:
            graph = graph_of(nodes, ask, nearest=NEAREST, on_progress=no_progress)
        wall_s = time.perf_counter() - began
        store_s, own_s = cpu_s(pid) - store_s, cpu_s() - own_s
    density, density_s = timed(
        lambda: by_graph.by_density(graph, eps=eps, min_samples=2, on_progress=no_progress)
    )
    _, stability_s = timed(
        lambda: by_graph.by_stability(graph, min_size=5, min_samples=5, on_progress=no_progress)
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    wanted, pairs_s = timed(lambda: by_pairs.by_density(unit, eps=eps, min_samples=2))
    return {
        "records": len(stored),
        "distinct": len(nodes.weight),
        "edges": graph.edges.nnz,
        "graph_wall_s": wall_s,
        "store_cpu_s": store_s,
        "graph_cpu_s": own_s,
        "dbscan_cpu_s": density_s,
        "hdbscan_cpu_s": stability_s,
        "worker_bytes": memory,
        "search_quiet_ms": percentiles(quiet),
        "search_beside_ms": percentiles(beside),
        "dbscan_pairs_cpu_s": pairs_s,
        "dbscan_groups": int(wanted.max()) + 1,
        "dbscan_rand": float(adjusted_rand_score(wanted, density)),
        "hdbscan": stability(space, stored[:pairs]),
    }


def stability(space: Space, stored: Stored) -> dict[str, Any]:
    """Group a part by HDBSCAN both ways, the graph's neighbours being exact."""
    unit = unit_of(space.widen(stored))

    def ask(rows: Stored, limit: int) -> list[list[int]]:
        near = np.argsort(-(unit_of(space.widen(rows)) @ unit.T), axis=1)
        return [[int(n) for n in row[:limit]] for row in near]

    graph = graph_of(Nodes.of(space, stored), ask, nearest=NEAREST, on_progress=no_progress)
    found, graph_s = timed(
        lambda: by_graph.by_stability(graph, min_size=5, min_samples=5, on_progress=no_progress)
    )
    wanted, pairs_s = timed(lambda: by_pairs.by_stability(unit, min_size=5, min_samples=5))
    return {
        "records": len(stored),
        "graph_cpu_s": graph_s,
        "pairs_cpu_s": pairs_s,
        "groups": int(wanted.max()) + 1,
        "rand": float(adjusted_rand_score(wanted, found)),
    }


def percentiles(spent: Sequence[float]) -> dict[str, float]:
    """Return the middle and the 95th percentile."""
    return {f"p{p}": float(np.percentile(spent, p)) for p in (50, 95)}


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=Path, required=True, help="folder of .npy files")
    parser.add_argument("--records", type=int, action="append", required=True)
    parser.add_argument("--eps", type=float, default=0.15)
    parser.add_argument("--pairs", type=int, default=3000, help="vectors for HDBSCAN of all pairs")
    arguments = parser.parse_args()
    paper = sheet.Sheet("clusters")
    described = manifest.load(find_artifact()).manifest.space
    space = Space(Precision.INT8, described.dim, described.int8_scale)
    stored = read(arguments.vectors, space)
    rows = [
        measure(space, stored[:count], eps=arguments.eps, pairs=arguments.pairs)
        for count in arguments.records
    ]
    names = [name for name, value in rows[0].items() if not isinstance(value, dict)]
    sheet.table("grouping", names, [[row[name] for name in names] for row in rows])
    for row in rows:
        print({name: value for name, value in row.items() if isinstance(value, dict)})
    paper.finish({"eps": arguments.eps, "runs": rows})


if __name__ == "__main__":
    main()
