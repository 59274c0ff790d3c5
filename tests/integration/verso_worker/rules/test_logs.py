"""Lines of a log collection: what goes in comes out, in order, whatever happens meanwhile."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item
from tests.wire import cut as wire_cut

from verso_core.jobs import CollectionKind, Kind, Queue, Result, SliceSpec, Status
from verso_core.jobs.admin import CollectionParams
from verso_core.jobs.lines import IngestLinesParams, LinesItem, LinesPage
from verso_core.jobs.slices import cut
from verso_ledger import NewJob
from verso_worker.rules.pipeline import Pipeline

NAME = "lines"
START = 1_767_225_600  # 2026-01-01


@pytest.fixture
def logs(stores: Stores) -> Stores:
    """The stores, with an empty log collection."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    return stores


def lines(count: int, *, start: int = 0, host: str = "a") -> bytes:
    """Return lines of four statements, a second apart."""
    drawn = random.Random(start)
    rows = []
    for n in range(start, start + count):
        at = f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z {host}"
        match n % 4:
            case 0:
                rows.append(f"{at} sshd[{drawn.randrange(9999)}]: Accepted key for user{n % 7}")
            case 1:
                rows.append(
                    f"{at} kernel: eth{n % 2}: link is up at {drawn.choice([10, 100])} Mbps"
                )
            case 2:
                rows.append(f"{at} disk: write to block {drawn.randrange(10**9)} failed")
            case _:
                rows.append(f"{at} proxy: open 10.0.{n % 250}.{drawn.randrange(250)}:443")
    return "".join(row + "\n" for row in rows).encode()


def ingest(logs: Stores, *parts: bytes, verify: bool = True, **labels: str) -> list[dict[str, Any]]:
    """Take lines in, a slice a part, and return the results of the slices."""
    counts = [part.count(b"\n") + (not part.endswith(b"\n")) for part in parts]
    place = logs.ledger.logs.reserve(NAME, labels, sum(counts))
    params = IngestLinesParams(
        collection=NAME,
        uid=place.uid,
        stream=place.stream,
        labels=labels,
        arrived=START * 1_000_000_000,
    )
    slices: list[SliceSpec] = []
    first = place.first
    for part, count in zip(parts, counts, strict=True):
        item = LinesItem(first, count, part)
        slices += cut(Kind.INGEST_LINES, params, [item], max_bytes=1 << 30)
        first += count
    job = NewJob(kind=Kind.INGEST_LINES, queue=Queue.BULK, slices=slices)
    accepted = logs.ledger.jobs.accept(job)
    logs.dispatcher.run_queue(Queue.BULK)
    record = logs.ledger.jobs.get(accepted.job_id)
    assert record.status is Status.SUCCEEDED, record.error
    if verify:
        logs.dispatcher.run_queue(Queue.SCRUB)
    frames = [logs.ledger.jobs.result(accepted.job_id, n) for n in range(len(slices))]
    return [Result.unpack(Kind.INGEST_LINES, data or b"").only.public() for data in frames]


def query(logs: Stores, **asked: Any) -> list[LinesPage]:
    """Return all pages of a query."""
    pages: list[LinesPage] = []
    cursor = None
    while True:
        params = {"collection": NAME, "limit": 0, "raw": True, **asked, "cursor": cursor}
        accepted = logs.ledger.jobs.accept(
            NewJob(
                kind=Kind.LINES,
                queue=Queue.INTERACTIVE,
                slices=list(wire_cut(Kind.LINES, params, [Item({})])),
            )
        )
        logs.dispatcher.run_queue(Queue.INTERACTIVE)
        data = logs.ledger.jobs.result(accepted.job_id, 0)
        assert data is not None, logs.ledger.jobs.get(accepted.job_id).error
        page: LinesPage = Result.unpack(Kind.LINES, data).only
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return pages


def raw(logs: Stores, **asked: Any) -> bytes:
    return b"".join(page.data for page in query(logs, **asked))


def search(logs: Stores, question: bytes, **asked: Any) -> list[dict[str, Any]]:
    params = {"collection": NAME, "limit": 5, "filter": None, "with_text": True, **asked}
    _, [result] = logs.do(Kind.SEARCH, params, [Item({}, question)], queue=Queue.INTERACTIVE)
    found: list[dict[str, Any]] = result.items[0]["hits"]
    return found


