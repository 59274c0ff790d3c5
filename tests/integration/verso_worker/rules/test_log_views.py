"""Volume, labels and statements of lines agree with the lines themselves."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
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

from verso_core.jobs import CollectionKind, Kind, Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.logs.lines import time_ns
from verso_core.jobs.logs.records import LineRecord, marked, write_line

SECOND = 1_000_000_000
Asked = dict[str, Any]
WHERES: list[Asked] = [
    {},
    {"filter": {"field": "host", "eq": "a"}},
    {"start_ns": (START + 500) * SECOND, "end_ns": (START + 2900) * SECOND + 1},
    {"start_ns": (START + 100) * SECOND, "filter": {"not": {"field": "n", "gte": 50}}},
    {"filter": {"field": "host", "eq": "z"}},
]
WHERE = pytest.mark.parametrize("where", WHERES, ids=["all", "host", "times", "attribute", "none"])


@pytest.fixture(scope="module")
def logs(kept_stores: Stores) -> Stores:
    """Lines of three streams, one of them of records, with some deleted; only read, until the end.

    The last test of the file adds a line.
    """
    stores = kept_stores
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    ingest(stores, lines(3000), host="a")
    ingest(stores, lines(700, start=1500, host="b"), lines(40, start=2200, host="b"), host="b")
    drawn = random.Random(7)
    records = [
        write_line(
            LineRecord(b"job %d of queue ended" % n, attributes=json.dumps({"n": n}).encode()),
            (START + drawn.randrange(3000)) * SECOND + n,
        )
        for n in range(200)
    ]
    labels: Asked = {**marked({"host": "c", "level": "info"})}
    ingest(stores, b"\n".join([*records, b""]), **labels)
    gone = [Item({"id": f"0:{n}"}) for n in (0, 7, 2999)]
    stores.do(Kind.DELETE, {"collection": NAME}, gone)
    return stores


@pytest.fixture
def ask(logs: Stores) -> Callable[..., Asked]:
    """Ask something of the collection."""

    def asked(kind: Kind, **params: Any) -> Asked:
        _, [result] = logs.do(
            kind, {"collection": NAME, **params}, [Item({})], queue=Queue.INTERACTIVE
        )
        found: Asked = result.items[0]
        return found

    return asked


def rows_of(logs: Stores, where: Asked) -> list[Asked]:
    pages = query(logs, raw=False, **where)
    return [json.loads(row) for page in pages for row in page.data.splitlines()]


def exact(text: str) -> float:
    return time_ns(text) / 1e9


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text[:19] + "Z").astimezone(UTC).timestamp())


@WHERE
def test_volume_counts_the_lines_of_each_interval(
    logs: Stores, ask: Callable[..., Asked], where: Asked
) -> None:
    rows = rows_of(logs, where)
    found = ask(Kind.VOLUME, interval_s=60.0, by="level", **where)
    assert found["lines"] == len(rows)
    counts = dict(zip(found["starts"], found["counts"], strict=True))
    assert {at: n for at, n in counts.items() if n} == Counter(
        seconds(row["time"]) // 60 * 60 for row in rows
    )
    series = {one["value"]: sum(one["counts"]) for one in found["series"]}
    assert series == Counter(row["labels"].get("level") for row in rows)


@WHERE
def test_volume_counts_the_lines_that_have_a_text(
    logs: Stores, ask: Callable[..., Asked], where: Asked
) -> None:
    rows = rows_of(logs, where)
    for text in ("7", "no such text"):
        having = [row for row in rows if text in row["text"]]
        found = ask(Kind.VOLUME, interval_s=60.0, by="level", contains=text, **where)
        assert found["lines"] == len(having)
        counts = dict(zip(found["starts"], found["counts"], strict=True))
        assert {at: n for at, n in counts.items() if n} == Counter(
            seconds(row["time"]) // 60 * 60 for row in having
        )


def test_some_sixty_intervals_are_shown_by_default(ask: Callable[..., Asked]) -> None:
    found = ask(Kind.VOLUME)
    assert (found["interval_s"], len(found["starts"])) == (60.0, 50)
    assert found["series"] == []
    empty = ask(Kind.VOLUME, start_ns=SECOND, end_ns=2 * SECOND)
    assert (empty["lines"], empty["counts"]) == (0, [0])


def test_too_many_intervals_are_refused(logs: Stores) -> None:
    asked = {"collection": NAME, "interval_s": 0.5}
    status, _ = logs.do(Kind.VOLUME, asked, [Item({})], queue=Queue.INTERACTIVE)
    assert status is Status.FAILED


@WHERE
def test_labels_count_lines_by_name_and_by_value(
    logs: Stores, ask: Callable[..., Asked], where: Asked
) -> None:
    rows = rows_of(logs, where)
    found = ask(Kind.LABELS, **where)
    assert found["lines"] == len(rows)
    by_name = {one["name"]: one["lines"] for one in found["labels"]}
    assert by_name == Counter(name for row in rows for name in row["labels"])
    hosts = ask(Kind.LABELS, name="host", limit=2, **where)["labels"]
    expected = Counter(row["labels"]["host"] for row in rows)
    assert [one["distinct"] for one in hosts] == ([len(expected)] if expected else [])
    values = [(one["value"], one["lines"]) for host in hosts for one in host["values"]]
    assert values == sorted(expected.items(), key=lambda row: -row[1])[:2]


@WHERE
def test_statements_say_how_often_and_when(
    logs: Stores, ask: Callable[..., Asked], where: Asked
) -> None:
    rows = rows_of(logs, where)
    found = ask(Kind.STATEMENTS, **where)
    assert found["lines"] == len(rows)
    assert found["distinct"] == len(found["statements"])
    counts = [one["count"] for one in found["statements"]]
    assert counts == sorted(counts, reverse=True)
    for word in ("Accepted", "link is", "write", "open", "queue"):
        times = [exact(row["time"]) for row in rows if word in row["text"]]
        own = [one for one in found["statements"] if word in one["statement"]]
        assert sum(one["count"] for one in own) == len(times)
        if times:
            assert min(one["first_seen"] for one in own) == min(times)
            assert max(one["last_seen"] for one in own) == max(times)


@WHERE
def test_statements_are_counted_by_interval(
    logs: Stores, ask: Callable[..., Asked], where: Asked
) -> None:
    rows = rows_of(logs, where)
    found = ask(Kind.STATEMENTS, interval_s=60.0, **where)
    total: Counter[float] = Counter()
    for one in found["statements"]:
        assert sum(one["counts"]) == one["count"]
        first, last = (int(one[name] // 60 * 60) for name in ("first_seen", "last_seen"))
        counts = {at: n for at, n in zip(found["starts"], one["counts"], strict=True) if n}
        assert (min(counts), max(counts)) == (first, last)
        total.update(counts)
    assert total == Counter(seconds(row["time"]) // 60 * 60 for row in rows)


def test_intervals_of_statements_are_those_of_the_volume(ask: Callable[..., Asked]) -> None:
    found = ask(Kind.STATEMENTS, interval_s=20.0)
    volume = ask(Kind.VOLUME, interval_s=20.0)
    assert found["starts"] == volume["starts"]
    summed = [
        sum(counts) for counts in zip(*(one["counts"] for one in found["statements"]), strict=True)
    ]
    assert summed == volume["counts"]
    assert "counts" not in ask(Kind.STATEMENTS)["statements"][0]


def test_one_statement_is_counted_alone(logs: Stores, ask: Callable[..., Asked]) -> None:
    every = ask(Kind.STATEMENTS, interval_s=60.0)["statements"]
    for one in every:
        assert ask(Kind.STATEMENTS, interval_s=60.0, statement=one["id"])["statements"] == [one]
    assert ask(Kind.STATEMENTS, statement="999999")["distinct"] == 0
    asked = {"collection": NAME, "interval_s": 0.5}
    status, _ = logs.do(Kind.STATEMENTS, asked, [Item({})], queue=Queue.INTERACTIVE)
    assert status is Status.FAILED


def test_statements_that_are_new_since_a_time(logs: Stores, ask: Callable[..., Asked]) -> None:
    late = f"{datetime.fromtimestamp(START + 2800, UTC):%Y-%m-%dT%H:%M:%S}Z b"
    ingest(logs, f"{late} raid: array md0 degraded, spare missing\n".encode(), host="b")
    since = (START + 2800) * SECOND
    [new] = ask(Kind.STATEMENTS, new_since_ns=since)["statements"]
    assert "degraded" in new["statement"]
    assert new["count"] == 1
    assert ask(Kind.STATEMENTS, new_since_ns=since + 1)["statements"] == []
    of_a = {"field": "host", "eq": "a"}
    assert ask(Kind.STATEMENTS, new_since_ns=since, filter=of_a)["distinct"] == 0
    early = {"start_ns": since - SECOND, "end_ns": since + SECOND}
    [same] = ask(Kind.STATEMENTS, new_since_ns=since, **early)["statements"]
    assert same["id"] == new["id"]


def test_a_block_of_lines_without_a_time_has_that_of_the_line_before(
    logs: Stores, ask: Callable[..., Asked]
) -> None:
    """A trace may be longer than a block, and lines may have come long after their times."""
    trace = [f"    at app.Main.step{n % 5}(Main.java:{n})".encode() for n in range(4 * 128 - 180)]
    dated = [
        b"2020-02-%02dT10:00:00Z z app: failed at step %d" % (1 + n // 20, n) for n in range(300)
    ]
    rows = [*dated[:180], *trace, *dated[180:]]
    ingest(logs, b"".join(row + b"\n" for row in rows), host="trace")
    where = {"filter": {"field": "host", "eq": "trace"}}
    at = Counter(seconds(row["time"]) // 86400 * 86400 for row in rows_of(logs, where))
    for kind in (Kind.VOLUME, Kind.STATEMENTS):
        found = ask(kind, interval_s=86_400.0, **where)
        counts = [found["counts"]] if kind is Kind.VOLUME else [
            one["counts"] for one in found["statements"]
        ]  # fmt: skip
        summed = dict(zip(found["starts"], map(sum, zip(*counts, strict=True)), strict=True))
        assert summed == at
    last = max(one["last_seen"] for one in ask(Kind.STATEMENTS, **where)["statements"])
    assert last == max(seconds(row["time"]) for row in rows_of(logs, where))
