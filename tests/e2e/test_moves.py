"""Collections move between ledgers of a running platform: exact reads, nothing lost or doubled."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import httpx2
import pytest
from tests.conftest import ValkeyServer

from verso_client import Client
from verso_core.jobs import CollectionKind, Status
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.moves import MoveView

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

TEXTS, LINES = "move-texts", "move-lines"


@pytest.fixture(scope="module")
def platform(new_platform: Callable[..., Platform], second_ledger: ValkeyServer) -> Platform:
    made = new_platform(
        VERSO_LEDGERS=f"b={second_ledger.url}",
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_SCRUB_SHARE="1",
        VERSO_FEED_ROUTES=f"lines={LINES}",
    )
    made.start()
    with made.client() as client:
        client.drain_ledger("b")
        client.create_collection(TEXTS)
        client.create_collection(LINES, kind=CollectionKind.LOGS)
        client.drain_ledger("b", draining=False)
    return made


class Load:
    """Callers that write documents and lines and read what they wrote, until they are stopped."""

    def __init__(self, platform: Platform) -> None:
        self.texts: dict[str, str] = {}
        self.lines: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.reads = 0
        self.longest_s = 0.0
        self.statuses: Counter[str] = Counter()
        self._platform = platform
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(act,))
            for act in (self._write, self._delete, self._feed, self._send_lines, self._read)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, act: Callable[[httpx2.Client, int], None]) -> None:
        number = 0
        with httpx2.Client(base_url=self._platform.url, timeout=90.0) as http:
            while not self._over.is_set():
                number += 1
                try:
                    act(http, number)
                except httpx2.TransportError:
                    self.statuses["broken"] += 1
                except AssertionError as error:
                    self.wrong.append(str(error))
                self._over.wait(0.5)

    def _repeat(self, send: Callable[[], httpx2.Response]) -> httpx2.Response:
        """Send a request with a key again until it is taken, as a client does."""
        began = time.monotonic()
        while True:
            try:
                answer = send()
            except httpx2.TransportError:
                self.statuses["broken"] += 1
            else:
                self.statuses[f"{answer.status_code} {_code(answer)}"] += 1
                if answer.status_code < 300:
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    return answer
                assert answer.status_code in (429, 503), answer.text
            time.sleep(0.2)

    def _write(self, http: httpx2.Client, number: int) -> None:
        document, text = f"d{number % 30}", f"text {number} of a document\n" * (1 + number % 3)
        body = {"collection": TEXTS, "documents": [{"id": document, "text": text}]}
        headers = {"Idempotency-Key": f"write-{number}", "Prefer": "wait=60"}
        answer = self._repeat(lambda: http.post("/v1/ingest", json=body, headers=headers))
        # the same request once more is the same job, wherever the collection is by now
        again = self._repeat(lambda: http.post("/v1/ingest", json=body, headers=headers))
        jobs = {one.headers["Verso-Job-Id"] for one in (answer, again)}
        assert len(jobs) == 1, f"one key made the jobs {jobs}"
        self.texts[document] = text

    def _delete(self, http: httpx2.Client, number: int) -> None:
        document = f"gone{number}"
        body = {"collection": TEXTS, "documents": [{"id": document, "text": "goes"}]}
        prefer = {"Prefer": "wait=60"}
        self._repeat(lambda: http.post("/v1/ingest", json=body, headers=prefer))
        path = f"/v1/documents/{document}?collection={TEXTS}"
        self._repeat(lambda: http.delete(path, headers=prefer))

    def _feed(self, http: httpx2.Client, number: int) -> None:
        """Send records as agents do: what is repeated is known by its identity."""
        texts = [f"record {number} {n}" for n in range(5)]
        actions = "".join(
            f'{{"create": {{"_index": "lines", "_id": "{number}-{n}"}}}}\n{{"message": "{text}"}}\n'
            for n, text in enumerate(texts)
        )
        headers = {"Content-Type": "application/x-ndjson"}
        for _ in range(2):
            self._repeat(lambda: http.post("/es/_bulk", content=actions, headers=headers))
        self.lines.update(texts)

    def _send_lines(self, http: httpx2.Client, number: int) -> None:
        texts = [f"line {number} {n}" for n in range(5)]
        headers = {"Content-Type": "text/plain", "Idempotency-Key": f"lines-{number}"}
        for _ in range(2):
            self._repeat(
                lambda: http.post(
                    "/v1/ingest",
                    params={"collection": LINES},
                    content="\n".join(texts) + "\n",
                    headers=headers,
                )
            )
        self.lines.update(texts)

    def _read(self, http: httpx2.Client, number: int) -> None:
        """Read a document: it is what was stored before, or something that came later."""
        document = f"d{number % 30}"
        before = self.texts.get(document)
        if before is None:
            return
        answer = http.get(f"/v1/documents/{document}", params={"collection": TEXTS})
        if answer.status_code == 503:  # the worker or the gateway was just killed
            return
        assert answer.status_code == 200, answer.text
        text = str(answer.json()["text"])
        written = [int(one.split()[1]) for one in (before, text)]
        assert written[1] >= written[0], f"{document}: read {written[1]} after {written[0]}"
        assert text == f"text {written[1]} of a document\n" * (1 + written[1] % 3)
        self.reads += 1


def _code(answer: httpx2.Response) -> str:
    """Return the code of an error; agents are told of theirs in words."""
    if answer.status_code < 300 or not answer.text.startswith("{"):
        return ""
    return str(answer.json().get("code", ""))


def await_moved(client: Client, collection: str, *, timeout_s: float = 300.0) -> MoveView:
    until = time.monotonic() + timeout_s
    while (found := client.move_state(collection)).ended is None:
        assert time.monotonic() < until, found
        time.sleep(0.2)
    return found


def held(client: Client) -> dict[str, int]:
    return {one.name: one.collections for one in client.ledgers()}


def await_idle(client: Client) -> None:
    until = time.monotonic() + 240
    while any(client.jobs(status=one) for one in (Status.QUEUED, Status.RUNNING)):
        assert time.monotonic() < until, client.status().queues
        time.sleep(0.5)


def test_collections_move_there_and_back_under_load(platform: Platform) -> None:
    """While the keeper and the worker are killed: 0 lost, 0 twice, exact reads."""
    with platform.client(patience_s=120.0) as client:
        with Load(platform) as load:
            time.sleep(3.0)
            for target, killed in (("b", "keeper"), ("home", "worker"), ("b", None)):
                for name in (TEXTS, LINES):
                    assert client.move(name, target).target == target
                if killed is not None:
                    time.sleep(1.5)
                    platform.kill(killed)
                moves = [await_moved(client, name) for name in (TEXTS, LINES)]
                assert {one.target for one in moves} == {target}
                assert all(one.bytes_copied for one in moves)
            while load.reads <= 20 and not load.wrong:
                time.sleep(0.2)
        assert load.wrong == []
        assert load.reads > 20
        assert set(load.statuses) <= {"200 ", "202 ", "204 ", "429 ", "503 ", "broken"} | {
            f"503 {code}" for code in ("collection_busy", "not_ready", "engine_unavailable")
        }
        await_idle(client)
        assert platform.read_all(TEXTS, list(load.texts)) == {
            document: text.encode() for document, text in load.texts.items()
        }
        assert client.stats(TEXTS).documents == len(load.texts)
        request = LinesRequest(collection=LINES, limit=0)
        until = time.monotonic() + 240
        while True:
            rows = map(json.loads, b"".join(client.lines(request)).splitlines())
            found = Counter(str(row["text"]) for row in rows if "text" in row)
            if found == load.lines or time.monotonic() > until:
                break
            time.sleep(0.5)
        assert found - load.lines == Counter()
        assert load.lines - found == Counter()
        assert client.search("a document", collection=TEXTS, limit=3).hits


def test_a_drained_ledger_is_emptied(platform: Platform) -> None:
    with platform.client(patience_s=120.0) as client:
        assert held(client)["b"] == 2
        client.drain_ledger("b", move=True)
        for name in (TEXTS, LINES):
            await_moved(client, name)
        found = {one.name: one for one in client.ledgers()}
        assert (found["b"].collections, found["b"].leaving, found["b"].draining) == (0, 0, True)
        assert client.search("a document", collection=TEXTS, limit=3).hits
        client.drain_ledger("b", draining=False)


def test_a_tail_goes_on_where_the_lines_are(platform: Platform) -> None:
    with platform.client() as client, httpx2.Client(base_url=platform.url, timeout=120) as http:

        def send(text: str) -> None:
            taken = http.post(
                "/v1/ingest",
                params={"collection": LINES},
                content=text + "\n",
                headers={"Content-Type": "text/plain"},
            )
            assert taken.status_code == 202, taken.text

        def tail(last: str | None, text: str) -> str:
            """Follow until a line comes; return the id of its event."""
            headers = {} if last is None else {"Last-Event-ID": last}
            query = {"collection": LINES}
            with http.stream("GET", "/v1/logs/tail", params=query, headers=headers) as coming:
                seen = ""
                for part in coming.iter_text():
                    seen += part
                    assert "event: gap" not in seen
                    if last is None and "event: position" in seen and "sent" not in seen:
                        send(text)
                        seen += "sent"
                    if text in seen and "\n\n" in seen.split(text)[-1]:
                        return next(
                            one[4:] for one in reversed(seen.splitlines()) if one[:4] == "id: "
                        )
            raise AssertionError(seen)

        place = tail(None, "before the move")
        client.move(LINES, "b")
        await_moved(client, LINES)
        send("after the move")
        tail(place, "after the move")


def test_a_move_is_refused_where_it_cannot_be_and_cancelled_where_it_is_not_wanted(
    platform: Platform,
) -> None:
    with httpx2.Client(base_url=platform.url, timeout=120) as http:

        def move(name: str, ledger: str) -> tuple[int, str]:
            answer = http.post(f"/v1/collections/{name}/move", json={"ledger": ledger})
            return answer.status_code, answer.json().get("code", "")

        assert move("default", "b") == (409, "migration_refused")
        assert move(TEXTS, "none") == (404, "not_found")
        assert move("none", "b") == (404, "collection_unknown")
        assert move(TEXTS, "home") == (409, "migration_refused")
        assert http.delete(f"/v1/collections/{TEXTS}/move").status_code == 409
