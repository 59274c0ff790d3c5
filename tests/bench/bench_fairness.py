"""How much slower is a caller while another key does its worst, and what does the gateway hold?

1. *Quiet*: one key embeds and searches, a request after the other, for ``--seconds``.
2. *Loaded*: the same beside another key that sends, over and over, a search with 400,000 filter
   values, five questions with 1 MB of contexts each, the same two as large as they are accepted,
   and an upload of ``--lines`` lines. What is refused costs the reading of the request; what is
   accepted costs the engine.

Reported are the p95 of both, their ratio, how often the other key was answered with what, and how
much the gateway's resident memory grew above its quiet state. Limited by the cores, which the
engine, the gateway and these callers share.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import sheet
from keyed import client, p95_ms, platform

from verso_standalone.stack import Stack

_NDJSON = {"Content-Type": "application/x-ndjson"}
_TEXTS = 300
_PAUSE_S = 0.05
_BOMB_PAUSE_S = 1.0
_LOOK_S = 0.1
_WARM_S = 3.0


class Caller:
    """Embeds and searches in turns and notes how long each took, seconds."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def latencies(self, seconds: float) -> dict[str, list[float]]:
        """Call for so long."""
        found: dict[str, list[float]] = {"embed": [], "search": []}
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until:
            number += 1
            text = f"the link on port {number} is down"
            for name, body in (
                ("embed", {"texts": [text]}),
                ("search", {"query": text, "with_text": False}),
            ):
                started = time.perf_counter()
                answer = self._http.post(f"/v1/{name}", json=body)
                if answer.status_code != 200:
                    raise RuntimeError(f"{name}: {answer.status_code} {answer.text[:200]}")
                found[name].append(time.perf_counter() - started)
                time.sleep(_PAUSE_S)
        return found


class Load:
    """What the other key sends: a process of its own, each kind in a thread, until stopped."""

    def __init__(self, url: str, secret: str, *, lines: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._over = spawn.Event()
        self._counts = spawn.SimpleQueue()
        arguments = (url, secret, lines, self._over, self._counts)
        self._process = spawn.Process(target=_load, args=arguments, daemon=True)
        self.answers: dict[str, int] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs."""
        self._process.start()
        time.sleep(_WARM_S)
        try:
            yield
        finally:
            self._over.set()
            self.answers = dict(sorted(self._counts.get().items()))
            self._process.terminate()


def _load(url: str, secret: str, lines: int, over: Any, counts: Any) -> None:
    words = "a word of the context " * 50_000
    values = [f"value-{n}" for n in range(400_000)]
    kinds: list[tuple[str, Callable[[httpx2.Client], int]]] = [
        ("search, 400,000 values", _post("/v1/search", _filtered(values))),
        ("search, 256 values", _post("/v1/search", _filtered(values[:256]))),
        *5 * [("answer, 1 MB", _post("/v1/answer", _asked(words)))],
        *5 * [("answer, 255 KiB", _post("/v1/answer", _asked(words[: 255 * 1024])))],
        (f"ingest, {lines:,} lines", _upload(lines)),
    ]
    answers: Counter[str] = Counter()

    def send_all(name: str, send: Callable[[httpx2.Client], int]) -> None:
        with client(url, secret) as http:
            while not over.is_set():
                answers[f"{name}: {send(http)}"] += 1
                time.sleep(_BOMB_PAUSE_S)

    for kind in kinds:
        threading.Thread(target=send_all, args=kind, daemon=True).start()
    over.wait()
    counts.put(dict(answers))


class Memory:
    """The largest resident memory of a process while the block runs, bytes above the beginning."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.grown = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the process from time to time."""
        over = threading.Event()
        before = self._process.memory_info().rss

        def look() -> None:
            while not over.wait(_LOOK_S):
                self.grown = max(self.grown, self._process.memory_info().rss - before)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _filtered(values: list[str]) -> dict[str, Any]:
    return {"query": "link", "with_text": False, "filter": {"metadata": {"host": values}}}


def _asked(context: str) -> dict[str, Any]:
    return {"question": "which link is down?", "context": context}


def _post(path: str, body: dict[str, Any]) -> Callable[[httpx2.Client], int]:
    content = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    return lambda http: http.post(path, content=content, headers=headers).status_code


def _upload(lines: int) -> Callable[[httpx2.Client], int]:
    content = b"1\n" * lines
    return lambda http: http.post("/v1/ingest", content=content, headers=_NDJSON).status_code


def fill(http: httpx2.Client) -> None:
    """Store the documents that are searched."""
    documents = [
        {
            "id": f"d{n}",
            "text": f"host {n}: link {n % 7} is down",
            "metadata": {"host": f"h{n}"},
        }
        for n in range(_TEXTS)
    ]
    headers = {"Prefer": "wait=60"}
    answer = http.post("/v1/ingest", json={"documents": documents}, headers=headers)
    answer.raise_for_status()


def measured(stack: Stack, *, quiet: str, other: str, seconds: float, lines: int) -> dict[str, Any]:
    """Measure both phases."""
    pid = next(one.pid for one in stack.processes if one.name == "gateway")
    assert pid is not None
    with client(stack.url, quiet) as http:
        fill(http)
        caller = Caller(http)
        caller.latencies(_WARM_S)
        before = caller.latencies(seconds)
        load, memory = Load(stack.url, other, lines=lines), Memory(pid)
        with memory.watched(), load.running():
            loaded = caller.latencies(seconds)
    return {
        "p95_ms": {
            name: {"quiet": p95_ms(before[name]), "loaded": p95_ms(loaded[name])} for name in before
        },
        "ratio": {name: p95_ms(loaded[name]) / p95_ms(before[name]) for name in before},
        "requests": {name: len(loaded[name]) for name in loaded},
        "answers": load.answers,
        "gateway_grown_mib": memory.grown / 2**20,
    }


def main() -> None:
    """Run the measurement and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase")
    parser.add_argument("--lines", type=int, default=3_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("fairness")
    owners = ("quiet", "other")
    with platform(owners, artifact=arguments.artifact, threads=arguments.threads) as (stack, keys):
        found = measured(stack, **keys, seconds=arguments.seconds, lines=arguments.lines)
    sheet.table(
        "p95, ms",
        ["request", "quiet", "loaded", "ratio"],
        [[name, row["quiet"], row["loaded"], found["ratio"][name]]
         for name, row in found["p95_ms"].items()],
    )  # fmt: skip
    sheet.table("The other key's answers", ["request: status", "count"], found["answers"].items())
    sheet.table("Gateway", ["what", "MiB"], [["grown above quiet", found["gateway_grown_mib"]]])
    paper.finish(found)


if __name__ == "__main__":
    main()
