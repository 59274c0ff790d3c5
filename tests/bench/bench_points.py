"""How many bytes does a chunk take in the embedded vector store, and where?

Limited by the disk. The engine's files are sparse, so bytes are those of their blocks, above what
they are without a point. Chunks are those of the shipped corpus with vectors of random directions,
which take what any take; each is stored as a worker stores it: with *none*, as those of a dense
collection's documents without metadata or time are, with a document's id and the chunk's number, or
with ``time`` and ``metadata`` too. Each row is measured twice: *open*, as chunks lie after they
were written, and after the optimiser has run: *closed* without a graph, or with a *graph*.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import texts

from verso_core.jobs import Precision
from verso_worker.records.points import NO_TERMS, Disk, packed
from verso_worker.records.space import Settings, Space
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.collection import EdgeCollection
from verso_worker.stores.edge.lexical import Prepared
from verso_worker.stores.edge.optimise import Runner

DIM = 384
SCALE = 600.0
PAGE = 256
PAYLOADS = ("none", "bare", "time", "time, metadata")


def measure(space: Space, *, payload: str, hybrid: bool, chunks: int, index: bool) -> Iterator[Any]:
    """Store chunks in a collection of its own; yield its rows."""
    with tempfile.TemporaryDirectory(prefix="verso-points-") as folder:
        place = Path(folder) / "points"
        EdgeCollection.create(place, Settings(space, terms=hybrid))
        collection = EdgeCollection(place, index_above=10 * chunks)
        collection.put(Prepared([], {}))  # makes the engine's files
        empty = sum(asdict(_disk(collection)).values())
        for start in range(0, chunks, PAGE):
            _put(collection, range(start, min(start + PAGE, chunks)), payload=payload)
        named = {"precision": space.precision.value, "payload": payload, "words": hybrid}
        yield named | {"state": "open"} | _row(collection, empty=empty, chunks=chunks)
        collection.close()
        lock = os.open(Path(folder) / "lock", os.O_CREAT | os.O_RDWR)
        above = 1 if index else 0
        if not Runner(lock).run(place, index_above=above, graph=index, fields={}):
            raise AssertionError("the optimiser failed")
        os.close(lock)
        collection = EdgeCollection(place, index_above=10 * chunks)
        state = "graph" if index else "closed"
        yield named | {"state": state} | _row(collection, empty=empty, chunks=chunks)
        collection.close()


def _put(collection: EdgeCollection, part: range, *, payload: str) -> None:
    rng = np.random.default_rng(part.start)
    rows = rng.normal(size=(len(part), DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    corpus = texts.corpus()
    own = [corpus[n % len(corpus)] for n in part]
    terms = Bm25().documents(own) if collection.settings.terms else [NO_TERMS] * len(part)
    payloads = []
    for n in part:
        given: dict[str, Any] = {}
        if payload != "none":
            given |= {"d": uuid.uuid5(uuid.NAMESPACE_OID, str(n)).hex, "n": 0}
        if "time" in payload:
            given["t"] = 1.7e9 + n / 7
        if "metadata" in payload:
            given["m"] = {"host": f"host-{n % 17}", "file": f"var/log/{n % 101}.log"}
        payloads.append(packed(given))
    stored = collection.space.round(rows)
    ids = [uuid.UUID(bytes=rng.bytes(16)) for _ in part]
    collection.put(collection.prepare(ids, stored, payloads=payloads, terms=terms))
    collection.flush()


def _disk(collection: EdgeCollection) -> Disk:
    found = collection.sizes().disk
    assert found is not None
    return found


def _row(collection: EdgeCollection, *, empty: int, chunks: int) -> dict[str, float]:
    parts = asdict(_disk(collection))
    whole = (sum(parts.values()) - empty) / chunks
    return {name: size / chunks for name, size in parts.items()} | {"all": whole}


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--precisions", nargs="+", type=Precision, default=list(Precision))
    parser.add_argument("--payloads", nargs="+", choices=PAYLOADS, default=list(PAYLOADS))
    parser.add_argument("--words", action="store_true", help="hybrid collections")
    parser.add_argument("--graph", action="store_true", help="an index over the vectors")
    given = parser.parse_args()
    paper = sheet.Sheet("points")
    rows = [
        row
        for precision in given.precisions
        for payload in given.payloads
        for row in measure(
            Space(precision, DIM, SCALE),
            payload=payload,
            hybrid=given.words,
            chunks=given.chunks,
            index=given.graph,
        )
    ]
    sheet.table(
        f"bytes a chunk on disk, {given.chunks:,} chunks",
        ["precision", "payload", "state", "vectors", "index", "words", "points", "all"],
        (
            [row[name] for name in ("precision", "payload", "state")]
            + [f"{row[name]:.1f}" for name in ("vectors", "index", "words", "points", "all")]
            for row in rows
        ),
    )
    paper.finish({"chunks": given.chunks, "rows": rows})


if __name__ == "__main__":
    main()
