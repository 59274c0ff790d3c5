"""Lines of one statement, lines nearest to a question, and the lines around each."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.verso_worker.rules.log_lines import (
    NAME,
    START,
    ingest,
    lines,
    query,
)
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item

from verso_core.jobs import CollectionKind, Kind, Queue
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.logs.lines import time_ns
from verso_core.jobs.logs.records import LineRecord, marked, write_line
from verso_ledger.collections.logs import Logs
from verso_worker.records.segments import BLOCK_LINES
from verso_worker.rules.logs.query import page

LONG = b"x " * 5000


@pytest.fixture
def logs(stores: Stores) -> Stores:
    """The stores, with an empty log collection."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    return stores


def rows(logs: Stores, **asked: Any) -> list[dict[str, Any]]:
    pages = query(logs, raw=False, **asked)
    return [json.loads(row) for page in pages for row in page.data.splitlines()]


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in found]


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_lines_of_a_statement_are_read_by_its_id(logs: Stores, order: str) -> None:
    for host in "ab":
        ingest(logs, lines(1500, host=host), host=host)
    logs.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "0:2"})])
    _, [result] = logs.do(
        Kind.STATEMENTS, {"collection": NAME}, [Item({})], queue=Queue.INTERACTIVE
    )
    for one in result.items[0]["statements"]:
        own = rows(logs, statement=one["id"], order=order, limit=100)
        assert len(own) == one["count"]
        assert len({row["id"] for row in own}) == len(own)
        times = [time_ns(row["time"]) / 1e9 for row in own]
        assert times == sorted(times, reverse=order == "newest")
        assert {min(times), max(times)} == {one["first_seen"], one["last_seen"]}
    assert rows(logs, statement="99999") == []
    [one] = {row["statement"] for row in rows(logs, statement=one["id"], question="a key")}


def test_pages_of_the_nearest_lines_hold_each_line_once(logs: Stores) -> None:
    for host in "ab":
        ingest(logs, lines(900, host=host), host=host)
    asked: dict[str, Any] = {"question": "a key was accepted"}
    found = rows(logs, limit=70, **asked)
    assert sorted(row["id"] for row in found) == sorted(
        f"{s}:{n}" for s in (0, 1) for n in range(900)
    )
    assert all("Accepted key" in text for text in texts(found[:450]))
    scores = [row["score"] for row in found]
    assert scores == sorted(scores, reverse=True)
    first = [row["time"] for row in found[:450] if row["statement"] == found[0]["statement"]]
    assert first == sorted(first, reverse=True)
    of_b = {"filter": {"field": "host", "eq": "b"}, "start_ns": (START + 800) * 10**9}
    assert len(rows(logs, limit=9, **asked, **of_b)) == 100


