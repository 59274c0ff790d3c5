"""What happens to lines by themselves: verify, retention; and lines that are text, among others."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.verso_worker.rules.log_lines import NAME, START, ingest, lines, raw, search
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, flip, garble
from tests.wire import Item

from verso_codecs.logs import blocks
from verso_core.errors import DocumentUnknown, RecordCorrupt
from verso_core.jobs import CollectionKind, Kind, Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_keeper.retention import Retention
from verso_ledger.collections.logs import Logs
from verso_worker.rules.logs import scrub, segments
from verso_worker.rules.logs.reading import Batch, LineReader
from verso_worker.rules.logs.writing import ingest as writing

DAY = 86_400.0
LONG = b"2026-01-01T00:01:40Z a trace of java.lang.NullPointerException " + b"at f(X.java:7) " * 700


@pytest.fixture
def logs(stores: Stores) -> Stores:
    """The stores, with an empty log collection that keeps its lines for a day."""
    stores.pipeline.create_collection(
        CollectionParams(name=NAME, kind=CollectionKind.LOGS, retention_days=1.0)
    )
    return stores


def mixed() -> list[bytes]:
    """Return lines, among them two that are text."""
    rows = lines(200).splitlines()
    return [*rows[:100], LONG, *rows[100:150], b"\xff" + LONG, *rows[150:]]


def text_of(rows: list[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in rows)


def test_blocks_that_were_coded_wrong_are_never_read_and_coded_again_by_the_verify(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingest does not decode what it codes: the text is kept until the verify has done so."""

    def wrong(*arguments: Any, **options: Any) -> bytes:
        body = bytearray(blocks.encode(*arguments, **options)[:-4])
        body[-2:] = bytes(byte ^ 0x55 for byte in body[-2:])
        return bytes(body) + zlib.crc32(body).to_bytes(4, "little")

    text = text_of(mixed())
    with monkeypatch.context() as patched:
        codec = SimpleNamespace(**(vars(blocks) | {"encode": wrong}))
        patched.setattr(segments, "block_codec", codec)
        ingest(logs, text, verify=False, host="a")
    assert logs.read("0:5", collection=NAME) == [RecordCorrupt.code]
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert raw(logs) == text


def test_the_keeper_has_lines_deleted_that_are_past_their_time(logs: Stores) -> None:
    ingest(logs, text_of(mixed()), host="a")
    ingest(logs, b"no time 1\nno time 2\n", host="b")  # theirs is when they came
    now = [START + DAY + 120.0]
    keeper = Retention(logs.ledger, every_s=60.0, clock=lambda: now[0])
    assert (keeper.step(), keeper.step()) == (1, 0)
    logs.dispatcher.run_queue(Queue.BULK)
    # The second text begins with another byte: its time is that of the line before it.
    kept = [row for row in mixed()[101:] if LONG not in row][20:]
    left = [*kept[:30], b"\xff" + LONG, *kept[30:]]
    assert raw(logs, filter={"field": "host", "eq": "a"}) == text_of(left)
    assert raw(logs, filter={"field": "host", "eq": "b"}) == b""
    assert logs.read("0:5", "0:100", collection=NAME) == [DocumentUnknown.code] * 2
    assert logs.read("0:121", collection=NAME) == [mixed()[121]]
    now[0] += 300.0
    assert keeper.step() == 1
    logs.dispatcher.run_queue(Queue.BULK)
    assert raw(logs) == b""
    assert logs.redis.keys("verso:segment:*") == []
    state = logs.ledger.logs.state(NAME)
    assert (state.lines, state.deleted, state.segment_bytes) == (0, 0, 0)
    ingest(logs, lines(10), host="a")
    assert raw(logs) == lines(10)


def test_lines_with_long_numbers_are_no_older_than_they_are(logs: Stores) -> None:
    drawn = random.Random(9)
    text = b"".join(b"order %d is closed\n" % drawn.randrange(10**8, 10**10) for _ in range(500))
    ingest(logs, text, host="a")
    keeper = Retention(logs.ledger, every_s=60.0, clock=lambda: START + DAY / 2)
    assert keeper.step() == 1
    logs.dispatcher.run_queue(Queue.BULK)
    assert raw(logs) == text


