"""Data folders that the version before wrote, started by this one (tests/data/written-before).

One platform was stopped in good order with work of every state in its ledger, one was killed at
work. What they held is there, and what they had promised is done.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from standardwebhooks import Webhook
from tests.support.written_before import check_same, shipped, unpack_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Platform


OPEN = ("queued", "running")
DEAD = {"dead: full disk": ["letter-0", "letter-1", "letter-2"], "dead: crashes": ["shot"]}
FITTED = "/v1/documents/recoded-0?collection=recoded"
# What is of the moment: times, who answered, and the counts of documents verified meanwhile.
MOMENTARY = ("timings_ms", "job_id", "workers", "verified")


@dataclass
class Receiver:
    """Who takes webhook messages.

    Attributes:
        address: host and port.
        webhook: checks the signatures of messages as they come: later they are too old to be right.
        told: their bodies.
    """

    address: str
    webhook: Webhook | None = None
    told: list[dict[str, Any]] = field(default_factory=list)


class Before:
    """A recorded folder under a running platform, and what was recorded of it."""

    def __init__(self, platform: Platform, expected: dict[str, Any]) -> None:
        self.platform = platform
        self.expected = expected
        self.http = httpx2.Client(base_url=platform.url, timeout=120)

    def job(self, name: str) -> dict[str, Any]:
        """Return a recorded job as it is now, once it has ended."""
        path = f"/v1/jobs/{self.expected['jobs'][name]['id']}"
        deadline = time.monotonic() + 240
        while True:
            answer = self.http.get(path, headers={"Prefer": "wait=60"})
            found: dict[str, Any] = answer.raise_for_status().json()
            if found["status"] not in OPEN:
                return found
            assert time.monotonic() < deadline, (name, found)

    def check_documents(self, collection: str, *, but: tuple[str, ...] = ()) -> None:
        """Assert that a collection holds the recorded documents and no others, byte for byte."""
        wanted = {
            name: one
            for name, one in self.expected["documents"][collection].items()
            if name not in but
        }
        found = self.platform.read_all(collection, list(wanted))
        assert {
            name: {"bytes": len(text), "blake2b": hashlib.blake2b(text).hexdigest()[:32]}
            for name, text in found.items()
        } == wanted
        listed = self.http.get(f"/v1/collections/{collection}/documents?limit=10000").json()
        assert {one["id"] for one in listed["documents"]} == set(wanted)

    def check_answer(self, row: dict[str, Any]) -> None:
        """Assert that a recorded question is answered as it was."""
        answer = self.http.request(
            row["method"], row["path"], json=row["body"], headers={"Prefer": "wait=60"}
        )
        assert answer.status_code == 200, answer.text
        found, expected = answer.json(), row["answer"]
        if "results" in expected:  # beside them is the job, which is another one now
            found, expected = found["results"], expected["results"]
        check_same(found, expected, but=MOMENTARY)


@contextmanager
def started(
    new_platform: Callable[..., Platform],
    models: Path,
    name: str,
    *,
    receiver: Receiver | None = None,
) -> Iterator[Before]:
    """Run a platform on a recorded folder."""
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_SCRUB_SHARE="1",
        VERSO_WEBHOOK_ALLOW="127.0.0.0/8",
    )
    platform.artifact = shipped(models)
    options = {} if receiver is None else {"receiver": receiver.address}
    before = Before(platform, unpack_folder(name, platform.data, **options))
    if receiver is not None:
        receiver.webhook = Webhook(before.expected["webhook"]["secret"])
    with before.http:
        platform.start()
        yield before
        platform.close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """Take webhook messages."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert found.webhook is not None
            found.told.append(found.webhook.verify(body, dict(self.headers)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.43.7.1", 0), Handler) as server:
        found = Receiver(f"127.43.7.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


@pytest.fixture(scope="module")
def stopped(
    new_platform: Callable[..., Platform],
    tmp_path_factory: pytest.TempPathFactory,
    receiver: Receiver,
) -> Iterator[Before]:
    """The folder of the platform that was stopped in good order."""
    models = tmp_path_factory.mktemp("models")
    with started(new_platform, models, "stopped", receiver=receiver) as before:
        # On a new machine the first record of a fitted codec waits until its loops are compiled.
        deadline = time.monotonic() + 300
        while (answer := before.http.get(FITTED, headers={"Prefer": "wait=60"})).is_error:
            assert time.monotonic() < deadline, answer.text
        yield before


@pytest.fixture(scope="module")
def killed(
    new_platform: Callable[..., Platform], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Before]:
    """The folder of the platform that was killed at work."""
    with started(new_platform, tmp_path_factory.mktemp("models"), "killed") as before:
        yield before


def test_work_that_waited_or_was_leased_is_done(stopped: Before) -> None:
    names = [name for name in stopped.expected["jobs"] if name.startswith("open: ")]
    assert len(names) > 5
    ended = {name: stopped.job(name) for name in names}
    assert {one["status"] for one in ended.values()} == {"succeeded"}, ended
    assert all(one["failed"] == 0 for one in ended.values())
    assert len(ended["open: leased"]["results"][0]["embedding"]) == 384
    assert ended["open: create"]["results"][0]["name"] == "later"


@pytest.mark.parametrize(
    "name",
    ["embedded", "embedded, in a file", "failed", "ingested, some rejected", "clustered",
     "told of", "cancelled", "expired"],
)  # fmt: skip
def test_a_job_that_had_ended_looks_as_it_did(stopped: Before, name: str) -> None:
    check_same(stopped.job(name), stopped.expected["jobs"][name])


def test_a_repeated_request_finds_the_job_of_its_key(stopped: Before) -> None:
    assert len(stopped.expected["keys"]) == 2
    for row in stopped.expected["keys"]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": row["key"]}
        answer = stopped.http.post("/v1/embed", content=row["body"], headers=headers)
        assert answer.headers["Idempotency-Replayed"] == "true", answer.text
        assert answer.headers["Verso-Job-Id"] == row["job"]
    other = stopped.http.post(
        "/v1/embed", json={"texts": ["another"]}, headers={"Idempotency-Key": "recorded-embed"}
    )
    assert other.json()["code"] == "idempotency_conflict"


@pytest.mark.parametrize(
    "collection", ["again", "books", "kept", "later", "lines", "moved", "recoded", "small", "third"]
)
def test_every_document_is_read_back_byte_for_byte(stopped: Before, collection: str) -> None:
    stopped.check_documents(collection)


def test_documents_that_waited_in_the_queue_are_there(stopped: Before) -> None:
    """Those of two ingests that died are not, until they are replayed below."""
    stopped.job("open: ingest")
    stopped.check_documents("queued", but=tuple(name for names in DEAD.values() for name in names))


def test_reads_and_searches_are_answered_as_they_were(stopped: Before) -> None:
    asked = stopped.expected["answers"]
    assert len(asked) > 30
    for row in asked:
        if row["name"] not in ("scrub", "collections"):  # these change; below
            stopped.check_answer(row)


def test_collections_keep_their_settings(stopped: Before) -> None:
    [row] = [one for one in stopped.expected["answers"] if one["name"] == "collections"]
    found = {one["name"]: one for one in stopped.http.get("/v1/collections").json()["collections"]}
    for one in row["answer"]["collections"]:
        check_same(found[one["name"]], one)
    assert "gone" not in found


def test_texts_that_waited_for_their_verify_are_verified(stopped: Before) -> None:
    for name in ("kept", "lines", "books", "queued"):
        documents = len(stopped.http.get(f"/v1/collections/{name}/documents").json()["documents"])
        stopped.platform.await_verified(name, documents)


def test_messages_that_were_not_delivered_are_sent(stopped: Before, receiver: Receiver) -> None:
    """Each is signed with the secret that the webhook got before."""
    names = ("told of", "open: leased", "open: ingest")
    wanted = {stopped.job(name)["id"] for name in names}
    deadline = time.monotonic() + 240
    while not {one["data"]["id"] for one in receiver.told} >= wanted:
        assert time.monotonic() < deadline, receiver.told
        time.sleep(0.2)
    assert {one["type"] for one in receiver.told} == {"job.succeeded"}


def test_dead_letters_are_replayed(stopped: Before) -> None:
    """What lacked disk or killed its workers succeeds now; its collection gone, one dies again."""
    for name in (*DEAD, "dead: gone"):
        job = stopped.expected["jobs"][name]["id"]
        check_same(stopped.job(name), stopped.expected["jobs"][name])
        assert stopped.http.post(f"/v1/jobs/{job}/replay").status_code == 202
    for name in DEAD:
        assert stopped.job(name)["status"] == "succeeded"
    again = stopped.job("dead: gone")
    assert (again["status"], again["error"]["code"]) == ("dead", "collection_unknown")
    stopped.check_documents("queued")


def test_the_old_side_of_a_migration_is_removed_and_nothing_is_lost(stopped: Before) -> None:
    answer = stopped.http.delete("/v1/collections/moved/migrate", headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    assert stopped.http.get("/v1/collections/moved/migrate").json()["old_removed"]
    stopped.check_documents("moved")


@pytest.mark.slow
def test_a_scrub_that_was_under_way_goes_on_and_finds_no_damage(stopped: Before) -> None:
    [row] = [one for one in stopped.expected["answers"] if one["name"] == "scrub"]
    assert row["answer"]["running"]
    deadline = time.monotonic() + 400
    while (state := stopped.http.get("/v1/scrub").json())["state"] != "ended":
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
    assert state["number"] >= row["answer"]["number"]
    assert state["documents"] == state["sound"] > row["answer"]["documents"]


def test_a_killed_platforms_work_is_done(killed: Before) -> None:
    for name in killed.expected["jobs"]:
        ended = killed.job(name)
        assert (ended["status"], ended["failed"]) == ("succeeded", 0), (name, ended)
    for name in killed.expected["documents"]:
        killed.platform.await_verified(name, len(killed.expected["documents"][name]))


@pytest.mark.parametrize("collection", ["both", "dense", "still"])
def test_a_killed_platforms_documents_are_read_back_byte_for_byte(
    killed: Before, collection: str
) -> None:
    for name in killed.expected["jobs"]:
        killed.job(name)
    killed.check_documents(collection)


def test_a_killed_platforms_migration_ends_and_searches_find_what_they_found(
    killed: Before,
) -> None:
    deadline = time.monotonic() + 240
    path = "/v1/collections/still/migrate"
    while (state := killed.http.get(path).json())["stage"] != "done":
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
    assert state["unread"] == []
    for row in killed.expected["answers"]:
        killed.check_answer(row)
