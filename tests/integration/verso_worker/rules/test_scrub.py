"""Damage in the stores, done on purpose: each kind is found, mended where it can be, and counted.

Real ledger, real vector engine, real (tiny) model; what is stored is altered behind their backs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.verso_worker.worker_parts import (
    ARTIFACT,
    BUCKETS,
    TEXTS,
    Stores,
    counts,
    flip,
    garble,
    make_pipeline,
)
from tests.wire import Item, cut

from verso_core.errors import RecordCorrupt, VectorsDamaged, VectorsUnavailable
from verso_core.jobs import BucketRange, Kind, Queue, SearchMode, Status, read_slice
from verso_core.jobs.collections import CollectionParams
from verso_core.record import (
    Codec,
    Entry,
    Flag,
    bucket_of,
    checksum,
    vector_hash,
)
from verso_core.supervise import Process
from verso_keeper.collector import LedgerCollector
from verso_keeper.scrubber import Scrubber
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_ledger.durability import ask_server
from verso_worker.engine.operations import EngineClient
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records.points import NO_TERMS, Point
from verso_worker.records.space import Space
from verso_worker.rules.scrub import Scrub
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors, shard_child

LONG = b"Jan 12 10:00:01 host sshd[4242]: Failed password for root\n" * 40


def test_what_was_stored_well_is_sound_and_counted_once(stores: Stores) -> None:
    stores.fill(TEXTS)
    found = stores.scrub()
    assert counts(found) == (len(TEXTS), 0, 0)
    assert found["documents"] == len(TEXTS)
    assert found["bytes"] == sum(map(len, TEXTS.values()))
    assert (found["buckets"], found["ids"]) == (BUCKETS, [])


def test_ranges_of_buckets_add_up_to_the_collection(stores: Stores) -> None:
    stores.fill({f"d{n}": b"text %d" % n for n in range(40)})
    parts = [stores.scrub(first=n, count=4) for n in range(0, BUCKETS, 4)]
    assert [part["buckets"] for part in parts] == [4] * 4
    assert sum(part["documents"] for part in parts) == 40


def test_a_job_that_has_spent_its_time_says_how_far_it_came(stores: Stores) -> None:
    stores.fill({f"d{n}": b"text %d" % n for n in range(40)})
    assert stores.scrub(spend_s=0.0)["buckets"] == 1


@pytest.mark.parametrize("text", [b"a text that is stored with care", LONG])
@pytest.mark.parametrize(
    "change", [flip, garble, lambda data: data[:-3], lambda data: data[:5], lambda data: data[:0]],
    ids=["flipped bit", "garbled payload", "cut", "cut to a stump", "empty"],
)  # fmt: skip
def test_a_damaged_entry_is_damaged_and_stays_as_it_is(
    stores: Stores, text: bytes, change: Callable[[bytes], bytes]
) -> None:
    stores.fill({"a": text, "b": b"its neighbour"})
    stores.alter("a", change)
    before = stores.ledger.documents.entry("default", ["a"])
    found = stores.scrub()
    assert counts(found) == (1, 0, 1)
    assert found["ids"] == ["a"]
    assert stores.ledger.documents.entry("default", ["a"]) == before
    assert stores.read("b") == [b"its neighbour"]
    assert stores.read("a")[0] in (RecordCorrupt.code, "patch_corrupt")


def test_a_damaged_document_can_be_written_again(stores: Stores) -> None:
    """A stump of an entry keeps neither a later write nor the garbage list from going on."""
    stores.fill({"a": b"first", "b": b"its neighbour"})
    stores.alter("a", lambda data: data[:3])
    stores.fill({"a": b"second"})
    assert stores.read("a", "b") == [b"second", b"its neighbour"]
    for token, _ in stores.redis.zscan_iter("verso:gc"):
        stores.redis.zadd("verso:gc", {token: 0})
    stores.dispatcher.run_queue(Queue.SCRUB)
    assert stores.ledger.maintenance.backlog().to_collect == 0
    assert counts(stores.scrub()) == (2, 0, 0)


@pytest.mark.parametrize("text", [b"kept as well", LONG])
def test_a_damaged_record_is_repaired_from_a_kept_text_that_its_checksums_prove(
    stores: Stores, text: bytes
) -> None:
    stores.fill({"a": text, "b": b"its neighbour"}, "both")
    old = stores.stored("a", "both")
    stores.alter("a", garble, "both")
    assert counts(stores.scrub("both")) == (1, 1, 0)
    new = stores.stored("a", "both")
    assert (new.seq, new.size_bytes) == (old.seq, len(text))
    assert new.flags & Flag.VERIFIED
    assert stores.read("a", "b", collection="both") == [text, b"its neighbour"]
    assert stores.ledger.documents.texts("both", ["a"]) == {"a": text}
    assert counts(stores.scrub("both")) == (2, 0, 0)
    [hit] = [hit for hit in stores.hits(text, "both") if hit["id"] == "a"][:1]
    assert hit["metadata"] == {"n": "a"}


def test_a_kept_text_that_nothing_proves_mends_nothing(stores: Stores) -> None:
    stores.fill({"a": b"kept as well", "b": b"kept too"}, "both")
    stores.alter("a", flip, "both")
    stores.redis.set(f"verso:text:{stores.uid('both')}:a", b"kept As well")
    stores.alter("b", lambda data: data[:9], "both")
    found = stores.scrub("both")
    assert counts(found) == (0, 0, 2)
    assert sorted(found["ids"]) == ["a", "b"]


@pytest.mark.parametrize("kept", [None, b"another text"])
def test_a_kept_text_is_mended_from_sound_records(stores: Stores, kept: bytes | None) -> None:
    stores.fill({"a": b"kept as well"}, "both")
    name = f"verso:text:{stores.uid('both')}:a"
    stores.redis.delete(name) if kept is None else stores.redis.set(name, kept)
    before = stores.ledger.documents.entry("both", ["a"])
    assert counts(stores.scrub("both")) == (0, 1, 0)
    assert stores.redis.get(name) == b"kept as well"
    assert stores.ledger.documents.entry("both", ["a"]) == before
    assert counts(stores.scrub("both")) == (1, 0, 0)


def test_a_removed_point_is_put_again_with_what_its_siblings_carry(stores: Stores) -> None:
    stores.fill({"a": LONG, "b": b"its neighbour"})
    points = stores.points("a")
    assert len(points) > 1
    assert not [r for r in stores.stored("a").records if r.codec is Codec.NEURAL]
    stores.vectors.remove("default", points[:1])
    assert counts(stores.scrub()) == (1, 1, 0)
    payloads = stores.vectors.payloads("default", stores.points("a"))
    assert [payload["m"] for payload in payloads.values()] == [{"n": "a"}] * len(points)
    assert sorted(payload["n"] for payload in payloads.values()) == list(range(len(points)))
    assert counts(stores.scrub()) == (2, 0, 0)


def test_a_document_whose_points_are_all_gone_is_found_again_but_its_metadata_is_lost(
    stores: Stores,
) -> None:
    stores.fill({"a": b"open failed", "b": b"its neighbour"})
    stores.vectors.remove("default", stores.points("a"))
    assert "a" not in {hit["id"] for hit in stores.hits(b"open failed")}
    for _ in range(2):
        found = stores.scrub()
        assert counts(found) == (1, 0, 1)
        assert found["ids"] == ["a"]
        assert stores.hits(b"open failed")[0]["id"] == "a"
        assert stores.read("a", "b") == [b"open failed", b"its neighbour"]
    stores.fill({"a": b"open failed"})
    assert counts(stores.scrub()) == (2, 0, 0)


def test_points_of_a_document_without_metadata_come_back_whole(stores: Stores) -> None:
    """Its entry says that there was none, so none is lost."""
    item = Item({"id": "a"}, b"open failed")
    assert stores.do(Kind.INGEST, {"collection": "default"}, [item])[0] is Status.SUCCEEDED
    stores.dispatcher.run_queue(Queue.SCRUB)
    stores.vectors.remove("default", stores.points("a"))
    assert counts(stores.scrub()) == (0, 1, 0)
    assert counts(stores.scrub()) == (1, 0, 0)


def test_altered_metadata_is_set_right_from_a_sibling_that_the_entry_proves(
    stores: Stores,
) -> None:
    stores.fill({"a": LONG, "b": b"its neighbour"})
    first, *others = stores.points("a")
    assert others
    alter_metadata(stores, first)
    assert counts(stores.scrub()) == (1, 1, 0)
    told = stores.vectors.payloads("default", [first, *others])
    assert [payload["m"] for payload in told.values()] == [{"n": "a"}] * len(told)
    assert counts(stores.scrub()) == (2, 0, 0)


def test_altered_metadata_that_nothing_proves_is_damaged_and_left(stores: Stores) -> None:
    stores.fill({"a": b"open failed", "b": b"its neighbour"})
    [point] = stores.points("a")
    alter_metadata(stores, point)
    found = stores.scrub()
    assert (counts(found), found["ids"]) == ((1, 0, 1), ["a"])
    assert stores.vectors.payloads("default", [point])[point]["m"] == {"n": "A"}
    assert stores.read("a") == [b"open failed"]


def test_an_entry_from_before_there_was_a_hash_of_its_metadata_is_sound(stores: Stores) -> None:
    stores.fill({"a": b"open failed"})
    [point] = stores.points("a")
    stores.alter("a", lambda data: replace(Entry.unpack(data), about=None).pack())
    alter_metadata(stores, point)
    assert counts(stores.scrub()) == (1, 0, 0)
    assert stores.read("a") == [b"open failed"]


def alter_metadata(stores: Stores, point: UUID) -> None:
    [stored] = stores.vectors.get("default", [point]).values()
    payload = stores.vectors.payloads("default", [point])[point]
    [text] = stores.read(payload["d"])
    assert isinstance(text, bytes)
    [words] = Bm25().documents([text])
    stores.vectors.put("default", [Point(point, stored, payload | {"m": {"n": "A"}}, words)])


def test_another_vector_under_a_point_is_found_and_set_right(stores: Stores) -> None:
    stores.fill({"a": b"open failed", "b": b"something else entirely"})
    [point], [other] = stores.points("a"), stores.points("b")
    wrong = stores.vectors.get("default", [other])[other]
    payload = stores.vectors.payloads("default", [point])[point]
    stores.vectors.put("default", [Point(point, wrong, payload)])
    assert counts(stores.scrub()) == (1, 1, 0)
    top = stores.hits(b"open failed")[0]
    assert (top["id"], top["metadata"]) == ("a", {"n": "a"})
    assert top["score"] > 0.99
    assert counts(stores.scrub()) == (2, 0, 0)


def test_words_of_a_point_that_are_lost_or_wrong_are_set_right(stores: Stores) -> None:
    stores.fill({"a": b"open failed", "b": b"its neighbour", "c": b""}, "words")
    assert counts(stores.scrub("words")) == (3, 0, 0)
    [point], [other] = stores.points("a", "words"), stores.points("b", "words")
    stored = stores.vectors.get("words", [point])[point]
    payload = stores.vectors.payloads("words", [point])[point]
    right = dict(
        zip([point, other], Bm25().documents([b"open failed", b"its neighbour"]), strict=True)
    )
    for wrong in (NO_TERMS, right[other]):
        stores.vectors.put("words", [Point(point, stored, payload, wrong)])
        assert stores.vectors.differing("words", right) == {point}
        assert counts(stores.scrub("words")) == (2, 1, 0)
        assert stores.vectors.differing("words", right) == set()
    assert counts(stores.scrub("words")) == (3, 0, 0)


def test_words_whose_files_are_lost_are_missed_until_a_scrub_has_put_them_again(
    model_store: ArtifactStore, valkey_url: str, tmp_path: Path
) -> None:
    data, query = tmp_path / "vectors", Bm25().query(b"failed")

    def serve(name: str) -> tuple[Process, EdgeVectors]:
        child = shard_child(data, socket_path=tmp_path / name, floor_mib=1)
        child.start()
        return child, EdgeVectors(tmp_path / name)

    def found(vectors: EdgeVectors) -> int:
        return len(vectors.search("words", None, terms=query, limit=9, where=None))

    child, vectors = serve("before")
    with closing(Ledger(connect(valkey_url))) as ledger, closing(vectors):
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        pipeline.create_collection(CollectionParams(name="words", search=SearchMode.HYBRID))
        Stores(ledger, pipeline, vectors).fill({"a": b"open failed", "b": b"it failed"}, "words")
        assert found(vectors) == 2
        child.stop()
        next((data / "words" / "words").glob("*.idx")).unlink()
        child, vectors = serve("after")
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        stores = Stores(ledger, pipeline, vectors)
        with pytest.raises(VectorsUnavailable, match="scrub"):
            found(vectors)
        assert counts(stores.scrub("words")) == (0, 2, 0)
        assert found(vectors) == 2
        assert counts(stores.scrub("words")) == (2, 0, 0)
        vectors.close()
    child.stop()


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ("default", (0, 0, 2)),  # with their points their metadata are lost
        ("default/edge/segments/*/vector_storage/*/chunk_0.mmap", (0, 2, 0)),
        ("default/edge/segments/*/payload_storage/page_0.dat", (0, 0, 2)),
    ],
    ids=["all", "vectors", "payloads"],
)
def test_vectors_whose_files_are_lost_are_an_error_until_a_scrub_has_put_them_again(
    model_store: ArtifactStore,
    valkey_url: str,
    tmp_path: Path,
    lost: str,
    expected: tuple[int, int, int],
) -> None:
    data = tmp_path / "vectors"

    def serve(name: str) -> tuple[Process, EdgeVectors]:
        child = shard_child(data, socket_path=tmp_path / name, floor_mib=1)
        child.start()
        return child, EdgeVectors(tmp_path / name)

    texts = {"d": b"open failed", "b": b"it failed"}
    child, vectors = serve("before")
    with closing(Ledger(connect(valkey_url))) as ledger, closing(vectors):
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        pipeline.create_collection(CollectionParams(name="default"))
        Stores(ledger, pipeline, vectors).fill(texts)
        child.stop()
        [path] = data.glob(lost)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        child, vectors = serve("after")
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        stores = Stores(ledger, pipeline, vectors)
        assert pipeline.lacking() == ["default"]
        pipeline.ensure_indexes()
        params = {"collection": "default", "limit": 5, "filter": None, "with_text": False}
        asked = [Item({}, b"open failed")]
        status, _ = stores.do(Kind.SEARCH, params, asked)
        assert status is Status.FAILED
        assert stores.ingest({"c": b"another"}) is Status.SUCCEEDED  # writes go on
        stores.dispatcher.run_queue(Queue.SCRUB)
        stores.scrub(first=BUCKETS - 1)  # the rest of a pass that began before they were lost
        status, _ = stores.do(Kind.SEARCH, params, asked)
        assert status is Status.FAILED
        sound, repaired, damaged = expected
        assert counts(stores.scrub(since=0)) == (sound + 1, repaired, damaged)
        assert {hit["id"] for hit in stores.hits(b"open failed")} == {"b", "c", "d"}
        assert stores.read(*texts) == list(texts.values())
        assert pipeline.lacking() == []
        vectors.close()
    child.stop()


def test_a_collection_whose_vectors_cannot_be_read_is_one_damage_of_a_pass(
    model_store: ArtifactStore, valkey_url: str, tmp_path: Path
) -> None:
    data, socket = tmp_path / "vectors", tmp_path / "socket"
    child = shard_child(data, socket_path=socket, floor_mib=1)
    child.start()
    with closing(Ledger(connect(valkey_url))) as ledger, closing(EdgeVectors(socket)) as vectors:
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        pipeline.create_collection(CollectionParams(name="default"))
        stores = Stores(ledger, pipeline, vectors)
        stores.fill({"a": b"open failed", "b": b"it failed"})
        child.stop()
        [path] = (data / "default").glob("edge/segments/*/segment.json")
        path.write_bytes(b"")
        child = shard_child(data, socket_path=socket, floor_mib=1)
        child.start()
        found = stores.scrub()
        assert counts(found) == (0, 0, 1)
        assert (found["buckets"], found["ids"]) == (BUCKETS, ["(vectors)"])
        vectors.drop("default")
        params = {"collection": "default", "limit": 5, "filter": None, "with_text": False}
        [search] = cut(Kind.SEARCH, params, [Item({}, b"open failed")])
        with pytest.raises(VectorsDamaged, match="'default' are lost"):
            pipeline.run(read_slice(search.payload), seq=1 << 40)
    child.stop()


def test_a_point_that_encoding_does_not_give_again_is_written_under_another_name(
    stores: Stores,
) -> None:
    """As after a change of the encoder's numerics: the old point is collected."""
    stores.fill({"a": b"open failed", "b": b"its neighbour"})
    [old] = stores.points("a")
    stored = stores.vectors.get("default", [old])[old].copy()
    stored[0] ^= 1  # a code of four bits
    collection = stores.ledger.documents.collection("default")
    renamed = vector_hash(Space.of(collection).raw(stored))

    def rename(data: bytes) -> bytes:
        entry = Entry.unpack(data)
        [record] = entry.records
        assert record.codec is not Codec.NEURAL
        return replace(entry, records=(replace(record, vector_hash=renamed),)).pack()

    stores.alter("a", rename)
    [middle] = stores.points("a")
    payload = stores.vectors.payloads("default", [old])[old]
    [other] = stores.points("b")
    wrong = stores.vectors.get("default", [other])[other]
    stores.vectors.put("default", [Point(middle, wrong, payload)])
    assert counts(stores.scrub()) == (1, 1, 0)
    assert stores.read("a") == [b"open failed"]
    [new] = stores.points("a")
    assert new != middle
    assert stores.stored("a").flags & Flag.VERIFIED
    for token, _ in stores.redis.zscan_iter("verso:gc"):
        stores.redis.zadd("verso:gc", {token: 0})
    stores.dispatcher.run_queue(Queue.SCRUB)
    assert stores.vectors.get("default", [middle]) == {}
    assert counts(stores.scrub()) == (2, 0, 0)