def test_text_among_lines_is_read_found_filtered_and_deleted_as_they_are(logs: Stores) -> None:
    rows = mixed()
    [found] = ingest(logs, text_of(rows), host="a")
    assert (found["lines"], found["records"]) == (202, 2)
    assert raw(logs) == text_of(rows)
    assert raw(logs, order="newest") == text_of(rows[::-1])
    assert logs.read("0:99", "0:100", "0:101", "0:151", collection=NAME) == [
        rows[99], rows[100], rows[101], rows[151],
    ]  # fmt: skip
    assert raw(logs, contains="NullPointer") == text_of([rows[100], rows[151]])
    at = {"field": "time", "gte": START + 99, "lt": START + 101}
    assert raw(logs, filter=at) == text_of([rows[99], rows[100], rows[101]])
    shown = [json.loads(row) for row in raw(logs, raw=False, contains="Null").splitlines()]
    assert [row["id"] for row in shown] == ["0:100", "0:151"]
    assert shown[0]["time"] == "2026-01-01T00:01:40Z"
    names = {hit["id"] for hit in search(logs, b"trace of a NullPointerException", mode="hybrid")}
    assert names & {"0:100", "0:151"}
    items = [Item({"id": name}) for name in ("0:100", "0:101")]
    status, [result] = logs.do(Kind.DELETE, {"collection": NAME}, items)
    assert (status, [item["deleted"] for item in result.items]) == (Status.SUCCEEDED, [True] * 2)
    assert raw(logs) == text_of([*rows[:100], *rows[102:]])
    logs.pipeline._lines.management.merge(logs.ledger.documents.collection(NAME))
    assert raw(logs) == text_of([*rows[:100], *rows[102:]])
    assert logs.read("0:100", collection=NAME) == [DocumentUnknown.code]


