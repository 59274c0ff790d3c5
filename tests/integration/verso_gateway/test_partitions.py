"""Collections of several partitions are made and deleted as a whole, whatever stops a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any

import httpx2
import pytest
from fastapi import Request
from tests.conftest import ValkeyServer
from tests.integration.verso_gateway.conftest import (
    FakeWorker,
    Gateway,
    _at_work,
    collection,
    post,
)

from verso_core.jobs import CollectionKind, Kind, Queue
from verso_core.jobs.collections import Partitioned, Stage, TimePart
from verso_gateway.partitions import managing

LONG, SOON = "wait=60", "wait=1"
INTERACTIVE = Queue.INTERACTIVE


@pytest.fixture
def own_server(valkey_server: Callable[..., ValkeyServer]) -> ValkeyServer:
    """A server on which no other test makes collections."""
    return valkey_server()


def made(
    client: httpx2.Client, name: str, partitions: int, *, prefer: str = LONG
) -> tuple[int, str]:
    body = {"name": name, "partitions": partitions}
    answer = post(client, "/v1/collections", body, Prefer=prefer)
    return answer.status_code, answer.json().get("code", "")


def deleted(client: httpx2.Client, name: str, *, prefer: str = LONG) -> tuple[int, str]:
    answer = client.delete(f"/v1/collections/{name}", headers={"Prefer": prefer})
    return answer.status_code, answer.json().get("code", "")


def ingested(client: httpx2.Client, name: str) -> tuple[int, str]:
    body = {"collection": name, "documents": [{"id": f"d{n}", "text": f"t{n}"} for n in range(9)]}
    answer = post(client, "/v1/ingest", body, Prefer=LONG)
    return answer.status_code, answer.json().get("code", "")


def test_a_collection_is_served_from_when_all_partitions_are_made_until_it_is_deleted(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url) as worker:
        client = start_gateway(own_server.url).client
        _stopped_while_it_is_made(client, worker)
        _stopped_while_it_is_deleted(client, worker)
        assert made(client, "c", 2) == (201, "")
        assert deleted(client, "c") == (200, "")
        assert deleted(client, "c") == (404, "collection_unknown")


def _stopped_while_it_is_made(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    assert made(client, "c", 3, prefer=SOON) == (503, "not_ready")
    assert ingested(client, "c") == (404, "collection_unknown")
    assert made(client, "c", 1) == (409, "collection_exists")
    assert made(client, "c", 4) == (409, "collection_exists")
    worker.gate.set()
    assert made(client, "c", 3) == (201, "")
    assert made(client, "c", 3) == (201, "")
    assert ingested(client, "c") == (200, "")
    listed = client.get("/v1/collections").json()["collections"]
    assert [(one["name"], one.get("partitions")) for one in listed] == [("c", 3), ("default", None)]


def _stopped_while_it_is_deleted(client: httpx2.Client, worker: FakeWorker) -> None:
    worker.pause()
    assert deleted(client, "c", prefer=SOON) == (503, "not_ready")
    assert ingested(client, "c") == (404, "collection_unknown")
    assert made(client, "c", 3) == (409, "collection_exists")
    worker.gate.set()
    assert deleted(client, "c") == (200, "")
    listed = client.get("/v1/collections").json()["collections"]
    assert [one["name"] for one in listed] == ["default"]


def test_a_webhook_is_refused_where_several_partitions_work(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url):
        client = start_gateway(own_server.url).client
        assert made(client, "c", 2) == (201, "")
        body = {"collection": "c", "documents": [{"id": f"d{n}", "text": "t"} for n in range(9)]}
        hook = "wh_" + "0" * 32
        for path, asked in (
            ("/v1/ingest", body),
            ("/v1/search", {"collection": "c", "query": "t"}),
            ("/v1/collections/c/documents/delete", {"filter": {"field": "a", "eq": 1}}),
        ):
            answer = post(client, path, asked, Verso_Webhook=hook)
            assert (answer.status_code, answer.json()["code"]) == (422, "partitioned_unsupported")


@pytest.fixture(params=["one ledger", "two ledgers"])
def several(
    request: pytest.FixtureRequest,
    valkey_server: Callable[..., ValkeyServer],
    start_gateway: Callable[..., Gateway],
) -> Iterator[tuple[httpx2.Client, list[FakeWorker]]]:
    """A client of a gateway of one ledger or two, and the workers of each."""
    home, *others = [valkey_server() for _ in range(1 + (request.param == "two ledgers"))]
    with ExitStack() as stack:
        workers = [stack.enter_context(_at_work(one.url)) for one in (home, *others)]
        given: dict[str, Any] = {"ledgers": f"b={others[0].url}"} if others else {}
        yield start_gateway(home.url, **given).client, workers


def days_kept(workers: list[FakeWorker]) -> set[float | None]:
    """Return the setting of each partition of a collection ``c``."""
    held = [one for worker in workers for one in worker.ledger.documents.collections().values()]
    return {one.retention_days for one in held if one.name.startswith("c.")}


def test_a_request_for_all_partitions_that_is_sent_again_is_done_once(
    several: tuple[httpx2.Client, list[FakeWorker]],
) -> None:
    """Its answer is the first one's, whatever was made of the collection's name since."""
    client, workers = several

    def asked(method: str, key: str, days: int | None = None) -> httpx2.Response:
        headers = {"Idempotency-Key": key, "Prefer": LONG}
        body = None if days is None else {"retention_days": days}
        return client.request(method, "/v1/collections/c", headers=headers, json=body)

    assert made(client, "c", 4) == (201, "")
    first = asked("PATCH", "one", 1)
    assert (first.status_code, first.json()["retention_days"]) == (200, 1)
    assert (first.json()["name"], first.json()["partitions"]) == ("c", 4)
    assert asked("PATCH", "two", 2).json()["retention_days"] == 2
    again = asked("PATCH", "one", 1)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert asked("PATCH", "one", 3).json()["code"] == "idempotency_conflict"
    assert days_kept(workers) == {2}
    for _ in range(2):
        gone = asked("DELETE", "three")
        assert (gone.status_code, gone.json()) == (200, {"name": "c"})
    for partitions in (4, 1):  # one of partitions, then one without
        assert made(client, "c", partitions) == (201, "")
        assert asked("DELETE", "three").json() == {"name": "c"}
        assert asked("PATCH", "one", 1).json() == first.json()
        assert asked("DELETE", "one").json()["code"] == "idempotency_conflict"
        assert client.get("/v1/collections/c").status_code == 200
        assert deleted(client, "c") == (200, "")
    assert asked("DELETE", "three").json() == {"name": "c"}
    for kind, slices in (("collection_change", 4), ("collection_delete", 0)):
        jobs = client.get("/v1/jobs", params={"kind": kind}).json()["jobs"]
        views = [client.get(f"/v1/jobs/{one['id']}").json() for one in jobs]
        assert {one["status"] for one in views} == {"succeeded"}
        assert slices in {len(one["results"]) for one in views}
        for one in jobs:
            assert "event: end" in client.get(f"/v1/jobs/{one['id']}/events").text
            assert client.get(f"/v1/jobs/{one['id']}/failures").json()["failures"] == []


def test_a_change_that_is_sent_again_reaches_a_partition_that_was_being_made(
    several: tuple[httpx2.Client, list[FakeWorker]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first one was that this partition is not made yet."""
    monkeypatch.setattr(managing, "_MAKING_S", 0.5)
    client, workers = several
    notes = workers[0].ledger.partitions
    body = {"name": "c", "kind": "logs", "rollover": {}}
    assert post(client, "/v1/collections", body, Prefer=LONG).status_code == 201

    def changed(key: str, days: int) -> httpx2.Response:
        headers = {"Idempotency-Key": key, "Prefer": LONG}
        return client.patch("/v1/collections/c", headers=headers, json={"retention_days": days})

    with ThreadPoolExecutor() as pool, paused(workers) as await_slices:
        first = pool.submit(changed, "k", 1)
        await_slices(1)
        before = notes.all()["c"]
        making = (*before.parts, TimePart(number=1, since=time.time()))
        assert notes.step("c", before, before.model_copy(update={"parts": making}))
        for worker in workers:
            worker.gate.set()
        assert first.result().json()["code"] == "collection_busy"
    workers[0].ledger.documents.collection_put(collection("c.1", kind=CollectionKind.LOGS))
    state = notes.all()["c"]
    assert notes.step("c", state, state.changed(1, stage=Stage.LIVE))
    again = changed("k", 1)
    assert (again.status_code, again.json()["retention_days"]) == (200, 1)
    assert days_kept(workers) == {1}
    assert changed("other", 2).status_code == 200
    assert changed("k", 1).headers["Idempotency-Replayed"] == "true"
    assert days_kept(workers) == {2}