def test_what_goes_in_comes_out_in_order(logs: Stores) -> None:
    text = lines(5000)
    half = text.index(b"\n", len(text) // 2) + 1
    found = ingest(logs, text[:half], text[half:])
    assert sum(one["lines"] for one in found) == 5000
    assert raw(logs) == text
    newest = raw(logs, order="newest").splitlines()
    assert newest == text.splitlines()[::-1]
    state = logs.ledger.logs.state(NAME)
    assert (state.lines, state.verified, state.text_bytes) == (5000, 5000, len(text))
    assert state.segment_bytes < len(text) / 4


def test_lines_without_a_line_end_at_the_end_and_any_bytes_come_out(logs: Stores) -> None:
    drawn = random.Random(5)
    text = bytes(drawn.randrange(256) for _ in range(3000)) + b"\r\n\x00\xff\n\n\nlast"
    ingest(logs, text)
    assert raw(logs) == text


def test_a_line_is_read_by_its_id_and_deleted(logs: Stores) -> None:
    text = lines(300)
    ingest(logs, text)
    rows = text.splitlines()
    assert logs.read("0:0", "0:299", "0:300", collection=NAME) == [
        rows[0], rows[299], "document_unknown",
    ]  # fmt: skip
    status, [result] = logs.do(
        Kind.DELETE, {"collection": NAME}, [Item({"id": "0:7"}), Item({"id": "0:999"})]
    )
    assert status is Status.SUCCEEDED
    assert [item["deleted"] for item in result.items] == [True, False]
    assert logs.read("0:7", collection=NAME) == ["document_unknown"]
    assert raw(logs).splitlines() == rows[:7] + rows[8:]


def test_streams_are_merged_by_time_and_pages_hold_each_line_once(logs: Stores) -> None:
    for host in "abc":
        ingest(logs, lines(700, host=host), host=host)
    found = [json.loads(row) for row in raw(logs, raw=False, limit=100).splitlines()]
    assert len(found) == 2100
    assert len({row["id"] for row in found}) == 2100
    assert [row["time"] for row in found] == sorted(row["time"] for row in found)
    only = raw(logs, filter={"field": "host", "eq": "b"})
    assert only == lines(700, host="b")
    since = raw(logs, filter={"field": "time", "gte": START + 690})
    assert len(since.splitlines()) == 30
    assert raw(logs, contains="user3", limit=1000).count(b"user3") == raw(logs).count(b"user3")


def test_a_search_finds_statements_with_counts_and_values(logs: Stores) -> None:
    ingest(logs, lines(2000))
    hits = search(logs, b"writing a block to the disk failed", mode="hybrid")
    assert {hit["count"] for hit in hits} == {500}
    line = lines(2000).splitlines()[2]
    [best, *_] = search(logs, line)
    assert "write to block" in best["statement"]
    block = line.split(b"block ")[1].split()[0]
    [value, *_] = search(logs, b"block " + block)
    assert value["count"] == 1
    plain = search(logs, b"link is up", lines=True, limit=7)
    assert len(plain) == 7


def test_small_segments_are_merged(logs: Stores) -> None:
    text = lines(600)
    rows = text.splitlines(keepends=True)
    for start in range(0, 600, 50):
        ingest(logs, b"".join(rows[start : start + 50]))
    logs.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "0:55"})])
    pipeline: Pipeline = logs.pipeline
    collection = logs.ledger.documents.collection(NAME)
    assert pipeline._log_management.merge(collection) == 11
    assert raw(logs).splitlines() == [*text.splitlines()[:55], *text.splitlines()[56:]]
    assert logs.read("0:54", "0:55", "0:56", collection=NAME)[1] == "document_unknown"


def test_a_damaged_segment_is_written_again_by_its_verify(logs: Stores) -> None:
    text = lines(2500)
    ingest(logs, text, verify=False)
    uid = logs.uid(NAME)
    name = f"verso:segment:{uid}:0:0"
    stored = logs.redis.get(name)
    assert isinstance(stored, bytes)
    data = bytearray(stored)
    data[len(data) // 2] ^= 4
    logs.redis.set(name, bytes(data))
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert raw(logs) == text
    assert logs.ledger.logs.state(NAME).verified == 2500


def test_no_flipped_bit_of_a_segment_returns_a_wrong_line(logs: Stores) -> None:
    text = lines(400)
    ingest(logs, text)
    rows = text.splitlines()
    name = f"verso:segment:{logs.uid(NAME)}:0:0"
    stored = logs.redis.get(name)
    assert isinstance(stored, bytes)
    drawn = random.Random(3)
    names = [f"0:{n}" for n in range(0, 400, 40)]
    for _ in range(60):
        data = bytearray(stored)
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        logs.redis.set(name, bytes(data))
        found = logs.read(*names, collection=NAME)
        for n, line in zip(range(0, 400, 40), found, strict=True):
            assert line in (rows[n], "record_corrupt", "patch_corrupt")
    logs.redis.set(name, stored)


def test_a_deleted_collection_leaves_no_key(logs: Stores) -> None:
    ingest(logs, lines(3000))
    uid = logs.uid(NAME)
    logs.do(Kind.COLLECTION_DELETE, {"name": NAME}, [Item({})])
    for _ in range(20):
        logs.ledger.maintenance.drop_due()
    left = [
        key for key in logs.redis.scan_iter("verso:*") if key.split(b":")[2:3] == [uid.encode()]
    ]
    assert left == []


def test_what_a_log_collection_cannot_do_is_refused(logs: Stores) -> None:
    accepted = logs.ledger.jobs.accept(
        NewJob(
            kind=Kind.FACETS,
            queue=Queue.INTERACTIVE,
            slices=list(
                wire_cut(Kind.FACETS, {"collection": NAME, "fields": ["host"]}, [Item({})])
            ),
        )
    )
    logs.dispatcher.run_queue(Queue.INTERACTIVE)
    record = logs.ledger.jobs.get(accepted.job_id)
    assert record.error is not None
    assert record.error["code"] == "kind_unsupported"
