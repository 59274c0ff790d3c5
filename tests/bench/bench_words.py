"""What do the words of a hybrid collection take on the disk, a chunk?

Chunks of the shipped corpus, and with ``--data`` of public sets, are put into the embedded engine
without words, with them as sparse vectors under the options that the engine has, and with the index
of words beside it. Vectors are random: only their number matters. *before*: as written; *after*:
when the optimiser has built the engine's indexes, which happens above 50,000 chunks, and the merges
of words have ended. Blocks on the disk are counted, so small collections look larger.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import qdrant_edge as qdrant
import sheet
import texts

from verso_core import files, manifest
from verso_standalone.stack import find_artifact
from verso_worker.records.artifact import cutter
from verso_worker.records.points import TERMS, Terms
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.query import sparse
from verso_worker.stores.edge.words import WORDS_NAME, Words, Writers

_DIM = 384
_BATCH = 256
_SETS = {"CACM": "ir_cacm/corpus.jsonl.xz", "SciFact": "ir_scifact/corpus.jsonl.xz"}
_WORDS = qdrant.EdgeSparseVectorParams
_OPTIONS = {
    "no words": None,
    "sparse vectors": _WORDS(modifier=qdrant.Modifier.Idf),
    "float16": _WORDS(modifier=qdrant.Modifier.Idf, datatype=qdrant.VectorStorageDatatype.Float16),
    "uint8": _WORDS(modifier=qdrant.Modifier.Idf, datatype=qdrant.VectorStorageDatatype.Uint8),
    "uint8, on disk": _WORDS(
        modifier=qdrant.Modifier.Idf, datatype=qdrant.VectorStorageDatatype.Uint8, on_disk=True
    ),
}


def disk_bytes(terms: Sequence[Terms], words: qdrant.EdgeSparseVectorParams | None) -> list[float]:
    """Return the bytes a chunk of a collection before and after the optimiser."""
    config = qdrant.EdgeConfig(
        vectors=qdrant.EdgeVectorParams(
            size=_DIM,
            distance=qdrant.Distance.Euclid,
            datatype=qdrant.VectorStorageDatatype.Uint8,
        ),
        sparse_vectors=None if words is None else {TERMS: words},
        optimizers=qdrant.EdgeOptimizersConfig(indexing_threshold=1),
        wal_enabled=False,
    )
    random = np.random.default_rng(1)
    found = []
    with tempfile.TemporaryDirectory() as name:
        edge = qdrant.EdgeShard.create(name, config)
        for start in range(0, len(terms), _BATCH):
            points = []
            for number, own in enumerate(terms[start : start + _BATCH], start):
                values = random.integers(0, 255, _DIM).astype(np.float32)
                vector: Any = {"": values, TERMS: sparse(own)} if words and own else values
                points.append(qdrant.Point(uuid4(), vector, {"d": f"d{number}", "n": 0}))
            edge.update(qdrant.UpdateOperation.upsert_points(points))
        for step in (lambda: None, edge.optimize):
            step()
            edge.flush()
            found.append(files.used_bytes(Path(name)) / len(terms))
        edge.close()
    return found


def index_bytes(terms: Sequence[Terms]) -> list[float]:
    """Return the bytes a chunk of an index of words before and after the last merges."""
    with tempfile.TemporaryDirectory() as name:
        words = Words(Path(name) / WORDS_NAME, Writers())
        for start in range(0, len(terms), _BATCH):
            words.put({uuid4(): own for own in terms[start : start + _BATCH]})
            words.log()
            words.flushed()
        before = files.used_bytes(Path(name))
        words.end_merges()
        return [before / len(terms), files.used_bytes(Path(name)) / len(terms)]


def sets(folder: Path | None, limit: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yield each set's chunks."""
    cut = cutter(manifest.load(find_artifact())).cut
    yield "corpus", [chunk for text in texts.corpus() for chunk in cut(text)]
    if folder is None:
        return
    for name, path in _SETS.items():
        rows = texts.jsonl(path)(folder)
        yield name, [chunk for text in rows for chunk in cut(text.encode())][:limit]


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public sets")
    parser.add_argument("--limit", type=int, default=4000, help="chunks of a public set")
    arguments = parser.parse_args()
    paper = sheet.Sheet("words")
    rows = []
    for name, chunks in sets(arguments.data, arguments.limit):
        terms = Bm25().documents(chunks)
        size = sum(map(len, chunks)) / len(chunks)
        words = sum(len(own.ids) for own in terms) / len(chunks)
        plain: list[float] = []
        for option, setting in _OPTIONS.items():
            found = disk_bytes(terms, setting)
            plain = plain or found
            more = [own - bare for own, bare in zip(found, plain, strict=True)]
            rows.append([f"{name}: {option}", len(chunks), size, words, *found, *more])
        beside = index_bytes(terms)
        both = [bare + own for bare, own in zip(plain, beside, strict=True)]
        rows.append([f"{name}: index of words", len(chunks), size, words, *both, *beside])
    columns = ["", "chunks", "text", "words", "before", "after", "words before", "words after"]
    sheet.table("bytes a chunk on the disk", columns, rows)
    paper.finish({"columns": columns, "rows": rows})


if __name__ == "__main__":
    main()
