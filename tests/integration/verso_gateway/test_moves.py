"""Callers of two gateways while a collection moves between two ledgers: no request goes astray."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx2
import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_gateway.conftest import Gateway
from tests.integration.verso_keeper.moving import NAME, World

from verso_core.jobs import CollectionKind
from verso_core.jobs.moves import MoveStage
from verso_core.record import Entry
from verso_core.segments import Segment

START = Callable[..., Gateway]


@pytest.fixture
def servers(valkey_server: Callable[..., ValkeyServer]) -> dict[str, ValkeyServer]:
    return {name: valkey_server(appendfsync="everysec") for name in ("home", "b")}


@contextmanager
def gateways(
    servers: dict[str, ValkeyServer], start: START, *, kind: CollectionKind
) -> Iterator[tuple[World, list[Gateway]]]:
    world = World.of(servers, seed=1, kind=kind)
    options = {"ledgers": f"b={servers['b'].url}", "feed_routes": f"lines={NAME}"}
    try:
        both = [start(servers["home"].url, **options) for _ in range(2)]
        for one in both:  # in one process, two first requests at once make their models at once
            if kind is CollectionKind.DOCUMENTS:  # of lines it would wait for a worker
                one.client.get(f"/v1/collections/{NAME}/documents")
        yield world, both
    finally:
        world.close()


@contextmanager
def at_work(world: World) -> Iterator[None]:
    """Let a worker and keepers run until the end; each move is taken on at once."""
    over = threading.Event()

    def run() -> None:
        def sleep(_: float) -> None:
            world.work()
            time.sleep(0.005)

        movers = [world.mover(name, sleep=sleep) for name in world.ledgers]
        for mover in movers:
            mover._clock = time.time
        while not over.is_set():
            for mover in movers:
                mover.step()
            world.work()
            time.sleep(0.006)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def await_moved(gateway: Gateway, target: str) -> None:
    """Move the collection, and wait until nothing of it is left where it was."""
    path = f"/v1/collections/{NAME}/move"
    started = gateway.client.post(path, json={"ledger": target})
    assert started.status_code == 200, started.text
    until = time.monotonic() + 400
    while True:
        state = gateway.client.get(path).json()
        if state["stage"] == MoveStage.DONE:
            return
        assert time.monotonic() < until, state
        time.sleep(0.1)


class Callers:
    """Callers of two gateways: each repeats a request until it is taken, and notes faults."""

    def __init__(self, world: World, gateways: list[Gateway]) -> None:
        self.world = world
        self.gateways = gateways
        self.jobs: dict[int, str] = {}
        self.sent: Counter[bytes] = Counter()
        self.wrong: list[str] = []
        self.longest_s = 0.0
        self._over = threading.Event()

    def run(self, *acts: Callable[[int], None], targets: list[str]) -> None:
        """Let callers act until the collection has moved to each target."""

        def repeat(act: Callable[[int], None]) -> None:
            for number in itertools.count(1):
                if self._over.wait(0.03):
                    return
                act(number)

        threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
        with at_work(self.world):
            for thread in threads:
                thread.start()
            try:
                for target in targets:
                    await_moved(self.gateways[0], target)
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()

    def send(self, gateway: Gateway, path: str, **request: Any) -> httpx2.Response:
        """Send a request until it is taken."""
        began = time.monotonic()
        while True:
            answer = gateway.client.post(path, **request)
            if answer.status_code in (200, 202):
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                return answer
            if answer.status_code not in (429, 503):
                self.wrong.append(answer.text)
                return answer
            time.sleep(0.1)

    def ingest(self, number: int, *, at: int = 0) -> str:
        """Send a document with a key; return its job."""
        body = {
            "collection": NAME,
            "documents": [{"id": f"d{number % 50}", "text": f"text {number}"}],
        }
        headers = {"Idempotency-Key": f"key-{number}"}
        gateway = self.gateways[(number + at) % 2]
        return str(self.send(gateway, "/v1/ingest", json=body, headers=headers).json()["id"])

    def write(self, number: int) -> None:
        """Send a document, and note it."""
        self.jobs[number] = self.ingest(number)
        self.world.texts[f"d{number % 50}"] = f"text {number}".encode()

    def list(self, number: int) -> None:
        """List the documents."""
        gateway = self.gateways[number % 2]
        answer = gateway.client.get(f"/v1/collections/{NAME}/documents")
        if answer.status_code != 200:
            self.wrong.append(answer.text)

    def feed(self, number: int) -> None:
        """Send records as an agent does, twice."""
        rows = "".join(
            f'{{"create": {{"_index": "lines", "_id": "{number}-{n}"}}}}\n'
            f'{{"message": "record {number} {n}"}}\n'
            for n in range(3)
        )
        headers = {"Content-Type": "application/x-ndjson"}
        for gateway in self.gateways:
            self.send(gateway, "/es/_bulk", content=rows, headers=headers)
        self.sent.update(f"record {number} {n}".encode() for n in range(3))

    def lines(self, number: int) -> None:
        """Send a line with a key, twice."""
        headers = {"Content-Type": "text/plain", "Idempotency-Key": f"lines-{number}"}
        for gateway in self.gateways:
            self.send(
                gateway,
                "/v1/ingest",
                params={"collection": NAME},
                content=f"line {number}\n",
                headers=headers,
            )
        self.sent[f"line {number}".encode()] += 1


def test_documents_are_taken_once_wherever_their_collection_is(
    servers: dict[str, ValkeyServer], start_gateway: START
) -> None:
    """A key finds its job after the move, through a gateway that read the lists before it too."""
    with gateways(servers, start_gateway, kind=CollectionKind.DOCUMENTS) as (world, both):
        callers = Callers(world, both)
        callers.run(callers.write, callers.list, targets=["b", "home", "b"])
        for number in [*callers.jobs][::7]:
            assert callers.ingest(number, at=1) == callers.jobs[number]
        assert callers.wrong == []
        assert callers.longest_s < 60
        assert len(set(callers.jobs.values())) == len(callers.jobs) > 20
        world.settle()
        assert world.holder().name == "b"
        found = {
            document: Entry.unpack(entry).records[0].payload
            for document, entry in world.holder().documents.entries(NAME)
        }
        assert found == world.texts
        held = both[1].client.get("/v1/ledgers").json()["ledgers"]
        assert [one["collections"] for one in held] == [0, 1]


def test_lines_are_taken_once_wherever_their_collection_is(
    servers: dict[str, ValkeyServer], start_gateway: START
) -> None:
    with gateways(servers, start_gateway, kind=CollectionKind.LOGS) as (world, both):
        callers = Callers(world, both)
        callers.run(callers.feed, callers.lines, targets=["b", "home"])
        assert callers.wrong == []
        world.settle()
        ledger = world.holder()
        assert ledger.name == "home"
        state = ledger.logs.state(NAME)
        places = [Segment.unpack(one) for one in ledger.logs.segments(state.uid)]
        assert state.lines == sum(place.lines for place in places) == sum(callers.sent.values())
        assert len({(place.stream, place.first) for place in places}) == len(places)


def test_a_drained_ledger_is_left(servers: dict[str, ValkeyServer], start_gateway: START) -> None:
    with gateways(servers, start_gateway, kind=CollectionKind.DOCUMENTS) as (world, both):
        client = both[0].client
        world.act(20)
        refused = client.patch("/v1/ledgers/home", json={"draining": False, "move": True})
        assert refused.status_code == 422, refused.text
        with at_work(world):
            assert client.patch("/v1/ledgers/home", json={"draining": True, "move": True})
            until = time.monotonic() + 400
            while True:
                home, other = client.get("/v1/ledgers").json()["ledgers"]
                if home["leaving"] == 0:
                    break
                assert time.monotonic() < until
                time.sleep(0.1)
        assert (home["collections"], other["collections"], home["draining"]) == (0, 1, True)
        world.check()


def test_collections_of_a_drained_ledger_are_spread_and_one_that_stays_keeps_no_other(
    servers: dict[str, ValkeyServer],
    valkey_server: Callable[..., ValkeyServer],
    start_gateway: START,
) -> None:
    third = valkey_server(appendfsync="everysec")
    with gateways(servers, start_gateway, kind=CollectionKind.DOCUMENTS) as (world, _):
        home = world.ledgers["home"]
        made = home.documents.collections()[NAME]
        client = home.moves.scripts.client
        for name in ("a", "large", "larger"):
            home.documents.collection_put(made.model_copy(update={"name": name}))
        for name, size in (("large", 4), ("larger", 5)):  # as if they held so much
            uid = cast("bytes", client.hget("verso:uids", name)).decode()
            client.hset(f"verso:counts:{uid}", "bytes_entries", size << 30)
        migration = '{"stage": "copy", "source": "a", "target": "a", "old_removed": false}'
        client.hset("verso:migrations", "a", migration)
        ledgers = f"b={servers['b'].url} c={third.url}"
        platform = start_gateway(servers["home"].url, ledgers=ledgers).client
        answer = platform.patch("/v1/ledgers/home", json={"draining": True, "move": True})
        assert (answer.status_code, answer.json()["code"]) == (409, "migration_refused")
        assert "'a'" in answer.json()["detail"]
        moves = home.moves.all()
        assert set(moves) == {NAME, "large", "larger"}
        assert {moves["large"].target, moves["larger"].target} == {"b", "c"}
        again = platform.patch("/v1/ledgers/home", json={"draining": True, "move": True})
        assert again.status_code == 409
        assert home.moves.all() == moves


def test_moves_that_cannot_be_are_refused(
    servers: dict[str, ValkeyServer], start_gateway: START
) -> None:
    with gateways(servers, start_gateway, kind=CollectionKind.DOCUMENTS) as (world, both):
        client = both[0].client
        path = f"/v1/collections/{NAME}/move"
        assert client.get(path).json()["code"] == "not_found"
        assert client.post(path, json={"ledger": "none"}).json()["code"] == "not_found"
        assert client.post(path, json={"ledger": "home"}).json()["code"] == "migration_refused"
        assert client.post(path, json={"ledger": "b"}).json()["stage"] == "copy"
        assert client.post(path, json={"ledger": "b"}).json()["stage"] == "copy"
        cancelled = client.delete(path)
        assert (cancelled.status_code, cancelled.json()["stage"]) == (200, "cancelled")
        assert client.delete(path).json()["code"] == "migration_refused"
        assert client.post(path, json={"ledger": "b"}).json()["code"] == "collection_busy"
        world.mover("home").step()
        ended = client.get(path).json()
        assert (ended["stage"], ended["ended"] is not None) == ("cancelled", True)
        assert client.post(path, json={"ledger": "b"}).json()["stage"] == "copy"


def test_a_move_is_described_while_no_ledger_serves_its_collection(
    servers: dict[str, ValkeyServer], start_gateway: START
) -> None:
    """It has left its ledger, and the keeper has yet to publish it on the other one."""
    with gateways(servers, start_gateway, kind=CollectionKind.DOCUMENTS) as (world, both):
        client, home = both[0].client, world.ledgers["home"]
        path = f"/v1/collections/{NAME}/move"
        assert client.post(path, json={"ledger": "b"}).json()["stage"] == "copy"
        move = home.moves.all()[NAME]
        assert home.moves.step(move, move.model_copy(update={"stage": MoveStage.SWITCHED}))
        home.moves.scripts.client.hset("verso:shut", f"n:{NAME}", "gone b")
        started = time.monotonic()
        answer = client.get(path)
        assert (answer.status_code, answer.json()["stage"]) == (200, "switched"), answer.text
        migration = client.get(f"/v1/collections/{NAME}/migrate")
        assert migration.json()["code"] == "migration_refused"  # there is none
        assert time.monotonic() - started < 8.0


def test_what_an_operator_asks_for_is_done_once_under_its_key(
    servers: dict[str, ValkeyServer], start_gateway: START
) -> None:
    """A move whose answer was lost may have ended by then, or somebody have cancelled it."""
    with gateways(servers, start_gateway, kind=CollectionKind.DOCUMENTS) as (world, both):
        client, path = both[0].client, f"/v1/collections/{NAME}/move"

        def asked(method: str, key: str, **body: object) -> tuple[int, str]:
            headers = {"Idempotency-Key": key}
            answer = client.request(method, path, json=body or None, headers=headers)
            return answer.status_code, answer.json().get("stage") or answer.json()["code"]

        assert asked("DELETE", "none") == (404, "not_found")
        assert asked("POST", "one", ledger="b") == (200, "copy")
        assert asked("POST", "one", ledger="home") == (422, "idempotency_conflict")
        assert [asked("DELETE", "two") for _ in range(2)] == [(200, "cancelled")] * 2
        world.mover("home").step()
        assert asked("POST", "one", ledger="b") == (200, "cancelled")
        assert asked("POST", "three", ledger="b") == (200, "copy")
        assert asked("DELETE", "two") == (200, "copy")

        def drain(key: str, *, draining: bool) -> bool:
            headers, body = {"Idempotency-Key": key}, {"draining": draining}
            answer = client.patch("/v1/ledgers/b", json=body, headers=headers)
            [found] = [one for one in answer.json()["ledgers"] if one["name"] == "b"]
            return bool(found["draining"])

        assert drain("four", draining=True)
        assert not drain("five", draining=False)
        assert not drain("four", draining=True)
