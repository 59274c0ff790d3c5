"""One platform over two ledgers: each has its own collections, and one serves without the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from tests.conftest import ValkeyServer

from verso_client import Document
from verso_core.errors import BackupInvalid
from verso_core.jobs import CollectionKind, Precision, Status
from verso_core.jobs.logs.lines import LinesRequest
from verso_ledger.epoch import Epoch
from verso_standalone import backup
from verso_worker.stores.backup import other_ledgers

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

HOME, OTHER = "docs-home", "docs-other"


class Pair:
    """A platform whose other ledger is a server of the test's own."""

    def __init__(self, platform: Platform, other: ValkeyServer) -> None:
        self.platform = platform
        self.other = other

    def http(self) -> httpx2.Client:
        """Return a plain client."""
        return httpx2.Client(base_url=self.platform.url, timeout=120)

    def held(self) -> dict[str, int]:
        """Return how many collections each ledger has."""
        with self.platform.client() as client:
            return {one.name: one.collections for one in client.ledgers()}


@pytest.fixture(scope="module")
def pair(new_platform: Callable[..., Platform], second_ledger: ValkeyServer) -> Pair:
    platform = new_platform(
        VERSO_LEDGERS=f"b={second_ledger.url}",
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_RESULT_INLINE_BYTES="2048",
        VERSO_SCRUB_SHARE="1",
        VERSO_FEED_ROUTES="log-home=log-home, log-other=log-other",
    )
    platform.start()
    with platform.client() as client:
        client.drain_ledger("b")
        client.create_collection(HOME)
        client.drain_ledger("b", draining=False)
        client.drain_ledger("home")
        client.create_collection(OTHER)
        client.drain_ledger("home", draining=False)
    return Pair(platform, second_ledger)


def documents(count: int) -> list[Document]:
    return [
        Document(f"session {n} of user u{n * 7919 % 1000} opened", id=f"d{n}") for n in range(count)
    ]


def test_a_drained_ledger_gets_no_new_collection(pair: Pair) -> None:
    held = pair.held()
    assert held["home"] >= 2  # default, and the one that was made while b was drained
    assert held["b"] >= 1


def test_documents_are_read_back_from_both_and_searches_stay_apart(pair: Pair) -> None:
    with pair.platform.client() as client:
        for name, count in ((HOME, 40), (OTHER, 60)):
            report = client.ingest(documents(count), collection=name)
            assert report.failed == ()
            pair.platform.await_verified(name, count)
            found = pair.platform.read_all(name, [f"d{n}" for n in range(count)])
            assert found["d7"] == str(documents(8)[7].text).encode()
            assert len(found) == count
            hits = client.search("session 3 of user", collection=name, limit=5)
            assert len(hits.hits) == 5
        assert client.stats(OTHER).documents == 60
        assert {one.name for one in client.collections()} >= {HOME, OTHER, "default"}


