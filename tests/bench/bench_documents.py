"""What do all bytes kept of a document of 500 bytes or more come to, beside its text?

No encoder is needed: of a vector only its size counts. Texts of a set's last part are cut into
chunks and coded as a worker codes them, but for the decoder; *fitted* by tables fitted to the last
2 MiB of the first part, which is as much text as a fit uses; *smallest* under that codec policy
instead of ``balanced``. Ids of documents are the platform's own, of 20
characters, or numbers (``--ids``). Then everything is written into real stores:

- *entry*: entries in hashes of 64 in a Valkey server, by ``MEMORY USAGE``, keys included;
- *points*: a collection of the embedded store with so many chunks and vectors of random directions,
  by the blocks of its files, above those without a point, and by part: vectors, the index over
  them, words, and ids with all else. Words are those of the set's chunks.

Rows are settings of a collection: as shipped (hybrid, int4), the same with int8, and dense ones.
No document has metadata or a time, so points have no payload, in closed segments.
Fitted tables are kept once and counted apart.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import real_stores
import record_sets
import redis
import sheet

from verso_codecs.mixture import HISTORY_BYTES, MixtureTables
from verso_codecs.zstd import ZstdCodec
from verso_core import manifest
from verso_core.jobs import CodecPolicy, Precision
from verso_core.record import CHECKSUM_BYTES, VECTOR_HASH_BYTES, Codec, Entry, Record
from verso_gateway.bodies.ids import new_ids
from verso_standalone.stack import find_artifact
from verso_standalone.valkey import LOOPBACK, Valkey, find_program, free_port
from verso_worker.records import generation, policy
from verso_worker.records.artifact import MixtureCodec, NgramCodec, cutter, ngram_tables
from verso_worker.records.chunking import Cutter
from verso_worker.records.points import NO_TERMS, packed
from verso_worker.records.recorder import ByteCodec
from verso_worker.records.space import Settings, Space
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.collection import EdgeCollection
from verso_worker.stores.edge.lexical import Prepared
from verso_worker.stores.edge.optimise import Runner

SETS = ("documentation", "books", "squad paragraphs")
LEAST = 500
SHARE = 64  # entries of a bucket
PAGE = 256
KINDS = (
    ("hybrid, int4: as shipped", Precision.INT4, True),
    ("hybrid, int8", Precision.INT8, True),
    ("dense, int8", Precision.INT8, False),
    ("dense, int4", Precision.INT4, False),
)

IDS: dict[str, Callable[[], Iterator[str]]] = {
    "platform": new_ids,
    "numbers": lambda: map(str, itertools.count()),
}
"""Of documents whose sender gives none, and the shortest ones; the name of an entry is its id."""


def entries(
    texts: Sequence[Sequence[bytes]],
    codecs: dict[Codec, ByteCodec],
    how: CodecPolicy,
    names: Iterator[str],
) -> dict[str, bytes]:
    """Return the packed entries of texts that were cut into chunks, by the documents' names."""
    found = {}
    for name, chunks in zip(names, texts, strict=False):
        records = tuple(_record(chunk, codecs, how) for chunk in chunks)
        entry = Entry(1 << 20, sum(map(len, chunks)), records, located=True)
        found[name] = entry.pack()
    return found


def _record(chunk: bytes, codecs: dict[Codec, ByteCodec], how: CodecPolicy) -> Record:
    offers = [(Codec.RAW, chunk), *((name, own.encode(chunk)) for name, own in codecs.items())]
    [best, *_] = policy.ordered(offers, how, size_bytes=len(chunk))
    if best[0] is not Codec.RAW and codecs[best[0]].decode(best[1]) != chunk:
        raise AssertionError("a chunk did not come back")
    return Record(best[0], 0, bytes(VECTOR_HASH_BYTES), bytes(CHECKSUM_BYTES), best[1])


