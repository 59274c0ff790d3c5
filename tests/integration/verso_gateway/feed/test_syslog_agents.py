"""rsyslog and syslog-ng as Debian ships them, with the configurations of the page about agents."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.verso_gateway.feed.conftest import (
    Ledger,
    Receiver,
    configurations,
    program,
)

LINES = 300


@contextmanager
def rsyslog(folder: Path, port: int) -> Iterator[Path]:
    """Run rsyslog, which reads a socket and sends to a port."""
    [action] = configurations("rsyslog")
    assert "5514" in action
    path = folder / "rsyslog.conf"
    path.write_text(
        f"""global(workDirectory="{folder}")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log")
{action.replace("5514", str(port))}"""
    )
    with running(program("rsyslogd"), "-n", "-i", f"{folder}/pid", "-f", str(path)):
        yield folder / "log"


@contextmanager
def syslog_ng(folder: Path, port: int) -> Iterator[Path]:
    """Run syslog-ng, which reads a socket and sends to a port."""
    [destination] = configurations("syslog-ng")
    for there, here in (
        ("5514", str(port)),
        ("disk-buffer(", f'disk-buffer(dir("{folder}") '),
    ):
        assert there in destination
        destination = destination.replace(there, here)
    path = folder / "syslog-ng.conf"
    path.write_text(
        f"""@version: 3.35
options {{ time-reopen(1); stats-freq(0); }};
source s_src {{ unix-dgram("{folder}/log"); }};
{destination}"""
    )
    files = ["-R", f"{folder}/persist", "-c", f"{folder}/ctl", "-p", f"{folder}/pid"]
    with running(program("syslog-ng"), "-F", "--no-caps", "-f", str(path), *files):
        yield folder / "log"


@contextmanager
def running(*command: str) -> Iterator[None]:
    """Run a daemon."""
    process = subprocess.Popen(command)
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=60)


def write(where: Path, first: int) -> None:
    """Write lines to a socket of syslog, as programs do."""
    until = time.monotonic() + 60
    while not where.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    lines = "\n".join(f"disk {n} is full" for n in range(first, first + LINES))
    command = ["logger", "--socket", str(where), "--tag", "app", "--priority", "daemon.warning"]
    subprocess.run(command, input=lines.encode(), check=True)


@pytest.mark.parametrize("agent", [rsyslog, syslog_ng], ids=["rsyslog", "syslog-ng"])
def test_messages_written_while_the_receiver_is_away_come_later(
    agent: object, receiver: Receiver, stored: Ledger, tmp_path: Path
) -> None:
    assert callable(agent)
    receiver.connect().close()
    with agent(tmp_path, receiver.tcp) as where:
        write(where, 0)
        stored.records(LINES)
        receiver.stop()
        write(where, LINES)
        receiver.start()
        receiver.connect().close()
        records = stored.records(2 * LINES)
    assert [one.text for one in records] == [f"disk {n} is full" for n in range(2 * LINES)]
    assert {one.labels["service"] for one in records} == {"app"}
    assert {one.labels["level"] for one in records} == {"warning"}
    assert not any("malformed" in one.labels for one in records)
