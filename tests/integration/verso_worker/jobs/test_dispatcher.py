"""A dispatcher with the real ledger, the real vector engine and a real (tiny) model, but no Celery.

What is stored reads back; nothing is dropped before an independent verify; what fails is given
back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pytest
import redis
from tests.integration.verso_worker.worker_parts import TEXTS, Bench, make_pipeline
from tests.wire import Item, cut

from verso_core.errors import (
    Cancelled,
    DocumentUnknown,
    NotReady,
    PatchCorrupt,
    RecordCorrupt,
)
from verso_core.jobs import AnySlice, Kind, Queue, Status
from verso_core.jobs.cluster import ClusterRequest
from verso_core.jobs.collections import CollectionParams
from verso_core.record import Flag
from verso_ledger import AsyncLedger, Commit, Counting, Ledger, NewJob
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_worker.jobs import leases
from verso_worker.jobs.leases import LeaseRenewer, ProgressReporter
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.rules.kinds.call import reporting
from verso_worker.rules.ports.outcome import SliceOutcome
from verso_worker.stores.edge.client import EdgeVectors


@pytest.fixture(params=["float16", "int8"])
def bench(
    model_store: ArtifactStore,
    vectors: EdgeVectors,
    valkey_url: str,
    request: pytest.FixtureRequest,
) -> Iterator[Bench]:
    with closing(Ledger(connect(valkey_url))) as ledger:
        pipeline = make_pipeline(model_store, vectors, ledger)
        pipeline.create_collection(CollectionParams(name="default", precision=request.param))
        yield Bench(ledger, pipeline, vectors)


def test_every_text_reads_back_before_and_after_the_raw_text_is_dropped(bench: Bench) -> None:
    assert bench.ingest(TEXTS) is Status.SUCCEEDED
    assert bench.read(*TEXTS) == list(TEXTS.values())
    assert bench.ledger.maintenance.backlog().unverified == 1
    bench.dispatcher.run_queue(Queue.SCRUB)
    bench.ledger.maintenance.drop_due()
    backlog = bench.ledger.maintenance.backlog()
    assert (backlog.unverified, backlog.to_drop, backlog.dead) == (0, 0, 0)
    assert all(bench.entry(name).flags & Flag.VERIFIED for name in TEXTS)
    assert bench.read(*TEXTS) == list(TEXTS.values())


def test_a_search_finds_a_text_by_itself_and_gives_it_back(bench: Bench) -> None:
    bench.ingest(TEXTS)
    params = {"collection": "default", "limit": 2, "filter": None, "with_text": True}
    _, [result] = bench.do(Kind.SEARCH, params, [Item({}, TEXTS["short"])])
    hit = result.items[0]["hits"][0]
    assert (hit["id"], hit["chunk"], hit["metadata"]) == ("short", 0, {"n": "short"})
    assert result.blobs[hit["blob"]] == TEXTS["short"]
    assert hit["score"] > 0.99


def test_a_filter_leaves_other_documents_out(bench: Bench) -> None:
    bench.ingest(TEXTS)
    params = {
        "collection": "default",
        "limit": 5,
        "filter": {"metadata": {"n": ["unicode"]}},
        "with_text": False,
    }
    _, [result] = bench.do(Kind.SEARCH, params, [Item({}, TEXTS["short"])])
    assert {hit["id"] for hit in result.items[0]["hits"]} == {"unicode"}


def test_a_document_written_again_replaces_the_old_one_and_its_points(bench: Bench) -> None:
    bench.ingest({"a": TEXTS["long"]})
    before = bench.vectors.count("default")
    bench.ingest({"a": b"short now"})
    assert bench.read("a") == [b"short now"]
    assert bench.vectors.count("default") == before + 1
    _collect(bench)
    assert bench.vectors.count("default") == 1


def test_a_deleted_document_is_gone_from_reads_searches_and_points(bench: Bench) -> None:
    bench.ingest({"a": b"to be deleted", "b": b"to stay"})
    bench.do(Kind.DELETE, {"collection": "default"}, [Item({"id": "a"}), Item({"id": "x"})])
    assert bench.read("a", "b") == [DocumentUnknown.code, b"to stay"]
    _collect(bench)
    assert bench.vectors.count("default") == 1


def test_a_flipped_bit_in_a_stored_patch_is_an_error_and_never_another_text(bench: Bench) -> None:
    bench.ingest({"a": b"a text that is stored with care", "b": b"its neighbour"})
    _flip_payload(bench, "a")
    assert bench.read("a", "b") == [RecordCorrupt.code, b"its neighbour"]


def test_a_verify_that_finds_a_damaged_record_writes_it_again(bench: Bench) -> None:
    """The raw text is still held, so damage between commit and verify costs nothing."""
    bench.ingest({"a": b"a text that is stored with care"})
    _flip_payload(bench, "a")
    bench.dispatcher.run_queue(Queue.SCRUB)
    assert bench.read("a") == [b"a text that is stored with care"]
    bench.ledger.maintenance.drop_due()
    assert bench.ledger.maintenance.backlog().unverified == 0


def test_an_item_that_the_gateway_rejected_keeps_its_place_and_error(bench: Bench) -> None:
    body = {"code": "duplicate_id", "detail": "twice", "retryable": False}
    items = [Item({"id": "a"}, b"one"), Item({"rejected": body}), Item({"id": "b"}, b"two")]
    status, [result] = bench.do(Kind.INGEST, {"collection": "default"}, items)
    assert status is Status.SUCCEEDED
    assert [item["ok"] for item in result.items] == [True, False, True]
    assert result.items[1]["error"] == body


def test_a_bare_vector_gives_a_guess_marked_as_one(bench: Bench) -> None:
    _, [embedded] = bench.do(Kind.EMBED, {}, [Item({}, b"some text")])
    vector = embedded.blobs[embedded.items[0]["blob"]]
    for beam in (1, 3):
        guess = Item({"vector": True, "beam": beam, "max_tokens": 8}, vector)
        _, [result] = bench.do(Kind.RECONSTRUCT, {"collection": None}, [guess])
        [item] = result.items
        assert item["exact"] is False
        assert 0.0 <= item["confidence"] <= 1.0
        assert item["log_probability"] <= 0.0


@pytest.mark.parametrize(
    ("vector", "message"),
    [(b"\0" * 8, "dim"), (b"\0\0\xc0\x7f" * 384, "finite"), (b"\0" * 1536, "length")],
)
def test_a_vector_that_is_none_is_refused(bench: Bench, vector: bytes, message: str) -> None:
    params = {"collection": "default", "limit": 1, "filter": None, "with_text": False}
    _, [result] = bench.do(Kind.SEARCH, params, [Item({"vector": True}, vector)])
    error = result.items[0]["error"]
    assert error["code"] == "vector_invalid"
    assert message in error["detail"]


def test_a_job_on_an_unknown_collection_does_not_stay_in_the_queue(bench: Bench) -> None:
    status, _ = bench.do(Kind.STATS, {"name": "nowhere"}, [Item({})])
    assert status is Status.FAILED
    assert bench.ledger.maintenance.depths()[Queue.BULK].queued == 0


def test_statistics_count_what_is_stored(bench: Bench) -> None:
    bench.ingest(TEXTS)
    _, [result] = bench.do(Kind.STATS, {"name": "default"}, [Item({})])
    [stats] = result.items
    assert stats["documents"] == len(TEXTS)
    assert stats["bytes_text"] == sum(map(len, TEXTS.values()))
    assert stats["points"] == stats["chunks"] == sum(c["records"] for c in stats["codecs"].values())
    assert stats["bytes_patches"] == sum(c["bytes"] for c in stats["codecs"].values())
    assert "checksum_key" not in stats


def test_an_entry_cut_to_a_stump_is_counted_and_stops_nothing(bench: Bench) -> None:
    bench.ingest({"a": b"to be cut", "b": b"its neighbour"})
    client: redis.Redis = bench.ledger._redis
    [key] = [name for name in client.scan_iter("verso:docs:*") if client.hexists(name, "a")]
    client.hset(key, "a", b"\x01\x00")
    while bench.ledger.documents.count("default", scrubbed=1) is Counting.MORE:
        pass  # as after a pass of the scrub
    _, [result] = bench.do(Kind.STATS, {"name": "default"}, [Item({})])
    assert (result.items[0]["documents"], result.items[0]["unreadable"]) == (1, 1)
    assert bench.read("a", "b") == [PatchCorrupt.code, b"its neighbour"]


def test_a_collection_that_keeps_texts_gives_one_where_the_record_is_damaged(bench: Bench) -> None:
    params = {"name": "both", "text_policy": "both"}
    bench.do(Kind.COLLECTION_CREATE, params, [Item({})])
    bench.ingest({"a": b"kept as well"}, collection="both")
    _flip_payload(bench, "a")
    assert bench.read("a", collection="both") == [b"kept as well"]


def _flip_payload(bench: Bench, document: str) -> None:
    """Damage a stored entry behind the ledger's back."""
    client: redis.Redis = bench.ledger._redis
    [key] = [name for name in client.scan_iter("verso:docs:*") if client.hexists(name, document)]
    entry = bytearray(cast("bytes", client.hget(key, document)))
    entry[-3] ^= 0x10  # the last of the payload, before the CRC
    client.hset(key, document, bytes(entry))