@functools.cache  # what no words are kept of takes the same for every set
def points(space: Space, worded: tuple[bytes, ...], *, count: int) -> dict[str, float]:
    """Return the bytes a chunk on the disk of a collection with so many chunks, by their part.

    With ``worded`` it is hybrid, and its chunks have the words of these.
    """
    terms, hybrid = Bm25().documents(worded), bool(worded)
    with tempfile.TemporaryDirectory(prefix="verso-documents-") as name:
        folder = Path(name) / "points"
        EdgeCollection.create(folder, Settings(space, terms=hybrid))
        collection = EdgeCollection(folder, index_above=10 * count)
        collection.put(Prepared([], {}))  # makes the engine's files
        empty = _parts(collection)
        rng = np.random.default_rng(1)
        for start in range(0, count, PAGE):
            size = min(PAGE, count - start)
            rows = rng.normal(size=(size, space.dim)).astype(np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            numbers = range(start, start + size)
            collection.put(
                collection.prepare(
                    [uuid.UUID(bytes=rng.bytes(16)) for _ in numbers],
                    space.round(rows),
                    payloads=[packed({}) for _ in numbers],
                    terms=[terms[n % len(terms)] if hybrid else NO_TERMS for n in numbers],
                )
            )
            collection.flush()  # as the store does after each call: words gather as there
        lock = os.open(Path(name) / "lock", os.O_CREAT | os.O_RDWR)
        if collection.needs_optimising() and not collection.optimise(Runner(lock)):
            raise AssertionError("the optimiser failed")
        os.close(lock)
        collection.end_merges()
        found = _parts(collection)
        collection.close()
        return {part: (size - empty[part]) / count for part, size in found.items()}


def _parts(collection: EdgeCollection) -> dict[str, int]:
    """Return the bytes of a collection's files by their part."""
    disk = collection.sizes().disk
    assert disk is not None
    return asdict(disk)


def measure(
    found: record_sets.RecordSet,
    ledger: redis.Redis,
    *,
    folder: Path,
    count: int,
    kinds: Sequence[str],
    names: Callable[[], Iterator[str]],
) -> Iterator[dict[str, Any]]:
    """Yield a row for each kind of collection and codec."""
    artifact = manifest.load(folder)
    general = ngram_tables(artifact)
    texts = list(_cut(found.test, cutter(artifact)))
    chunks = [chunk for text in texts for chunk in text]
    raw = sum(map(len, chunks)) / len(chunks)
    first = [chunk for text in _cut(found.fit, cutter(artifact)) for chunk in text]
    tables = MixtureTables.fit(first, general).rounded(generation.STEPS[0])
    plain: dict[Codec, ByteCodec] = {
        Codec.ZSTD: ZstdCodec(artifact.data["zstd.dict"]),
        Codec.NGRAM: NgramCodec(general),
    }
    fitted = plain | {Codec.MIXTURE: MixtureCodec(tables)}
    ways = {
        "as shipped": (plain, CodecPolicy.BALANCED),
        "fitted": (fitted, CodecPolicy.BALANCED),
        "fitted, smallest": (fitted, CodecPolicy.SMALLEST),
    }
    entry = {
        way: real_stores.taken(ledger, entries(texts, *chosen, names()), SHARE) / len(chunks)
        for way, chosen in ways.items()
    }
    settings = artifact.manifest.space
    for kind, precision, hybrid in (one for one in KINDS if one[0] in kinds):
        space = Space(precision, settings.dim, settings.int8_scale)
        named = () if not hybrid else tuple(chunks)
        parts = points(space, named, count=count)
        disk = sum(parts.values())
        for way, size in entry.items():
            yield {
                "set": found.name,
                "collection": kind,
                "codec": way,
                "chunks": len(chunks),
                "raw": raw,
                "entry": size,
                "points": disk,
                "parts": parts,
                "kept": size + disk,
                "share": (size + disk) / raw,
                "tables": len(tables.pack()) if way != "as shipped" else 0,
            }


def _cut(texts: Sequence[bytes], cut: Cutter) -> Iterator[list[bytes]]:
    for text in texts:
        if len(text) >= LEAST:
            yield cut.cut(text)


@contextlib.contextmanager
def _server() -> Iterator[redis.Redis]:
    """Run a Valkey server with the settings of a platform."""
    with tempfile.TemporaryDirectory(prefix="verso-valkey-") as folder:
        server = Valkey(find_program(), Path(folder), free_port(), "bench")
        process = subprocess.Popen(server.argv(), stdout=subprocess.DEVNULL)
        while not server.answers():
            time.sleep(0.1)
        yield redis.Redis(host=LOOPBACK, port=server.port, password=server.password)
        process.terminate()
        process.wait()


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="names of sets")
    names = [name for name, *_ in KINDS]
    parser.add_argument("--kinds", nargs="+", default=names, choices=names, help="collections")
    parser.add_argument("--chunks", type=int, default=20_000, help="in the vector store")
    parser.add_argument("--ids", choices=IDS, default="platform", help="of the documents")
    arguments = parser.parse_args()
    paper = sheet.Sheet("documents")
    folder = (arguments.artifact or find_artifact()).resolve()
    with _server() as ledger:
        rows = [
            row
            for found in record_sets.record_sets(
                arguments.data, arguments.sets, fit_bytes=HISTORY_BYTES
            )
            for row in measure(
                found,
                ledger,
                folder=folder,
                count=arguments.chunks,
                kinds=arguments.kinds,
                names=IDS[arguments.ids],
            )
        ]
    columns = ["set", "collection", "codec", "chunks", "raw", "entry", "points", "kept", "share"]
    sheet.table("bytes a chunk", columns, [[row[c] for c in columns] for row in rows])
    shipped = [row for row in rows if row["codec"] == "as shipped"]
    named = list(shipped[0]["parts"])
    sheet.table(
        "points by part",
        ("set", "collection", *named),
        [[row["set"], row["collection"], *(row["parts"][p] for p in named)] for row in shipped],
    )
    paper.finish({"artifact": manifest.load(folder).id, "ids": arguments.ids, "sets": rows})


if __name__ == "__main__":
    main()
