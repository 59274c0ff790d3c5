"""The power goes under one store alone, again and again: its files become what was synced.

A store of the platform runs as the process that it is, takes numbered writes and answers each when
it is on the disk. At a random moment the process is killed, its files lose what was not synced
(:class:`tests.chaos.disks.SyncedFiles`), and it starts again on what is left: every write that was
answered must be there, bit for bit. One cut takes a fraction of the time of a whole platform's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import redis
from tests.chaos.disks import SyncedFiles
from tests.chaos.store_writer import check_files
from tests.wire import Item, cut

from verso_core.errors import VersoError
from verso_core.jobs import Kind, Precision, Queue, Status
from verso_ledger import Commit, Ledger, NewJob
from verso_standalone.valkey import drop_unwritten, find_program, free_port
from verso_worker.records.points import Point
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors

_DIM = 64
_TOGETHER = 20
"""Points of one write."""
_WRITERS = 3
_START_S = 240.0
_MOST_S = 0.2
"""Of work between the first write that is answered and the cut."""
_FLAGS = {
    "port": "0", "save": "", "appendonly": "yes", "appendfsync": "always",
    "maxmemory-policy": "noeviction", "hash-max-listpack-value": "1024",
}  # fmt: skip


class Store(Protocol):
    """A store whose process can be killed."""

    def start(self) -> None:
        """Start the process and wait until it answers."""

    def write(self, number: int) -> None:
        """Write what follows from a number; it is on the disk when this returns."""

    def kill(self) -> None:
        """End the process at once."""

    def check(self, numbers: list[int]) -> None:
        """Read what follows from these numbers, and compare it.

        Raises:
            AssertionError: one of them is lost or wrong.
        """


class LedgerStore:
    """The ledger: jobs that were accepted, and results that were committed."""

    def __init__(self, disk: SyncedFiles, **flags: str) -> None:
        self._disk = disk
        self._flags = _FLAGS | flags
        self._lock = threading.Lock()
        self._committed: set[str] = set()
        self._url = ""

    def start(self) -> None:
        """Start the server on its append-only file."""
        folder, port = self._disk.data, free_port()
        drop_unwritten(folder)
        flags = self._flags | {"port": str(port), "dir": str(folder)}
        given = [part for name, value in flags.items() for part in (f"--{name}", value)]
        argv = [str(find_program()), *given]
        self._process = _started(argv, self._disk)
        self._url = f"redis://127.0.0.1:{port}/0"
        with redis.Redis.from_url(self._url) as client:
            _await(self._process, client.ping, redis.RedisError)

    def write(self, number: int) -> None:
        """Have a job accepted, and the first that waits done."""
        ledger = Ledger.from_url(self._url)
        try:
            body = list(cut(Kind.EMBED, {}, [Item({}, str(number).encode())]))
            name = _job(number)
            new = NewJob(kind=Kind.EMBED, queue=Queue.BULK, slices=body, job_id=name,
                         idempotency=(name, "body"))  # fmt: skip
            ledger.jobs.accept(new)
            for lease in ledger.leases.claim(Queue.BULK, owner="w", n=1, lease_s=60.0):
                if ledger.leases.commit(lease, b"r", ok=1, errors=0) is Commit.DONE:
                    with self._lock:
                        self._committed.add(lease.slice_id.partition(":")[0])
        finally:
            ledger.close()

    def kill(self) -> None:
        """End the server."""
        _kill(self._process)

    def check(self, numbers: list[int]) -> None:
        """Look at every job."""
        ledger = Ledger.from_url(self._url)
        known = {_job(number): ledger.jobs.get(_job(number)) for number in numbers}
        ledger.close()
        for job in self._committed & known.keys():
            assert known[job].status is Status.SUCCEEDED, job
            assert (known[job].n_ok, known[job].done) == (1, 1), job


class VectorStore:
    """The embedded vector store: points with words that were put, others that were removed."""

    def __init__(self, disk: SyncedFiles) -> None:
        self._disk = disk

    def start(self) -> None:
        """Start the process on its files."""
        folder = self._disk.data
        socket = folder.parent / "vectors.sock"
        socket.unlink(missing_ok=True)
        argv = [
            sys.executable, "-m", "verso_worker.stores.edge.process", "--socket", str(socket),
            "--data", str(folder), "--floor-mib", "1", "--index-above", "50000", "--quiet-s", "30",
        ]  # fmt: skip
        self._process = _started(argv, self._disk)
        self._vectors = EdgeVectors(socket, timeout_s=_START_S)
        _await(self._process, self._vectors.names, VersoError)
        self._vectors.create("c", dim=_DIM, precision=Precision.INT8, int8_scale=300.0, terms=True)

    def write(self, number: int) -> None:
        """Put points; remove a quarter of them again."""
        points = _points(number)
        self._vectors.put("c", points)
        self._vectors.remove("c", [point.id for point in points[: _TOGETHER // 4]])

    def kill(self) -> None:
        """End the process."""
        _kill(self._process)
        self._vectors.close()

    def check(self, numbers: list[int]) -> None:
        """Read every point."""
        for number in numbers:
            points = _points(number)
            found = self._vectors.get("c", [point.id for point in points])
            kept = {point.id: point.stored.tobytes() for point in points[_TOGETHER // 4 :]}
            assert {at: row.tobytes() for at, row in found.items()} == kept, number
            terms = {point.id: point.terms for point in points if point.id in kept}
            assert self._vectors.differing("c", terms) == set(), number
            own = Bm25().query(b"number%d" % number)
            hits = self._vectors.search("c", None, terms=own, limit=_TOGETHER, where=None)
            assert {hit.id for hit in hits} == kept.keys(), number


class FileStore:
    """What one process writes as files: objects, large results, the registry of models."""

    def __init__(self, disk: SyncedFiles) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._registered = set[int]()
        """Numbers that the registry may name: the last that was answered, and those after it."""

    def start(self) -> None:
        """Start the process that writes."""
        argv = [sys.executable, "-m", "tests.chaos.store_writer", str(self._disk.data)]
        self._process = _started(
            argv, self._disk, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def write(self, number: int) -> None:
        """Have a number's files written.

        Raises:
            OSError: the process was killed.
        """
        with self._lock:
            self._registered.add(number)
            self._process.stdin.write(f"{number}\n")
            self._process.stdin.flush()
            if self._process.stdout.readline() != f"{number}\n":
                raise BrokenPipeError
            self._registered = {number}

    def kill(self) -> None:
        """End the process."""
        _kill(self._process)

    def check(self, numbers: list[int]) -> None:
        """Read every file."""
        check_files(self._disk.data, numbers, registered=self._registered)


STORES: dict[str, Callable[[SyncedFiles], Store]] = {
    "ledger": LedgerStore,
    "vectors": VectorStore,
    "files": FileStore,
}


def cut_power(store: Store, disk: SyncedFiles, *, cuts: int, seed: int) -> tuple[int, int]:
    """Cut the power so often; return how many writes were answered, and how many files lost bytes.

    Raises:
        AssertionError: a write that was answered is lost or wrong.
    """
    dice, numbers, answered, lost = Random(seed), itertools.count(), list[int](), 0
    for _ in range(cuts):
        _live(store, numbers, answered, dice)
        lost += disk.lose(dice)
    with _running(store):
        store.check(answered)
    return len(answered), lost


def _live(store: Store, numbers: Iterator[int], answered: list[int], dice: Random) -> None:
    """Start a store, look at what was answered, and write until it is killed."""
    over, before = threading.Event(), len(answered)
    threads = [
        threading.Thread(target=_write, args=(store, numbers, answered, over))
        for _ in range(_WRITERS)
    ]
    with _running(store):
        store.check(answered)
        for thread in threads:
            thread.start()
        until = time.monotonic() + _START_S
        while len(answered) == before and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(dice.uniform(0.0, _MOST_S))
        over.set()
    for thread in threads:
        thread.join()
    assert len(answered) > before, "nothing was written: this cut has shown nothing"


@contextlib.contextmanager
def _running(store: Store) -> Iterator[None]:
    store.start()
    try:
        yield
    finally:
        store.kill()


def _write(
    store: Store, numbers: Iterator[int], answered: list[int], over: threading.Event
) -> None:
    with contextlib.suppress(VersoError, OSError, ValueError):  # the store was killed
        while not over.is_set():
            number = next(numbers)
            store.write(number)
            answered.append(number)


def _points(number: int) -> list[Point]:
    rows = np.random.default_rng(number).integers(-127, 128, (_TOGETHER, _DIM)).astype(np.int8)
    terms = Bm25().documents([b"number%d disk %d" % (number, n) for n in range(_TOGETHER)])
    return [
        Point(UUID(int=number * _TOGETHER + n + 1), row, {"d": f"{number}", "n": n}, words)
        for n, (row, words) in enumerate(zip(rows, terms, strict=True))
    ]


def _job(number: int) -> str:
    return f"{number:032x}"


def _started(argv: list[str], disk: SyncedFiles, **pipes: Any) -> Any:
    disk.data.mkdir(exist_ok=True)
    with (disk.data.parent / "log").open("ab") as log:
        to = {"stdout": log, "stderr": log} | pipes
        return subprocess.Popen(argv, env=os.environ | disk.settings, cwd=_ROOT, **to)


def _await(
    process: subprocess.Popen[bytes], asked: Callable[[], Any], away: type[Exception]
) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            asked()
        except away:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


def _kill(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


_ROOT = Path(__file__).parents[2]
