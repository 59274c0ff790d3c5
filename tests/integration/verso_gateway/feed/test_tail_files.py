"""``verso tail`` on real files and a real gateway, killed as often as one likes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, collection

from verso_client import Client, SourceLines
from verso_core.errors import SourceMoved
from verso_core.jobs import CollectionKind, Queue

COMMAND = [sys.executable, "-m", "verso_client"]


@pytest.fixture
def stopped(worker: FakeWorker) -> FakeWorker:
    """A stopped worker, and a collection ``logs``."""
    worker.ledger.documents.collection_put(collection("logs", kind=CollectionKind.LOGS))
    worker.pause()
    return worker


@contextmanager
def tailing(gateway: Gateway, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, "--url", gateway.url, "tail", *arguments, "-c", "logs", "--name", "h"],
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def accepted(client: httpx2.Client) -> list[dict[str, Any]]:
    """Return all lines that were accepted, as the live tail shows them up to a last one."""
    mark = f"mark {time.monotonic_ns()}"
    answer = client.post(
        "/v1/ingest",
        params={"collection": "logs", "label": "mark=1"},
        content=mark.encode(),
        headers={"Content-Type": "text/plain", "Prefer": "respond-async"},
    )
    assert answer.status_code == 202
    with client.sse("/v1/logs/tail", params={"collection": "logs", "start": "kept"}) as source:
        rows = (json.loads(one.data) for one in source if one.event == "line")
        found = list(takewhile(lambda row: row.get("text") != mark, rows))
    return [row for row in found if "mark" not in row["labels"]]


def until(done: Callable[[], bool], *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_kills_at_any_moment_lose_and_double_nothing(
    gateway: Gateway, stopped: FakeWorker, tmp_path: Path
) -> None:
    path, over, count = tmp_path / "app.log", threading.Event(), 0

    def write() -> None:
        nonlocal count
        rotated = 0
        while not over.is_set():
            with path.open("a") as file:
                for _ in range(random.randrange(1, 60)):
                    file.write(f"line {count} of the program\n")
                    count += 1
            over.wait(0.1)
            if path.stat().st_size > 20_000:
                rotated += 1
                path.rename(tmp_path / f"app.log.{rotated}")

    def slices() -> int:
        return stopped.ledger.maintenance.depths()[Queue.BULK].queued

    def reached(wanted: int) -> bool:
        return slices() >= wanted

    program = threading.Thread(target=write)
    program.start()
    notes = tmp_path / "state" / "verso"
    try:
        for _ in range(4):
            with tailing(gateway, tmp_path, str(tmp_path / "app.log*")) as process:
                until(partial(reached, slices() + random.randrange(1, 4)))
                time.sleep(random.uniform(0, 0.4))
                process.send_signal(signal.SIGKILL)
                process.wait()
    finally:
        over.set()
        program.join()
    assert list(notes.glob("tail-*.json"))
    wanted = [f"line {n} of the program" for n in range(count)]
    with tailing(gateway, tmp_path, str(tmp_path / "app.log*")) as process:
        until(lambda: len(accepted(gateway.client)) >= count)
        time.sleep(1.5)  # what comes twice comes now
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    texts = Counter(row["text"] for row in accepted(gateway.client))
    assert texts == Counter(wanted)


def test_records_have_their_labels_times_and_bytes(
    gateway: Gateway, stopped: FakeWorker, tmp_path: Path
) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"2026-11-23 10:00:00.25 failed\n\tat \xff\n2026-11-23 10:00:01 ok\n")
    with tailing(gateway, tmp_path, str(path), "--multiline", r"^\d{4}-", "--label", "app=web"):
        until(lambda: len(accepted(gateway.client)) == 2)
    first, second = accepted(gateway.client)
    assert first["text_base64"]
    assert first["time"] == "2026-11-23T10:00:00.25Z"
    assert second["text"] == "2026-11-23 10:00:01 ok"
    assert second["labels"] == {"app": "web", "host": "h", "source": str(path)}


def test_truncation_is_followed(gateway: Gateway, stopped: FakeWorker, tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    with tailing(gateway, tmp_path, str(path)):
        until(lambda: len(accepted(gateway.client)) == 2)
        with path.open("a") as file:
            file.write("three\n")
        shutil.copy(path, tmp_path / "app.log.1")
        path.write_text("one\nfour\n")
        until(lambda: len(accepted(gateway.client)) >= 5)
    assert [row["text"] for row in accepted(gateway.client)][:2] == ["one", "two"]
    assert Counter(row["text"] for row in accepted(gateway.client)) == Counter(
        ["one", "two", "three", "one", "four"]
    )


def test_a_part_of_a_source_is_accepted_once_and_in_order(
    gateway: Gateway, stopped: FakeWorker
) -> None:
    with Client(gateway.url) as client:

        def append(begin: int, end: int, body: bytes) -> int:
            part = SourceLines("h:file", begin, end, body)
            return client.append_lines(part, collection="logs", labels={"app": "x"})

        assert append(0, 4, b"one\n") == 4
        assert append(0, 8, b"one\ntwo\n") == 4
        assert append(4, 8, b"two\n") == 8
        assert append(4, 8, b"two\n") == 8
        assert append(9, 12, b"no\n") == 8
    assert [row["text"] for row in accepted(gateway.client)] == ["one", "two"]
    answer = gateway.client.post(
        "/v1/ingest",
        params={"collection": "logs", "source": "h:file", "source_begin": 0, "source_end": 4},
        content=b"one\n",
        headers={"Content-Type": "text/plain"},
    )
    assert answer.status_code == 409
    assert answer.json()["code"] == SourceMoved.code
    assert answer.json()["position"] == 8
    answer = gateway.client.post(
        "/v1/ingest",
        params={"collection": "logs", "source": "h:file", "source_begin": 4, "source_end": 0},
        content=b"one\n",
        headers={"Content-Type": "text/plain"},
    )
    assert answer.status_code == 422


def test_a_tail_waits_for_a_platform_that_is_away(
    valkey_url: str,
    stopped: FakeWorker,
    tmp_path: Path,
    start_gateway: Callable[..., Gateway],
) -> None:
    gateway, notes = start_gateway(valkey_url), str(tmp_path / "notes")
    path = tmp_path / "app.log"
    path.write_text("one\n")
    with tailing(gateway, tmp_path, str(path), "--notes", notes) as process:
        until(lambda: len(accepted(gateway.client)) == 1)
        gateway.close()
        with path.open("a") as file:
            file.write("two\n")
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"waiting: unavailable: no answer from ")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    gateway = start_gateway(valkey_url)
    with tailing(gateway, tmp_path, str(path), "--notes", notes):
        until(lambda: len(accepted(gateway.client)) == 2)
