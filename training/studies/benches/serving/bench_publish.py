"""Does a request to a platform fail while its models are published?

The limit is the start of engines. A whole platform serves callers who embed, take documents in,
read them back and search over HTTP, without retries, while artifacts of one space are published:
every tenth is corrupt, every tenth is rolled back, the others take over. Counted are the requests
that failed or gave another text; at the end every document is read once more, whichever of the
artifacts wrote it.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench_queue import memory

from studies.benches.serving.publishing import fate, run_and_print, variant
from verso_client import Client, Document, Retries
from verso_core import registry
from verso_core.errors import VersoError
from verso_core.registry import Channel
from verso_standalone.stack import Stack, StackConfig

_PATIENCE_S = 120.0
_READ_AT_ONCE = 16


class Caller(threading.Thread):
    """A caller that sends every kind of request in turn and counts errors."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(name=f"caller-{number}")
        self._url = url
        self._number = number
        self._over = threading.Event()
        self.stored: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def end(self) -> None:
        """Finish the current request."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Send requests until ``end`` is called."""
        with Client(self._url, retries=Retries(patience_s=0.0)) as verso:
            turn = 0
            while not self._over.is_set():
                name = f"c{self._number}-{turn}"
                text = f"Jan 12 10:00:{turn % 60:02d} host sshd[{turn}]: session {name} opened"
                early = f"c{self._number}-{max(0, turn - 5)}"
                self._ask("embed", partial(_embeds, verso, text))
                if self._ask("ingest", partial(_stores, verso, name, text)):
                    self.stored[name] = text
                if early in self.stored:
                    self._ask("read", partial(_reads, verso, early, self.stored[early]))
                self._ask("search", partial(_finds, verso, text))
                turn += 1

    def _ask(self, kind: str, call: Callable[[], bool]) -> bool:
        self.calls[kind] += 1
        try:
            right = call()
        except VersoError as error:
            self.failed[f"{kind}: {error.code}"] += 1
            return False
        if not right:
            self.failed[f"{kind}: wrong"] += 1
        return right


def _embeds(verso: Client, text: str) -> bool:
    return len(verso.embed([text])) == 1


def _stores(verso: Client, name: str, text: str) -> bool:
    return not verso.ingest([Document(text, id=name)]).failed


def _reads(verso: Client, name: str, text: str) -> bool:
    return verso.get(name).text == text


def _finds(verso: Client, text: str) -> bool:
    return bool(verso.search(text, limit=1))


def wait(what: str, over: Callable[[], bool]) -> float:
    """Wait until a condition holds; return the seconds."""
    started = time.monotonic()
    while not over():
        if time.monotonic() - started > _PATIENCE_S:
            sys.exit(f"expected {what} within {_PATIENCE_S:g} s")
        time.sleep(0.1)
    return time.monotonic() - started


def publish(verso: Client, models: Path, source: Path, *, number: int) -> float | None:
    """Publish one artifact; return the seconds until it serves, or None if it is refused."""
    corrupt, back = fate(number)
    before = registry.read(models).artifact.stable
    name = variant(source, models, number, spoil=corrupt)

    def serves(wanted: str | None) -> bool:
        workers = verso.registry().workers
        return bool(workers) and (workers[0]["artifact"]["stable"] or {}).get("name") == wanted

    def refuses() -> bool:
        workers = verso.registry().workers
        return bool(workers) and bool(workers[0]["artifact"]["refused"])

    registry.assign(models, Channel.STABLE, name)
    over = refuses if corrupt else partial(serves, name)
    seconds = wait(f"an answer to the publish of {name}", over)
    if corrupt or back:
        verso.rollback()
        wait(f"{before} again", lambda: serves(before) and not refuses())
    return None if corrupt else seconds


def read_back(verso: Client, stored: dict[str, str]) -> int:
    """Count the documents that read back as they were, oldest first: each artifact starts once."""
    names = sorted(stored, key=lambda name: int(name.partition("-")[2]))
    exact = 0
    for at in range(0, len(names), _READ_AT_ONCE):
        found = verso.reconstruct(names[at : at + _READ_AT_ONCE])
        exact += sum(one.text == stored[one.id] for one in found)
    return exact


def run(root: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Publish so many artifacts under load, and read everything back."""
    settings = {
        "VERSO_VERIFY_DELAY_S": "0.1",
        "VERSO_RAW_TEXT_RETENTION_S": "0",
        "VERSO_TEXT_CACHE_MIB": "0",
    }
    stack = Stack(StackConfig(root, arguments.artifact, port=0, threads=1, settings=settings))
    stack.start()
    try:
        callers = [Caller(stack.url, number) for number in range(arguments.callers)]
        with Client(stack.url) as verso:
            for caller in callers:
                caller.start()
            numbers = range(1, arguments.publishes + 1)
            models = stack.folder.models
            seconds = [publish(verso, models, arguments.artifact, number=n) for n in numbers]
            for caller in callers:
                caller.end()
            mib = {name: mb * 1e6 / 2**20 for name, mb in memory(stack).items()}
            stored = {name: text for caller in callers for name, text in caller.stored.items()}
            exact = read_back(verso, stored)
            codecs = next(c for c in verso.collections() if c.name == "default").artifacts
    finally:
        stack.stop()
    served = sorted(one for one in seconds if one is not None)
    return {
        "publishes": arguments.publishes,
        "refused": seconds.count(None),
        "rolled_back": sum(fate(n).rolled_back for n in numbers),
        "requests": sum(caller.calls.total() for caller in callers),
        "failed_requests": sum(caller.failed.total() for caller in callers),
        "failures": dict(sum((caller.failed for caller in callers), Counter())),
        "median_publish_s": served[len(served) // 2],
        "artifacts_that_wrote": len(codecs),
        "documents": len(stored),
        "read_back_exactly": exact,
        "worker_mib_with_engines_still_idle": mib["worker"],
    }


if __name__ == "__main__":
    run_and_print(
        "publish", run, title="Publishing while serving over HTTP", publishes=20, callers=4
    )
