"""Old entries of documents move to an object store, and their texts stay what they are."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.verso_ledger.recount import recounted
from tests.integration.verso_worker.rules.cold_storage import DAY, Clock
from tests.integration.verso_worker.rules.log_lines import NAME as LOGS
from tests.integration.verso_worker.rules.log_lines import START, lines, raw
from tests.integration.verso_worker.rules.log_lines import ingest as ingest_lines
from tests.integration.verso_worker.worker_parts import BUCKETS, TEXTS, Stores, make_pipeline
from tests.wire import Item

from verso_core.crc import flipped
from verso_core.errors import ObjectsUnavailable, RecordCorrupt
from verso_core.jobs import BucketRange, CollectionKind, Kind, Queue, Status, TextPolicy
from verso_core.jobs.collections import CollectionParams
from verso_core.record import Entry, Flag, Part, bucket_of
from verso_ledger import Ledger
from verso_ledger.collections.documents import Documents
from verso_ledger.connection import connect
from verso_ledger.scrub import Move
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records.cache import Cache
from verso_worker.rules.cold.storage import UNNAMED_S, ColdStorage
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.objects import ObjectStorage

NAME = "default"


def text(number: int) -> bytes:
    """Return a text that no codec makes small."""
    drawn = random.Random(number)
    return f"note {number}: {' '.join(f'{drawn.getrandbits(40):x}' for _ in range(10))}".encode()


DOCUMENTS = (
    {f"d{n}": text(n) for n in range(80)} | TEXTS | {"longest": b"".join(map(text, range(99)))}
)


@pytest.fixture
def stores(
    model_store: ArtifactStore,
    vectors: EdgeVectors,
    valkey_url: str,
    objects: ObjectStorage,
    clock: Clock,
) -> Iterator[Stores]:
    """Collections whose documents move to cold storage when they are scrubbed."""
    with closing(Ledger(connect(valkey_url))) as ledger:
        cold = ColdStorage(objects, after_s=0.0, clock=lambda: START + 9 * DAY, monotonic=clock)
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS, cold=cold)
        pipeline.create_collection(CollectionParams(name=NAME))
        pipeline.create_collection(CollectionParams(name="both", text_policy=TextPolicy.BOTH))
        yield Stores(ledger, pipeline, vectors)


@pytest.fixture
def again(
    model_store: ArtifactStore, vectors: EdgeVectors, objects: ObjectStorage, stores: Stores
) -> Callable[..., Stores]:
    """Return the stores of a worker that has just started, and moves nothing unless told so."""

    def make(after_s: float | None = None, **others: Any) -> Stores:
        cold = ColdStorage(objects, after_s=after_s)
        pipeline = make_pipeline(
            model_store, vectors, stores.ledger, buckets=BUCKETS, cold=cold, **others
        )
        return Stores(stores.ledger, pipeline, vectors)

    return make


def entries(stores: Stores, collection: str = NAME) -> dict[str, bytes]:
    return dict(stores.ledger.documents.entries(collection))


def cold_ones(stores: Stores, collection: str = NAME) -> dict[str, Part]:
    """Return where the entries of cold storage are."""
    found = {}
    for name, data in entries(stores, collection).items():
        if (place := Entry.unpack(data).cold) is not None:
            found[name] = place
    return found


def named(stores: Stores, collection: str = NAME) -> set[str]:
    """Return the names of the objects that entries name."""
    uid = stores.uid(collection)
    return {f"{uid}.d/{one.object.hex()}" for one in cold_ones(stores, collection).values()}


def there(objects: ObjectStorage) -> set[str]:
    return {name for name, _ in objects.list("")}


def read(stores: Stores, names: list[str], collection: str = NAME) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for at in range(0, len(names), 50):
        part = names[at : at + 50]
        found |= dict(zip(part, stores.read(*part, collection=collection), strict=True))
    return found


def all_read(stores: Stores) -> bool:
    return read(stores, list(DOCUMENTS)) == DOCUMENTS


def moved(stores: Stores) -> None:
    """Take documents in and move them."""
    stores.fill(DOCUMENTS)
    found = stores.scrub()
    assert (found["documents"], found["sound"]) == (len(DOCUMENTS), len(DOCUMENTS))
    assert len(cold_ones(stores)) >= 60


def counted(stores: Stores, collection: str = NAME) -> None:
    """Check that what the ledger has counted is what is there, also when it counts again."""
    whole = recounted(entries(stores, collection).items())
    assert stores.ledger.documents.holdings(collection) == whole
    stores.redis.delete(f"verso:counts:{stores.uid(collection)}")
    assert stores.ledger.documents.holdings(collection) == whole


def test_documents_move_and_read_as_before(
    stores: Stores, objects: ObjectStorage, again: Callable[..., Stores]
) -> None:
    stores.fill(DOCUMENTS)
    before = stores.ledger.documents.holdings(NAME)
    hot = {name: Entry.unpack(data) for name, data in entries(stores).items()}
    hits = stores.hits(text(7))
    assert stores.scrub()["sound"] == len(DOCUMENTS)
    after = stores.ledger.documents.holdings(NAME)
    assert after.bytes_cold == sum(size for _, size in objects.list("")) > 4096
    assert after.bytes_entries < before.bytes_entries / 2
    patches, left = (
        sum(one.size_bytes for one in held.codecs.values()) for held in (before, after)
    )
    assert patches <= left <= patches + 2 * after.chunks
    assert (after.documents, after.chunks, after.slots) == (
        before.documents,
        before.chunks,
        before.slots,
    )
    counted(stores)
    reader = again().pipeline._records.reader
    collection = stores.ledger.documents.collection(NAME)
    assert reader.whole(collection, reader.live(collection, list(hot))) == hot
    for worker in (stores, again()):
        assert all_read(worker)
        assert worker.hits(text(7)) == hits
        assert worker.scrub()["sound"] == len(DOCUMENTS)
    assert len(there(objects)) == 1
    stats = stores.pipeline._management.collections.stats(collection, name=NAME)
    assert stats.kept is not None
    assert stats.kept.bytes_cold == after.bytes_cold


def test_records_of_cold_documents_are_described_as_before(stores: Stores) -> None:
    items = [Item({"id": name}) for name in ("d1", "longest")]
    params = {"collection": NAME, "limit": 500, "vector": False, "draft": False}
    stores.fill(DOCUMENTS)
    _, [before] = stores.do(Kind.RECORDS, params, items)
    stores.scrub()
    _, [after] = stores.do(Kind.RECORDS, params, items)
    for one, other in zip(before.items, after.items, strict=True):
        assert one.pop("bytes_entry") > other.pop("bytes_entry")
        assert one == other


def test_documents_move_when_a_pass_has_started_so_many_days_after_them(
    stores: Stores, again: Callable[..., Stores]
) -> None:
    stores.fill(DOCUMENTS)
    worker = again(after_s=10 * DAY)
    assert worker.scrub()["sound"] == len(DOCUMENTS)
    assert not cold_ones(stores)
    assert stores.ledger.scrub.move(stores.ledger.scrub.state().turn, Move(begin=True))
    [(day, seq)] = stores.redis.hgetall("verso:ages").items()
    stores.fill({"younger": text(500)})
    worker.scrub()
    assert not cold_ones(stores)
    stores.redis.hset("verso:ages", str(int(day) - 10), seq)  # it may have started 9 days ago
    worker.scrub()
    assert not cold_ones(stores)
    stores.redis.hset("verso:ages", "damaged", "x")
    stores.redis.hset("verso:ages", str(int(day) - 11), seq)
    worker.scrub()
    assert len(cold_ones(stores)) >= 60
    assert "younger" not in cold_ones(stores)
    stores.redis.hset("verso:ages", str(int(day) + 400), 10**9)  # the clock had jumped
    worker.scrub()
    assert "younger" not in cold_ones(stores)
    assert all_read(stores)


def test_what_is_not_verified_or_small_stays(stores: Stores) -> None:
    assert stores.ingest(DOCUMENTS) is Status.SUCCEEDED  # and not verified
    collection = stores.ledger.documents.collection(NAME)
    stores.pipeline._management.scrub.run(collection, BucketRange(0, BUCKETS, 60.0))
    assert not cold_ones(stores)
    stores.dispatcher.run_queue(Queue.SCRUB)
    stores.scrub()
    assert "empty" not in cold_ones(stores)
    few = {name: DOCUMENTS[name] for name in ("d1", "d2")}
    stores.pipeline.create_collection(CollectionParams(name="few"))
    stores.fill(few, "few")
    stores.scrub("few")
    assert not cold_ones(stores, "few")


def test_cold_documents_are_replaced_deleted_and_get_other_metadata(
    stores: Stores, objects: ObjectStorage, again: Callable[..., Stores]
) -> None:
    moved(stores)
    replaced = {f"d{n}": text(1000 + n) for n in range(5)}
    stores.fill(replaced)
    stores.do(Kind.DELETE, {"collection": NAME}, [Item({"id": f"d{n}"}) for n in range(5, 10)])
    items = [
        Item(
            {
                "id": f"d{n}",
                "metadata": {"m": n},
                "time": None,
                "written": stores.stored(f"d{n}").seq,
            }
        )
        for n in range(10, 15)
    ]
    _, [result] = stores.do(Kind.UPDATE, {"collection": NAME}, items)
    assert all(item["ok"] for item in result.items), result.items
    left = DOCUMENTS | replaced
    for n in range(5, 10):
        del left[f"d{n}"]
    assert not cold_ones(stores).keys() & {f"d{n}" for n in range(15)}
    for _ in range(3):
        for worker in (stores, again()):
            assert read(worker, list(left)) == left
            assert read(worker, ["d5"]) == {"d5": "document_unknown"}
        counted(stores)
        assert stores.scrub()["sound"] == len(left)
    assert there(objects) == named(stores)


def test_deletes_and_searches_without_texts_need_no_object(
    stores: Stores, tmp_path: Path, again: Callable[..., Stores]
) -> None:
    moved(stores)
    (tmp_path / "cold").rename(tmp_path / "away")
    worker = again()
    assert worker.hits(text(7))[0]["id"] == "d7"
    worker.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "d7"})])
    worker.fill({"d8": text(2008)})
    assert worker.read("d7", "d8") == ["document_unknown", text(2008)]
    with pytest.raises(ObjectsUnavailable):
        worker.pipeline._records.reader.texts(stores.ledger.documents.collection(NAME), ["d9"])
    status, _ = worker.do(Kind.RECONSTRUCT, {"collection": NAME}, [Item({"id": "d9"})])
    assert status is not Status.SUCCEEDED
    (tmp_path / "away").rename(tmp_path / "cold")
    assert worker.read("d9") == [text(9)]
    assert stores.scrub()["damaged"] == 0


def test_objects_go_when_nothing_names_them_any_more(
    stores: Stores, objects: ObjectStorage, clock: Clock
) -> None:
    moved(stores)
    [first] = there(objects)
    stores.fill({name: data[::-1] for name, data in DOCUMENTS.items()})  # all are replaced
    stores.scrub()
    assert len(there(objects)) == 2
    clock.now += UNNAMED_S + 1
    stores.redis.set("verso:frozen", "a backup")
    stores.scrub()
    assert first in there(objects), "a backup copies the stores"
    stores.redis.delete("verso:frozen")
    stores.redis.hset("verso:halted", "seq", 1)
    stores.pipeline._management.scrub._sweep(stores.ledger.documents.collection(NAME))
    assert first in there(objects), "the ledger is older than it was"
    stores.redis.delete("verso:halted")
    right = entries(stores)["d3"]
    stores.alter("d3", lambda data: b"\7\7" + data[2:])  # what names its object is damaged
    stores.scrub()
    assert first in there(objects), "it may be one that is needed"
    stores.alter("d3", lambda _: right)
    stores.scrub()
    assert there(objects) == named(stores)
    assert read(stores, ["d3"]) == {"d3": text(3)[::-1]}


def test_an_object_that_little_is_named_of_is_written_again(
    stores: Stores, objects: ObjectStorage, clock: Clock
) -> None:
    moved(stores)
    more = {f"e{n}": text(5000 + n) for n in range(150)}
    stores.fill(more)
    stores.scrub()
    assert len(there(objects)) == 2
    gone = [f"e{n}" for n in range(90)]
    stores.do(Kind.DELETE, {"collection": NAME}, [Item({"id": one}) for one in gone[:60]])
    stores.do(Kind.DELETE, {"collection": NAME}, [Item({"id": one}) for one in gone[60:]])
    before = named(stores)
    stores.scrub()  # it finds out
    stores.scrub()  # and moves them
    assert len(named(stores) - before) == 1
    clock.now += UNNAMED_S + 1
    stores.scrub()
    assert there(objects) == named(stores)
    assert len(there(objects)) == 2
    counted(stores)
    assert read(stores, [one for one in more if one not in gone]) == {
        name: data for name, data in more.items() if name not in gone
    }
    assert all_read(stores)


def test_the_objects_of_a_deleted_collection_go(
    stores: Stores, objects: ObjectStorage, clock: Clock
) -> None:
    moved(stores)
    stores.do(Kind.COLLECTION_DELETE, {"name": NAME}, [Item({})])
    stores.scrub("both")
    assert there(objects)
    clock.now += UNNAMED_S + 1
    stores.scrub("both")
    assert not there(objects)


@pytest.mark.parametrize("place", range(0, 45, 2))
def test_a_flipped_bit_of_what_the_ledger_holds_is_corrected(
    stores: Stores, again: Callable[..., Stores], place: int
) -> None:
    moved(stores)
    stores.alter("d3", lambda data: flipped(data, 8 * (place % len(data)) + place % 3))
    worker = again()
    assert worker.read("d3") == [text(3)]
    found = worker.scrub()
    assert (found["repaired"], found["damaged"]) == (1, 0)
    assert not Entry.unpack(entries(stores)["d3"]).damaged
    assert all_read(again())


def test_a_flipped_bit_of_an_object_is_corrected_and_the_entry_written_again(
    stores: Stores, objects: ObjectStorage, again: Callable[..., Stores]
) -> None:
    moved(stores)
    [name] = there(objects)
    [data] = objects.get([name])
    assert data is not None
    places = cold_ones(stores)
    objects.put(name, flipped(data, 8 * places["d3"].offset + 100))
    assert all_read(again())
    found = again().scrub()
    assert (found["repaired"], found["damaged"]) == (1, 0)
    assert places.keys() - cold_ones(stores).keys() == {"d3"}
    assert again().scrub()["sound"] == len(DOCUMENTS)


def test_more_damage_of_an_object_takes_its_own_documents_and_is_never_a_wrong_text(
    stores: Stores, objects: ObjectStorage, again: Callable[..., Stores]
) -> None:
    moved(stores)
    [name] = there(objects)
    [data] = objects.get([name])
    assert data is not None
    places = cold_ones(stores)
    for at in range(0, len(data), len(data) // 11):
        objects.put(name, flipped(flipped(data, 8 * at), 8 * at + 3))
        worker = again()
        found = read(worker, list(DOCUMENTS))
        wrong = [one for one in DOCUMENTS if found[one] != DOCUMENTS[one]]
        hit = [one for one, p in places.items() if p.offset <= at < p.offset + p.size_bytes]
        assert wrong == hit
        assert [found[one] for one in wrong] == [RecordCorrupt.code] * len(wrong)
        seen = worker.scrub()
        assert (seen["damaged"], seen["ids"]) == (len(hit), hit)
    objects.put(name, data[: len(data) // 2])
    assert 0 < again().scrub()["damaged"] < len(DOCUMENTS)
    objects.delete([name])
    assert again().scrub()["damaged"] == len(places)
    objects.put(name, data)
    assert all_read(again())


def test_a_full_disk_leaves_documents_in_the_ledger(
    stores: Stores, objects: ObjectStorage, model_store: ArtifactStore, vectors: EdgeVectors
) -> None:
    stores.fill(DOCUMENTS)
    cold = ColdStorage(dataclasses.replace(objects, floor_bytes=1 << 60), after_s=0.0)
    pipeline = make_pipeline(model_store, vectors, stores.ledger, buckets=BUCKETS, cold=cold)
    assert Stores(stores.ledger, pipeline, vectors).scrub()["sound"] == len(DOCUMENTS)
    assert not cold_ones(stores)


def test_an_object_that_does_not_read_back_replaces_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.fill(DOCUMENTS)
    right = ObjectStorage.put

    def torn(self: ObjectStorage, name: str, data: bytes) -> None:
        right(self, name, data[:-1])

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "put", torn)
        assert stores.scrub()["sound"] == len(DOCUMENTS)
    assert not cold_ones(stores)


def test_a_worker_that_ends_before_the_ledger_names_an_object_loses_nothing(
    stores: Stores,
    objects: ObjectStorage,
    clock: Clock,
    again: Callable[..., Stores],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores.fill(DOCUMENTS)
    before = entries(stores)
    right, calls = Documents.to_cold, []

    def ended(self: Documents, *args: object, until: float) -> bool:
        calls.append(args)
        if len(calls) == 2:  # amid the steps of one object
            raise SystemExit
        return right(self, *args, until=until)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Documents, "to_cold", ended)
        with pytest.raises(SystemExit):
            stores.scrub()
    changed = {name for name, data in entries(stores).items() if data != before[name]}
    assert changed == cold_ones(stores).keys()
    assert len(changed) == 64
    assert all_read(again())
    stores.scrub()
    clock.now += UNNAMED_S + 1
    stores.scrub()
    assert there(objects) == named(stores)
    assert all_read(again())


def test_what_is_written_while_an_object_is_stays(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, again: Callable[..., Stores]
) -> None:
    stores.fill(DOCUMENTS)
    other, right = again(), ObjectStorage.put

    def busy(self: ObjectStorage, name: str, data: bytes) -> None:
        right(self, name, data)
        with monkeypatch.context() as usual:
            usual.setattr(ObjectStorage, "put", right)
            other.ingest({"d1": text(3001)})
            other.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "d2"})])

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "put", busy)
        stores.scrub()
    assert not cold_ones(stores).keys() & {"d1", "d2"}
    assert len(cold_ones(stores)) >= 58
    assert again().read("d1", "d2", "d3") == [text(3001), "document_unknown", text(3)]
    counted(stores)


def test_nothing_moves_late_in_a_read_only_ledger_or_while_the_collection_moves(
    stores: Stores,
) -> None:
    stores.fill(DOCUMENTS)
    uid = stores.uid(NAME)
    [(name, data)] = [row for row in entries(stores).items() if row[0] == "d1"]
    left = Entry.unpack(data).moved(Part(b"8 bytes!", 0, 9)).pack()
    to_cold = partial(stores.ledger.documents.to_cold, until=stores.ledger.logs.now() + 60.0)
    stores.redis.hset("verso:halted", "seq", 1)
    assert not to_cold(NAME, uid, [(name, data, left)])
    stores.redis.delete("verso:halted")
    stores.redis.sadd("verso:tracked", uid)
    to_cold(NAME, uid, [(name, data, left)])
    stores.redis.srem("verso:tracked", uid)
    assert not to_cold(NAME, "77", [(name, data, left)]), "another collection has its name"
    assert not to_cold(NAME, uid, [(name, data, left)], until=stores.ledger.logs.now() - 1.0)
    assert entries(stores)["d1"] == data
    assert to_cold(NAME, uid, [(name, data, left)])
    assert entries(stores)["d1"] == left


def test_kept_texts_stay_and_stand_in_for_an_object_that_is_gone(
    stores: Stores, objects: ObjectStorage, again: Callable[..., Stores]
) -> None:
    stores.fill(DOCUMENTS, "both")
    assert stores.scrub("both")["sound"] == len(DOCUMENTS)
    assert len(cold_ones(stores, "both")) >= 60
    objects.delete(sorted(there(objects)))
    assert read(again(), list(DOCUMENTS), "both") == DOCUMENTS


def test_an_entry_of_many_chunks_moves_and_comes_back(
    stores: Stores, again: Callable[..., Stores]
) -> None:
    book = b" ".join(text(n) for n in range(900))
    stores.fill({"book": book} | {f"d{n}": text(n) for n in range(60)})
    assert stores.stored("book").records
    whole = len(entries(stores)["book"])
    assert stores.scrub()["damaged"] == 0
    assert "book" in cold_ones(stores)
    key = f"verso:docs:{stores.uid(NAME)}:{bucket_of('book', buckets=BUCKETS)}"
    head = stores.redis.hget(key, "book")
    assert isinstance(head, bytes)
    assert head[0] & Flag.LONG
    assert len(entries(stores)["book"]) < whole
    assert again().read("book") == [book]
    counted(stores)
    assert stores.scrub()["damaged"] == 0
    stores.fill({"book": b"short now"})
    assert again().read("book") == [b"short now"]
    counted(stores)


def test_a_log_collection_has_objects_of_lines_and_of_documents(
    stores: Stores, objects: ObjectStorage, clock: Clock
) -> None:
    stores.pipeline.create_collection(CollectionParams(name=LOGS, kind=CollectionKind.LOGS))
    sent = lines(2048)
    ingest_lines(stores, sent)
    stores.fill({f"d{n}": text(n) for n in range(60)}, LOGS)
    stores.scrub(LOGS)
    clock.now += UNNAMED_S + 1
    stores.scrub(LOGS)
    kinds = {name.partition("/")[0].partition(".")[2] for name in there(objects)}
    assert kinds == {"", "d"}
    assert raw(stores) == sent
    assert stores.read("d3", collection=LOGS) == [text(3)]


def test_texts_that_were_read_lately_ask_no_object(
    stores: Stores, again: Callable[..., Stores], objects: ObjectStorage
) -> None:
    moved(stores)
    registry = CollectorRegistry()
    counting = dataclasses.replace(objects, on_call=Metrics(registry).object_call)
    worker = again(cache=Cache(1 << 20))
    cold = worker.pipeline._records.reader.cold.storage
    object.__setattr__(cold, "objects", counting)

    def asked() -> float:
        labels = {"operation": "get", "status": "ok"}
        return registry.get_sample_value("verso_objects_total", labels) or 0.0

    names = [f"d{n}" for n in range(30)]
    assert read(worker, names) == {name: DOCUMENTS[name] for name in names}
    assert asked() == 1, "one for the texts of a slice"
    assert read(worker, names) == {name: DOCUMENTS[name] for name in names}
    assert asked() == 1


def test_parts_of_objects_are_returned_in_order_and_as_long_as_they_are(
    objects: ObjectStorage,
) -> None:
    registry = CollectorRegistry()
    counted = dataclasses.replace(objects, on_call=Metrics(registry).object_call)
    counted.put("7.d/a", b"0123456789")
    counted.put("7.d/b", b"abcdef")
    asked = [("7.d/a", 4, 3), ("7.d/b", 0, 2), ("7.d/c", 0, 1), ("7.d/a", 0, 2), ("7.d/b", 4, 9)]
    assert counted.parts(asked) == [b"456", b"ab", None, b"01", b"ef"]
    assert counted.parts([("7.d/b", 6, 2)]) == counted.parts([("7.d/b", 900, 2)]) == [b""]
    labels = {"operation": "get", "status": "ok"}
    assert registry.get_sample_value("verso_objects_total", labels) == 4
    assert registry.get_sample_value("verso_object_bytes_total", {"operation": "get"}) == 13
    absent = dataclasses.replace(objects, url=(Path("/nowhere") / "cold").as_uri())
    with pytest.raises(ObjectsUnavailable):
        absent.parts(asked)
