"""What a caller without a key can cost: heads, slow heads, connections that say nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx2
import psutil
import pytest

from verso_standalone.valkey import free_port

_MIB = 1 << 20
_HEAD_TIMEOUT_S = 3.0  # long enough for a busy machine to open 64 connections
_MOST = 64


class Served:
    """A gateway process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, metrics_port: int) -> None:
        self.port = port
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self.url = f"http://127.0.0.1:{port}"
        self._seen = psutil.Process(process.pid)

    def memory(self) -> int:
        """Return its resident bytes."""
        held: int = self._seen.memory_info().rss
        return held

    def files(self) -> tuple[int, int]:
        """Return how many files it may open: the limit in force, and the hardest."""
        soft, hard = self._seen.rlimit(psutil.RLIMIT_NOFILE)
        return soft, hard

    def connected(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    port, metrics_port = free_port(), free_port()
    with _running(port, metrics_port) as process:
        found = Served(process, port, metrics_port)
        until = time.monotonic() + 120
        while True:
            try:
                httpx2.get(found.url + "/healthz", timeout=60)
                break
            except httpx2.TransportError:
                assert time.monotonic() < until
                time.sleep(0.1)
        yield found


@contextmanager
def _running(port: int, metrics_port: int) -> Iterator[subprocess.Popen[bytes]]:
    settings = {
        "VERSO_REDIS_URL": "redis://127.0.0.1:1/0",  # none of this needs the ledger
        "VERSO_BROKER_URL": "redis://127.0.0.1:1/1",
        "VERSO_PORT": str(port),
        "VERSO_METRICS_PORT": str(metrics_port),
        "VERSO_HEAD_TIMEOUT_S": str(_HEAD_TIMEOUT_S),
        "VERSO_CONNECTIONS_LIMIT": str(_MOST),
        "VERSO_LOG_LEVEL": "ERROR",
    }
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -Sn 128; exec "$0" -m verso_gateway', sys.executable],
        env=os.environ | settings,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _answer(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def _flood(connection: socket.socket, part: bytes, *, times: int) -> int:
    """Send until the other side has had enough; return the bytes that were taken."""
    sent = 0
    try:
        for _ in range(times):
            connection.sendall(part)
            sent += len(part)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


STARTS = {
    "many headers": (b"GET /healthz HTTP/1.1\r\n", b"X-A: " + b"b" * 1000 + b"\r\n"),
    "one header": (b"GET /healthz HTTP/1.1\r\nX-A: ", b"b" * 1024),
    "a path": (b"GET /", b"b" * 1024),
    "trailers": (
        b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-A: " + b"b" * 1000 + b"\r\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_300_mb_of_headers_leave_the_gateways_memory_as_it_was(served: Served, start: str) -> None:
    before = served.memory()
    head, part = STARTS[start]
    with served.connected() as connection:
        connection.sendall(head)
        taken = _flood(connection, part * 1024, times=300)
        _answer(connection)
    assert taken < 64 * _MIB  # what the sockets' buffers take; far less was read
    assert served.memory() - before < 16 * _MIB
    assert httpx2.get(served.url + "/healthz", timeout=60).status_code == 200


def test_a_head_over_the_limit_is_answered_431_also_if_it_comes_at_once(served: Served) -> None:
    for size in (33_000, 200_000):
        with served.connected() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX-A: " + b"b" * size + b"\r\n\r\n")
            assert _answer(connection).startswith(b"HTTP/1.1 431 ")
    answer = httpx2.get(served.url + "/healthz", headers={"X-A": "b" * 31_000}, timeout=60)
    assert answer.status_code == 200


def test_a_head_that_comes_too_slowly_is_answered_408(served: Served) -> None:
    with served.connected() as connection:
        started = time.monotonic()
        connection.sendall(b"GET /")
        while time.monotonic() - started < 0.5 * _HEAD_TIMEOUT_S:  # a byte buys no time
            connection.sendall(b"a")
            time.sleep(0.1)
        assert _answer(connection).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started < 30


def test_a_second_head_on_one_connection_is_bounded_as_the_first(served: Served) -> None:
    with served.connected() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(65536)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert _answer(connection).startswith(b"HTTP/1.1 408 ")


def test_connections_that_say_nothing_are_closed_and_others_turned_away_meanwhile(
    served: Served,
) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(served.connected()) for _ in range(_MOST)]
        with served.connected() as one_more:
            assert _answer(one_more).startswith(b"HTTP/1.1 503 ")
        started = time.monotonic()
        assert [_answer(connection) for connection in silent] == [b""] * _MOST
        assert time.monotonic() - started < 30
    assert httpx2.get(served.url + "/healthz", timeout=60).status_code == 200


def test_the_gateway_may_open_as_many_files_as_the_machine_lets_it(served: Served) -> None:
    soft, hard = served.files()
    assert soft == hard > 128


def test_a_long_body_in_tiny_chunks_is_no_long_head(served: Served) -> None:
    text = b'{"texts": ["' + b"x" * 40_000 + b'"]}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
    head = (
        b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    with served.connected() as connection:
        connection.sendall(head + chunks + b"0\r\n\r\n")
        assert _answer(connection).startswith(b"HTTP/1.1 503 ")  # there is no ledger


def test_metrics_have_a_port_of_their_own(served: Served) -> None:
    assert "verso_requests_total" in httpx2.get(served.metrics_url, timeout=60).text
    assert httpx2.get(served.url + "/metrics", timeout=60).status_code == 404
