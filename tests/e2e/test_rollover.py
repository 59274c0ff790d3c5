"""A log collection that rolls over between two ledgers: read as one that never did."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest
import redis
from tests.conftest import ValkeyServer

from verso_client import Client, Document
from verso_core.errors import (
    DocumentUnknown,
    KindUnsupported,
    PartitionedUnsupported,
    PartitionMissing,
)
from verso_core.jobs import CollectionKind, SearchMode
from verso_core.jobs.collections import STATEMENTS, STREAMS, Rollover
from verso_core.jobs.logs.lines import LinesRequest

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

PARTED, WHOLE = "rolling", "whole"
PARTS = 4
LINES = 600
START = 1_767_225_600  # 2026-01-01
DAY = 86_400


def text(part: int, host: str) -> bytes:
    """Return the lines of a host that arrive in one partition, a day of times each."""
    rows = []
    for n in range(LINES):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + part * DAY + n * DAY // LINES))
        what = (
            f"sshd[{n}]: Failed password for user{n % 5}"
            if n % 3
            else f"disk: cannot write block {n * 977} of volume v{n % 4}"
        )
        if n % 100 == 50:
            what = f"part{part}: finished the nightly report number {n}"
        rows.append(f"{at} {host} {what}")
    return ("\n".join(rows) + "\n").encode()


def rolled(server: redis.Redis) -> set[str]:
    """Return the partitions of a ledger that take no more lines."""
    held: Any = server
    names = {own: name for name, own in held.hgetall("verso:aliases").items()}
    return {
        names.get(own, own).decode()
        for own, uid in held.hgetall("verso:uids").items()
        if held.hexists(b"verso:log:" + uid, "rolled")
    }


def await_rolled(platform: Platform, second: ValkeyServer, parts: int) -> None:
    """Wait until so many partitions take no more lines."""
    end = time.monotonic() + 240
    with platform.redis() as home, redis.Redis.from_url(second.url) as other:
        while len(rolled(home) | rolled(other)) < parts:
            assert time.monotonic() < end, "it did not roll over"
            time.sleep(0.2)


@contextmanager
def stopped_keeper(platform: Platform) -> Iterator[None]:
    """Let no partition roll over, however long it takes to send the lines of one."""
    keeper = psutil.Process(platform.pid("keeper"))
    keeper.suspend()
    try:
        yield
    finally:
        keeper.resume()


@pytest.fixture(scope="module")
def platform(new_platform: Callable[..., Platform], second_ledger: ValkeyServer) -> Platform:
    made = new_platform(
        VERSO_LEDGERS=f"b={second_ledger.url}",
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
    )
    made.start()
    with made.client() as verso:
        rule = Rollover(span_s=30 * DAY, max_bytes=2000)
        for _ in range(2):
            found = verso.create_collection(PARTED, kind=CollectionKind.LOGS, rollover=rule)
            assert (found.partitions, found.rollover) == (1, rule.rule)
        verso.create_collection(WHOLE, kind=CollectionKind.LOGS)
        for part in range(PARTS):
            await_rolled(made, second_ledger, part)
            with stopped_keeper(made):
                for name, host in itertools.product((PARTED, WHOLE), "ab"):
                    report = verso.ingest_lines(
                        [text(part, host)], collection=name, labels={"host": host}
                    )
                    assert report.lines == LINES
    return made


def read(verso: Client, name: str, **asked: object) -> bytes:
    fields = {"collection": name, "limit": 0, "raw": True, **asked}
    return b"".join(verso.lines(LinesRequest.model_validate(fields)))


def get(http: httpx2.Client, path: str, **params: Any) -> dict[str, Any]:
    answer = http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_partitions_lie_on_both_ledgers_and_stand_in_no_list(verso: Client) -> None:
    assert min(one.collections for one in verso.ledgers()) >= 2
    assert {one.name for one in verso.collections()} == {"default", PARTED, WHOLE}
    told, whole = verso.stats(PARTED).lines, verso.stats(WHOLE).lines
    assert told is not None
    assert whole is not None
    assert told.lines == whole.lines == PARTS * 2 * LINES
    assert told.bytes_text == whole.bytes_text


@pytest.mark.parametrize("host", "ab")
def test_every_byte_comes_back_in_order(verso: Client, host: str) -> None:
    where = {"field": "host", "eq": host}
    expected = b"".join(text(part, host) for part in range(PARTS))
    assert read(verso, PARTED, filter=where) == expected
    newest = read(verso, PARTED, filter=where, order="newest").splitlines()
    assert newest == expected.splitlines()[::-1]
    assert read(verso, PARTED) == read(verso, WHOLE)


def test_pages_hold_every_line_once(verso: Client) -> None:
    seen: list[str] = []
    asked: dict[str, object] = {"raw": False, "limit": 700, "order": "newest"}
    while True:
        rows = [json.loads(row) for row in read(verso, PARTED, **asked).splitlines()]
        seen += [row["id"] for row in rows if "id" in row]
        if "next_cursor" not in rows[-1]:
            break
        asked["cursor"] = rows[-1]["next_cursor"]
    assert len(seen) == len(set(seen)) == PARTS * 2 * LINES
    assert {int(one.partition(":")[0]) // STREAMS for one in seen} == set(range(PARTS))


def test_a_line_is_read_by_its_id(verso: Client) -> None:
    for part in range(PARTS):
        lines = text(part, "a").splitlines()
        assert verso.get(f"{part * STREAMS}:7", collection=PARTED).data == lines[7]
    with pytest.raises(DocumentUnknown):
        verso.get(f"{9 * STREAMS}:7", collection=PARTED)


def test_times_choose_lines_of_any_partition(verso: Client) -> None:
    span = {"from": START + 1.5 * DAY, "to": START + 2.5 * DAY}
    assert read(verso, PARTED, **span) == read(verso, WHOLE, **span) != b""


@pytest.mark.parametrize("mode", [SearchMode.DENSE, SearchMode.SPARSE, SearchMode.HYBRID])
def test_a_search_finds_each_statement_once(verso: Client, mode: SearchMode) -> None:
    parted, whole = (
        verso.search("disk cannot write a block", collection=name, mode=mode)
        for name in (PARTED, WHOLE)
    )
    best, other = parted.hits[0], whole.hits[0]
    assert best.statement == other.statement
    assert (best.count, best.first_seen, best.last_seen) == (
        other.count, other.first_seen, other.last_seen,
    )  # fmt: skip
    assert [line.text for line in best.lines] == [line.text for line in other.lines]
    statements = [hit.statement for hit in parted.hits]
    assert len(statements) == len(set(statements))
    assert best.statement_id is not None
    rows = read(verso, PARTED, statement=best.statement_id).splitlines()
    assert len(rows) == best.count


def test_a_search_by_a_value_finds_its_line(verso: Client) -> None:
    for part in range(PARTS):
        asked = f"part{part}: finished the nightly report number 250"
        [hit] = verso.search(asked, collection=PARTED, lines=True, limit=1).hits
        assert f"part{part}: finished" in (hit.text or "")
        assert (hit.text or "").endswith("number 250")


def test_a_line_is_searched_by_its_id(http: httpx2.Client) -> None:
    name = f"{2 * STREAMS}:1"
    answer = http.post("/v1/search", json={"collection": PARTED, "id": name})
    assert answer.status_code == 200, answer.text
    assert answer.json()["hits"][0]["statement"].startswith("Failed password")


def test_views_count_all_partitions(http: httpx2.Client) -> None:
    for path, asked in (
        ("volume", {"interval_s": DAY, "by": "host"}),
        ("volume", {}),
        ("volume", {"from": START + 1.2 * DAY, "to": START + 3.1 * DAY, "contains": "disk"}),
        ("labels", {}),
        ("labels", {"name": "host"}),
    ):
        parted, whole = (
            get(http, f"/v1/logs/{path}", collection=name, **asked) for name in (PARTED, WHOLE)
        )
        assert parted == whole, path


def test_statements_are_those_of_one_collection(http: httpx2.Client) -> None:
    for asked in (
        {},
        {"interval_s": DAY},
        {"new_since": START + 2.5 * DAY},
        {"from": START + DAY, "to": START + 2 * DAY},
        {"from": START + DAY, "new_since": START + 2 * DAY},
    ):
        parted, whole = (
            get(http, "/v1/logs/statements", collection=name, **asked) for name in (PARTED, WHOLE)
        )
        for one in (*parted["statements"], *whole["statements"]):
            one["id"] = ""
        rows = [
            sorted(one["statements"], key=lambda row: row["statement"]) for one in (parted, whole)
        ]
        assert rows[0] == rows[1]
        assert {**parted, "statements": ()} == {**whole, "statements": ()}


def test_one_statement_is_asked_by_the_id_that_was_told(http: httpx2.Client) -> None:
    rows = get(http, "/v1/logs/statements", collection=PARTED)["statements"]
    assert any(int(row["id"]) >= STATEMENTS for row in rows)
    for row in rows:
        found = get(http, "/v1/logs/statements", collection=PARTED, statement=row["id"])
        assert found["statements"] == [row]


def test_lines_are_listed_counted_and_deleted(verso: Client, http: httpx2.Client) -> None:
    count = http.post(f"/v1/collections/{PARTED}/documents/count", json={}).json()
    assert count["documents"] == PARTS * 2 * LINES
    seen: list[str] = []
    cursor = None
    while True:
        params = {"limit": 1000} | ({} if cursor is None else {"cursor": cursor})
        page = get(http, f"/v1/collections/{PARTED}/documents", **params)
        seen += [row["id"] for row in page["documents"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert len(seen) == len(set(seen)) == PARTS * 2 * LINES


def test_what_needs_one_ledger_is_refused(verso: Client, http: httpx2.Client) -> None:
    with pytest.raises(KindUnsupported):
        verso.create_collection("x", kind=CollectionKind.LOGS, partitions=2)
    with pytest.raises(KindUnsupported):
        verso.create_collection("x", rollover=Rollover())
    with pytest.raises(PartitionedUnsupported, match="partitions by time"):
        verso.ingest([Document("a text", id="a")], collection=PARTED)
    for path, body in (
        ("/v1/cluster", {"collection": PARTED}),
        ("/v1/logs/query", {"collection": PARTED, "question": "disk"}),
    ):
        answer = http.post(path, json=body)
        assert answer.status_code == 422, path
        assert answer.json()["code"] == "partitioned_unsupported"


@contextmanager
def without(server: ValkeyServer, http: httpx2.Client) -> Iterator[str]:
    """Let a ledger not list a partition of past days, as an older copy of it does not."""
    with redis.Redis.from_url(server.url) as ledger:
        aliases = ledger.hgetall("verso:aliases")
        name = min(one for one in aliases if one.startswith(PARTED.encode()))
        own = aliases[name]
        listed = ledger.hget("verso:collections", own)
        ledger.hdel("verso:collections", own)
        told_missing(http, [name.decode()])
        yield name.decode()
        ledger.hset("verso:collections", own, listed)
        told_missing(http, [])


def told_missing(http: httpx2.Client, names: list[str]) -> None:
    """Wait until the platform says that these partitions are missing."""
    end = time.monotonic() + 60.0
    while True:
        every = {one["name"]: one for one in get(http, "/v1/collections")["collections"]}
        told = every.get(PARTED, {"missing_partitions": ["not listed until the keeper notes it"]})
        if told.get("missing_partitions", []) == names:
            return
        assert time.monotonic() < end, told
        time.sleep(0.2)


@pytest.mark.parametrize("descending", [False, True])
def test_a_list_by_time_goes_on_from_page_to_page(http: httpx2.Client, descending: bool) -> None:
    def times(name: str, limit: int) -> list[float]:
        rows: list[dict[str, Any]] = []
        cursor = None
        while True:
            asked = {"order": "time", "descending": descending, "limit": limit, "cursor": cursor}
            answer = http.post(f"/v1/collections/{name}/documents/query", json=asked)
            assert answer.status_code == 200, answer.text
            rows += answer.json()["documents"]
            if (cursor := answer.json().get("next_cursor")) is None:
                break
        assert len({row["id"] for row in rows}) == len(rows)
        return [row["time"] for row in rows]

    found = times(PARTED, 777)
    assert len(found) == 2 * PARTS * LINES
    assert found == times(WHOLE, 1000)


def asked_of_all(name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return requests that are answered from all partitions: method, path, and what they ask."""
    return [
        ("POST", "/v1/search", {"collection": name, "query": "disk cannot write a block"}),
        ("POST", f"/v1/collections/{name}/documents/count", {}),
        ("POST", f"/v1/collections/{name}/documents/query", {"limit": 3}),
        ("GET", f"/v1/collections/{name}/documents", {"limit": 3}),
        ("GET", f"/v1/collections/{name}", {}),
        ("GET", "/v1/logs/volume", {"collection": name}),
        ("GET", "/v1/logs/labels", {"collection": name}),
        ("GET", "/v1/logs/statements", {"collection": name}),
    ]