def test_a_delete_that_was_stopped_goes_on_under_its_key(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url) as worker:
        client = start_gateway(own_server.url).client
        assert made(client, "c", 3) == (201, "")
        worker.pause()
        for _ in range(2):
            headers = {"Idempotency-Key": "k", "Prefer": SOON}
            stopped = client.delete("/v1/collections/c", headers=headers)
            assert (stopped.status_code, stopped.json()["code"]) == (503, "not_ready")
        worker.gate.set()
        assert client.delete("/v1/collections/c", headers={"Idempotency-Key": "k"}).is_success
        assert deleted(client, "c") == (404, "collection_unknown")
        assert list(worker.ledger.documents.collections()) == ["default"]


@contextmanager
def paused(workers: list[FakeWorker]) -> Iterator[Callable[[int], None]]:
    """Let workers do nothing; yield what waits until so many slices do."""
    for worker in workers:
        worker.pause()

    def await_slices(count: int) -> None:
        until = time.monotonic() + 60
        while sum(one.ledger.maintenance.depths()[INTERACTIVE].queued for one in workers) < count:
            assert time.monotonic() < until
            time.sleep(0.01)

    try:
        yield await_slices
    finally:
        for worker in workers:
            worker.gate.set()


@pytest.mark.parametrize("key", [{"Idempotency-Key": "k"}, {}])
def test_a_delete_that_is_sent_twice_at_once_succeeds_twice(
    several: tuple[httpx2.Client, list[FakeWorker]], key: dict[str, str]
) -> None:
    """The first one was cut off by a proxy, and goes on."""
    client, workers = several
    assert made(client, "c", 4) == (201, "")
    with ThreadPoolExecutor() as pool:
        with paused(workers) as await_slices:
            sent = [pool.submit(client.delete, "/v1/collections/c", headers=key) for _ in range(2)]
            await_slices(8)
        assert [one.result().json() for one in sent] == [{"name": "c"}] * 2
    assert deleted(client, "c") == (404, "collection_unknown")


