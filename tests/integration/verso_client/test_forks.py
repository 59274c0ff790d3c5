"""A client that was made before a fork, which programs of several processes do."""

from __future__ import annotations

import itertools
import socketserver
import subprocess
import sys
import threading

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


def test_a_forked_process_has_connections_of_its_own() -> None:
    """On one that both share, each would read answers of the other."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Numbered) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        command = [sys.executable, "-c", ASKING, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        server.shutdown()
    assert done.stdout.split() == ["1", "0"]
