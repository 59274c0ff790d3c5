"""Which connections a client asks on: forked processes, proxies of the environment."""

from __future__ import annotations

import itertools
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from verso_client import Client, Retries

ASKING = """
import os, sys
from verso_client import Client

verso = Client(sys.argv[1])
assert verso.get("a").data == b"0"
if (child := os.fork()) == 0:
    os._exit(int(verso.get("a").data))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), verso.get("a").data.decode())
"""
"""Ask before a fork, in the child and in the parent: for the number of the connection."""


class Numbered(socketserver.StreamRequestHandler):
    """Answers each request of a connection with the connection's number."""

    numbers = itertools.count()

    def handle(self) -> None:
        body = b'{"id": "a", "text": "%d"}' % next(self.numbers)
        for line in self.rfile:
            if line == b"\r\n":
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                self.wfile.write(head.encode() + body)


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a server that tells connections apart."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Numbered) as server:
        Numbered.numbers, server.daemon_threads = itertools.count(), True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_forked_process_has_connections_of_its_own(url: str) -> None:
    """On one that both share, each would read answers of the other."""
    command = [sys.executable, "-c", ASKING, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1", "0"]


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "socks://a"])
def test_a_platform_on_this_machine_is_not_asked_by_a_proxy(
    url: str, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    for host in ("127.0.0.1", "localhost"):
        with Client(url.replace("127.0.0.1", host), retries=Retries(patience_s=0)) as verso:
            assert verso.get("a").id == "a"


def test_another_machine_is_asked_by_the_proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", url)
    with Client("http://verso.invalid", retries=Retries(patience_s=0)) as verso:
        assert verso.get("a").id == "a"
