"""One flipped bit anywhere in what is stored of a document, and reading or scrubbing says so.

Real ledger, real vector engine, real (tiny) model. Each bit is flipped in a document of its own, so
that one scrub finds all of them or fails the test.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, counts, make_pipeline
from tests.wire import Item

from verso_core.errors import MetadataInvalid, PatchCorrupt, RecordCorrupt
from verso_core.jobs import Kind, Precision, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.record import Codec, Flag, bucket_of
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records.points import Point, packed
from verso_worker.records.space import Space
from verso_worker.stores.edge.client import EdgeVectors, shard_child

TEXT = b"open failed: no such file"
ABOUT = {"host": "node-7", "line": 41, "ratio": 0.25, "late": True}


class Folder:
    """A vector store that can be stopped while its files are altered."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "kept"
        self._socket = folder / "v.sock"

    def start(self) -> None:
        self._child = shard_child(self.files, socket_path=self._socket, floor_mib=1)
        self._child.start()
        self.vectors = EdgeVectors(self._socket)

    def stop(self) -> None:
        self.vectors.close()
        self._child.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def stores(model_store: ArtifactStore, folder: Folder, valkey_url: str) -> Iterator[Stores]:
    with closing(Ledger(connect(valkey_url))) as ledger:
        yield opened(model_store, folder, ledger)


def opened(model_store: ArtifactStore, folder: Folder, ledger: Ledger) -> Stores:
    pipeline = make_pipeline(model_store, folder.vectors, ledger, buckets=BUCKETS)
    pipeline.create_collection(CollectionParams(name="default", precision=Precision.FLOAT16))
    return Stores(ledger, pipeline, folder.vectors)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def fill(stores: Stores, names: list[str], text: bytes = TEXT) -> None:
    items = [Item({"id": name, "metadata": ABOUT, "time": 1.7e9}, text) for name in names]
    assert stores.do(Kind.INGEST, {"collection": "default"}, items)[0] is Status.SUCCEEDED
    for queue in stores.dispatcher.slots():
        stores.dispatcher.run_queue(queue)


def read(stores: Stores, names: list[str]) -> list[bytes | str]:
    pages = [names[at : at + 32] for at in range(0, len(names), 32)]
    return [told for page in pages for told in stores.read(*page)]


def whole(stores: Stores, name: str) -> bool:
    try:
        return not stores.stored(name).damaged
    except PatchCorrupt:
        return False


@pytest.mark.parametrize("text", [TEXT, random.Random(1).randbytes(2000)], ids=["short", "long"])
def test_every_bit_of_an_entry(stores: Stores, text: bytes) -> None:
    """Of a long entry each bit of its head, and some of the records in a key of their own."""
    fill(stores, ["one"], text)
    key = f"verso:docs:{stores.uid('default')}:"
    data = stores.redis.hget(key + str(bucket_of("one", buckets=BUCKETS)), "one")
    assert isinstance(data, bytes)
    assert bool(data[0] & Flag.LONG) is (text is not TEXT)
    bits = 8 * len(data)
    names = [f"d{bit}" for bit in range(bits)]
    fill(stores, names, text)
    first = {name: stores.stored(name) for name in names}
    for bit, name in enumerate(names):
        bucket = key + str(bucket_of(name, buckets=BUCKETS))
        stored = stores.redis.hget(bucket, name)
        assert isinstance(stored, bytes)
        stores.redis.hset(bucket, name, flipped(stored, bit))
    if text is not TEXT:
        rng, one = random.Random(2), stores.stored("one")
        stores.alter("one", lambda data: flipped(data, rng.randrange(8 * len(data))))
        names.append("one")
        first["one"] = one
    may = {text, RecordCorrupt.code, PatchCorrupt.code}
    assert set(read(stores, names)) <= may
    sound, repaired, damaged = counts(stores.scrub())
    assert (sound, repaired + damaged) == (int(text is TEXT), len(names))
    # What was mended was mended right: the entry is the one that was there before the bit flipped.
    assert counts(stores.scrub()) == (sound + repaired, 0, damaged)
    mended = [name for name in names if whole(stores, name)]
    assert len(mended) == repaired
    assert all(stores.stored(name) == first[name] for name in mended)
    assert set(read(stores, mended)) <= {text}


