"""Optimise one collection in a process of its own: ``python -m verso_worker.stores.edge.optimise``.

The store's process closes the folder, starts this one, waits, and opens the folder again. The
folder stays intact if either is killed: the engine writes new segments beside the old ones and then
swaps them. This process ends with its parent, and it inherits the parent's lock, so that no other
process can open the files before it has ended.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import qdrant_edge as qdrant

from verso_core.interpreter import end_at_once, lower_priority
from verso_core.jobs import IndexKind
from verso_worker.stores.edge.settings import ENGINE_NAME, SCHEMAS, engine_config, read_description

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Runner:
    """Starts the optimising process and waits for it.

    Args:
        lock: descriptor of the data folder's lock, which the process inherits.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._stopped = False

    def run(
        self, folder: Path, *, index_above: int, graph: bool, fields: Mapping[str, IndexKind]
    ) -> bool:
        """Optimise a collection that no process has open; False if that failed.

        After a failure the folder is unchanged.

        Args:
            folder: the collection's.
            index_above: index segments of more points than this.
            graph: build a graph, or only close segments.
            fields: payload fields to index, by path.
        """
        with self._guard:
            if self._stopped:
                return False
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "verso_worker.stores.edge.optimise"),
                    *("--folder", str(folder), "--index-above", str(index_above)),
                    *("--parent", str(os.getpid()), "--fields", json.dumps(fields)),
                    *(["--graph"] if graph else []),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[self._lock],
            )
        return self._process.wait() == 0

    def stop(self) -> None:
        """End a run under way and refuse further runs."""
        with self._guard:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


def main() -> None:
    """Optimise the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Index and vacuum one vector collection.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--index-above", type=int, required=True, help="points")
    parser.add_argument("--graph", action="store_true", help="build a graph over the vectors")
    parser.add_argument("--fields", type=json.loads, default={}, help="JSON: path to kind")
    parser.add_argument("--parent", type=int, required=True, help="process id")
    given = parser.parse_args()
    _die_with(given.parent)
    lower_priority(10)  # searches of other collections come first
    described = read_description(given.folder)
    config = engine_config(
        described.settings.space,
        sparse=described.settings.terms and described.sparse,
        index_above=given.index_above,
        graph=given.graph,
    )
    edge = qdrant.EdgeShard.load(str(given.folder / ENGINE_NAME), config)
    for path, kind in given.fields.items():
        edge.update(qdrant.UpdateOperation.create_field_index(path, SCHEMAS[IndexKind(kind)]))
    edge.optimize()
    edge.flush()
    edge.close()


def _die_with(parent: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    end_at_once()
    main()
