"""A collection's codec fitted to its texts, over real stores: tried, proved, withdrawn, killed."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.verso_worker.worker_parts import (
    ARTIFACT,
    BUCKETS,
    Stores,
    make_pipeline,
)
from tests.wire import Item

from verso_core.crc import flipped
from verso_core.errors import Cancelled, EngineUnavailable
from verso_core.jobs import Collection, Kind, Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.fitting import PROVED, GenerationStage
from verso_core.record import Codec
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.fitter import FitProcess
from verso_worker.models.tables import TableCache
from verso_worker.records.outputs import Wanted
from verso_worker.stores.edge.client import EdgeVectors

Served = tuple[ArtifactStore, list[Ledger]]


def lines(first: int, count: int) -> dict[str, bytes]:
    """Lines of one program; their ids are numbered as those of a file are."""
    return {
        f"log:{number}": b"session %d opened for user root from 10.0.%d.%d port %d"
        % (number, number % 4, number * 7 % 250, 1024 + number * 7919 % 50000)
        for number in range(first, first + count)
    }


class Fits(Stores):
    """A dispatcher over a model store that holds fitted tables."""

    def fit(self, *, number: int | None, **item: Any) -> dict[str, Any]:
        status, [result] = self.do(
            Kind.FIT,
            {"collection": "default", "number": number},
            [Item({"chunks": 10_000} | item)],
            queue=Queue.FIT,
        )
        assert status is Status.SUCCEEDED
        return result.items[0]

    @property
    def collection(self) -> Collection:
        return self.ledger.documents.collection("default")

    def reads(self, texts: dict[str, bytes]) -> bool:
        """Whether all texts read back as they are."""
        names = list(texts)
        parts = [names[at : at + 64] for at in range(0, len(names), 64)]
        return [one for part in parts for one in self.read(*part)] == list(texts.values())

    def stages(self) -> list[GenerationStage]:
        return [one.stage for one in self.collection.fitting.generations]

    def named(self, *documents: str) -> set[str]:
        """Return what the records of documents name."""
        names = self.collection.artifacts
        entries = map(self.stored, documents)
        return {names[record.slot] for entry in entries for record in entry.records}

    def prove(self, first: int) -> int:
        """Take lines in, slice by slice, until the canary serves; return the next line's number."""
        for number in range(first, first + 64 * PROVED, 64):
            self.fill(lines(number, 64))
            if GenerationStage.SERVING in self.stages():
                return number + 64
        raise AssertionError(self.stages())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The tiny artifact with fitted tables, from the ledger that is last in the list."""
    folder = tmp_path_factory.mktemp("served")
    ledgers: list[Ledger] = []

    def load(name: str) -> bytes | None:
        return ledgers[-1].generations.tables(name)

    tables = TableCache(load, limit_bytes=64 << 20)
    store = ArtifactStore(folder / "artifacts", folder, threads=1, device="cpu", tables=tables)
    with closing(store):
        store.open(ARTIFACT)
        yield store, ledgers


@pytest.fixture
def fits(served: Served, vectors: EdgeVectors, valkey_url: str) -> Iterator[Fits]:
    store, ledgers = served
    with closing(Ledger(connect(valkey_url))) as ledger:
        ledgers.append(ledger)
        pipeline = make_pipeline(store, vectors, ledger, buckets=BUCKETS)
        pipeline.create_collection(CollectionParams(name="default"))
        yield Fits(ledger, pipeline, vectors)


def test_tables_are_tried_proved_and_serve_and_all_records_are_read(fits: Fits) -> None:
    texts = lines(0, 224)
    fits.fill(texts)
    before = fits.ledger.documents.holdings("default")
    found = fits.fit(number=0)
    generation = found["generation"]
    assert found["after"] < 0.5 * found["before"]
    assert fits.stages() == [GenerationStage.CANARY]
    assert fits.ledger.generations.tables(generation) is not None
    after = fits.prove(224)
    assert fits.stages() == [GenerationStage.SERVING]
    fits.fill(lines(after, 64))
    assert fits.named(*lines(after, 64)) == {generation}
    # What was written before names the artifact, and both are read.
    assert fits.named(*texts) == {generation.partition(".")[0]}
    everything = lines(0, after + 64)
    assert fits.reads(everything)
    held = fits.ledger.documents.holdings("default")
    assert held.slots[fits.collection.artifacts.index(generation)] >= 64
    by_mixture = held.codecs[Codec.MIXTURE]
    mean = sum(share.size_bytes for share in before.codecs.values()) / before.chunks
    assert by_mixture.size_bytes / by_mixture.records < 0.5 * mean
    assert fits.scrub()["sound"] == len(everything)


def test_a_fit_of_another_number_does_nothing(fits: Fits) -> None:
    fits.fill(lines(0, 224))
    assert not fits.fit(number=3).get("generation")
    assert fits.collection.fitting.number == 0


def test_a_fit_by_hand_needs_no_number_and_counts_the_chunks(fits: Fits) -> None:
    fits.fill(lines(0, 224))
    found = fits.fit(number=None, chunks=0)
    assert found["chunks"] == fits.collection.fitting.chunks == 224
    assert found["after"] < found["before"]
    fits.do(Kind.COLLECTION_CHANGE, {"name": "default", "codec_policy": "fast"}, [Item({})])
    status, _ = fits.do(Kind.FIT, {"collection": "default"}, [Item({"chunks": 0})], queue=Queue.FIT)
    assert status is Status.FAILED


def test_a_fit_that_does_not_pay_is_counted_and_keeps_nothing(fits: Fits) -> None:
    fits.fill(lines(0, 224))
    assert fits.fit(number=0, chunks=1)["generation"] is None
    assert fits.collection.fitting.number == 1
    assert not fits.collection.fitting.generations
    assert not list(fits.redis.scan_iter(f"{key('tables', '')}*"))


def test_damaged_tables_are_found_withdrawn_and_cost_no_text(fits: Fits) -> None:
    """Their texts are read again once the tables are whole: nothing was stored in their place."""
    fits.fill(lines(0, 224))
    generation = fits.fit(number=0)["generation"]
    after = fits.prove(224)
    [coded, *_] = (
        name
        for name in lines(after - 64, 64)
        if fits.stored(name).records[0].codec is Codec.MIXTURE
    )
    kept = fits.ledger.generations.tables(generation)
    assert kept is not None
    damaged = bytearray(kept)
    damaged[len(damaged) // 2] ^= 3
    fits.redis.set(key("tables", generation), bytes(damaged))
    _forget(fits)
    assert fits.read(coded) == ["record_corrupt"]
    # The next slice that would be written with them finds the damage.
    more = lines(after, 64)
    fits.fill(more)
    assert fits.stages() == [GenerationStage.WITHDRAWN]
    assert fits.named(*more) == {generation.partition(".")[0]}
    assert fits.reads(more)
    fits.redis.set(key("tables", generation), kept)
    assert fits.read(coded) == [lines(after - 64, 64)[coded]]


def test_a_flipped_bit_of_tables_harms_no_text_and_the_scrub_corrects_it(fits: Fits) -> None:
    texts = lines(0, 224)
    fits.fill(texts)
    generation = fits.fit(number=0)["generation"]
    after = fits.prove(224)
    kept = fits.ledger.generations.tables(generation)
    assert kept is not None
    fits.redis.set(key("tables", generation), flipped(kept, 4 * len(kept) + 5))
    _forget(fits)
    assert fits.reads(lines(0, after))
    found = fits.scrub()
    assert (found["repaired"], found["damaged"]) == (1, 0)
    assert fits.ledger.generations.tables(generation) == kept
    assert fits.scrub()["repaired"] == 0
    assert fits.stages() == [GenerationStage.SERVING]


def test_a_record_that_does_not_read_back_withdraws_its_tables(fits: Fits) -> None:
    fits.fill(lines(0, 224))
    generation = fits.fit(number=0)["generation"]
    for number in range(224, 224 + 64 * 64, 64):
        texts = lines(number, 64)
        assert fits.ingest(texts) is Status.SUCCEEDED
        if generation in fits.named(*texts):
            break
        fits.dispatcher.run_queue(Queue.SCRUB)
    [name, *_] = (one for one in texts if fits.stored(one).records[0].codec is Codec.MIXTURE)
    record = fits.stored(name).records[0]
    bad = bytes([record.payload[0] ^ 0x10]) + record.payload[1:]
    entry = _with_payload(fits, name, bad)
    fits.alter(name, lambda _: entry)
    fits.dispatcher.run_queue(Queue.SCRUB)
    assert fits.stages() == [GenerationStage.WITHDRAWN]
    assert fits.reads(texts)


def test_a_fit_that_is_cancelled_ends_its_process_and_leaves_nothing(fits: Fits) -> None:
    fits.fill(lines(0, 224))
    fitter = FitProcess(fits.pipeline._management.fit.models.folder)  # type: ignore[attr-defined]
    seen = threading.Event()

    def progress(stage: str, done: int, of: int) -> None:
        if _children():
            seen.set()
            raise Cancelled("another worker has the slice")

    texts = list(lines(0, 4000).values())
    wanted = Wanted(texts, [(Codec.RAW, 60)] * 4000, 4000, fits.collection.codec_policy)
    with pytest.raises(Cancelled):
        fitter.fit(fits.collection.artifacts[0], wanted, progress)
    assert seen.is_set()
    assert not _children()


def test_a_killed_fit_is_done_again(fits: Fits) -> None:
    """The process of the fit is killed; the slice runs again, and the fit counts once."""
    texts = lines(0, 224)
    fits.fill(texts)
    killed: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for process in _children():
                process.kill()
                killed.append(process.pid)
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    fits.do(
        Kind.FIT,
        {"collection": "default", "number": 0},
        [Item({"chunks": 10_000})],
        queue=Queue.FIT,
    )
    thread.join()
    assert killed
    until = time.monotonic() + 120
    while not fits.collection.fitting.number and time.monotonic() < until:
        time.sleep(0.2)
        fits.dispatcher.run_queue(Queue.FIT)
    assert fits.collection.fitting.number == 1
    assert fits.stages() == [GenerationStage.CANARY]
    assert fits.reads(texts)


def test_a_fit_that_takes_too_long_is_ended_and_leaves_no_text_in_a_file(
    fits: Fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fitter = FitProcess(
        fits.pipeline._management.fit.models.folder,  # type: ignore[attr-defined]
        limit_s=0.0,
    )
    wanted = Wanted([b"a"] * 300, [(Codec.RAW, 1)] * 300, 300, fits.collection.codec_policy)
    named: list[Path] = []

    def look(*_: object) -> None:
        named.extend(tmp_path.iterdir())

    with pytest.raises(EngineUnavailable, match="longer than"):
        fitter.fit(fits.collection.artifacts[0], wanted, look)
    assert not _children()
    assert not named


def _children() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if "verso_worker.records.fitting" in " ".join(process.cmdline())
    ]


def _forget(fits: Fits) -> None:
    """Let go of the tables that the worker holds, as a restart does."""
    fits.pipeline._management.fit.models._tables._held.clear()  # type: ignore[attr-defined]


def _with_payload(fits: Fits, name: str, payload: bytes) -> bytes:
    entry = fits.stored(name)
    [record] = entry.records
    return replace(entry, records=(replace(record, payload=payload),)).pack()
