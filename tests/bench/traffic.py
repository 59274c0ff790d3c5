"""Callers for a bench: one-text requests over kept connections, and what they cost.

The callers are a few lines of asyncio rather than an HTTP library: on a small machine they share
the cores with what is measured, and a library would take more of them than some servers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

_REFUSALS = (429, 503)
_CHUNKED = b"transfer-encoding: chunked"


@dataclass(frozen=True, slots=True)
class Route:
    """Where one text is sent, and how its request and its answer look."""

    url: str
    body: Callable[[str], object]
    dim: Callable[[bytes], int]

    def request(self, text: str) -> bytes:
        """Write the whole HTTP/1.1 request for a text."""
        parts = urlsplit(self.url)
        body = json.dumps(self.body(text)).encode()
        return (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


@dataclass(frozen=True, slots=True)
class Traffic:
    """The result of a run of requests. Times in seconds; latencies of answered ones only."""

    requests: int
    seconds: float
    latencies: list[float]
    refused: int = 0

    @property
    def answered(self) -> int:
        """Requests that were not refused."""
        return self.requests - self.refused

    @property
    def per_s(self) -> float:
        """Requests answered a second."""
        return self.answered / self.seconds

    def quantile_ms(self, share: float) -> float:
        """Return the latency that this share of the requests did not pass, ms."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def send(route: Route, texts: Sequence[str], *, concurrency: int) -> Traffic:
    """Send each text alone, with so many callers at once, and check that every vector came.

    A server that says it has too much to do is counted as refusing, and not asked again.

    Raises:
        RuntimeError: an answer was neither a vector nor such a refusal.
    """
    return asyncio.run(_send(route, [route.request(text) for text in texts], concurrency))


async def _send(route: Route, requests: Sequence[bytes], concurrency: int) -> Traffic:
    parts = urlsplit(route.url)
    waiting = iter(requests)
    latencies: list[float] = []
    refused = 0

    async def caller() -> None:
        nonlocal refused
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for request in waiting:
            started = time.perf_counter()
            writer.write(request)
            status, body = await read_answer(reader)
            if status in _REFUSALS:
                refused += 1
                continue
            latencies.append(time.perf_counter() - started)
            if status != 200 or route.dim(body) < 1:
                raise RuntimeError(f"expected a vector, got {status}: {body[:200]!r}")
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(concurrency)))
    return Traffic(len(requests), time.perf_counter() - started, latencies, refused)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of the next answer on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    if status == 204:
        return status, b""
    if _CHUNKED not in head:
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return status, await reader.readexactly(size)
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return status, body


class Costs:
    """CPU seconds and memory of everything that this process has started, and that they started.

    This process itself, which plays the callers, is left out.
    """

    def __init__(self) -> None:
        self._root = psutil.Process()
        self._before = self._seconds()

    def spent(self) -> float:
        """Return the CPU seconds since the last call."""
        now = self._seconds()
        before, self._before = self._before, now
        return sum(seconds - before.get(process, 0.0) for process, seconds in now.items())

    def memory_bytes(self) -> int:
        """Return the resident memory of all, counting shared pages once for each process."""
        return sum(process.memory_info().rss for process in self._root.children(recursive=True))

    def _seconds(self) -> dict[int, float]:
        found = {}
        for process in self._root.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        return found