def test_ids_of_jobs_say_their_ledger_and_lists_merge_them(pair: Pair) -> None:
    with pair.http() as http:
        made = []
        for name in (HOME, OTHER, HOME, OTHER):
            body = {"collection": name, "documents": [{"id": "x", "text": "one more"}]}
            answer = http.post("/v1/ingest", json=body)
            assert answer.status_code == 202, answer.text
            made.append(answer.json()["id"])
        assert ["-" in one for one in made] == [False, True, False, True]
        assert all(one.endswith("-b") for one in made if "-" in one)
        listed: list[str] = []
        cursor: str | None = None
        while True:
            query = {"kind": "ingest", "limit": "3"} | ({"cursor": cursor} if cursor else {})
            page = http.get("/v1/jobs", params=query).json()
            assert len(page["jobs"]) <= 3
            listed += [one["id"] for one in page["jobs"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert listed[:4] == made[::-1]
        assert len(listed) == len(set(listed))
        for one in made:
            headers = {"Prefer": "wait=60"}
            assert http.get(f"/v1/jobs/{one}", headers=headers).json()["status"] == "succeeded"
            with http.stream("GET", f"/v1/jobs/{one}/events") as events:
                assert "event: end" in "".join(events.iter_text())
        assert http.get("/v1/jobs/" + "0" * 32 + "-none").status_code == 404


def test_texts_without_a_collection_go_to_either(pair: Pair) -> None:
    with pair.http() as http:
        seen: set[bool] = set()
        until = time.monotonic() + 240
        while len(seen) < 2:  # a ledger that a busy machine holds up is passed over for a moment
            assert time.monotonic() < until
            body = {"texts": ["a text"]}
            answer = http.post("/v1/embed", json=body, headers={"Prefer": "wait=60"})
            assert answer.status_code == 200
            seen.add("-" in answer.headers["Verso-Job-Id"])


def test_the_same_name_may_be_made_and_deleted_on_either(pair: Pair) -> None:
    """The vector store is shared: what one ledger removes late is never another's."""
    with pair.platform.client() as client:
        for drained, other in (("home", "b"), ("b", "home"), ("home", "b")):
            client.drain_ledger(drained)
            client.create_collection("again")
            client.drain_ledger(drained, draining=False)
            assert client.ingest(documents(5), collection="again").failed == ()
            assert len(pair.platform.read_all("again", ["d1", "d2"])) == 2
            client.delete_collection("again")
            assert other  # placed where it was placed first: the name stays there


def test_log_lines_are_tailed_and_queried_on_the_other_ledger(pair: Pair) -> None:
    with pair.platform.client() as client, pair.http() as http:
        client.drain_ledger("home")
        client.create_collection("log-other", kind=CollectionKind.LOGS)
        client.drain_ledger("home", draining=False)
        lines = "".join(
            f"2026-11-21T12:00:{n:02d}Z host sshd: session {n} opened\n" for n in range(30)
        )
        with http.stream("GET", "/v1/logs/tail", params={"collection": "log-other"}) as tail:
            coming = tail.iter_text()
            assert "position" in next(coming)
            taken = http.post(
                "/v1/ingest",
                params={"collection": "log-other"},
                content=lines,
                headers={"Content-Type": "text/plain"},
            )
            assert taken.status_code == 202, taken.text
            seen = ""
            while seen.count("event: line") < 30:
                seen += next(coming)
        assert taken.json()["id"].endswith("-b")
        deadline = time.monotonic() + 180
        while b"".join(client.lines(LinesRequest(collection="log-other"))).count(b"\n") < 30:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_agents_records_are_spread_over_ledgers_by_their_collections(pair: Pair) -> None:
    with pair.http() as http, pair.platform.client() as client:
        client.drain_ledger("b")
        client.create_collection("log-home", kind=CollectionKind.LOGS)
        client.drain_ledger("b", draining=False)
        actions = "".join(
            f'{{"create": {{"_index": "{name}"}}}}\n{{"message": "m{n}"}}\n'
            for n in range(20)
            for name in ("log-home", "log-other")
        )
        headers = {"Content-Type": "application/x-ndjson"}
        answer = http.post("/es/_bulk", content=actions, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["errors"] is False
        for name, count in (("log-home", 20), ("log-other", 50)):
            deadline = time.monotonic() + 180
            while client.stats(name).lines.lines < count:  # type: ignore[union-attr]
                assert time.monotonic() < deadline
                time.sleep(0.2)


def test_a_migration_and_a_scrub_run_on_each(pair: Pair) -> None:
    with pair.platform.client() as client:
        moved = [Document(f"record {n}", id=f"m{n}") for n in range(3)]
        assert client.ingest(moved, collection=OTHER).failed == ()
        client.migrate(OTHER, precision=Precision.FLOAT16)
        deadline = time.monotonic() + 180
        while client.migration(OTHER).stage != "done":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert len(pair.platform.read_all(OTHER, [f"m{n}" for n in range(3)])) == 3
        deadline = time.monotonic() + 240
        wanted = client.scrub(now=True).number + 1
        while (state := client.scrub()).number < wanted or state.running:
            assert time.monotonic() < deadline, state
            time.sleep(0.2)
        assert (state.damaged, state.unread) == (0, 0)
        assert state.sound >= 2


def test_webhooks_are_known_to_every_ledger(pair: Pair) -> None:
    with pair.http() as http:
        made = http.post("/v1/webhooks", json={"url": "https://example.org/hook"}).json()
        for name in (HOME, OTHER):
            body = {"collection": name, "documents": [{"id": "hooked", "text": "t"}]}
            taken = http.post("/v1/ingest", json=body, headers={"Verso-Webhook": made["id"]})
            assert taken.status_code == 202, taken.text
        assert http.delete(f"/v1/webhooks/{made['id']}").status_code == 204
        assert http.get("/v1/webhooks").json()["webhooks"] == []


def test_a_dead_ledger_stops_only_its_own_collections_and_loses_nothing(pair: Pair) -> None:
    with pair.platform.client() as client, pair.http() as http:
        body = {
            "collection": OTHER,
            "documents": [{"id": f"late{n}", "text": "late"} for n in range(50)],
        }
        taken = http.post("/v1/ingest", json=body)
        assert taken.status_code == 202
        pair.other.kill()
        try:
            refused = http.post("/v1/ingest", json=body)
            assert (refused.status_code, refused.json()["code"]) == (503, "ledger_unavailable")
            assert client.ingest(documents(20), collection=HOME).failed == ()
            assert client.search("session 3", collection=HOME, limit=3).hits
            assert http.get("/readyz").json()["ledgers_away"] == ["b"]
            assert {one.name: one.answers for one in client.ledgers()} == {"home": True, "b": False}
            for _ in range(4):
                embedded = http.post(
                    "/v1/embed", json={"texts": ["t"]}, headers={"Prefer": "wait=60"}
                )
                assert embedded.status_code == 200, embedded.text
            # a worker that starts now serves the home ledger
            pair.platform.kill("worker")
            assert client.ingest(documents(20), collection=HOME).failed == ()
            assert client.search("session 4", collection=HOME, limit=3).hits
        finally:
            pair.other.start()
        job = client.wait(taken.json()["id"], timeout_s=300)
        assert (job.status, job.ok) == ("succeeded", 50)
        assert set(pair.platform.read_all(OTHER, [f"late{n}" for n in range(50)]).values()) == {
            b"late"
        }


def test_nothing_acknowledged_is_lost_while_either_ledger_is_killed_under_load(pair: Pair) -> None:
    accepted: dict[str, dict[str, str]] = {HOME: {}, OTHER: {}}
    over = threading.Event()

    def send(name: str) -> None:
        number = 0
        with pair.http() as http:
            while not over.is_set():
                texts = {f"load-{number}-{n}": f"text {number} {n} of {name}" for n in range(8)}
                body = [{"id": key, "text": text} for key, text in texts.items()]
                number += 1
                try:
                    sent = http.post("/v1/ingest", json={"collection": name, "documents": body})
                except httpx2.TransportError:
                    continue
                if sent.status_code == 202:
                    accepted[name] |= texts
                    time.sleep(0.25)  # a busy machine takes in some tens a second
                else:
                    assert sent.status_code == 503, sent.text
                    time.sleep(0.1)

    senders = [threading.Thread(target=send, args=(name,)) for name in accepted]
    for sender in senders:
        sender.start()
    try:
        for _ in range(2):
            time.sleep(2.0)
            pair.other.kill()
            time.sleep(1.0)
            pair.other.start()
            time.sleep(2.0)
            pair.platform.kill("valkey")  # it is started again by what started it
        until = time.monotonic() + 240
        while min(map(len, accepted.values())) < 40:
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        time.sleep(2.0)
        over.set()
        for sender in senders:
            sender.join()
    with pair.platform.client(patience_s=180.0) as client:
        for name, texts in accepted.items():
            deadline = time.monotonic() + 240
            while any(client.jobs(status=one) for one in (Status.QUEUED, Status.RUNNING)):
                assert time.monotonic() < deadline, client.status().queues
                time.sleep(0.5)
            read = pair.platform.read_all(name, list(texts))
            assert read == {key: text.encode() for key, text in texts.items()}


def test_a_ledger_that_stands_still_does_not_hold_up_the_others(pair: Pair) -> None:
    with pair.platform.client() as client:
        pair.other.pause()
        try:
            client.ingest(documents(3), collection=HOME)
            started = time.monotonic()
            for n in range(10):
                assert client.search(f"session {n}", collection=HOME, limit=3).hits
            assert time.monotonic() - started < 80
        finally:
            pair.other.resume()
        deadline = time.monotonic() + 180
        while not all(one.answers for one in client.ledgers()):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert len(pair.platform.read_all(OTHER, ["d1"])) == 1


def test_a_home_ledger_that_stands_still_does_not_hold_up_another(pair: Pair) -> None:
    """It is the broker as well: workers poll, and slots that listen hear of work."""
    with pair.platform.client() as client:
        assert client.ingest(documents(3), collection=OTHER).failed == ()
        home = pair.platform.pid("valkey")
        os.kill(home, signal.SIGSTOP)
        try:
            assert client.ingest(documents(3), collection=OTHER).failed == ()
            assert client.search("session 1", collection=OTHER, limit=2).hits
            assert "home" in client.status().ledgers_away
        finally:
            os.kill(home, signal.SIGCONT)
        deadline = time.monotonic() + 180
        while not all(one.answers for one in client.ledgers()):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert client.ingest(documents(3), collection=HOME).failed == ()


def test_a_backup_holds_every_ledger(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform of one ledger is not restored from it: half of it would be missing.

    Nor is one that shares a ledger with the platform that the backup is of.
    """
    made = backup.save(pair.platform.data, tmp_path / "copy")
    assert {"ledger.rdb", "ledger-b.rdb"} <= made.files.keys()
    with closing(Epoch.from_url(pair.other.url)) as epoch:
        assert other_ledgers(tmp_path / "copy")["b"].epoch == epoch.current().epoch
    with pytest.raises(BackupInvalid, match="VERSO_LEDGERS with b"):
        backup.restore(tmp_path / "copy", tmp_path / "restored")
    monkeypatch.setenv("VERSO_LEDGERS", f"b={pair.other.url}")
    with pytest.raises(BackupInvalid, match="workers use"):
        backup.restore(tmp_path / "copy", tmp_path / "restored")
    with pair.platform.client() as client:  # neither ledger is frozen any more
        client.create_collection("thawed")
        client.delete_collection("thawed")


def test_exchanged_addresses_are_refused(pair: Pair, tmp_path: Path) -> None:
    """A ledger knows the name it was given, so a collection is never looked for on another."""
    config = {
        "VERSO_REDIS_URL": pair.other.url,
        "VERSO_LEDGERS": "c=redis://127.0.0.1:1/0",
        "VERSO_DATA": str(tmp_path),
    }
    keeper = subprocess.Popen(
        [sys.executable, "-m", "verso_keeper"],
        env={**os.environ, **config},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert keeper.stderr is not None
    limit = threading.Timer(240.0, keeper.kill)
    limit.start()
    try:
        assert any("ledger_misnamed" in line for line in keeper.stderr)
    finally:
        limit.cancel()
        keeper.send_signal(signal.SIGTERM)
        keeper.communicate(timeout=60)
