"""How much longer does a person wait while the same key's bulk ingest runs?

1. *Quiet*: one key classifies, asks, searches and groups in turn, a request after the other, for
   ``--seconds``.
2. *Loaded*: the same while another process with the same key ingests into another collection. It
   keeps ``--ahead`` jobs unfinished, so that every slot and the queue have bulk work all the time.

Reported are the p95 of both by kind, their ratio, the documents taken in meanwhile (a shorter wait
that costs the ingest much is no gain), and which processes held the cores in the second phase. The
goal is a ratio of at most 3. Limited by the cores, which the engine, the gateway and these callers
share.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import sheet
from core_shares import CoreShares
from keyed import client, p95_ms, platform

from verso_standalone import sample
from verso_standalone.stack import Stack

GOAL = 3.0
_TEXTS = 300
_PAUSE_S = 0.02
_WARM_ROUNDS = 5
_LOOK_S = 0.05
_ENDED_S = 300.0
_SEEN_CORES = 0.01
_WAIT = {"Prefer": "wait=60"}
_CONTEXT = "The link on port 4 is down. The operator replaced the cable at noon. It is up again."
_STORED, _TAKEN_IN = "stored", "taken-in"


class Person:
    """Sends the interactive requests in turn and notes how long each took, seconds."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self._number = 0

    def latencies(self, *, seconds: float, rounds: int = 0) -> dict[str, list[float]]:
        """Ask for so long, and at least for so many rounds."""
        found: dict[str, list[float]] = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until or rounds > 0:
            rounds -= 1
            self._number += 1
            for name, body in self._requests(self._number):
                started = time.perf_counter()
                answer = self._http.post(f"/v1/{name}", json=body, headers=_WAIT)
                if answer.status_code != 200:
                    raise RuntimeError(f"{name}: {answer.status_code} {answer.text[:200]}")
                found.setdefault(name, []).append(time.perf_counter() - started)
                time.sleep(_PAUSE_S)
        return found

    def _requests(self, number: int) -> list[tuple[str, dict[str, Any]]]:
        text = f"the link on port {number} is down"
        return [
            ("classify", {"head": "intents", "texts": [text]}),
            ("answer", {"question": f"what did operator {number} replace?", "context": _CONTEXT}),
            ("search", {"query": text, "collection": _STORED, "limit": 3}),
            ("cluster", {"collection": _STORED}),
        ]


class Ingest:
    """The bulk ingest: a process that keeps so many jobs unfinished until it is stopped."""

    def __init__(self, url: str, secret: str, *, ahead: int, documents: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._over, self._full = spawn.Event(), spawn.Event()
        arguments = (url, secret, ahead, documents, self._over, self._full)
        self._process = spawn.Process(target=_ingest, args=arguments, daemon=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Ingest while the block runs, from when the first job has ended."""
        self._process.start()
        if not self._full.wait(_ENDED_S):
            raise RuntimeError("the first bulk ingest did not end")
        try:
            yield
        finally:
            self._over.set()
            self._process.join(_ENDED_S)


def _ingest(url: str, secret: str, ahead: int, documents: int, over: Any, full: Any) -> None:
    texts = [document.text for document in sample.documents()]
    jobs: deque[str] = deque()
    number = 0
    with client(url, secret) as http:
        while not over.is_set():
            while len(jobs) < ahead:
                batch = []
                for _ in range(documents):
                    text = texts[number % len(texts)]
                    text = text if isinstance(text, str) else text.decode(errors="replace")
                    batch.append({"id": f"b{number}", "text": f"{number} {text}"})
                    number += 1
                body = {"documents": batch, "collection": _TAKEN_IN}
                answer = http.post("/v1/ingest", json=body, headers={"Prefer": "respond-async"})
                answer.raise_for_status()
                jobs.append(answer.json()["id"])
            while jobs and _ended(http, jobs[0]):
                jobs.popleft()
                full.set()
            time.sleep(_LOOK_S)
        for job in jobs:
            http.delete(f"/v1/jobs/{job}")


def _ended(http: httpx2.Client, job: str) -> bool:
    status: str = http.get(f"/v1/jobs/{job}").raise_for_status().json()["status"]
    if status not in ("queued", "running", "succeeded"):
        raise RuntimeError(f"a bulk ingest ended as {status}")
    return status == "succeeded"


def _create(http: httpx2.Client) -> None:
    """Create both collections and store the documents that are searched and grouped."""
    for name in (_STORED, _TAKEN_IN):
        http.post("/v1/collections", json={"name": name}).raise_for_status()
    documents = [{"id": f"d{n}", "text": f"host {n}: link {n % 7} is down"} for n in range(_TEXTS)]
    body = {"documents": documents, "collection": _STORED}
    http.post("/v1/ingest", json=body, headers=_WAIT).raise_for_status()


def _documents(http: httpx2.Client) -> int:
    found: int = http.get(f"/v1/collections/{_TAKEN_IN}").raise_for_status().json()["documents"]
    return found


def measured(stack: Stack, secret: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure both phases."""
    with client(stack.url, secret) as http:
        _create(http)
        person = Person(http)
        person.latencies(seconds=0.0, rounds=_WARM_ROUNDS)
        quiet = person.latencies(seconds=arguments.seconds)
        ingest = Ingest(stack.url, secret, ahead=arguments.ahead, documents=arguments.documents)
        with ingest.running():
            person.latencies(seconds=0.0, rounds=1)
            before, started = _documents(http), time.monotonic()
            shares = CoreShares()
            with shares.looking():
                loaded = person.latencies(seconds=arguments.seconds, rounds=_WARM_ROUNDS)
            spent_s, after = time.monotonic() - started, _documents(http)
    p95 = {name: {"quiet": p95_ms(quiet[name]), "loaded": p95_ms(loaded[name])} for name in quiet}
    return {
        "p95_ms": p95,
        "ratio": {name: row["loaded"] / row["quiet"] for name, row in p95.items()},
        "requests": {name: [len(quiet[name]), len(loaded[name])] for name in quiet},
        "documents_per_s": (after - before) / spent_s,
        "goal": GOAL,
        "cores": [asdict(share) for share in shares.found() if share.cores >= _SEEN_CORES],
    }


def main() -> None:
    """Run the measurement and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each phase")
    parser.add_argument("--documents", type=int, default=640, help="of a bulk job")
    parser.add_argument("--ahead", type=int, default=3, help="bulk jobs unfinished at a time")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("waiting")
    with platform(("one",), artifact=arguments.artifact, threads=arguments.threads) as (
        stack,
        keys,
    ):
        found = measured(stack, keys["one"], arguments)
    sheet.table(
        "p95 of one key's requests, ms",
        ["request", "quiet", "beside its bulk ingest", "ratio", "asked quiet", "loaded"],
        [[name, row["quiet"], row["loaded"], found["ratio"][name], *found["requests"][name]]
         for name, row in found["p95_ms"].items()],
    )  # fmt: skip
    sheet.table("Bulk ingest", ["what", "a second"], [["documents", found["documents_per_s"]]])
    sheet.table(
        "Who held the cores beside it, and how many threads waited for one",
        ["process", "nice", "cores", "waited"],
        [list(share.values()) for share in found["cores"]],
    )
    paper.finish(found)


if __name__ == "__main__":
    main()
