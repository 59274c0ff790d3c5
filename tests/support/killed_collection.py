"""A collection of the embedded store whose process is killed while it changes points and words."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import numpy as np

from verso_core.jobs import Precision
from verso_worker.records.points import Terms, packed
from verso_worker.records.space import Settings, Space
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.collection import EdgeCollection

SPACE = Space(Precision.INT8, 16, 300.0)
PLACES = ("applied", "logged", "engine flushed", "acknowledged", "committed")
FIRST, LATER = range(1, 41), range(41, 61)
"""Numbers of points: of the first put, and of the one under which the process is killed."""


def made(numbers: range) -> dict[UUID, Terms]:
    terms = Bm25().documents([b"disk %d of host%d" % (n, n % 3) for n in numbers])
    return dict(zip((UUID(int=n << 64 | n) for n in numbers), terms, strict=True))


def put_and_die(folder: Path, place: str, *, commits: bool) -> None:
    """Put points, remove some, and end without another write at a place of the next change."""
    EdgeCollection.create(folder, Settings(SPACE, terms=True))
    collection = EdgeCollection(folder, index_above=10**6)

    def put(numbers: range) -> None:
        points = made(numbers)
        rows = np.ones((len(points), 16), np.int8)
        collection.put(
            collection.prepare(
                list(points),
                rows,
                payloads=[packed({"d": "d", "n": 0})] * len(points),
                terms=list(points.values()),
            )
        )

    put(FIRST)
    collection.flush()
    collection.remove(list(made(FIRST))[:5])
    collection.flush()
    if commits:
        collection.end_merges()
    put(LATER)
    collection.remove(list(made(FIRST))[5:10])
    with collection._shard.using() as edge:
        steps: list[Callable[[], None]] = [lambda: None, collection._lexical.log, edge.flush]
        steps += [collection._lexical.flushed, collection.end_merges]
        for step in steps[: PLACES.index(place) + 1]:
            step()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("--commits", action="store_true")
    given = parser.parse_args()
    put_and_die(given.folder, given.place, commits=given.commits)


if __name__ == "__main__":
    main()
