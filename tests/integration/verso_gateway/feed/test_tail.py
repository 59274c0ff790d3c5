"""The live tail: lines from acceptance on, with no worker at work, at any gateway."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import redis
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway

from verso_core import api_keys
from verso_core.api_keys import Scope, mint
from verso_core.jobs import Queue
from verso_gateway.tail import stream
from verso_ledger.events import job_events

PUSH = "/loki/api/v1/push"
TAIL = "/v1/logs/tail"
LOGS = {"collection": "logs"}
STOPPED = {"Prefer": "respond-async"}
Event = tuple[str, str, Any]


@pytest.fixture
def stopped(client: httpx2.Client, worker: FakeWorker) -> FakeWorker:
    """A worker that has made the collection ``logs`` and is stopped."""
    push(client, "the first one makes the collection")
    until = time.monotonic() + 60
    while worker.ledger.maintenance.depths()[Queue.BULK].queued and time.monotonic() < until:
        time.sleep(0.01)
    worker.pause()
    return worker


def push(client: httpx2.Client, *texts: str, headers: Any = None, **labels: str) -> None:
    values = [[str(time.time_ns()), text] for text in texts]
    body = {"streams": [{"stream": labels or {"job": "x"}, "values": values}]}
    assert client.post(PUSH, json=body, headers=headers).status_code == 204


@contextmanager
def tail(client: httpx2.Client, *, after: str | None = None, **params: Any) -> Iterator[Any]:
    """Yield the events of a tail; the first of them is consumed: the tail is open."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with client.sse(TAIL, params=LOGS | params, headers=headers) as source:
        assert source.response.status_code == 200, source.response.read()
        assert source.response.headers["content-type"].startswith("text/event-stream")
        events = ((one.event, one.id, json.loads(one.data)) for one in source)
        yield events


def lines(events: Iterator[Event], count: int) -> list[Event]:
    """Return the next events, all of them lines."""
    found = [next(events) for _ in range(count)]
    assert {name for name, _, _ in found} <= {"line"}
    return found


def texts(events: Iterator[Event], count: int) -> list[str]:
    return [data["text"] for _, _, data in lines(events, count)]


def test_a_line_is_on_the_tail_when_it_is_accepted_while_workers_are_stopped(
    client: httpx2.Client, stopped: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "POLL_SUBSCRIBED_S", 3600.0)  # the tail is told, or never looks
    monkeypatch.setattr(stream, "_POSITION_S", 3600.0)
    with tail(client) as events:
        assert next(events)[0] == "position"
        for number in range(5):
            push(client, f"line {number}", service="shop", host="a")
            [(_, _, data)] = lines(events, 1)
            assert data["text"] == f"line {number}"
            assert data["labels"] == {"service": "shop", "host": "a"}
            assert data["id"].endswith(f":{number}")
            assert data["time"].endswith("Z")
            assert data["arrived"].endswith("Z")
    assert stopped.ledger.maintenance.depths()[Queue.BULK].queued == 5


def test_a_tail_goes_on_at_another_gateway_without_loss_or_doubling(
    gateway: Gateway,
    stopped: FakeWorker,
    valkey_url: str,
    start_gateway: Callable[..., Gateway],
) -> None:
    gateways = [gateway, start_gateway(valkey_url)]
    sent = 0
    seen: list[str] = []
    after: str | None = None
    for turn in range(8):
        here, other = gateways[turn % 2], gateways[(turn + 1) % 2]
        with tail(here.client, after=after) as events:
            place = next(events)
            assert place[0] == "position"
            after = place[1]
            waiting = sent - len(seen)
            push(other.client, *(f"{sent + n}" for n in range(7)))
            sent += 7
            taken = lines(events, waiting + 4)  # some stay for the next turn
            seen += [data["text"] for _, _, data in taken]
            after = taken[-1][1]
        push(here.client, f"{sent}")  # between two tails
        sent += 1
    with tail(gateways[0].client, after=after) as events:
        next(events)
        seen += texts(events, sent - len(seen))
    assert seen == [str(number) for number in range(sent)]


