"""Log records are stored as lines with a time in front, and read as their bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.integration.verso_worker.rules.log_lines import NAME, ingest, query, raw, search
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item

from verso_core.jobs import CollectionKind, Kind, Queue
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.logs.lines import time_ns
from verso_core.jobs.logs.records import LATEST_NS, LineRecord, TimeFrom, marked, write_line

START, START_NS = b"2026-11-23T", 1_795_405_566_123_456_789
LONG = b"long\n" + b"".join(b"%d, " % n for n in range(3000))


@pytest.fixture
def logs(stores: Stores) -> Stores:
    """The stores, with an empty log collection."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    return stores


def records() -> list[LineRecord]:
    found = [LineRecord(b"disk: write to block %d failed" % (n * 977)) for n in range(300)]
    found[7] = LineRecord(b"Traceback:\n  at main\0\n", TimeFrom.OBSERVED, b'{"code":[1]}')
    found[8] = LineRecord(b"", TimeFrom.ARRIVAL)
    found[9] = LineRecord(LONG, attributes=b'{"n":1}')
    found[10] = LineRecord(b"\xff\xfe")
    return found


def take_in(logs: Stores) -> list[bytes]:
    """Take records in, a microsecond apart, and return their bodies."""
    sent = records()
    lines = [write_line(one, START_NS + n * 1000) for n, one in enumerate(sent)]
    labels: dict[str, Any] = {**marked({"host": "a"})}
    [found] = ingest(logs, b"\n".join([*lines, b""]), **labels)
    assert (found["lines"], found["records"]) == (300, 1)
    return [one.text for one in sent]


def test_bodies_times_and_labels_come_out_as_they_were_sent(logs: Stores) -> None:
    texts = take_in(logs)
    assert raw(logs) == b"".join(text + b"\n" for text in texts)
    rows = [json.loads(row) for row in raw(logs, raw=False).splitlines()]
    assert len(rows) == 300
    assert rows[7]["text"] == texts[7].decode()
    assert rows[9]["text"] == LONG.decode()
    assert rows[10]["text_base64"] == "//4="
    assert {json.dumps(row["labels"]) for row in rows} == {'{"host": "a"}'}
    assert (rows[7]["time_from"], rows[7]["attributes"]) == ("observed", {"code": [1]})
    assert rows[8]["time_from"] == "arrival"
    assert rows[9]["attributes"] == {"n": 1}
    assert {*rows[0]} == {"id", "time", "text", "labels"}
    assert rows[0]["time"] == "2026-11-23T03:46:06.123456789Z"
    assert rows[299]["time"] == "2026-11-23T03:46:06.123755789Z"


def test_a_record_is_read_by_its_id(logs: Stores) -> None:
    texts = take_in(logs)
    numbers = (0, 7, 8, 9, 299)
    found = logs.read(*(f"0:{n}" for n in numbers), collection=NAME)
    assert found == [texts[n] for n in numbers]


def test_bytes_are_looked_for_in_the_body_alone(logs: Stores) -> None:
    take_in(logs)
    assert raw(logs, contains="2026-11-23T") == b""
    assert raw(logs, contains="at main") == records()[7].text + b"\n"
    assert raw(logs, contains="block 293100") == b""
    assert raw(logs, contains="block 292123 f") == b"disk: write to block 292123 failed\n"


def test_times_filter_and_order_records(logs: Stores) -> None:
    take_in(logs)
    [page] = query(logs, limit=3, order="newest", raw=False)[:1]
    assert [json.loads(row)["id"] for row in page.data.splitlines()] == ["0:299", "0:298", "0:297"]
    later = {"field": "time", "gte": "2026-11-23T03:46:06.123755789Z"}
    assert raw(logs, filter=later) == b"disk: write to block 292123 failed\n"