def test_workers_of_both_precisions_serve_what_either_wrote(stores: Stores, tmp_path: Path) -> None:
    """A vector may have other last bits; a repair that does not meet them writes again."""
    texts = {**TEXTS, "long": LONG}
    stores.fill(texts)
    with closing(
        ArtifactStore(tmp_path / "kept", tmp_path, threads=1, device="cpu", precision="float16")
    ) as model_store:
        engine = model_store.open(ARTIFACT).recorder.engine
        assert isinstance(engine, EngineClient)
        assert engine.info()["encoder_precision"] == "float16"
        pipeline = make_pipeline(model_store, stores.vectors, stores.ledger, buckets=BUCKETS)
        other = Stores(stores.ledger, pipeline, stores.vectors)
        assert other.read(*texts) == list(texts.values())
        assert other.hits(LONG)[0]["id"] == "long"
        stores.vectors.remove("default", stores.points("long")[1:])
        assert counts(other.scrub()) == (len(texts) - 1, 1, 0)
        other.fill({name + " again": text for name, text in texts.items()})
    assert stores.read(*texts) == list(texts.values())
    assert stores.read(*(name + " again" for name in texts)) == list(texts.values())
    assert counts(stores.scrub()) == (2 * len(texts), 0, 0)


def test_a_neural_record_whose_vector_was_altered_is_damaged(
    stores: Stores, model_store: ArtifactStore
) -> None:
    """Its text was in the vector as much as in the patch, so nothing can prove a repair."""
    stores.fill({"a": b"open failed", "b": b"its neighbour"})
    collection = stores.ledger.documents.collection("default")
    key, text = bytes.fromhex(collection.checksum_key), b"open failed"
    [point] = stores.points("a")
    stored = stores.vectors.get("default", [point])[point]
    [payload] = model_store.current().recorder.engine.code(
        [text], Space.of(collection).widen(stored[None])
    )
    assert payload is not None

    def neural(data: bytes) -> bytes:
        entry = Entry.unpack(data)
        [record] = entry.records
        new = replace(record, codec=Codec.NEURAL, payload=payload, checksum=checksum(text, key=key))
        return replace(entry, records=(new,)).pack()

    stores.alter("a", neural)
    assert counts(stores.scrub()) == (2, 0, 0)
    about = stores.vectors.payloads("default", [point])[point]
    stores.vectors.put("default", [Point(point, stored[::-1].copy(), about)])
    assert counts(stores.scrub()) == (1, 0, 1)
    assert stores.read("a", "b") == [RecordCorrupt.code, b"its neighbour"]


