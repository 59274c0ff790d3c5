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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import psutil
import pytest
from tests.e2e.conftest import Platform

from verso_client import Filter, SourceLines
from verso_core.errors import Unavailable
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LinesRequest
from verso_standalone.valkey import free_port

COMMAND = [sys.executable, "-m", "verso_client"]


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


@pytest.fixture(autouse=True)
def interruptible() -> None:
    """Let started programs hear SIGINT, which a shell makes its background jobs ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


def stored(
    platform: Platform, collection: str, where: Filter, count: int, *, within_s: float = 300
) -> Counter[str]:
    """Return the texts of lines once there are so many, with how often each is there."""
    asked = LinesRequest(collection=collection, filter=where, limit=0)
    deadline = time.monotonic() + within_s
    while True:
        rows: list[dict[str, str]] = []
        with platform.client() as verso, suppress(Unavailable):
            rows = [json.loads(row) for row in b"".join(verso.lines(asked)).splitlines()]
        found = Counter(row["text"] for row in rows if "text" in row)
        if found.total() >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def test_a_platform_receives_syslog(followed: Platform) -> None:
    with socket.create_connection(("127.0.0.1", int(followed.options[1])), timeout=60) as sender:
        sender.sendall(b"<13>1 2026-11-23T10:00:00Z a app - - - disk full\n")
    found = stored(followed, "logs", Filter(field="service", eq="app"), 1)
    assert found == {"disk full": 1}


def test_a_tail_loses_and_doubles_nothing_while_everything_is_killed(
    followed: Platform, tmp_path: Path
) -> None:
    path = tmp_path / "app.log"
    written: list[str] = []
    rotate, over = threading.Event(), threading.Event()

    def write() -> None:
        while not over.wait(0.005):
            with path.open("a") as file:
                file.write(f"line {len(written)}\n")
            written.append(f"line {len(written)}")
            if rotate.is_set():
                rotate.clear()
                path.rename(tmp_path / "app.log.1")

    program = threading.Thread(target=write)
    program.start()
    arguments = ("tail", str(path), "-c", "web", "--label", "test=killed")
    where = Filter(field="test", eq="killed")
    for part in ("gateway", "valkey", "worker"):
        known = len(written)
        with running(followed, tmp_path, *arguments) as process:
            found = stored(followed, "web", where, known + 1, within_s=300)
            told = followed.output.read_text()[-9000:]
            assert found.total() > known, (part, process.poll(), told)
            if part == "valkey":
                rotate.set()
            followed.kill(part)
            time.sleep(1)
    over.set()
    program.join()
    with running(followed, tmp_path, *arguments) as process:
        stored(followed, "web", where, len(written), within_s=300)
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert stored(followed, "web", where, len(written)) == dict.fromkeys(written, 1)


def test_a_tail_that_starts_before_its_platform_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("disk full\n")
    arguments = ("--url", f"http://127.0.0.1:{free_port()}", "tail", str(path))
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [*COMMAND, *arguments], env=os.environ | state, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"waiting: unavailable: no answer from")
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0


def test_a_file_that_is_ingested_again_adds_what_it_has_more(
    followed: Platform, tmp_path: Path
) -> None:
    path, joined = tmp_path / "app.log", tmp_path / "joined.log"

    def ingest(file: Path, *more: str) -> None:
        arguments = ("ingest", str(file), "-c", "web", "-m", f"test={file.stem}", *more)
        with running(followed, tmp_path, *arguments) as process:
            assert process.wait(240) == 0

    path.write_text("".join(f"line {n}\n" for n in range(500)))
    joined.write_text("start 0\n  more\nstart 1\n")
    for _ in range(2):
        ingest(path)
        ingest(joined, "--multiline", "^start")
    with path.open("a") as file:
        file.writelines(f"line {n}\n" for n in range(500, 600))
    ingest(path)
    path.rename(tmp_path / "app.1.log")
    ingest(tmp_path / "app.1.log")
    (tmp_path / "app.1.log").write_text("line 0\n")  # truncated: it begins again
    ingest(tmp_path / "app.1.log")
    lines = {f"line {n}": 1 for n in range(600)}
    assert stored(followed, "web", Filter(field="test", eq="app"), 600) == lines
    assert stored(followed, "web", Filter(field="test", eq="app.1"), 1) == {"line 0": 1}
    records = {"start 0\n  more": 1, "start 1": 1}
    assert stored(followed, "web", Filter(field="test", eq="joined"), 2) == records


def test_readers_that_do_not_read_cost_the_gateway_little(followed: Platform) -> None:
    gateway = psutil.Process(followed.pid("gateway"))
    body = "".join(f"{n} {'y' * 1000}\n" for n in range(1000)).encode()
    question = b"GET /v1/logs/tail?collection=web HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    sent = 0

    def send() -> None:
        nonlocal sent
        part = SourceLines("slow", sent, sent + len(body), body)
        sent = verso.append_lines(part, collection="web", labels={"test": "slow"})

    with followed.client() as verso, ExitStack() as stack:
        for _ in range(40):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            reader.settimeout(60)
            reader.connect(("127.0.0.1", followed.port))
            reader.sendall(question)
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
        send()
        time.sleep(1)
        before = gateway.memory_info().rss
        for _ in range(50):
            send()
        time.sleep(1)
        assert gateway.memory_info().rss - before < 64 << 20


def test_following_shows_the_newest_lines_and_then_each_that_comes_once(
    followed: Platform, tmp_path: Path
) -> None:
    count = 300

    def send() -> None:
        with httpx2.Client(base_url=followed.url, timeout=120) as http:
            for number in range(count):
                answer = http.post(
                    "/v1/ingest",
                    params={"collection": "web", "label": "test=following"},
                    content=b"%d\n" % number,
                    headers={"Content-Type": "text/plain", "Prefer": "respond-async"},
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
        assert process.wait(240) == 0
    sender.join()
    first = min(map(int, shown))
    assert sorted(map(int, shown)) == list(range(first, count))


def test_lines_of_a_file_are_joined_to_records(followed: Platform, tmp_path: Path) -> None:
    path = tmp_path / "trace.log"
    path.write_bytes(b"E first\n\tat a\n\tat \xff\nE second\n")
    arguments = ["ingest", str(path), "-c", "web", "-m", "test=traced", "--multiline", "^E"]
    subprocess.run([*COMMAND, "--url", followed.url, *arguments], check=True, timeout=300)
    asked = LinesRequest(collection="web", filter=Filter(field="test", eq="traced"), raw=True)
    with followed.client() as verso:
        assert b"".join(verso.lines(asked)) == path.read_bytes()


def test_a_record_of_a_pipe_that_stays_open_is_stored_at_a_pause(followed: Platform) -> None:
    """What has no next line yet is stored where the pipe pauses; Ctrl-C ends the command."""
    arguments = ["ingest", "-", "-c", "web", "-m", "test=piped", "--multiline", "^E", "--json"]
    with subprocess.Popen(
        [*COMMAND, "--url", followed.url, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"E first\n\tat a\n")
        process.stdin.flush()
        found = stored(followed, "web", Filter(field="test", eq="piped"), 1)
        assert found == {"E first\n\tat a": 1}
        assert process.poll() is None  # the pipe is still open
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=240)
    assert (process.returncode, json.loads(told)[0]["lines"]) == (0, 1)