def _collect(bench: Bench) -> None:
    """Let the delay of the garbage list pass by moving it into the past."""
    client: redis.Redis = bench.ledger._redis
    for token, _ in client.zscan_iter("verso:gc"):
        client.zadd("verso:gc", {token: 0})
    bench.dispatcher.run_queue(Queue.SCRUB)


def _grouped(bench: Bench, **asked: Any) -> tuple[dict[str, Any], list[list[bytes]]]:
    params = ClusterRequest(**asked).model_dump(mode="json")
    status, [result] = bench.do(Kind.CLUSTER, params, [Item({})])
    assert status is Status.SUCCEEDED
    [item] = result.items
    shown = [[result.blobs[m["blob"]] for m in g["representatives"]] for g in item["groups"]]
    return item, shown


def test_records_are_grouped_by_template_with_what_is_new(bench: Bench) -> None:
    lines = [b"session %d opened" % n for n in range(5)] + [b"disk sd%d failed" % n for n in (1, 2)]
    items = [Item({"id": f"l{n}", "time": float(n)}, line) for n, line in enumerate(lines)]
    bench.do(Kind.INGEST, {"collection": "default"}, items)
    item, shown = _grouped(bench, method="templates", since=5.0)
    described = [
        (g["size"], g["template"], g["first_seen"], g["last_seen"], g["new"])
        for g in item["groups"]
    ]
    assert described == [
        (5, "session <*> opened", 0.0, 4.0, False),
        (2, "disk sd<*> failed", 5.0, 6.0, True),
    ]
    assert (item["records"], item["clusters"], item["alone"], item["unread"]) == (7, 2, 0, 0)
    assert shown[1][0] in lines[5:]