def send(
    http: httpx2.Client, method: str, path: str, asked: dict[str, Any], handling: str | None
) -> dict[str, Any]:
    """Return an answer with its status."""
    headers = {} if handling is None else {"Prefer": f"handling={handling}"}
    given: dict[str, Any] = {"params": asked} if method == "GET" else {"json": asked}
    answer = http.request(method, path, headers=headers, **given)
    return {**answer.json(), "status": answer.status_code}


def test_an_answer_without_a_missing_partition_says_so(
    verso: Client, http: httpx2.Client, platform: Platform, second_ledger: ValkeyServer
) -> None:
    with without(second_ledger, http) as name:
        part = int(name.rpartition(".")[2])
        for asked in asked_of_all(PARTED):
            told = send(http, *asked, None)
            assert (told["status"], told["missing_partitions"]) == (200, [name]), asked
            told = send(http, *asked, "strict")
            assert (told["status"], told["code"]) == (500, "partition_missing"), asked
            assert name in told["detail"]
        for asked in asked_of_all(WHOLE):
            assert "missing_partitions" not in send(http, *asked, "strict"), asked
        with Client(platform.url, strict=True) as strict, pytest.raises(PartitionMissing):
            strict.search("disk", collection=PARTED)
        assert verso.search("disk", collection=PARTED).missing_partitions == (name,)
        _check_lines_without(http, part, name)
        _check_deletes_are_refused(http)
    for asked in asked_of_all(PARTED):
        told = send(http, *asked, "strict")
        assert told["status"] == 200
        assert "missing_partitions" not in told


