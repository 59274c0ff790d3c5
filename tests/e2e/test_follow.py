"""Lines followed into a real platform and out of it: ``verso tail``, ``verso logs -f``, syslog."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from tests.e2e.conftest import Platform

from verso_client import Filter
from verso_core.errors import Unavailable
from verso_core.jobs import CollectionKind
from verso_core.jobs.lines import LinesRequest
from verso_standalone.valkey import free_port

pytestmark = pytest.mark.timeout(600)  # the codec of lines is compiled within the first test
COMMAND = [sys.executable, "-m", "verso_client.cli.app"]


@pytest.fixture(scope="module")
def followed(new_platform: Callable[..., Platform]) -> Platform:
    """A platform that receives syslog, with the collections ``logs`` and ``web``."""
    platform = new_platform()
    platform.options = ["--syslog", str(free_port())]
    platform.start()
    with platform.client() as verso:
        for name in ("logs", "web"):
            verso.create_collection(name, kind=CollectionKind.LOGS)
    return platform


@contextmanager
def running(platform: Platform, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, "--url", platform.url, *arguments],
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def stored(platform: Platform, collection: str, where: Filter, count: int) -> Counter[str]:
    """Return the texts of lines once there are so many, with how often each is there."""
    asked = LinesRequest(collection=collection, filter=where, limit=0)
    deadline = time.monotonic() + 300
    while True:
        rows: list[dict[str, str]] = []
        with platform.client() as verso, suppress(Unavailable):
            rows = [json.loads(row) for row in b"".join(verso.lines(asked)).splitlines()]
        found = Counter(row["text"] for row in rows if "text" in row)
        if found.total() >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def test_a_platform_receives_syslog(followed: Platform) -> None:
    with socket.create_connection(("127.0.0.1", int(followed.options[1])), timeout=30) as sender:
        sender.sendall(b"<13>1 2026-11-23T10:00:00Z a app - - - disk full\n")
    found = stored(followed, "logs", Filter(field="service", eq="app"), 1)
    assert found == {"disk full": 1}


def test_a_tail_loses_and_doubles_nothing_while_everything_is_killed(
    followed: Platform, tmp_path: Path
) -> None:
    path, count = tmp_path / "app.log", 1500
    over = threading.Event()

    def write() -> None:
        for number in range(count):
            with path.open("a") as file:
                file.write(f"line {number}\n")
            if number == count // 2:
                path.rename(tmp_path / "app.log.1")
            over.wait(0.01)

    program = threading.Thread(target=write)
    program.start()
    arguments = ("tail", str(tmp_path / "app.log"), "-c", "web", "--label", "test=killed")
    for part in ("gateway", "valkey", "worker"):
        with running(followed, tmp_path, *arguments):
            time.sleep(3)
            followed.kill(part)
            time.sleep(1)
    over.set()
    program.join()
    where = Filter(field="test", eq="killed")
    with running(followed, tmp_path, *arguments) as process:
        stored(followed, "web", where, count)
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert stored(followed, "web", where, count) == {f"line {n}": 1 for n in range(count)}


def test_following_shows_the_newest_lines_and_then_each_that_comes_once(
    followed: Platform, tmp_path: Path
) -> None:
    count = 300

    def send() -> None:
        for number in range(count):
            answer = httpx2.post(
                f"{followed.url}/v1/ingest",
                params={"collection": "web", "label": "test=following"},
                content=b"%d\n" % number,
                headers={"Content-Type": "text/plain", "Prefer": "respond-async"},
                timeout=60,
            )
            assert answer.status_code == 202
            time.sleep(0.02)

    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(2)
    with running(
        followed, tmp_path, "logs", "-f", "-c", "web", "--where", "test=following", "--json"
    ) as process:
        assert process.stdout is not None
        shown: list[str] = []
        while not shown or int(shown[-1]) < count - 1:
            shown.append(json.loads(process.stdout.readline())["text"])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    sender.join()
    first = min(map(int, shown))
    assert sorted(map(int, shown)) == list(range(first, count))


def test_lines_of_a_file_are_joined_to_records(followed: Platform, tmp_path: Path) -> None:
    path = tmp_path / "trace.log"
    path.write_bytes(b"E first\n\tat a\n\tat \xff\nE second\n")
    arguments = ["ingest", str(path), "-c", "web", "-m", "test=joined", "--multiline", "^E"]
    subprocess.run([*COMMAND, "--url", followed.url, *arguments], check=True, timeout=300)
    asked = LinesRequest(collection="web", filter=Filter(field="test", eq="joined"), raw=True)
    with followed.client() as verso:
        assert b"".join(verso.lines(asked)) == path.read_bytes()