def test_records_are_grouped_by_vector(bench: Bench) -> None:
    bench.ingest({"a": b"the disk is full", "b": b"the disk is full", "c": b"who goes there?"})
    item, shown = _grouped(bench, eps=0.01)
    assert [(g["size"], g["template"]) for g in item["groups"]] == [(2, None)]
    assert (item["alone"], shown) == (1, [[b"the disk is full"]])
    item, _ = _grouped(bench, method="hdbscan")
    assert item["records"] == 3
    bench.do(Kind.DELETE, {"collection": "default"}, [Item({"id": n}) for n in "abc"])
    assert _grouped(bench)[0]["records"] == 0


def test_more_records_than_pairs_are_grouped_by_the_stores_neighbours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways give the same groups."""
    texts = {f"d{n}": b"disk sd%d failed" % n for n in range(6)} | {
        f"w{n}": b"who goes there, at %d o'clock?" % n for n in range(5)
    }
    bench.ingest(texts | {"e0": b"the disk is full", "e1": b"the disk is full"})
    pairs = [_grouped(bench, eps=0.2, method=method)[0] for method in ("dbscan", "hdbscan")]
    few = replace(bench.pipeline._records.cluster, pairs=12)
    monkeypatch.setitem(bench.pipeline._of_documents, Kind.CLUSTER, reporting(few.run))
    graph = [_grouped(bench, eps=0.2, method=method)[0] for method in ("dbscan", "hdbscan")]
    assert [_sizes(one) for one in graph] == [_sizes(one) for one in pairs]


def test_a_job_is_followed_and_work_on_it_ends_where_it_is_cancelled(
    bench: Bench, valkey_url: str
) -> None:
    slices = list(cut(Kind.CLUSTER, ClusterRequest().model_dump(mode="json"), [Item({})]))
    job = NewJob(kind=Kind.CLUSTER, queue=Queue.BULK, slices=slices)
    job_id = bench.ledger.jobs.accept(job).job_id
    [lease] = bench.ledger.leases.claim(Queue.BULK, owner="worker")
    report = ProgressReporter(bench.ledger, lease, every_s=0.0)
    report("neighbours", 1, 4)

    async def told_then_cancelled() -> dict[str, Any]:
        front = AsyncLedger.from_url(valkey_url)
        events = await front.events(job_id)
        await front.cancel(job_id)
        await front.close()
        return events[-1].data

    told = asyncio.run(told_then_cancelled())
    assert told["progress"] == {"stage": "neighbours", "share": 0.25}
    with pytest.raises(Cancelled):
        report("neighbours", 2, 4)


def _sizes(item: dict[str, Any]) -> tuple[int, list[int]]:
    return item["alone"], sorted(group["size"] for group in item["groups"])


def test_the_owner_of_a_lease_learns_of_a_cancellation_long_before_it_ends(valkey_url: str) -> None:
    assert leases._RENEW_S <= 2.0
    lost = threading.Event()
    with closing(Ledger(connect(valkey_url))) as ledger:
        slices = list(cut(Kind.EMBED, {}, [Item({}, b"text")]))
        job = ledger.jobs.accept(NewJob(Kind.EMBED, Queue.INTERACTIVE, slices)).job_id
        [lease] = ledger.leases.claim(Queue.INTERACTIVE, owner="w", lease_s=3600.0)
        renewer = LeaseRenewer(ledger, owner="w", lease_s=3600.0)
        is_lost = renewer.hold(lease, on_lost=lost.set)
        renewer.start()
        ledger.jobs.cancel(job)
        assert lost.wait(60)
        assert is_lost()
        renewer.stop()


def test_a_text_that_fails_its_slice_whole_is_found_and_its_neighbours_are_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline stands behind the dispatcher as in life, but one text breaks it."""
    whole = bench.pipeline.run

    def breaks(work: AnySlice, *, seq: int, **reported: Any) -> SliceOutcome:
        if any(getattr(item, "text", b"") == b"poison" for item in work.items):
            raise ZeroDivisionError
        return whole(work, seq=seq, **reported)

    monkeypatch.setattr(bench.pipeline, "run", breaks)
    items = [Item({"id": f"n{n}", "metadata": {}}, b"text %d" % n) for n in range(9)]
    items[4] = Item({"id": "bad", "metadata": {}}, b"poison")
    status, [result] = bench.do(Kind.INGEST, {"collection": "default"}, items)
    assert status is Status.SUCCEEDED
    assert [item["ok"] for item in result.items] == [n != 4 for n in range(9)]
    assert result.items[4]["error"] == {
        "code": "internal", "detail": "ZeroDivisionError", "retryable": False,
    }  # fmt: skip
    assert bench.read("n3", "n5", "bad") == [b"text 3", b"text 5", "document_unknown"]
    assert bench.ledger.maintenance.backlog().dead == 0


