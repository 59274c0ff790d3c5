"""Blocks of old segments move to an object store, and their lines stay what they are."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.verso_worker.rules.cold_storage import DAY, Clock
from tests.integration.verso_worker.rules.log_lines import (
    NAME,
    START,
    ingest,
    lines,
    raw,
    search,
)
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, make_pipeline
from tests.wire import Item

from verso_core.crc import flipped
from verso_core.errors import ObjectsUnavailable, RecordCorrupt
from verso_core.jobs import CollectionKind, Kind, Status
from verso_core.jobs.collections import CollectionParams
from verso_ledger import Ledger
from verso_ledger.collections.logs import Logs
from verso_ledger.connection import connect
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records.segments import BLOCK_LINES, COLD_BYTES, ColdBlocks
from verso_worker.rules.cold.storage import UNNAMED_S, ColdStorage
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.objects import ObjectStorage

COUNT = 6_144  # three whole segments
TEXT = lines(COUNT)


@pytest.fixture
def logs(
    model_store: ArtifactStore,
    vectors: EdgeVectors,
    valkey_url: str,
    objects: ObjectStorage,
    clock: Clock,
) -> Iterator[Stores]:
    """A log collection whose lines move to cold storage a day after they arrived."""
    with closing(Ledger(connect(valkey_url))) as ledger:
        cold = ColdStorage(objects, after_s=DAY, clock=clock, monotonic=clock)
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS, cold=cold)
        pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
        yield Stores(ledger, pipeline, vectors)


@pytest.fixture
def again(
    model_store: ArtifactStore, vectors: EdgeVectors, objects: ObjectStorage, logs: Stores
) -> Callable[[], Stores]:
    """Return the stores of a worker that has just started, and moves nothing."""

    def make() -> Stores:
        cold = ColdStorage(objects)
        pipeline = make_pipeline(model_store, vectors, logs.ledger, buckets=BUCKETS, cold=cold)
        return Stores(logs.ledger, pipeline, vectors)

    return make


def segments(logs: Stores) -> dict[bytes, bytes]:
    """Return what the ledger holds of each segment."""
    found = {}
    for name in logs.redis.scan_iter(b"verso:segment:*"):
        value = logs.redis.get(name)
        assert isinstance(value, bytes)
        found[name] = value
    return found


def cold_ones(logs: Stores) -> list[ColdBlocks]:
    rows = [ColdBlocks.read(value) for value in segments(logs).values()]
    return [one for one in rows if one is not None]


def test_lines_that_are_old_enough_move_and_read_as_before(
    logs: Stores, objects: ObjectStorage, clock: Clock, again: Callable[[], Stores]
) -> None:
    ingest(logs, TEXT)
    clock.now = START + DAY / 2
    logs.scrub(NAME)
    assert not cold_ones(logs)
    before, found = segments(logs), search(logs, b"a write to a disk failed", lines=True)
    bytes_before = logs.pipeline._lines.management.statistics(
        logs.ledger.documents.collection(NAME)
    ).bytes_segments
    clock.now = START + 2 * DAY
    seen = logs.scrub(NAME)
    assert (seen["documents"], seen["sound"]) == (COUNT, COUNT)
    assert len(cold_ones(logs)) == len(before) == 3
    for worker in (logs, again()):
        assert raw(worker) == TEXT
        assert worker.read("0:4321", collection=NAME) == [TEXT.splitlines()[4321]]
        assert search(worker, b"a write to a disk failed", lines=True) == found
    held = logs.pipeline._lines.management.statistics(logs.ledger.documents.collection(NAME))
    assert held.bytes_cold == sum(size for _, size in objects.list("")) > 0
    assert held.bytes_segments == sum(map(len, segments(logs).values())) < bytes_before
    assert held.bytes_segments + held.bytes_cold == bytes_before + 3 * COLD_BYTES
    assert logs.scrub(NAME)["sound"] == COUNT
    assert held == logs.pipeline._lines.management.statistics(
        logs.ledger.documents.collection(NAME)
    )


def test_a_ledger_that_gets_the_step_late_keeps_its_blocks(
    logs: Stores, objects: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(logs, TEXT)
    before, right = segments(logs), Logs.now
    with monkeypatch.context() as patch:  # what is written now is named an hour later
        patch.setattr(Logs, "now", lambda self: right(self) - UNNAMED_S)
        assert logs.scrub(NAME)["sound"] == COUNT
    assert (segments(logs), len(list(objects.list("")))) == (before, 3)
    logs.scrub(NAME)
    assert len(cold_ones(logs)) == 3
    assert raw(logs) == TEXT


def test_cold_lines_are_deleted_merged_and_removed_with_their_objects(
    logs: Stores, objects: ObjectStorage, clock: Clock
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    assert len(list(objects.list(""))) == 3
    items = [{"id": f"0:{n}"} for n in range(2048)]
    for start in range(0, 2048, 64):
        logs.do(Kind.DELETE, {"collection": NAME}, _items(items[start : start + 64]))
    assert raw(logs) == b"".join(TEXT.splitlines(keepends=True)[2048:])
    logs.scrub(NAME)
    assert len(list(objects.list(""))) == 3, "one is not named any more, and not for long"
    clock.now += UNNAMED_S + 1
    logs.redis.set("verso:frozen", "a backup")
    logs.scrub(NAME)
    assert len(list(objects.list(""))) == 3, "a backup copies the stores"
    logs.redis.delete("verso:frozen")
    logs.redis.hset("verso:halted", "seq", 1)
    assert logs.ledger.logs.removal_paused(), "the ledger is older than it was"
    logs.redis.delete("verso:halted")
    assert not logs.ledger.logs.removal_paused()
    name = min(segments(logs))
    value = segments(logs)[name]
    logs.redis.set(name, b"\x07\x07" + value[2:])  # what names its object is damaged
    logs.scrub(NAME)
    assert len(list(objects.list(""))) == 3, "it may be one that is needed"
    logs.redis.set(name, value)
    logs.scrub(NAME)
    assert len(list(objects.list(""))) == 2
    assert raw(logs) == b"".join(TEXT.splitlines(keepends=True)[2048:])
    held = logs.pipeline._lines.management.statistics(logs.ledger.documents.collection(NAME))
    assert held.bytes_cold == sum(size for _, size in objects.list(""))


def test_the_objects_of_a_deleted_collection_go_with_the_scrub_of_another(
    logs: Stores, objects: ObjectStorage, clock: Clock
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    logs.do(Kind.COLLECTION_DELETE, {"name": NAME}, _items([{}]))
    logs.pipeline.create_collection(CollectionParams(name="other", kind=CollectionKind.LOGS))
    logs.scrub("other")
    assert len(list(objects.list(""))) == 3
    clock.now += UNNAMED_S + 1
    logs.scrub("other")
    assert not list(objects.list(""))


@pytest.mark.parametrize("place", [0, 2, 9, 23, 40, 300])
def test_a_flipped_bit_of_what_the_ledger_holds_is_corrected(
    logs: Stores, again: Callable[[], Stores], place: int
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    right = segments(logs)
    name = min(right)
    damaged = bytearray(right[name])
    damaged[place] ^= 4
    logs.redis.set(name, bytes(damaged))
    assert raw(again()) == TEXT
    found = again().scrub(NAME)
    assert found["repaired"] > 0
    assert found["damaged"] == 0
    assert segments(logs) == right


def test_a_flipped_bit_of_an_object_is_corrected_and_another_object_written(
    logs: Stores, objects: ObjectStorage, again: Callable[[], Stores]
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    name, _ = next(iter(objects.list("")))
    [data] = objects.get([name])
    assert data is not None
    objects.put(name, flipped(data, 4_000))
    assert raw(again()) == TEXT
    found = again().scrub(NAME)
    assert found["repaired"] > 0
    assert found["damaged"] == 0
    assert name not in {f"{_uid(logs)}/{one.name.hex()}" for one in cold_ones(logs)}
    assert again().scrub(NAME)["sound"] == COUNT


def test_more_damage_of_an_object_takes_one_block_and_is_never_a_wrong_line(
    logs: Stores, objects: ObjectStorage, again: Callable[[], Stores]
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    rows = TEXT.splitlines()
    cold = ColdBlocks.read(segments(logs)[min(segments(logs))])
    assert cold is not None
    name = f"{_uid(logs)}/{cold.name.hex()}"
    [data] = objects.get([name])
    assert data is not None
    one_of_each = list(range(0, COUNT, BLOCK_LINES))
    for place in range(0, len(data), len(data) // 7):
        objects.put(name, flipped(flipped(data, 8 * place), 8 * place + 3))
        worker = again()
        found = worker.read(*(f"0:{n}" for n in one_of_each), collection=NAME)
        wrong = [n for n, row in zip(one_of_each, found, strict=True) if row != rows[n]]
        assert [found[n // BLOCK_LINES] for n in wrong] == [RecordCorrupt.code]
        seen = worker.scrub(NAME)
        assert (seen["damaged"], seen["sound"]) == (BLOCK_LINES, COUNT - BLOCK_LINES)
    objects.put(name, data[: len(data) // 2])
    assert again().scrub(NAME)["damaged"] > 0
    objects.put(name, data)
    assert raw(again()) == TEXT


def test_an_object_that_is_gone_is_damage_of_its_own_lines_only(
    logs: Stores, objects: ObjectStorage, again: Callable[[], Stores]
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    first = segments(logs)[min(segments(logs))]
    cold = ColdBlocks.read(first)
    assert cold is not None
    objects.delete([f"{_uid(logs)}/{cold.name.hex()}"])
    worker = again()
    found = worker.scrub(NAME)
    assert 0 < found["damaged"] < COUNT
    assert found["damaged"] + found["sound"] == COUNT
    codes = worker.read("0:0", "0:2048", "0:4500", collection=NAME)
    assert codes.count(RecordCorrupt.code) == 1


def test_objects_of_equal_sizes_that_changed_places_are_damage_and_never_wrong_lines(
    logs: Stores, objects: ObjectStorage, again: Callable[[], Stores]
) -> None:
    drawn = random.Random(1)
    texts = [
        b"".join(
            b"disk of host %04d failed: %s\n" % (host, drawn.randbytes(16).hex().encode())
            for _ in range(120)
        )
        for host in range(12)
    ]
    for host, text in enumerate(texts):
        ingest(logs, text, host=f"h{host}")
    logs.scrub(NAME)
    of_size: dict[int, list[tuple[int, str]]] = {}
    for key, value in segments(logs).items():
        cold = ColdBlocks.read(value)
        assert cold is not None
        place = (int(key.split(b":")[-2]), f"{_uid(logs)}/{cold.name.hex()}")
        of_size.setdefault(cold.size_bytes, []).append(place)
    (one, first), (other, second), *_ = max(of_size.values(), key=len)
    data = objects.get([first, second])
    for name, changed in zip([first, second], reversed(data), strict=True):
        assert changed is not None
        objects.put(name, flipped(changed, 4_000))  # a flipped bit hides nothing
    worker = again()
    names = [f"{stream}:{n}" for stream in (one, other) for n in (0, 5)]
    assert worker.read(*names, collection=NAME) == [RecordCorrupt.code] * 4
    assert worker.scrub(NAME)["damaged"] == 240
    for name, right in zip([first, second], data, strict=True):
        assert right is not None
        objects.put(name, right)
    found = [texts[stream].splitlines()[n] for stream in (one, other) for n in (0, 5)]
    assert again().read(*names, collection=NAME) == found
    assert again().scrub(NAME)["damaged"] == 0


def test_while_the_object_store_is_away_nothing_is_lost_and_errors_say_so(
    logs: Stores, objects: ObjectStorage, tmp_path: Path, again: Callable[[], Stores]
) -> None:
    ingest(logs, TEXT)
    logs.scrub(NAME)
    (tmp_path / "cold").rename(tmp_path / "away")
    worker = again()
    params = {"collection": NAME}
    with pytest.raises(ObjectsUnavailable):
        worker.pipeline._lines.texts.lines.texts(logs.ledger.documents.collection(NAME), ["0:1"])
    status, _ = worker.do(Kind.RECONSTRUCT, params, _items([{"id": "0:1"}]))
    assert status is not Status.SUCCEEDED
    (tmp_path / "away").rename(tmp_path / "cold")
    assert raw(worker) == TEXT


def test_lines_are_verified_while_the_object_store_is_away(
    logs: Stores, tmp_path: Path, again: Callable[[], Stores]
) -> None:
    """Small segments before them, which they would be merged with, are in cold storage."""
    text = lines(900), lines(300, start=900)
    ingest(logs, text[0])
    logs.scrub(NAME)
    assert len(cold_ones(logs)) == 1
    (tmp_path / "cold").rename(tmp_path / "away")
    ingest(logs, text[1])
    assert logs.ledger.logs.state(NAME).verified == 1200
    (tmp_path / "away").rename(tmp_path / "cold")
    assert raw(again()) == b"".join(text)


def test_a_full_disk_leaves_lines_in_the_ledger(
    logs: Stores, objects: ObjectStorage, model_store: ArtifactStore, vectors: EdgeVectors
) -> None:
    ingest(logs, TEXT)
    full = dataclasses.replace(objects, floor_bytes=1 << 60)
    cold = ColdStorage(full, after_s=0.0)
    pipeline = make_pipeline(model_store, vectors, logs.ledger, buckets=BUCKETS, cold=cold)
    assert Stores(logs.ledger, pipeline, vectors).scrub(NAME)["sound"] == COUNT
    assert not cold_ones(logs)
    assert raw(logs) == TEXT


def test_an_object_that_does_not_read_back_replaces_nothing(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(logs, TEXT)
    right = ObjectStorage.put

    def torn(self: ObjectStorage, name: str, data: bytes) -> None:
        right(self, name, data[:-1])

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "put", torn)
        assert logs.scrub(NAME)["sound"] == COUNT
    assert not cold_ones(logs)


def test_a_worker_that_ends_before_the_ledger_names_an_object_loses_nothing(
    logs: Stores,
    objects: ObjectStorage,
    clock: Clock,
    again: Callable[[], Stores],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ingest(logs, TEXT)
    before = segments(logs)

    def ended(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Logs, "correct", ended)
        with pytest.raises(SystemExit):
            logs.scrub(NAME)
    assert len(list(objects.list(""))) == 1
    assert segments(logs) == before
    assert raw(again()) == TEXT
    assert logs.scrub(NAME)["sound"] == COUNT
    clock.now += UNNAMED_S + 1
    logs.scrub(NAME)
    named = {f"{_uid(logs)}/{one.name.hex()}" for one in cold_ones(logs)}
    assert {name for name, _ in objects.list("")} == named
    assert len(named) == 3
    assert raw(again()) == TEXT


def _items(headers: Sequence[dict[str, Any]]) -> list[Item]:
    return [Item(header) for header in headers]


def _uid(logs: Stores) -> str:
    return logs.ledger.logs.state(NAME).uid


def test_calls_of_the_object_store_are_counted(objects: ObjectStorage, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    counted = dataclasses.replace(objects, on_call=Metrics(registry).object_call)
    counted.put("7/a", b"blocks")
    assert counted.get(["7/a", "7/b"]) == [b"blocks", None]
    counted.delete(["7/a", "7/b"])
    (tmp_path / "cold").rename(tmp_path / "away")
    with pytest.raises(ObjectsUnavailable):
        counted.get(["7/a"])

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"verso_{name}_total", labels)

    assert value("objects", operation="put", status="ok") == 1
    assert value("objects", operation="get", status="ok") == 1
    assert value("objects", operation="get", status="missing") == 1
    assert value("objects", operation="get", status="error") == 1
    assert value("objects", operation="delete", status="ok") == 2
    assert value("object_bytes", operation="get") == len(b"blocks")
