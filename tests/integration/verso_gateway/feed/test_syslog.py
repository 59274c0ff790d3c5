"""The receiver of syslog, as a process: `logger`, raw connections, TLS and datagrams."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from tests.integration.verso_gateway.conftest import FakeWorker
from tests.integration.verso_gateway.feed.conftest import Ledger, Receiver

MESSAGE = b"<165>1 2026-11-23T03:46:06.123456Z web-1 app 7 - - "


@pytest.mark.skipif(shutil.which("logger") is None, reason="logger is not installed")
@pytest.mark.parametrize(
    "options", [["--tcp"], ["--tcp", "--octet-count"], ["--tcp", "--rfc3164"], ["--udp"]], ids=str
)
def test_logger_sends_messages(receiver: Receiver, stored: Ledger, options: list[str]) -> None:
    receiver.connect().close()
    target = ["--server", "127.0.0.1", "--port", str(receiver.tcp), "--tag", "app"]
    subprocess.run(
        ["logger", *options, *target, "--priority", "daemon.warning", "disk full"], check=True
    )
    [one] = stored.records(1)
    assert one.text == "disk full"
    assert (one.labels["service"], one.labels["level"]) == ("app", "warning")
    assert one.labels["facility"] == "daemon"
    assert "malformed" not in one.labels


def test_lines_and_counted_messages_are_taken_in_order(receiver: Receiver, stored: Ledger) -> None:
    lines = b"".join(MESSAGE + b"line %d\n" % n for n in range(1000))
    counted = [MESSAGE + b"counted\n%d" % n for n in range(1000)]
    receiver.send(lines)
    found = [one.text for one in stored.records(1000)]
    assert found == [f"line {n}" for n in range(1000)]
    receiver.send(b"".join(b"%d %b" % (len(one), one) for one in counted))
    found = [one.text for one in stored.records(2000)][1000:]
    assert found == [f"counted\n{n}" for n in range(1000)]


def test_what_is_no_syslog_is_kept_as_it_came(receiver: Receiver, stored: Ledger) -> None:
    rows = [MESSAGE + b"good %d" % n for n in range(999)]
    receiver.send(b"\n".join([*rows[:500], b"not \xff syslog", *rows[500:]]))
    found = stored.records(1000)
    [bad] = [one for one in found if "malformed" in one.labels]
    assert bad.record.text == b"not \xff syslog"


def test_messages_come_over_tls(receiver: Receiver, stored: Ledger, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=tmp_path / "authority.pem")
    raw = receiver.connect(receiver.tls)
    with context.wrap_socket(raw, server_hostname="localhost") as connection:
        connection.sendall(MESSAGE + b"over tls\n")
    assert stored.texts(1) == ["over tls"]


def test_datagrams_are_received_once_the_port_of_streams_answers(
    syslog_settings: dict[str, str], tmp_path: Path
) -> None:
    late = tmp_path / "late.pem"
    os.mkfifo(late)  # opening it blocks, so the receiver stops where it loads the certificate
    held = Receiver({**syslog_settings, "VERSO_SYSLOG_TLS_CERT": str(late)})
    try:
        held.connect().close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", held.tcp))
            # The second raises ConnectionRefusedError where the first has found no socket.
            assert [sender.send(MESSAGE) for _ in range(2)] == [len(MESSAGE)] * 2
    finally:
        held.process.kill()
        held.process.wait()


def test_a_stop_signal_leaves_what_was_read_on_disk(receiver: Receiver, stored: Ledger) -> None:
    with receiver.connect() as connection:
        connection.sendall(MESSAGE + b"before\n" + MESSAGE + b"cut")
        stored.records(1)
        receiver.process.send_signal(signal.SIGTERM)
        assert receiver.process.wait(timeout=60) == 0
    assert stored.texts(1) == ["before"]


def test_a_stream_is_read_no_further_than_there_is_room(
    receiver: Receiver, worker: FakeWorker, stored: Ledger
) -> None:
    receiver.send(MESSAGE + b"first\n")
    stored.records(1)
    worker.pause()
    rows = [MESSAGE + b"%05d " % n + b"x" * 1000 for n in range(24_000)]  # more than buffers hold
    sender = threading.Thread(target=receiver.send, args=(b"\n".join(rows),))
    sender.start()
    sender.join(3.0)
    assert sender.is_alive()
    worker.gate.set()
    sender.join(120.0)
    assert not sender.is_alive()
    texts = [one.text for one in stored.records(24_001)][1:]
    assert [text[:5] for text in texts] == [f"{n:05}" for n in range(24_000)]
