"""Clients that send again, all at once, while the parts of a platform are killed or full.

CLIENT_LINES says how many lines each client sends (240), CLIENT_FULL_S how long the queue is full
(4 s). With 100,000 and 20 it is the acceptance run and takes some ten minutes. Lines with
identities are stored once. Of the others a batch whose answer was lost is stored twice; these are
counted and printed.

The gateway is killed twice and the ledger once, the receiver of syslog is not: over TCP a sender
gets no answer, so what is under way when a receiver is killed is lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.conftest import Platform
from tests.e2e.test_fluent_bit import syslog
from tests.integration.verso_gateway.feed.test_syslog_agents import rsyslog, syslog_ng

from verso_client import Client, Document
from verso_core.errors import NotReady, QueueFull, Unavailable, VersoError
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LineRow, LinesRequest
from verso_core.jobs.logs.views import LabelsRequest
from verso_standalone.valkey import free_port

LINES = int(os.environ.get("CLIENT_LINES", "240"))
FULL_S = float(os.environ.get("CLIENT_FULL_S", "4"))
SENT_S = max(16.0, LINES / 330)
"""How long each client has lines to send: nine clients at 330 lines a second are half of what two
cores take in."""
PAGE_LINES = 50_000
SLICES = 40
SUPPORT = Path(__file__).parents[1] / "support"
NODE = SUPPORT / "node"
DAEMONS = {"rsyslog": ("rsyslogd", rsyslog), "syslog-ng": ("syslog-ng", syslog_ng)}
PATHS = os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"

pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True)
class Sender:
    """A program that logs by a client.

    Attributes:
        command: the program, which ends when all is accepted, or stays.
        identified: whether its lines have identities, so that none is stored twice.
        keeps: whether the client keeps lines however long it waits.
    """

    command: tuple[str, ...]
    identified: bool = False
    keeps: bool = True


def python(client: str, url: str, service: str, *, identified: bool) -> Sender:
    """Return a client of Python."""
    program = (sys.executable, str(SUPPORT / "sending.py"), client, url, "--service", service)
    pace = ("--lines", str(LINES), "--per-second", str(LINES / SENT_S), "--batch", "100")
    return Sender((*program, *pace, *(("--identified",) if identified else ())), identified)


def node(transport: str, url: str, *, keeps: bool = True) -> Sender:
    """Return a transport of Node."""
    pace = (str(LINES), str(LINES / SENT_S))
    return Sender(("node", "sending.cjs", transport, url, *pace, transport), keeps=keeps)


def senders(url: str) -> dict[str, Sender]:
    """Return the clients that this machine has, by the service of their lines."""
    found = {
        "elasticsearch": python("elasticsearch", url, "elasticsearch", identified=True),
        "opensearch": python("opensearch", url, "opensearch", identified=True),
        "opentelemetry": python("opentelemetry", url, "opentelemetry", identified=True),
        "opentelemetry-no-uid": python(
            "opentelemetry", url, "opentelemetry-no-uid", identified=False
        ),
    }
    if shutil.which("node") and (NODE / "node_modules").is_dir():
        found |= {name: node(name, url) for name in ("winston-elasticsearch", "winston-loki")}
        # its exporter gives a batch up after the sixth try
        name = "pino-opentelemetry-transport"
        found[name] = node(name, url, keeps=False)
    return found


@contextmanager
def sending(sender: Sender, output: Path) -> Iterator[None]:
    """Run a client, and check in the end that it has not failed."""
    with output.open("wb") as file:
        process = subprocess.Popen(sender.command, cwd=NODE, stdout=file)
    try:
        yield
        assert process.poll() in (None, 0)
    finally:
        process.kill()
        process.wait()


@contextmanager
def daemon(name: str, folder: Path, port: int) -> Iterator[None]:
    """Run a daemon of syslog, and a thread that logs to its socket."""
    _, run = DAEMONS[name]
    folder.mkdir()
    with run(folder, port) as where:
        until = time.monotonic() + 120
        while not where.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        thread = threading.Thread(target=log_to, args=(where, name))
        thread.start()
        try:
            yield
        finally:
            thread.join()


def log_to(where: Path, service: str) -> None:
    """Write lines to the socket of a daemon."""
    began, step = time.monotonic(), max(1, int(LINES / SENT_S))
    for first in range(0, LINES, step):
        rows = "\n".join(f"{service} {n} is full" for n in range(first, min(LINES, first + step)))
        command = ["logger", "--socket", str(where), "--tag", service]
        subprocess.run(command, input=rows.encode(), check=True)
        time.sleep(max(0.0, began + (first + step) * SENT_S / LINES - time.monotonic()))


def listens(port: int) -> bool:
    """Whether something accepts connections on a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def fill(platform: Platform) -> None:
    """Stop the worker and fill the queue, so that the clients are refused for a while."""
    pid = platform.pid("worker")
    os.kill(pid, signal.SIGSTOP)
    try:
        with platform.client(patience_s=0.0) as verso:
            until = time.monotonic() + 240
            while not refused(verso):
                assert time.monotonic() < until
        time.sleep(FULL_S)
    finally:
        os.kill(pid, signal.SIGCONT)


