"""Callers of two gateways while a log collection rolls over: each line is accepted once."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_gateway.conftest import Gateway, post
from tests.integration.verso_gateway.feed.conftest import Receiver
from tests.integration.verso_keeper.rolling import NAME, SPAN_S, World

from verso_core.jobs.collections import Stage
from verso_standalone.valkey import free_port

START = Callable[..., Gateway]
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def world(valkey_server: Callable[..., ValkeyServer]) -> Iterator[World]:
    servers = {name: valkey_server(appendfsync="everysec") for name in ("home", "b")}
    found = World.of(servers, seed=1)
    found.servers = servers  # type: ignore[attr-defined]
    yield found
    found.close()


@pytest.fixture
def gateways(world: World, start_gateway: START) -> list[Gateway]:
    servers = world.servers  # type: ignore[attr-defined]
    options = {"ledgers": f"b={servers['b'].url}", "feed_routes": f"*={NAME}"}
    found = [start_gateway(servers["home"].url, **options) for _ in range(2)]
    for one in found:
        send(one.client, b"first\n")
    return found


@pytest.fixture
def syslog(world: World) -> Iterator[Receiver]:
    servers = world.servers  # type: ignore[attr-defined]
    settings = {
        "VERSO_REDIS_URL": servers["home"].url,
        "VERSO_BROKER_URL": servers["home"].url.removesuffix("/0") + "/1",
        "VERSO_LEDGERS": f"b={servers['b'].url}",
        "VERSO_FEED_ROUTES": f"*={NAME}",
        "VERSO_SYSLOG_PORT": str(free_port()),
        "VERSO_SYSLOG_UDP_PORT": "0",
        "VERSO_SYSLOG_TLS_PORT": "0",
    }
    made = Receiver(settings)
    yield made
    made.stop()


def send(client: httpx2.Client, body: bytes, **given: Any) -> httpx2.Response:
    """Send lines; ``key`` is an idempotency key, the rest are parameters."""
    key = given.pop("key", None)
    headers = TEXT | ({} if key is None else {"Idempotency-Key": key})
    params = {"collection": NAME, "label": "host=a", **given}
    return client.post("/v1/ingest", params=params, content=body, headers=headers)


def roll(world: World, parts: int = 2) -> None:
    """Let a keeper roll over once, by its own clock."""
    world.now += SPAN_S
    keeper = world.keeper()
    for _ in range(40):
        keeper.step()
        world.settle()
        if world.state.writing == parts - 1:
            return
    raise AssertionError("it did not roll over")


def test_a_key_is_known_after_the_rollover(world: World, gateways: list[Gateway]) -> None:
    one, other = (each.client for each in gateways)
    first = send(one, b"keyed\n", key="k")
    assert first.status_code == 202
    roll(world)
    for client in (one, other, one):
        again = send(client, b"keyed\n", key="k")
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.headers["Verso-Job-Id"] == first.headers["Verso-Job-Id"]
    assert send(other, b"other\n", key="k").json()["code"] == "idempotency_conflict"
    world.settle()
    assert sum(world.held().values(), Counter())[b"keyed"] == 1


def test_a_file_goes_on_where_it_was(world: World, gateways: list[Gateway]) -> None:
    one, other = (each.client for each in gateways)

    def part(client: httpx2.Client, begin: int, end: int) -> httpx2.Response:
        lines = b"".join(b"row %d\n" % n for n in range(begin, end))
        return send(client, lines, source="f", source_begin=begin, source_end=end)

    assert part(one, 0, 10).status_code == 202
    roll(world)
    moved = part(other, 0, 10)
    assert (moved.status_code, moved.json()["code"]) == (409, "source_moved")
    assert part(other, 5, 15).json()["code"] == "source_moved"
    assert part(one, 10, 20).status_code == 202
    assert part(other, 10, 20).json()["code"] == "source_moved"
    roll(world, 3)
    assert part(one, 10, 20).json()["code"] == "source_moved"
    assert part(other, 20, 30).status_code == 202
    world.settle()
    rows = {line: n for line, n in sum(world.held().values(), Counter()).items() if b"row" in line}
    assert rows == {b"row %d" % n: 1 for n in range(30)}


def test_records_with_an_identity_are_taken_once(world: World, gateways: list[Gateway]) -> None:
    def bulk(client: httpx2.Client, *ids: int) -> list[int]:
        rows = "".join(
            f'{{"create": {{"_index": "x", "_id": "{n}"}}}}\n{{"message": "m{n}"}}\n' for n in ids
        )
        answer = client.post(
            "/es/_bulk", content=rows, headers={"Content-Type": "application/x-ndjson"}
        )
        assert answer.status_code == 200, answer.text
        return [item["create"]["status"] for item in answer.json()["items"]]

    one, other = (each.client for each in gateways)
    assert bulk(one, 1, 2) == [201, 201]
    roll(world)
    for client in (one, other):
        bulk(client, 1, 2, 3)
    roll(world, 3)
    bulk(other, 3, 1, 4)
    world.settle()
    held = [*sum(world.held().values(), Counter()).elements()]
    assert [sum(b"m%d" % n in line for line in held) for n in range(1, 5)] == [1, 1, 1, 1]


def test_a_gateway_with_old_notes_writes_to_the_next_partition(
    world: World, gateways: list[Gateway]
) -> None:
    """The keeper ends when the old partition takes no more, before it notes the next."""
    keeper = world.keeper()
    world.now += SPAN_S
    while world.state.numbers != (0, 1):
        keeper.step()
        world.settle()
    assert world.home.partitions.roll(f"{NAME}.0", world.home.logs.state(f"{NAME}.0").uid)
    assert world.state.writing == 0
    for number, gateway in enumerate(gateways):
        assert send(gateway.client, b"late %d\n" % number).status_code == 202
        rows = {"streams": [{"stream": {"a": "b"}, "values": [["1", f"push {number}"]]}]}
        assert post(gateway.client, "/loki/api/v1/push", rows).status_code == 204
    world.settle()
    assert {b"late 0", b"late 1"} <= set(world.held()[1])
    assert sum(b"push" in line for line in world.held()[1]) == 2


def test_syslog_goes_to_the_partition_that_takes_lines(world: World, syslog: Receiver) -> None:
    def stored(number: int, text: bytes) -> None:
        syslog.send(b"<13>1 - - app - - - %b\n" % text)
        until = time.monotonic() + 90
        while not any(text in line for line in world.held().get(number, ())):
            assert time.monotonic() < until
            world.settle()

    stored(0, b"before")
    roll(world)
    stored(1, b"behind")


def test_lines_of_a_missing_partition_are_an_error_that_names_it(
    world: World, gateways: list[Gateway]
) -> None:
    client = gateways[0].client
    roll(world)
    state = world.state
    assert world.home.partitions.step(NAME, state, state.changed(0, stage=Stage.MISSING))
    time.sleep(1.1)  # lists are read once a second
    for path, asked in (
        ("/v1/reconstruct", {"collection": NAME, "ids": ["0:0"]}),
        ("/v1/logs/query", {"collection": NAME}),
    ):
        answer = client.post(path, json=asked)
        assert (answer.status_code, answer.json()["code"]) == (500, "partition_missing")
        assert f"{NAME}.0" in answer.json()["detail"]
    assert send(client, b"more\n").status_code == 202


@contextmanager
def at_work(world: World, *, old_s: float = 0.25) -> Iterator[None]:
    """Let a worker and two keepers run; a partition is old after so many seconds."""
    over = threading.Event()
    started = time.time()

    def work() -> None:
        while not over.is_set():
            world.work()
            time.sleep(0.002)

    def keep() -> None:
        keeper = world.keeper()
        while not over.is_set():
            world.now = started + (time.time() - started) * SPAN_S / old_s
            keeper.step()
            time.sleep(0.02)

    threads = [threading.Thread(target=one) for one in (work, keep, keep)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join()


def test_lines_of_many_callers_are_stored_once_over_rollovers(
    world: World, gateways: list[Gateway]
) -> None:
    accepted: Counter[bytes] = Counter()
    lock, refused = threading.Lock(), []
    until, longest = time.monotonic() + 4, time.monotonic() + 240

    def enough() -> bool:
        """Whether lines came in for a while and partitions rolled over meanwhile."""
        done = len(accepted) > 20 and len(world.state.parts) >= 3
        return time.monotonic() > (until if done else longest)

    def call(number: int) -> None:
        with httpx2.Client(base_url=gateways[number % 2].url, timeout=60) as client:
            for n in itertools.count():
                if enough():
                    return
                line = b"caller %d line %d" % (number, n)
                answers = [
                    send(client, line + b"\n", key=f"{number}-{n}") for _ in range(1 + n % 2)
                ]
                if any(one.status_code != 202 for one in answers):
                    refused.append(answers)
                with lock:
                    accepted[line] += 1

    with at_work(world):
        callers = [threading.Thread(target=call, args=(n,)) for n in range(4)]
        for one in callers:
            one.start()
        for one in callers:
            one.join()
    world.settle()
    assert refused == []
    assert len(world.state.parts) >= 3
    held = sum(world.held().values(), Counter())
    del held[b"first"]
    assert held == accepted
    assert len(accepted) > 20


def test_a_tail_goes_on_in_the_next_partition(world: World, gateways: list[Gateway]) -> None:
    one, other = (each.client for each in gateways)
    params = {"collection": NAME}
    with one.sse("/v1/logs/tail", params=params) as source:
        assert source.response.status_code == 200
        every = iter(source)
        assert next(every).event == "position"  # it is open
        events = (event for event in every if event.event == "line")
        send(other, b"before\n")
        found = next(events)
        assert "before" in found.data
        roll(world)
        time.sleep(1.1)
        send(other, b"behind\n")
        assert "behind" in next(events).data
    send(other, b"more\n")
    with other.sse("/v1/logs/tail", params=params, headers={"Last-Event-ID": found.id}) as source:
        events = (event for event in source if event.event == "line")
        assert ["behind" in next(events).data, "more" in next(events).data] == [True, True]