def test_every_bit_of_a_points_payload(stores: Stores) -> None:
    """Of its JSON, as far as what comes out is a payload that a store can hold at all."""
    fill(stores, ["d0000"])
    [point] = stores.points("d0000")
    [stored] = stores.vectors.get("default", [point]).values()
    told = stores.vectors.payloads("default", [point])[point]
    text = json.dumps(told)
    names = [f"d{bit:04}" for bit in range(8 * len(text))]
    fill(stores, names)
    altered = []
    for bit, name in enumerate(names):
        [point] = stores.points(name)
        own = told | {"d": name}
        try:
            wrong = json.loads(flipped(json.dumps(own).encode(), bit))
            packed(wrong)
        except (ValueError, MetadataInvalid, AttributeError):
            continue
        if wrong != own:  # a digit may be beyond what a number holds
            altered.append(Point(point, stored, wrong))
    assert len(altered) > len(names) // 4
    stores.vectors.put("default", altered)
    found = stores.scrub()
    # Its text is sound, and nothing tells what its metadata was: it is damaged, not mended.
    sound, repaired, damaged = counts(found)
    assert (sound, repaired + damaged) == (len(names) - len(altered), len(altered))
    assert set(read(stores, names)) == {TEXT}


def test_bits_of_vectors_in_the_engines_own_files(
    stores: Stores, folder: Folder, model_store: ArtifactStore
) -> None:
    """A byte codec's text is read, and its vector set right; a neural one is refused."""
    texts = {f"d{n}": b"%d: connection refused" % n for n in range(24)}
    stores.fill(texts)
    for name in list(texts)[:8]:
        code_neurally(stores, model_store, name, texts[name])
    neural = [name for name in texts if stores.stored(name).records[0].codec.reads_vector]
    assert counts(stores.scrub()) == (24, 0, 0)
    space = Space.of(stores.ledger.documents.collection("default"))
    rows = {}
    for name in texts:
        [point] = stores.points(name)
        rows[name] = space.raw(stores.vectors.get("default", [point])[point])
    folder.stop()
    rng = random.Random(3)
    places = {name: find(folder.files, row) for name, row in rows.items()}
    for name, (path, at) in places.items():
        with path.open("r+b") as file:
            bit = rng.randrange(8 * len(rows[name]))
            file.seek(at + bit // 8)
            file.write(flipped(rows[name], bit)[bit // 8 : bit // 8 + 1])
    folder.start()
    again = opened(model_store, folder, stores.ledger)
    told = dict(zip(texts, again.read(*texts), strict=True))
    assert {name for name, text in told.items() if text == RecordCorrupt.code} == set(neural)
    assert all(told[name] == texts[name] for name in texts if name not in neural)
    found = again.scrub()
    assert counts(found) == (0, 24 - len(neural), len(neural))
    assert set(found["ids"]) == set(neural)
    assert counts(again.scrub()) == (24 - len(neural), 0, len(neural))


def find(folder: Path, row: bytes) -> tuple[Path, int]:
    """Find a vector's bytes in the engine's files; they are there once."""
    found = [
        (path, at)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (at := path.read_bytes().find(row)) >= 0
    ]
    assert len(found) == 1, found
    return found[0]


def code_neurally(stores: Stores, model_store: ArtifactStore, name: str, text: bytes) -> None:
    """Put a neural record in the place of a document's own."""
    collection = stores.ledger.documents.collection("default")
    [point] = stores.points(name)
    stored = stores.vectors.get("default", [point])[point]
    [payload] = model_store.current().recorder.engine.code(
        [text], Space.of(collection).widen(stored[None])
    )
    assert payload is not None
    entry = stores.stored(name)
    [record] = entry.records
    new = replace(record, codec=Codec.NEURAL, payload=payload)
    stores.alter(name, lambda _: replace(entry, records=(new,)).pack())