def test_a_document_that_waits_for_its_verify_is_not_mended_by_the_scrub(stores: Stores) -> None:
    stores.ingest({"a": b"kept as well"}, "both")
    stores.alter("a", flip, "both")
    before = stores.ledger.documents.entry("both", ["a"])
    scrub: Scrub = stores.pipeline._management.scrub
    collection = stores.ledger.documents.collection("both")
    found = scrub.run(collection, BucketRange(0, BUCKETS, 60.0))
    assert counts(found.public()) == (0, 0, 1)
    assert stores.ledger.documents.entry("both", ["a"]) == before
    stores.dispatcher.run_queue(Queue.SCRUB)
    assert counts(stores.scrub("both")) == (1, 0, 0)


def test_a_repair_yields_to_a_write_that_came_meanwhile(stores: Stores) -> None:
    stores.fill({"a": b"first"})
    old = stores.ledger.documents.entry("default", ["a"])["a"]
    stores.fill({"a": b"second"})
    assert not stores.ledger.documents.repair("default", "a", old=old, entry=old, text=None)
    assert stores.read("a") == [b"second"]


def test_a_collection_that_is_gone_has_nothing_to_scrub(stores: Stores) -> None:
    found = stores.scrub("nowhere")
    assert (found["documents"], found["buckets"]) == (0, BUCKETS)