def test_work_that_came_before_codecs_were_checked_is_tried_until_they_are(
    bench: Bench, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a first start that may take minutes: such attempts are no errors of the slice."""
    whole, early = bench.pipeline.run, [NotReady("codecs are checked")]

    def refuses(work: AnySlice, *, seq: int, **reported: Any) -> SliceOutcome:
        if early:
            raise early.pop()
        return whole(work, seq=seq, **reported)

    monkeypatch.setattr(bench.pipeline, "run", refuses)
    assert bench.ingest({"a": b"a text", "b": b"another"}) is Status.RUNNING
    with redis.Redis.from_url(valkey_url) as raw:
        [name] = raw.keys(key("slice", "*"))
        assert raw.hmget(name, "st", "errs", "tout") == [b"queued", None, None]
    deadline = time.monotonic() + 60
    while not isinstance(bench.read("a")[0], bytes):
        assert time.monotonic() < deadline
        time.sleep(0.1)
        bench.dispatcher.run_queue(Queue.BULK)
    assert bench.read("a", "b") == [b"a text", b"another"]


def test_what_is_not_finished_in_time_goes_back_at_once_and_its_commit_is_refused(
    bench: Bench,
) -> None:
    slices = list(cut(Kind.EMBED, {}, [Item({}, b"text")]))
    job = NewJob(kind=Kind.EMBED, queue=Queue.BULK, slices=slices)
    job_id = bench.ledger.jobs.accept(job).job_id
    [lease] = bench.ledger.leases.claim(Queue.BULK, owner="worker")
    bench.dispatcher._sources[0].leases.hold(lease)
    bench.dispatcher.close()
    assert bench.dispatcher.release_all() == 1
    assert bench.ledger.leases.commit(lease, b"late", ok=1, errors=0) is Commit.STALE
    [again] = bench.ledger.leases.claim(Queue.BULK, owner="another")
    assert again.fence > lease.fence
    assert bench.ledger.leases.commit(again, b"r", ok=1, errors=0) is Commit.DONE
    assert bench.ledger.jobs.get(job_id).status is Status.SUCCEEDED


@pytest.mark.parametrize("kind", [Kind.EMBED, Kind.INGEST])
async def test_a_waiting_caller_is_notified_before_the_commit_only_of_work_that_changes_nothing(
    bench: Bench, valkey_url: str, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    queue = Queue.INTERACTIVE if kind is Kind.EMBED else Queue.BULK
    front, gate, commit = (
        AsyncLedger.from_url(valkey_url),
        threading.Event(),
        bench.ledger.leases.commit,
    )

    def held_up(*given: Any, **named: Any) -> Commit:
        assert gate.wait(60)
        return commit(*given, **named)

    monkeypatch.setattr(bench.ledger.leases, "commit", held_up)
    slot = threading.Thread(
        target=lambda: bench.dispatcher.run_queue(queue, wake_slot=lambda: None)
    )
    slot.start()
    slices = list(cut(kind, {"collection": "default"}, [Item({"id": "d"}, b"one text")]))
    job = NewJob(kind=kind, queue=queue, slices=slices, job_id="cd" * 16, wait=True)
    with front.watch("cd" * 16) as watch:
        while not (front._events.connected and bench.subscribers[queue].is_open):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await front.accept(job)
        early = await watch.end("cd" * 16, timeout_s=60.0 if kind is Kind.EMBED else 1.0, slices=1)
        assert (await front.job("cd" * 16)).status is Status.RUNNING
        gate.set()
        late = await watch.end("cd" * 16, timeout_s=60.0, slices=1)
    bench.dispatcher.close()
    await asyncio.to_thread(slot.join, 60)
    await front.close()
    assert early.record.status is (Status.SUCCEEDED if kind is Kind.EMBED else Status.RUNNING)
    assert (await asyncio.to_thread(bench.ledger.jobs.get, "cd" * 16)).status is Status.SUCCEEDED
    assert late.record.status is Status.SUCCEEDED
    assert early.results == (late.results if kind is Kind.EMBED else [None])