def test_a_tail_that_had_no_line_goes_on_from_its_position(
    client: httpx2.Client, stopped: FakeWorker
) -> None:
    with tail(client) as events:
        _, place, _ = next(events)
    push(client, "meanwhile")
    with tail(client, after=place) as events:
        next(events)
        assert texts(events, 1) == ["meanwhile"]


def test_a_tail_shows_the_lines_that_are_asked_for(
    client: httpx2.Client, stopped: FakeWorker
) -> None:
    tree = {"or": [{"field": "level", "eq": "error"}, {"not": {"field": "host", "exists": True}}]}
    with (
        tail(client, label=["host=a", "level=error"]) as labelled,
        tail(client, contains="disk\nfull") as holding,
        tail(client, filter=json.dumps(tree)) as filtered,
    ):
        for events in (labelled, holding, filtered):
            next(events)
        push(client, "one", host="a", level="info")
        push(client, "two: the disk\nfull", host="a", level="error")
        push(client, "three", service="x")
        push(client, "four", host="b", level="error")
        assert texts(labelled, 1) == ["two: the disk\nfull"]
        assert texts(holding, 1) == ["two: the disk\nfull"]
        [two, three, four] = lines(filtered, 3)
        assert [one[2]["text"] for one in (two, three, four)] == [
            "two: the disk\nfull",
            "three",
            "four",
        ]
    with tail(client, start="kept", filter=json.dumps({"field": "id", "eq": four[2]["id"]})) as one:
        next(one)
        assert texts(one, 1) == ["four"]


def test_a_filter_may_name_attributes_and_times(client: httpx2.Client, stopped: FakeWorker) -> None:
    by_status = {"field": "http.status", "gte": 500}
    by_time = {"field": "time", "gte": "2026-11-23T00:00:01.5Z", "lt": "2026-11-23T00:00:03Z"}
    labelled = {"and": [by_status, {"field": "host", "eq": "a"}]}
    with (
        tail(client, filter=json.dumps(by_status)) as failed,
        tail(client, filter=json.dumps(by_time)) as timed,
        tail(client, filter=json.dumps(labelled)) as both,
    ):
        for events in (failed, timed, both):
            next(events)
        rows = [
            {
                "message": f"{n}",
                "host": host,
                "time": f"2026-11-23T00:00:0{n}Z",
                "http": {"status": code},
            }
            for n, (host, code) in enumerate([("a", 200), ("b", 503), ("a", 500), ("a", 404)])
        ]
        answer = client.post(
            "/v1/ingest",
            params=LOGS | {"text_field": "message"},
            content="".join(json.dumps(row) + "\n" for row in rows),
            headers={"Content-Type": "application/x-ndjson"} | STOPPED,
        )
        assert answer.status_code == 202
        push(client, "no attributes")
        assert sorted(texts(failed, 2)) == ["1", "2"]  # of two streams
        assert texts(timed, 1) == ["2"]
        assert texts(both, 1) == ["2"]
    arrived = {"field": "time", "gt": time.time() - 3600}
    with tail(client, filter=json.dumps(arrived)) as events:
        next(events)
        plain = {"Content-Type": "text/plain"} | STOPPED
        assert client.post("/v1/ingest", params=LOGS, content=b"x", headers=plain).is_success
        assert texts(events, 1) == ["x"]


def test_plain_lines_are_shown_as_they_are(client: httpx2.Client, stopped: FakeWorker) -> None:
    with tail(client) as events:
        next(events)
        answer = client.post(
            "/v1/ingest",
            params=LOGS | {"label": "app=web"},
            content=b"first\n\n\xff\xfe bytes\r\nlast",
            headers={"Content-Type": "text/plain"} | STOPPED,
        )
        assert answer.status_code == 202
        found = [data for _, _, data in lines(events, 4)]
    assert [one.get("text") for one in found] == ["first", "", None, "last"]
    assert found[2]["text_base64"] == "//4gYnl0ZXMN"
    assert {one.get("time") for one in found} == {None}
    assert {one["labels"]["app"] for one in found} == {"web"}


