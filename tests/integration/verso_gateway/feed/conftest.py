"""What a gateway wrote to the ledger for the records that agents sent."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.integration.verso_gateway.conftest import FakeWorker

from verso_core.jobs import Kind
from verso_core.jobs.logs.records import TIME_BYTES, LineRecord, public, read_line
from verso_standalone.valkey import free_port

PAGE = Path(__file__).parents[4] / "docs/how-to/send-logs-from.md"
_DAEMONS = ":/usr/sbin:/usr/local/sbin"


@dataclass(frozen=True)
class Stored:
    """A record as it reached a worker."""

    collection: str
    place: tuple[int, int]
    labels: dict[str, str]
    time: str
    record: LineRecord

    @property
    def text(self) -> str:
        return self.record.text.decode()

    @property
    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.record.attributes or b"{}")
        return found


class Ledger:
    """The records that a worker saw, in the order of their streams."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker

    def slices(self) -> list[int]:
        """Return how many lines each slice had."""
        return [work.items[0].header["count"] for work in self._seen()]

    def records(self, count: int) -> list[Stored]:
        """Return all records once there are so many."""
        until = time.monotonic() + 90
        while len(found := list(self._records())) < count and time.monotonic() < until:
            time.sleep(0.01)
        assert len(found) == count
        return sorted(found, key=lambda one: (one.collection, one.place))

    def texts(self, count: int) -> list[str]:
        """Return the texts of all records once there are so many, sorted."""
        return sorted(one.text for one in self.records(count))

    def _seen(self) -> list[Any]:
        return [work for work in list(self._worker.seen) if work.kind is Kind.INGEST_LINES]

    def _records(self) -> Iterable[Stored]:
        for work in self._seen():
            [item] = work.items
            lines = (item.blob or b"").removesuffix(b"\n").split(b"\n")
            assert len(lines) == item.header["count"]
            for number, line in enumerate(lines, item.header["first"]):
                yield Stored(
                    work.params["collection"],
                    (work.params["stream"], number),
                    public(work.params["labels"]),
                    line[: TIME_BYTES - 1].decode(),
                    read_line(line),
                )


@pytest.fixture
def stored(worker: FakeWorker) -> Ledger:
    """What the worker of the test's gateway saw."""
    return Ledger(worker)


class Receiver:
    """A receiver's process and its ports."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.tcp = int(settings["VERSO_SYSLOG_PORT"])
        self.tls = int(settings["VERSO_SYSLOG_TLS_PORT"])
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "verso_gateway.syslog"],
            env={**os.environ, **self._settings},
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """End it; what it has read is on disk then."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0

    def connect(self, port: int | None = None) -> socket.socket:
        """Connect to a port, that of TCP by default, once it listens."""
        until = time.monotonic() + 120
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port or self.tcp), timeout=60)
            except OSError:
                assert self.process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)

    def send(self, data: bytes) -> None:
        """Send bytes over a connection of their own."""
        with self.connect() as connection:
            connection.sendall(data)


@pytest.fixture
def syslog_settings(
    valkey_url: str,
    worker: FakeWorker,
    tmp_path: Path,
) -> dict[str, str]:
    """The settings of a receiver on the test's ledger, with ports and a certificate of its own."""
    tcp, tls = free_port(), free_port()
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    return {
        "VERSO_REDIS_URL": valkey_url,
        "VERSO_BROKER_URL": valkey_url.removesuffix("/0") + "/1",
        "VERSO_QUEUE_LIMIT_SLICES": "4",
        "VERSO_SYSLOG_PORT": str(tcp),
        "VERSO_SYSLOG_UDP_PORT": str(tcp),
        "VERSO_SYSLOG_TLS_PORT": str(tls),
        "VERSO_SYSLOG_TLS_CERT": str(tmp_path / "cert.pem"),
        "VERSO_SYSLOG_TLS_KEY": str(tmp_path / "key.pem"),
    }


@pytest.fixture
def receiver(syslog_settings: dict[str, str]) -> Iterator[Receiver]:
    """A receiver on the test's ledger."""
    made = Receiver(syslog_settings)
    try:
        yield made
    finally:
        made.stop()


def configurations(agent: str) -> list[str]:
    """Return the blocks of an agent's section of the page about agents, which the tests run."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    [text] = [one for one in section if one.partition("\n")[0] == agent]
    return re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def program(name: str) -> str:
    """Return the path of an agent. Without it: skip on a laptop, fail in CI."""
    found = shutil.which(name, path=os.environ["PATH"] + _DAEMONS)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found