def refused(verso: Client) -> bool:
    """Whether the queue is full: no document more is accepted."""
    try:
        verso.submit([Document("what fills the queue")])
    except QueueFull:
        return True
    except (NotReady, Unavailable):  # a part that was killed is not back yet
        time.sleep(0.2)
    return False


def counts(platform: Platform) -> dict[str, int]:
    """Return how many lines of each service are stored; none while a part is away."""
    with platform.client() as verso, suppress(VersoError):
        found = verso.log_labels(LabelsRequest(collection="logs", name="service"))
        return {one.value: one.lines for label in found.labels for one in label.values}
    return {}


def texts(platform: Platform) -> Counter[str]:
    """Return all lines with how often each is stored; a page that fails is read again."""
    found: Counter[str] = Counter()
    cursor: str | None = None
    until = time.monotonic() + 900
    while time.monotonic() < until:
        given = {"collection": "logs", "limit": PAGE_LINES} | ({"cursor": cursor} if cursor else {})
        rows: list[LineRow] = []
        with platform.client() as verso, suppress(VersoError):
            data = b"".join(verso.lines(LinesRequest.model_validate(given)))
            rows = [LineRow.model_validate_json(row) for row in data.splitlines()]
        if not rows or rows[-1].error is not None:
            continue
        found.update(row.text for row in rows if row.text is not None)
        cursor = next((row.next_cursor for row in rows if row.next_cursor is not None), None)
        if cursor is None:
            return found
    pytest.fail(f"the lines cannot be read: {rows[-1:]}")


def test_no_client_that_keeps_its_lines_loses_one_and_none_doubles_an_identity(
    new_platform: Callable[..., Platform], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    platform = new_platform(VERSO_QUEUE_LIMIT_SLICES=str(SLICES))
    platform.start()
    with platform.client() as verso:
        verso.create_collection("logs", kind=CollectionKind.LOGS)
    programs, port = senders(platform.url), free_port()
    services = [*programs, *(n for n, (one, _) in DAEMONS.items() if shutil.which(one, path=PATHS))]
    waiting = {name for name in services if name not in programs or programs[name].keeps}
    with ExitStack() as stack:
        stack.enter_context(syslog(platform, port))
        until = time.monotonic() + 240
        while not listens(port):
            assert time.monotonic() < until
            time.sleep(0.1)
        began = time.monotonic()
        for name in services:
            if name in programs:
                stack.enter_context(sending(programs[name], tmp_path / f"{name}.txt"))
            else:
                stack.enter_context(daemon(name, tmp_path / name, port))
        for share, fault in (
            (0.15, lambda: platform.kill("gateway")),
            (0.35, lambda: platform.kill("valkey")),
            (0.5, lambda: fill(platform)),
            (0.8, lambda: platform.kill("gateway")),
        ):
            time.sleep(max(0.0, began + share * SENT_S - time.monotonic()))
            fault()
        until = time.monotonic() + SENT_S + 600
        while time.monotonic() < until:
            stored = counts(platform)
            if all(stored.get(name, 0) >= LINES for name in waiting):
                break
            time.sleep(2)
    seconds = time.monotonic() - began
    found = texts(platform)
    rows = {name: [found[f"{name} {n} is full"] for n in range(LINES)] for name in services}
    missing = {name: row.count(0) for name, row in rows.items()}
    doubled = {name: sum(row) - LINES + row.count(0) for name, row in rows.items()}
    with capsys.disabled():
        print(f"\n{LINES:,} lines of each client in {seconds:.0f} s")  # noqa: T201
        for name in services:
            path = tmp_path / f"{name}.txt"
            said = path.read_text().strip() if path.is_file() else ""
            about = f"missing {missing[name]}, doubled {doubled[name]}"
            print(f"  {name}: {about} {said}")  # noqa: T201
    assert {name: missing[name] for name in waiting} == dict.fromkeys(waiting, 0)
    assert not any(doubled[name] for name, one in programs.items() if one.identified)
    assert found.total() == sum(map(sum, rows.values()))