def test_a_job_ends_before_a_bucket_that_cannot_be_judged_and_the_next_fails(
    stores: Stores,
) -> None:
    """A collection that only the vector store has lost is not a collection that is gone."""
    name = next(name for name in map(str, range(99)) if bucket_of(name, buckets=BUCKETS) == 9)
    stores.fill({name: b"a text"})
    stores.vectors.drop("default")
    first = stores.scrub()["buckets"]
    assert 1 <= first <= 9
    header = {"first": 9, "count": 7, "spend_s": 60.0}
    status, _ = stores.do(Kind.SCRUB, {"collection": "default"}, [Item(header)], queue=Queue.SCRUB)
    assert status is Status.FAILED


def test_a_pass_over_all_collections_adds_up_in_the_metrics(stores: Stores) -> None:
    stores.fill({f"d{n}": b"text %d" % n for n in range(20)})
    stores.fill({"k": b"kept as well"}, "both")
    stores.alter("d7", flip)
    stores.alter("k", garble, "both")
    scrubber = Scrubber(stores.ledger, share=1.0, every_s=1000.0, pass_s=1000.0)
    for _ in range(100):
        scrubber.step()
        stores.dispatcher.run_queue(Queue.SCRUB)
        if stores.ledger.scrub.state().ended is not None:
            break
    state = stores.ledger.scrub.state()
    assert {**state.counts, "bytes": 0} == {
        "documents": 21, "sound": 19, "repaired": 1, "damaged": 1, "bytes": 0, "unread": 0,
        "orphans": 0,
    }  # fmt: skip
    assert [(one.collection, one.document) for one in state.damaged] == [("default", "d7")]
    registry = CollectorRegistry()
    registry.register(LedgerCollector(stores.ledger, server=lambda: ask_server(stores.redis)))
    for status, value in (("sound", 19), ("repaired", 1), ("damaged", 1)):
        sample = registry.get_sample_value("verso_scrub_documents_total", {"status": status})
        assert sample == value
    assert registry.get_sample_value("verso_records_damaged") == 1
    assert registry.get_sample_value("verso_scrub_pass_progress_ratio") == 1