def test_a_delete_that_another_one_is_faster_than_leaves_no_partition(
    several: tuple[httpx2.Client, list[FakeWorker]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a partition made that was asked for, so that it is not made later."""
    client, workers = several
    body = {"name": "c", "kind": "logs", "rollover": {}}
    assert post(client, "/v1/collections", body, Prefer=LONG).status_code == 201
    notes = workers[0].ledger.partitions
    state = notes.all()["c"]
    making = (*state.parts, TimePart(number=1, since=time.time()))
    assert notes.step("c", state, state.model_copy(update={"parts": making}))
    real, entered, done = managing._made, Event(), Event()

    async def late(request: Request, name: str, state: Partitioned) -> None:
        if not entered.is_set():
            entered.set()
            assert await asyncio.to_thread(done.wait, 60)
        await real(request, name, state)

    monkeypatch.setattr(managing, "_made", late)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(deleted, client, "c")
        assert entered.wait(60)
        second = deleted(client, "c")
        done.set()
        assert second == first.result() == (200, "")
    for worker in workers:
        assert worker.ledger.documents.collections().keys() <= {"default"}


def test_a_collection_that_is_deleted_while_it_is_made_leaves_nothing(
    several: tuple[httpx2.Client, list[FakeWorker]],
) -> None:
    client, workers = several
    with ThreadPoolExecutor() as pool:
        with paused(workers) as await_slices:
            making = pool.submit(made, client, "c", 4)
            await_slices(4)
            assert deleted(client, "c") == (200, "")
        assert making.result() == (404, "collection_unknown")
    for worker in workers:
        assert worker.ledger.documents.collections().keys() <= {"default"}


def test_of_two_collections_of_a_name_the_one_with_documents_is_served(
    several: tuple[httpx2.Client, list[FakeWorker]],
) -> None:
    """Both were asked for while no worker was there to make them."""
    client, workers = several
    with ThreadPoolExecutor() as pool:
        with paused(workers) as await_slices:
            first = post(client, "/v1/collections", {"name": "c"}, Prefer="respond-async")
            assert first.status_code == 202
            parted = pool.submit(made, client, "c", 3)
            await_slices(4)
        assert parted.result() == (409, "collection_exists")
    assert ingested(client, "c") == (200, "")
    described = [
        (one["name"], one.get("partitions"))
        for one in client.get("/v1/collections").json()["collections"]
    ]
    assert described == [("c", None), ("default", None)]
    held = [one for worker in workers for one in worker.ledger.documents.collections()]
    assert sorted(one for one in held if one.startswith("c")) == ["c"]


def test_what_was_made_under_a_key_and_deleted_is_not_made_again(
    several: tuple[httpx2.Client, list[FakeWorker]],
) -> None:
    client, _ = several

    def create(partitions: int) -> tuple[int, str]:
        body = {"name": "c", "partitions": partitions}
        answer = post(client, "/v1/collections", body, Idempotency_Key="k", Prefer=LONG)
        return answer.status_code, answer.json().get("code", "")

    assert [create(3), create(3)] == [(201, ""), (201, "")]
    assert create(2) == (422, "idempotency_conflict")
    assert deleted(client, "c") == (200, "")
    assert create(3) == (404, "collection_unknown")
    assert len(client.get("/v1/collections").json()["collections"]) == 1


def test_a_refused_webhook_leaves_a_collection_of_partitions_as_it_is(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url):
        client = start_gateway(own_server.url).client
        hook = {"Verso-Webhook": "wh_" + "0" * 32}
        body = {"name": "c", "partitions": 2}
        for _ in range(2):
            answers = [
                client.post("/v1/collections", json=body, headers=hook),
                client.patch("/v1/collections/c", json={"retention_days": 1}, headers=hook),
                client.delete("/v1/collections/c", headers=hook),
            ]
            codes = {answer.json()["code"] for answer in answers}
            assert codes <= {"partitioned_unsupported", "collection_unknown"}
            assert made(client, "c", 2) == (201, "")
        assert ingested(client, "c") == (200, "")


def test_a_read_only_ledger_refuses_to_delete_a_collection_of_partitions(
    own_server: ValkeyServer, start_gateway: Callable[..., Gateway]
) -> None:
    with _at_work(own_server.url) as worker:
        client = start_gateway(own_server.url).client
        assert made(client, "c", 2) == (201, "")
        epoch = worker.ledger.epoch
        epoch.make_read_only(epoch.current())
        assert deleted(client, "c") == (503, "ledger_behind")


def test_labels_that_are_sent_again_are_given_once(
    several: tuple[httpx2.Client, list[FakeWorker]],
) -> None:
    client, workers = several
    assert made(client, "c", 3) == (201, "")
    body = {"head": "h", "collection": "c", "ids": [f"d{n}" for n in range(9)], "labels": ["a"] * 9}
    answers = [post(client, "/v1/feedback", body, Idempotency_Key="k").json() for _ in range(2)]
    assert [one["id"] for one in answers[0]["results"]] == body["ids"]
    assert answers[0]["results"] == answers[1]["results"]
    seen = [one.kind for worker in workers for one in worker.seen]
    assert seen.count(Kind.FEEDBACK) == 3
    other = post(client, "/v1/feedback", body | {"labels": ["b"] * 9}, Idempotency_Key="k")
    assert other.json()["code"] == "idempotency_conflict"


def test_a_collection_of_another_ledger_is_changed_and_deleted_while_the_home_ledger_is_away(
    valkey_server: Callable[..., ValkeyServer], start_gateway: Callable[..., Gateway]
) -> None:
    home, other = valkey_server(), valkey_server()
    with _at_work(other.url):
        client = start_gateway(home.url, ledgers=f"b={other.url}").client
        client.patch("/v1/ledgers/home", json={"draining": True}).raise_for_status()
        assert made(client, "c", 1) == (201, "")
        assert client.get("/v1/collections/c").status_code == 200
        home.kill()

        def asked(method: str, body: dict[str, int] | None) -> httpx2.Response:
            headers = {"Idempotency-Key": method}
            return client.request(method, "/v1/collections/c", json=body, headers=headers)

        answers = [asked("PATCH", {"retention_days": 1}) for _ in range(2)]
        assert answers[0].json()["code"] == "ledger_unavailable"  # nobody has noticed it yet
        assert answers[1].json()["retention_days"] == 1
        assert asked("DELETE", None).json() == {"name": "c"}
        assert asked("DELETE", None).json()["code"] == "ledger_unavailable"  # it says where c was
        home.start()
        until = time.monotonic() + 60
        while not (again := asked("DELETE", None)).is_success:
            assert again.json()["retryable"]
            assert time.monotonic() < until
            time.sleep(0.1)
        assert again.json() == {"name": "c"}


def test_a_name_that_was_on_a_ledger_which_is_removed_is_of_no_collection(
    valkey_server: Callable[..., ValkeyServer], start_gateway: Callable[..., Gateway]
) -> None:
    home, other = valkey_server(), valkey_server()
    with _at_work(home.url), _at_work(other.url):
        client = start_gateway(home.url, ledgers=f"b={other.url}").client
        client.patch("/v1/ledgers/home", json={"draining": True}).raise_for_status()
        assert made(client, "c", 1) == (201, "")
        assert deleted(client, "c") == (200, "")
        client.patch("/v1/ledgers/home", json={"draining": False}).raise_for_status()
        client.patch("/v1/ledgers/b", json={"draining": True}).raise_for_status()
        third = valkey_server()
        later = start_gateway(home.url, ledgers=f"c={third.url}").client
        for method, body in (("DELETE", None), ("PATCH", {"retention_days": 1})):
            headers = {"Idempotency-Key": method}
            answer = later.request(method, "/v1/collections/c", json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")