def _check_lines_without(http: httpx2.Client, part: int, name: str) -> None:
    """Lines are an error where they come to the partition, unless they leave it out and say so."""
    query = {"collection": PARTED, "limit": 0, "filter": {"field": "host", "eq": "a"}}
    for handling, asked in (("lenient", query), (None, {**query, "skip_damaged": True})):
        headers = {} if handling is None else {"Prefer": f"handling={handling}"}
        answer = http.post("/v1/logs/query", json=asked, headers=headers)
        assert answer.headers["Verso-Missing-Partitions"] == name
        rows = answer.text.splitlines()
        lines, last = [json.loads(row) for row in rows[:-1]], json.loads(rows[-1])
        assert last["missing_partitions"] == [name]
        assert len(lines) == (PARTS - 1) * LINES
        assert part not in {int(row["id"].partition(":")[0]) // STREAMS for row in lines}
    asked = {**query, "skip_damaged": True}
    assert send(http, "POST", "/v1/logs/query", asked, "strict")["code"] == "partition_missing"
    rows = http.post("/v1/logs/query", json=query).text.splitlines()
    told = json.loads(rows[-1])
    assert told.get("code", (told.get("error") or {}).get("code")) == "partition_missing"
    day = {"from": START + (part + 1.1) * DAY, "to": START + (part + 1.9) * DAY}
    if part < PARTS - 1:  # of other days nothing is missing
        told = send(http, "GET", "/v1/logs/volume", {"collection": PARTED, **day}, "strict")
        assert (told["status"], told["lines"] > 0) == (200, True)


def _check_deletes_are_refused(http: httpx2.Client) -> None:
    """Lines that come back with a newer copy would not be deleted."""
    path = f"/v1/collections/{PARTED}/documents/delete"
    body = {"filter": {"field": "host", "eq": "nobody"}}
    assert send(http, "POST", path, body, None)["code"] == "partition_missing"
    answer = http.post(path, json=body, headers={"Prefer": "handling=lenient, wait=60"})
    assert answer.json()["deleted"] == 0


def test_partitions_move_while_lines_come_in(
    verso: Client, http: httpx2.Client, platform: Platform
) -> None:
    where = {"field": "host", "eq": "moving"}
    sent = b""
    answer = http.patch("/v1/ledgers/b", json={"draining": True, "move": True})
    assert answer.status_code == 200, answer.text
    number, end = 0, time.monotonic() + 300.0
    while {one.name: one.collections for one in verso.ledgers()}["b"]:
        number += 1
        assert time.monotonic() < end, "a partition does not move"
        time.sleep(0.1)
        if number == 5:
            platform.kill("keeper")
        line = b"moving line %d\n" % number
        verso.ingest_lines([line], collection=PARTED, labels={"host": "moving"})
        sent += line
    assert read(verso, PARTED, filter=where) == sent
    expected = b"".join(text(part, "a") for part in range(PARTS))
    assert read(verso, PARTED, filter={"field": "host", "eq": "a"}) == expected
    with platform.redis() as home:
        assert rolled(home) >= {f"{PARTED}.{part}" for part in range(PARTS - 1)}
    verso.drain_ledger("b", draining=False)
    done = http.post(
        f"/v1/collections/{PARTED}/documents/delete",
        json={"filter": where},
        headers={"Prefer": "wait=60"},
    )
    assert done.json()["deleted"] == number
    assert read(verso, PARTED, filter=where) == b""


def test_retention_drops_the_oldest_partitions(verso: Client) -> None:
    days = (time.time() - START) / DAY - 2.1  # the lines of two days are past their time
    assert verso.change_collection(PARTED, retention_days=days).retention_days == days
    end = time.monotonic() + 240.0
    while (told := verso.stats(PARTED).lines) is None or told.lines != 2 * 2 * LINES:
        assert time.monotonic() < end, "nothing was dropped"
        time.sleep(0.2)
    expected = b"".join(text(part, "a") for part in range(2, PARTS))
    assert read(verso, PARTED, filter={"field": "host", "eq": "a"}) == expected
    with pytest.raises(DocumentUnknown):
        verso.get("0:7", collection=PARTED)
    verso.delete_collection(PARTED)
    assert {one.name for one in verso.collections()} == {"default", WHOLE}
