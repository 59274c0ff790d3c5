"""How long do puts and filtered searches of a hybrid collection take in the embedded store?

One collection, in this process. Chunks of a public set are put in calls of each size, a call after
the other; each returns when it is on the disk. Then a collection of made-up chunks, in which every
one has the word ``disk``, is searched: without a filter, with one that 30 chunks pass, one that
half of them pass, and one that none passes; the fields are indexed or not.

*cpu*: of the process, ms a call. The disk's sync is most of a put. Limited to one process: no call
waits for another. An earlier version is measured by naming its folders in ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import sheet
import texts

from verso_core.jobs import Filter, IndexKind, Precision
from verso_worker.records.points import Terms, packed
from verso_worker.records.space import Settings, Space
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.collection import EdgeCollection

_SPACE = Space(Precision.INT8, 384, 300.0)
_SIZES = {1: 25, 64: 15, 256: 11, 1000: 12}
"""Points of a call, and calls of each."""

_FILTERS = {
    "none": None,
    "30 pass": Filter(metadata={"host": 13}),
    "half pass": Filter(metadata={"half": 1}),
    "none passes": Filter(metadata={"host": -1}),
}
_BATCH = 2000
_CALLS = 9
_rng = np.random.default_rng(1)


def _collection(folder: Path) -> EdgeCollection:
    EdgeCollection.create(folder, Settings(_SPACE, terms=True))
    return EdgeCollection(folder, index_above=10**9)


def _put(collection: EdgeCollection, terms: list[Terms], metadata: list[dict[str, Any]]) -> None:
    rows = _rng.integers(-127, 128, (len(terms), _SPACE.dim)).astype(np.int8)
    payloads = [packed({"d": uuid4().hex, "n": 0, "m": own}) for own in metadata]
    ids = [uuid4() for _ in terms]
    collection.put(collection.prepare(ids, rows, payloads=payloads, terms=terms))
    collection.flush()


def _timed(call: Callable[[], object], calls: int) -> list[float]:
    """Return the median and the longest time of calls, and the mean of their CPU time, ms."""
    took, cpu = [], time.process_time()
    for _ in range(calls):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    used = (time.process_time() - cpu) / calls
    return [1000 * value for value in (statistics.median(took), max(took), used)]


def puts(terms: list[Terms]) -> list[list[Any]]:
    """Return a row for each size of a call."""
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as name:
        collection = _collection(Path(name) / "c")
        _put(collection, terms[:1], [{}])
        at = count()
        for size, calls in _SIZES.items():

            def call(size: int = size) -> None:
                chosen = [terms[next(at) % len(terms)] for _ in range(size)]
                _put(collection, chosen, [{}] * size)

            rows.append([f"put of {size}", *_timed(call, calls)])
        query = Bm25().query(b"cells of the immune system")

        def after_a_put() -> None:
            _put(collection, terms[:1], [{}])
            collection.search(None, terms=query, limit=10, where=None)

        rows.append(["put of 1, and a search by words", *_timed(after_a_put, 15)])
        collection.close()
    return rows


def searches(chunks: int, *, indexed: bool) -> list[list[Any]]:
    """Return a row for each filter and kind of search."""
    rows: list[list[Any]] = []
    words = [f"w{n}" for n in range(3000)]
    query, terms = _rng.standard_normal(_SPACE.dim).astype(np.float32), Bm25().query(b"disk w17 w5")
    with tempfile.TemporaryDirectory() as name:
        collection = _collection(Path(name) / "c")
        if indexed:
            collection.index({"host": IndexKind.NUMBER, "half": IndexKind.NUMBER})
        for start in range(0, chunks, _BATCH):
            own = [("disk " + " ".join(_rng.choice(words, 20))).encode() for _ in range(_BATCH)]
            metadata = [
                {"host": n % (chunks // 30), "half": n % 2} for n in range(start, start + _BATCH)
            ]
            _put(collection, Bm25().documents(own), metadata)
        for label, where in _FILTERS.items():
            for kind, vector in (("words", None), ("hybrid", query)):

                def call(where: Filter | None = where, vector: Any = vector) -> None:
                    collection.search(vector, terms=terms, limit=10, where=where)

                call()
                title = f"{kind}, filter: {label}{', indexed' if indexed else ''}"
                rows.append([title, *_timed(call, _CALLS)])
        collection.close()
    return rows


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of public sets")
    parser.add_argument("--chunks", type=int, default=30_000, help="of the searched collection")
    arguments = parser.parse_args()
    paper = sheet.Sheet("word-store")
    found = texts.jsonl("ir_scifact/corpus.jsonl.xz")(arguments.data)
    rows = puts(Bm25().documents([str(text)[:900].encode() for text in found]))
    for indexed in (False, True):
        rows += searches(arguments.chunks, indexed=indexed)
    columns = ["", "median ms", "longest ms", "cpu ms"]
    sheet.table("one hybrid collection", columns, rows)
    paper.finish({"columns": columns, "rows": rows})


if __name__ == "__main__":
    main()