def test_lines_that_have_every_value_of_a_question_come_first(logs: Stores) -> None:
    ingest(logs, lines(900), host="a")
    row = next(row for row in lines(900).splitlines() if b"write to block" in row)
    block = row.split()[-2].decode()
    found = rows(logs, question=f"what failed at {block}?", limit=300)
    assert block in found[0]["text"]
    assert "score" not in found[0]
    assert len({one["id"] for one in found}) == len(found) == 900


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_of_many_streams_some_lines_are_in_memory(
    logs: Stores, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are listed, each once, whatever page they are in, and whatever of them pass."""
    drawn, sent = random.Random(4), {}
    monkeypatch.setattr(page, "_MOST_BLOCKS", 20)
    monkeypatch.setattr(page, "_FEW_BLOCKS", 20)
    for stream in range(12):
        at, own = START + stream % 5, []
        for n in range(drawn.randrange(200, 600)):
            at += drawn.randrange(3)
            own.append(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ} {stream} event {n}")
        sent[stream] = own
        ingest(logs, "".join(f"{row}\n" for row in own).encode(), verify=False, host=str(stream))
    logs.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "3:130"})])
    del sent[3][130]
    monkeypatch.setattr(page, "PAGE_BYTES", 60_000)
    held = []
    ready = page.Page._ready

    def noted(self: page.Page) -> int | None:
        found = ready(self)
        held.append(sum(len(one.keys) for one in self._streams.values() if one.batch is not None))
        return found

    monkeypatch.setattr(page.Page, "_ready", noted)
    every = [row for own in sent.values() for row in own]
    for limit, contained in (0, ""), (700, ""), (0, "event 13"):
        wanted = [row for row in every if contained in row]
        asked: dict[str, Any] = {"contains": contained} if contained else {}
        found = texts(rows(logs, order=order, limit=limit, **asked))
        assert sorted(found) == sorted(wanted)
        times = [row.split()[0] for row in found]
        assert times == sorted(times, reverse=order == "newest")
        by_stream: dict[int, list[str]] = {}
        for row in found:
            by_stream.setdefault(int(row.split()[1]), []).append(row)
        step = -1 if order == "newest" else 1
        for stream, own in by_stream.items():
            assert own[::step] == [row for row in sent[stream] if row in set(wanted)]
    assert max(held) <= BLOCK_LINES * len(sent)


def test_lines_around_a_line_are_of_the_same_source(logs: Stores) -> None:
    """Streams that differ in the level are one source, in the order of their times."""
    for level, parity in (("info", 0), ("error", 1)):
        own = [
            write_line(LineRecord(b"line %d" % n if n != 402 else LONG), (START + n) * 10**9)
            for n in range(600)
            if n % 2 == parity
        ]
        labels: dict[str, Any] = {**marked({"host": "a", "level": level})}
        ingest(logs, b"\n".join([*own, b""]), **labels)
    ingest(logs, lines(600, host="b"), host="b")
    logs.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "0:199"})])  # line 398
    of_errors = {"field": "level", "eq": "error"}
    [found] = rows(logs, filter=of_errors, contains="line 401", before=4, after=3, limit=0)
    assert texts(found["before"]) == ["line 396", "line 397", "line 399", "line 400"]
    assert texts(found["after"]) == [LONG.decode(), "line 403", "line 404"]
    assert found["after"][1]["labels"] == {"host": "a", "level": "error"}
    [first] = rows(logs, filter=of_errors, limit=0, contains="line 1", before=2)[:1]
    assert texts(first["before"]) == ["line 0"]
    assert first["after"] == []


def test_lines_around_plain_lines_keep_the_order_of_their_stream(logs: Stores) -> None:
    stamps = [datetime.fromtimestamp(START + (n * 7) % 50, UTC) for n in range(400)]
    text = "".join(f"{at:%Y-%m-%dT%H:%M:%S}Z event number {n}\n" for n, at in enumerate(stamps))
    ingest(logs, text.encode(), host="a")
    found = rows(logs, contains="number 25", before=3, after=2, limit=0)
    assert [row["id"] for row in found] == ["0:25", *(f"0:{n}" for n in range(250, 260))]
    for row in found:
        number = int(row["id"].removeprefix("0:"))
        assert [int(one["id"][2:]) - number for one in row["before"]] == [-3, -2, -1]
        assert [int(one["id"][2:]) - number for one in row["after"]] == [1, 2]


def test_a_page_of_lines_with_others_around_is_short(logs: Stores) -> None:
    ingest(logs, lines(900), host="a")
    pages = query(logs, raw=False, before=1)
    assert [page.lines for page in pages] == [200, 200, 200, 200, 100]


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_short_page_reads_few_of_many_streams(
    logs: Stores, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """All have lines at one time, and few have one of the page: the others are not read."""
    right, read = Logs.read, [0]

    def counted(self: Logs, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        read[0] += len(places)
        return right(self, uid, places)

    monkeypatch.setattr(Logs, "read", counted)
    for n in range(12):
        ingest(logs, lines(300, start=20 * n), host=f"h{n}")
    every = rows(logs, limit=0, order=order)
    times = [row["time"] for row in every]
    assert times == sorted(times, reverse=order == "newest")
    assert len({row["id"] for row in every}) == 3600
    for more in ({}, {"contains": "user"}):
        read[0] = 0
        [first] = query(logs, pages=1, raw=False, limit=15, order=order, **more)
        assert read[0] <= 4
        own = [row for row in every if "user" in row["text"] or not more]
        assert [json.loads(row)["time"] for row in first.data.splitlines()] == [
            row["time"] for row in own[:15]
        ]
    found = rows(logs, limit=37, order=order)
    assert [row["time"] for row in found] == times
    assert {row["id"] for row in found} == {row["id"] for row in every}


def test_a_page_has_a_bound_whatever_number_of_streams_has_lines_of_one_time(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE_BYTES", 1000)
    monkeypatch.setattr(page, "_MOST_BYTES", 4000)
    parts = [lines(150, host=f"h{n}") for n in range(9)]
    for n, part in enumerate(parts):
        ingest(logs, part, host=f"h{n}")
    pages = query(logs)
    assert {len(one.data) // 1000 for one in pages[:-1]} <= {1, 2, 3, 4}
    found = b"".join(one.data for one in pages).splitlines()
    assert sorted(found) == sorted(b"".join(parts).splitlines())
    assert [row[:20] for row in found] == sorted(row[:20] for row in found)


def test_a_line_without_a_time_has_the_same_one_however_it_is_read(logs: Stores) -> None:
    """A block is read alone by its lines' ids and statements, a segment whole in a list."""
    drawn = random.Random(6)
    text = b"".join(
        b"    at app.Main.step(Main.java:%d)\n" % n
        if drawn.random() < 0.5
        else b"2026-01-01T%02d:%02d:00Z a app: failed at step %d\n" % (n // 60, n % 60, n)
        for n in range(1200)
    )
    ingest(logs, text, host="a")
    assert_one_time_each(logs)


def test_times_without_a_year_are_the_same_in_a_segment_of_years(logs: Stores) -> None:
    """Its last time does not tell the years of its first lines."""
    days = [datetime(2023, 3, 1, tzinfo=UTC) + timedelta(days=n) for n in range(600)]
    text = "".join(f"{day:%b %d %H:%M:%S} a app: ran job {n}\n" for n, day in enumerate(days))
    ingest(logs, text.encode(), arrived_s=int(days[-1].timestamp()), host="a")
    assert_one_time_each(logs)
    times = [time_ns(row["time"]) for row in rows(logs, limit=0)]
    assert len(rows(logs, start_ns=times[0], end_ns=times[-1] + 1)) == 600
    assert len(rows(logs, start_ns=times[300], end_ns=times[400])) == 100


def assert_one_time_each(logs: Stores) -> None:
    """Check that a list, lists of statements and reads by id say the same of each line."""
    times = {row["id"]: row["time"] for row in rows(logs, limit=0)}
    assert {row["id"]: row["time"] for row in rows(logs, limit=0, skip_damaged=True)} == times
    _, [result] = logs.do(
        Kind.STATEMENTS, {"collection": NAME}, [Item({})], queue=Queue.INTERACTIVE
    )
    own = [
        row
        for one in result.items[0]["statements"]
        for row in rows(logs, statement=one["id"], limit=0)
    ]
    assert {row["id"]: row["time"] for row in own} == times
    names = [f"0:{n}" for n in range(0, len(times), 64)]
    asked = [Item({"id": name}) for name in names]
    _, [read] = logs.do(Kind.RECONSTRUCT, {"collection": NAME}, asked)
    assert [one["time"] for one in read.items] == [time_ns(times[name]) / 1e9 for name in names]