def test_a_record_has_its_attributes_and_whose_its_time_is(
    client: httpx2.Client, stopped: FakeWorker
) -> None:
    with tail(client) as events:
        next(events)
        rows = b'{"message": "m", "host": "a", "user": {"id": 7}}\n'
        answer = client.post(
            "/v1/ingest",
            params=LOGS | {"text_field": "message"},
            content=rows,
            headers={"Content-Type": "application/x-ndjson"} | STOPPED,
        )
        assert answer.status_code == 202
        [(_, _, data)] = lines(events, 1)
    assert data["text"] == "m"
    assert data["labels"] == {"host": "a"}
    assert data["attributes"] == {"user.id": 7}
    assert data["time_from"] == "arrival"


def test_many_lines_come_in_order_and_each_once(client: httpx2.Client, stopped: FakeWorker) -> None:
    wanted = [f"{number} {'x' * 900}" for number in range(6000)]
    with tail(client) as events:
        next(events)
        push(client, *wanted)
        found = lines(events, len(wanted))
    assert [data["text"] for _, _, data in found] == wanted
    numbers = [int(place.partition("-")[2]) for _, place, _ in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(wanted)))
    with tail(client, after=found[2999][1]) as events:
        next(events)
        assert texts(events, 3000) == wanted[3000:]


def test_what_the_ledger_has_dropped_is_a_counted_gap(
    client: httpx2.Client, stopped: FakeWorker, valkey_url: str
) -> None:
    with tail(client) as events:
        _, place, _ = next(events)
    push(client, *map(str, range(10)))
    with redis.Redis.from_url(valkey_url) as ledger:
        dropped = ledger.keys("verso:payload:*")
        ledger.delete(*dropped)
        push(client, "kept")
        with tail(client, after=place) as events:
            next(events)
            name, at, gap = next(events)
            assert (name, gap) == ("gap", {"lines": 10, "reason": "dropped"})
            assert texts(events, 1) == ["kept"]
        [listed] = ledger.keys("verso:arrivals:*")
        ledger.xtrim(listed, maxlen=1, approximate=False)
        with tail(client, after=place) as events:
            next(events)
            assert next(events)[2] == {"lines": 10, "reason": "dropped"}
            assert texts(events, 1) == ["kept"]
    with tail(client, after=at) as events:
        next(events)
        assert texts(events, 1) == ["kept"]
    page = client.get("/metrics").text
    assert 'verso_tail_lines_total{status="lost"} 20.0' in page


@pytest.mark.parametrize("after", ["999999-1", "{uid}-999999"])
def test_an_id_of_something_else_is_a_gap_of_unknown_length(
    client: httpx2.Client, stopped: FakeWorker, after: str
) -> None:
    with tail(client) as events:
        _, place, _ = next(events)
    with tail(client, after=after.format(uid=place.partition("-")[0])) as events:
        assert next(events)[2] == {"lines": None, "reason": "unknown"}
        push(client, "from now on")
        assert texts(events, 1) == ["from now on"]


def test_the_query_says_where_to_go_on_unless_the_header_does(
    client: httpx2.Client, stopped: FakeWorker
) -> None:
    with tail(client) as events:
        next(events)
        push(client, "one", "two", "three")
        first, second, _ = (place for _, place, _ in lines(events, 3))
    with tail(client, last_event_id=first) as events:
        next(events)
        assert texts(events, 2) == ["two", "three"]
    with tail(client, after=second, last_event_id=first) as events:
        next(events)
        assert texts(events, 1) == ["three"]


def test_a_tail_may_begin_with_what_no_worker_has_stored(
    client: httpx2.Client, stopped: FakeWorker
) -> None:
    push(client, "waits")
    with tail(client, start="unstored") as events, tail(client, start="kept") as all_of_them:
        next(events)
        assert texts(events, 1) == ["waits"]
        next(all_of_them)
        assert texts(all_of_them, 1) == ["waits"]