def test_text_of_many_lines_is_read_in_small_parts_whose_times_are_those_of_the_whole(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LONG_LINE_BYTES", 30)
    monkeypatch.setattr(writing, "BLOCK_LINES", 4)
    rows = [
        (b"" if n % 8 in (3, 4, 5) else b"2026-01-01T00:00:%02dZ " % n) + b"a long text of %d" % n
        for n in range(21)
    ]
    rows = [row.ljust(40, b".") for row in rows]
    [found] = ingest(logs, text_of(rows)[:-1], host="a")
    assert found["records"] == 21
    assert len(logs.redis.keys("verso:segment:*")) == 6
    assert raw(logs) == text_of(rows)[:-1]
    times = [json.loads(row)["time"] for row in raw(logs, raw=False).splitlines()]
    told = [max(at for at in range(n + 1) if at % 8 not in (3, 4, 5)) for n in range(21)]
    assert times == [f"2026-01-01T00:00:{at:02}Z" for at in told]
    stored = logs.do(Kind.RECONSTRUCT, {"collection": NAME}, [Item({"id": "0:12"})])[1][0].items[0]
    assert stored["time"] == START + 10


def test_small_segments_of_a_slow_stream_are_merged_day_by_day(logs: Stores) -> None:
    """Years of times are read from the day of arrival, of which a segment has one."""
    parts = [lines(10, start=10 * n) for n in range(6)]
    for n, part in enumerate(parts):
        ingest(logs, part, arrived_s=START + 8 * 3600 * n)
    logs.scrub(NAME)
    assert len(logs.redis.keys("verso:segment:*")) == 2
    assert raw(logs) == b"".join(parts)


def test_a_verify_reads_as_much_however_many_lines_its_stream_has(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines without a time have that of their arrival: their segments are never merged."""
    right, seen = Logs.read, [0]

    def read(self: Logs, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        seen[-1] += len(places)
        return right(self, uid, places)

    monkeypatch.setattr(Logs, "read", read)
    for n in range(12):
        seen.append(0)
        ingest(logs, b"no time\n" * 600, arrived_s=START + n)
    assert max(seen) <= 8
    assert raw(logs) == b"no time\n" * 7200


def test_a_worker_keeps_nothing_of_log_collections_that_are_gone(logs: Stores) -> None:
    ingest(logs, lines(100))
    search(logs, b"a write to a disk failed", mode="hybrid")
    store = logs.pipeline._lines.management.store
    assert set(store._known) == {NAME}
    logs.do(Kind.COLLECTION_DELETE, {"name": NAME}, [Item({})])
    made = CollectionParams(name="other", kind=CollectionKind.LOGS)
    dim = logs.pipeline.create_collection(made).dim
    store.open("other", dim=dim)
    assert set(store._known) == {"other"}


def test_a_scrub_counts_the_lines_and_bytes_that_it_decoded(logs: Stores) -> None:
    ingest(logs, lines(3000))
    rows = lines(3000).splitlines(keepends=True)
    items = [Item({"id": name}) for name in ("0:100", "0:2500")]
    logs.do(Kind.DELETE, {"collection": NAME}, items)
    found = logs.scrub(NAME)
    assert (found["documents"], found["sound"]) == (2998, 2998)
    assert found["bytes"] == sum(map(len, rows)) - len(rows[100]) - len(rows[2500])


def test_a_job_of_the_scrub_reads_a_part_of_the_lines(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifying waits for it, and a worker that ends has it read again."""
    ingest(logs, lines(9000))
    monkeypatch.setattr(scrub, "LINES_OF_A_JOB", 4096)
    found: list[dict[str, Any]] = []
    first = 0
    while first < BUCKETS:
        found.append(logs.scrub(NAME, first=first, count=BUCKETS - first))
        first += found[-1]["buckets"]
    assert [one["sound"] for one in found] == [4096, 4096, 808]
    assert first == BUCKETS


def test_a_scrub_finds_a_damaged_text_among_lines_and_no_line_is_lost(logs: Stores) -> None:
    rows = mixed()
    ingest(logs, text_of(rows), host="a")
    before: dict[str, Any] = logs.scrub(NAME)
    assert (before["damaged"], before["repaired"], before["ids"]) == (0, 0, [])
    logs.alter("0:100", flip, NAME)
    found = logs.scrub(NAME)
    assert found["ids"] == ["0:100"]
    assert found["damaged"] == 1
    assert logs.read("0:99", "0:100", "0:101", collection=NAME) == [
        rows[99], RecordCorrupt.code, rows[101],
    ]  # fmt: skip


def test_a_text_that_does_not_read_back_is_written_again_with_its_labels_and_time(
    logs: Stores,
) -> None:
    ingest(logs, text_of(mixed()), verify=False, host="a")
    name = "0:100"
    before = logs.vectors.payloads(NAME, logs.points(name, NAME))
    logs.alter(name, garble, NAME)
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert logs.read(name, collection=NAME) == [LONG]
    after = logs.vectors.payloads(NAME, logs.points(name, NAME))
    assert [*after.values()] == [*before.values()]
    assert {one["m"]["host"] for one in after.values()} == {"a"}


@pytest.fixture
def merging(logs: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a worker merge small segments as soon as another has listed them to read them."""
    read = LineReader.batch

    def batch(self: LineReader, *args: Any, **options: Any) -> Batch | None:
        with monkeypatch.context() as patched:
            patched.setattr(LineReader, "batch", read)
            logs.pipeline._lines.management.merge(logs.ledger.documents.collection(NAME))
        return read(self, *args, **options)

    monkeypatch.setattr(LineReader, "batch", batch)


@pytest.mark.usefixtures("merging")
def test_lines_that_are_merged_while_they_are_listed_are_all_listed(logs: Stores) -> None:
    for start in (0, 100, 200):
        ingest(logs, lines(100, start=start), verify=False, host="a")
    asked: dict[str, Any] = {"collection": NAME, "filter": {"field": "time", "gte": START + 150}}
    _, [page] = logs.do(Kind.LIST, asked | {"limit": 200}, [Item({})])
    assert [one["id"] for one in page.items[0]["documents"]] == [f"0:{n}" for n in range(150, 300)]


@pytest.mark.usefixtures("merging")
def test_lines_that_are_merged_while_they_are_counted_are_all_counted(logs: Stores) -> None:
    for start in (0, 100, 200):
        ingest(logs, lines(100, start=start), verify=False, host="a")
    asked = {"collection": NAME, "contains": "a"}
    _, [found] = logs.do(Kind.VOLUME, asked, [Item({})], queue=Queue.INTERACTIVE)
    assert found.items[0]["lines"] == 300


@pytest.mark.usefixtures("merging")
def test_lines_that_are_merged_while_a_filter_is_asked_are_all_deleted(logs: Stores) -> None:
    for start in (0, 100, 200):
        ingest(logs, lines(100, start=start), verify=False, host="a")
    asked = {"collection": NAME, "filter": {"field": "time", "gte": START + 150, "lt": START + 180}}
    status, _ = logs.do(Kind.DELETE_MATCHING, asked, [Item({"part": 0, "parts": 1})])
    assert status is Status.SUCCEEDED
    rows = [row for start in (0, 100, 200) for row in lines(100, start=start).splitlines()]
    assert raw(logs) == text_of([*rows[:150], *rows[180:]])