def test_a_search_finds_statements_without_times_and_attributes(logs: Stores) -> None:
    take_in(logs)
    params = {"collection": NAME, "limit": 5, "filter": None, "with_text": True}
    asked = [Item({}, b"write to a block failed")]
    _, [result] = logs.do(Kind.SEARCH, params, asked, queue=Queue.INTERACTIVE)
    best = result.items[0]["hits"][0]
    assert best["statement"] == "write to block <*> failed"
    assert best["count"] == 296
    assert b"disk: write to block 292123 failed" in result.blobs
    assert all(START not in blob for blob in result.blobs)
    assert best["metadata"] == {"host": "a"}
    traced = search(logs, b"Traceback: at main", lines=True)
    assert all("code" not in hit["statement"] for hit in traced if hit["statement"])


def test_plain_lines_of_the_same_labels_are_another_stream(logs: Stores) -> None:
    take_in(logs)
    ingest(logs, b"2026-11-23T03:46:07Z a plain line\n", host="a")
    assert raw(logs, contains="plain") == b"2026-11-23T03:46:07Z a plain line\n"
    assert logs.read("0:0", "1:0", collection=NAME)[1] == b"2026-11-23T03:46:07Z a plain line"


def test_attributes_are_fields_of_filters(logs: Stores) -> None:
    take_in(logs)
    assert raw(logs, filter={"field": "n", "eq": 1}) == LONG + b"\n"
    assert raw(logs, filter={"field": "metadata.code", "in": [1, 2]}) == records()[7].text + b"\n"
    some = {"or": [{"field": "code", "exists": True}, {"field": "n", "gte": 1}]}
    count = {"collection": NAME, "filter": {"not": some}}
    _, [result] = logs.do(Kind.COUNT, count, [Item({})], queue=Queue.INTERACTIVE)
    assert result.items[0]["documents"] == 298
    [hit] = search(logs, b"Traceback: at main", lines=True, filter={"field": "code", "eq": 1})
    assert hit["id"] == "0:7"


def test_a_search_finds_values_of_attributes(logs: Stores) -> None:
    trace = b'{"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}'
    sent = [LineRecord(b"paid", attributes=b"{}"), LineRecord(b"paid", attributes=trace)]
    lines = [write_line(one, START_NS + n) for n, one in enumerate(sent)]
    labels: dict[str, Any] = {**marked({})}
    ingest(logs, b"\n".join([*lines, b""]), **labels)
    found = search(logs, b"4bf92f3577b34da6a3ce929d0e0e4736", lines=True, limit=1)
    assert [hit["id"] for hit in found] == ["0:1"]


def test_from_and_to_are_exact_to_the_nanosecond(logs: Stores) -> None:
    take_in(logs)
    start = START_NS + 20_000
    rows = raw(logs, raw=False, start_ns=start, end_ns=start + 2001).splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["0:20", "0:21", "0:22"]
    assert raw(logs, start_ns=start + 1, end_ns=start + 1000) == b""


def test_records_have_their_times_up_to_the_last_of_all(logs: Stores) -> None:
    """A program may say the greatest number for a time that it does not know."""
    times = [START_NS, 7_500_000_000 * 10**9, LATEST_NS]
    text = b"".join(write_line(LineRecord(b"x"), at) + b"\n" for at in times)
    labels: dict[str, Any] = {**marked({"host": "a"})}
    ingest(logs, text, **labels)
    found = [json.loads(row) for row in raw(logs, raw=False, start_ns=START_NS).splitlines()]
    assert [time_ns(row["time"]) for row in found] == times
    for kind in (Kind.VOLUME, Kind.LABELS, Kind.STATEMENTS):
        for asked, lines in (({}, 3), ({"start_ns": START_NS + 1}, 2), ({"end_ns": LATEST_NS}, 2)):
            params = {"collection": NAME, **asked}
            _, [result] = logs.do(kind, params, [Item({})], queue=Queue.INTERACTIVE)
            assert result.items[0]["lines"] == lines