def test_what_cannot_be_tailed_is_refused(client: httpx2.Client, stopped: FakeWorker) -> None:
    def refused(**params: str) -> tuple[int, str]:
        headers = {"Last-Event-ID": params.pop("after", "")}
        answer = client.get(TAIL, params=LOGS | params, headers=headers)
        return answer.status_code, answer.json()["code"]

    assert refused(collection="default") == (422, "kind_unsupported")
    assert refused(collection="missing") == (404, "collection_unknown")
    assert refused(after="here") == (422, "request_invalid")
    assert refused(filter="{") == (422, "request_invalid")
    assert refused(filter='{"and": [{"field": "x"}]}') == (422, "request_invalid")
    assert refused(label="x") == (422, "request_invalid")
    assert refused(start="then") == (422, "request_invalid")


def test_a_reader_that_stops_reading_holds_up_nobody_and_loses_what_is_dropped(
    gateway: Gateway, stopped: FakeWorker, valkey_url: str
) -> None:
    client, total = gateway.client, 0
    parts = urlsplit(gateway.url)
    with socket.create_connection((parts.hostname, parts.port)) as slow, tail(client) as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sendall(
            f"GET {TAIL}?collection=logs HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode()
        )
        next(quick)
        data = b""
        while b"event: position" not in data:  # it is open
            data += slow.recv(65536)
        for _ in range(12):
            push(client, *("y" * 4000 for _ in range(500)))
            total += 500
            lines(quick, 500)
        with redis.Redis.from_url(valkey_url) as ledger:
            ledger.delete(*ledger.keys("verso:payload:*"))
        push(client, "the end")
        lines(quick, 1)
        slow.settimeout(120)
        while b'"the end"' not in data:
            data += slow.recv(1 << 20)
    rows = [json.loads(row[6:]) for row in data.splitlines() if row.startswith(b"data: ")]
    got = sum("text" in row for row in rows) - 1
    lost = sum(row.get("lines", 0) for row in rows if "reason" in row)
    assert 0 < lost < total
    assert got + lost == total


def test_more_tails_than_the_limit_are_turned_away(
    valkey_url: str, stopped: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    gateway = start_gateway(valkey_url, tail_limit=1)
    with tail(gateway.client) as events:
        next(events)
        answer = gateway.client.get(TAIL, params=LOGS)
        assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")
        assert answer.headers["Retry-After"] == "5"
        assert "verso_tail_streams 1.0" in gateway.client.get("/metrics").text
    until = time.monotonic() + 60
    while "verso_tail_streams 0.0" not in gateway.client.get("/metrics").text:
        assert time.monotonic() < until


def test_a_tail_ends_when_its_collection_is_deleted(
    client: httpx2.Client, stopped: FakeWorker
) -> None:
    with tail(client) as events:
        next(events)
        stopped.ledger.documents.collection_delete("logs")
        assert list(events) == []
    stopped.ledger.maintenance.drop_due()


def test_a_key_sees_the_tails_of_its_own_collections_until_it_is_revoked(
    valkey_url: str,
    worker: FakeWorker,
    tmp_path: Path,
    start_gateway: Callable[..., Gateway],
) -> None:
    file = tmp_path / "keys"
    heads: dict[str, dict[str, str]] = {}
    for name, scopes in (("ann", [Scope.INGEST, Scope.READ]), ("bob", [Scope.READ])):
        secret, key = mint(name, scopes=scopes)
        api_keys.add(file, key)
        heads[name] = {"Authorization": f"Bearer {secret}"}
    secret, key = mint("sender", scopes=[Scope.INGEST])
    api_keys.add(file, key)
    gateway = start_gateway(valkey_url, api_keys_file=file)
    push(gateway.client, "hers", headers=heads["ann"])

    def answer(headers: dict[str, str]) -> int:
        return gateway.client.get(TAIL, params=LOGS, headers=headers).status_code

    assert answer(heads["bob"]) == 404
    assert answer({"Authorization": f"Bearer {secret}"}) == 403
    assert answer({}) == 401
    with gateway.client.sse(TAIL, params=LOGS, headers=heads["ann"]) as source:
        events = iter(source)
        assert next(events).event == "position"
        api_keys.revoke(file, "ann")
        assert [one.event for one in events] == []
