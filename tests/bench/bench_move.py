"""How long does a collection take to move to another ledger, and how long do its writes wait?

Two real servers, a collection of ``--records`` records of patches of usual size, and a keeper's
mover. Meanwhile a caller sends jobs of one text, as fast as ``--rate`` says, and a worker takes
every slice through its steps, verification included. With ``--identities`` it is a collection of
lines: so many identities are known, the records are segments, and each job has an identity. It is
measured, of each of ``--moves`` moves there and back:

- the seconds from its start to the switch, and the bytes that were copied;
- how long the old ledger accepted no write, as the mover counts it;
- the longest time in which the caller's write was refused, which is what a user notices;
- how long each server answered nobody at most: another process pings it every 2 ms;
- how many commands the old ledger's server takes a second from ``--waiting`` requests of a gateway
  that wait behind a fence of three seconds, apart from the moves;
- reads: entries read one after another from the ledger that lists them, and how many failed.

Limited by the CPU of the two servers and of this process, which does all of it in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sheet
from bench_ledgers import collection, entry, servers

from verso_core.errors import CollectionBusy, CollectionUnknown
from verso_core.jobs import (
    CollectionKind,
    IngestItem,
    IngestParams,
    Kind,
    Queue,
    cut,
    cut_lines,
    read_slice,
)
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem
from verso_core.jobs.moves import MoveStage
from verso_core.record import Entry
from verso_core.segments import LinesWrite, Segment, SegmentWrite
from verso_core.settings import LedgerAddress
from verso_keeper.mover import Mover
from verso_ledger import AsyncLedger, DocumentWrite, Ledger, Ledgers, NewJob, Phase
from verso_ledger.connection import connect

_NAME = "moved"
_TEXT = b"Nov 26 08:00:00 host sshd[4711]: session opened for user u4711 by (uid=0)"
_FILL = 256
_FENCED_S = 3.0
_LABELS = {"host": "a"}
_PINGS = """
import json, sys, threading, time
from redis import Redis
servers = [Redis.from_url(url) for url in sys.argv[1:]]
over, longest = threading.Event(), [0.0] * len(servers)
def ping(n):
    while not over.wait(0.002):
        began = time.perf_counter()
        servers[n].ping()
        longest[n] = max(longest[n], time.perf_counter() - began)
threads = [threading.Thread(target=ping, args=(n,)) for n in range(len(servers))]
for one in threads: one.start()
sys.stdin.read()
over.set()
for one in threads: one.join()
print(json.dumps(longest))
"""


@dataclass
class Traffic:
    """A caller and a worker of both ledgers; stopped by ``over``."""

    ledgers: dict[str, Ledger]
    rate: float
    records: int
    over: threading.Event = field(default_factory=threading.Event)
    waits_s: list[float] = field(default_factory=list)
    reads: int = 0
    failed_reads: int = 0

    def holders(self) -> list[Ledger]:
        """Return the ledgers that list the collection, one that it has left last."""
        listed = [one for one in self.ledgers.values() if _NAME in one.documents.collections()]
        return sorted(listed, key=lambda one: one.moves.has_left(_NAME))

    def write(self) -> None:
        """Send jobs of one text, and note how long each is refused."""
        number = 0
        while not self.over.wait(1 / self.rate):
            number += 1
            item = IngestItem(f"new{number % 1000}", _TEXT)
            params = IngestParams(collection=_NAME)
            job = NewJob(
                Kind.INGEST,
                Queue.BULK,
                list(cut(Kind.INGEST, params, [item])),
                collection=_NAME,
            )
            began = time.monotonic()
            while not self._accepted(job):
                time.sleep(0.02)
            self.waits_s.append(time.monotonic() - began)

    def _accepted(self, job: NewJob) -> bool:
        for ledger in self.holders():
            with contextlib.suppress(CollectionBusy):
                ledger.jobs.accept(job)
                return True
        return False

    def work(self) -> None:
        """Take slices through their steps."""
        while not self.over.is_set():
            idle = True
            for ledger in self.ledgers.values():
                for queue in (Queue.BULK, Queue.SCRUB):
                    for lease in ledger.leases.claim(queue, owner="bench", n=8):
                        idle = False
                        self._execute(ledger, lease)
            if idle:
                time.sleep(0.005)

    def _execute(self, ledger: Ledger, lease: Any) -> None:
        names = [str(item.id) for item in read_slice(lease.payload).items]
        if lease.phase is Phase.VERIFY:
            right = [(_NAME, name, lease.seq) for name in names]
            ledger.leases.commit_verified(lease, right, raw_text_retention_s=0.0)
            return
        writes = [DocumentWrite(_NAME, name, entry(lease.seq), None) for name in names]
        ledger.leases.commit(
            lease, b"r" * 200, ok=len(names), errors=0, documents=writes, verify_delay_s=1.0
        )

    def read(self) -> None:
        """Read entries, and check that each is there and whole."""
        draw = random.Random(5)
        while not self.over.wait(0.01):
            number = draw.randrange(self.records)
            name = f"d{number}"
            found: dict[str, bytes] = {}
            for ledger in self.holders():
                with contextlib.suppress(CollectionUnknown):
                    found = ledger.documents.entry(_NAME, [name])
                    break
            self.reads += 1
            self.failed_reads += not found or Entry.unpack(found[name]).damaged


@dataclass
class LineTraffic(Traffic):
    """Callers and a worker of a collection of lines, whose jobs have an identity each."""

    def write(self) -> None:
        """Send jobs of one line, and note how long each is refused."""
        number = 0
        while not self.over.wait(1 / self.rate):
            number += 1
            identity = b"%016x" % (number + (1 << 60) + random.getrandbits(48))

            def job(ledger: Ledger, identity: bytes = identity) -> NewJob:
                return lines_job(ledger, [_TEXT], [identity])

            began = time.monotonic()
            while not self._taken(job):
                time.sleep(0.02)
            self.waits_s.append(time.monotonic() - began)

    def _taken(self, job: Callable[[Ledger], NewJob]) -> bool:
        for ledger in self.holders():
            with contextlib.suppress(CollectionBusy, CollectionUnknown):
                ledger.jobs.accept(job(ledger))
                return True
        return False

    def _execute(self, ledger: Ledger, lease: Any) -> None:
        store_lines(ledger, lease)

    def read(self) -> None:
        """Read segments, and check that each is there."""
        while not self.over.wait(0.05):
            found: list[bytes | None] = []
            for ledger in self.holders():
                with contextlib.suppress(CollectionUnknown):
                    uid = ledger.logs.state(_NAME).uid
                    found = ledger.logs.read(uid, [(0, 0)])
                    break
            self.reads += 1
            self.failed_reads += found in ([], [None])


def lines_job(ledger: Ledger, lines: list[bytes], identities: list[bytes]) -> NewJob:
    """Return a job that stores lines, at places that a ledger reserves."""
    place = ledger.logs.reserve(_NAME, _LABELS, len(lines))
    params = IngestLinesParams(
        collection=_NAME,
        uid=place.uid,
        stream=place.stream,
        labels=_LABELS,
        arrived=time.time_ns(),
    )
    spec = cut_lines(params, LinesItem(place.first, len(lines), b"\n".join(lines)))
    return NewJob(
        Kind.INGEST_LINES,
        Queue.BULK,
        [spec],
        collection=_NAME,
        identities={_NAME: identities},
        identity_s=24 * 3600,
    )


def store_lines(ledger: Ledger, lease: Any) -> None:
    """Store the lines of a slice in segments of one line each, or verify it."""
    if lease.phase is Phase.VERIFY:
        ledger.leases.commit_verified(lease, [], raw_text_retention_s=0.0)
        return
    found = read_slice(lease.payload)
    for item in found.items:
        assert isinstance(item, LinesItem)
        segments = [
            SegmentWrite(Segment(found.params.stream, item.first + n, 1), row, len(row))
            for n, row in enumerate(item.text.split(b"\n"))
        ]
    lines = LinesWrite(_NAME, found.params.uid, segments)
    ledger.leases.commit(lease, b"r", ok=1, errors=0, lines=lines, verify_delay_s=1.0)


def fill_lines(ledger: Ledger, count: int, identities: int) -> None:
    """Store segments, and make identities known."""
    for first in range(0, count, 1000):
        job = lines_job(
            ledger, [_TEXT] * min(1000, count - first), [b"%016x" % (first + (1 << 62))]
        )
        ledger.jobs.accept(job)
        [lease] = ledger.leases.claim(Queue.BULK, owner="bench")
        store_lines(ledger, lease)
    for first in range(0, identities, 4000):
        known = [b"%016x" % n for n in range(first, min(first + 4000, identities))]
        ledger.jobs.accept(lines_job(ledger, [_TEXT], known))
        [lease] = ledger.leases.claim(Queue.BULK, owner="bench")
        store_lines(ledger, lease)
    time.sleep(1.1)
    while leases := ledger.leases.claim(Queue.SCRUB, owner="bench", n=64):
        for lease in leases:
            store_lines(ledger, lease)


@contextlib.contextmanager
def pinged(urls: list[str]) -> Iterator[list[float]]:
    """Ping servers from another process; in the end the longest answer of each, seconds."""
    found: list[float] = []
    command = [sys.executable, "-c", _PINGS, *urls]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield found
        reply, _ = process.communicate()
        found += json.loads(reply)


def fill(ledger: Ledger, count: int) -> None:
    """Store and verify records."""
    params = IngestParams(collection=_NAME)
    for first in range(0, count, _FILL):
        names = [f"d{n}" for n in range(first, min(first + _FILL, count))]
        items = [IngestItem(name, _TEXT) for name in names]
        slices = list(cut(Kind.INGEST, params, items, max_items=_FILL, max_bytes=1 << 30))
        ledger.jobs.accept(NewJob(Kind.INGEST, Queue.BULK, slices))
        [lease] = ledger.leases.claim(Queue.BULK, owner="bench")
        writes = [DocumentWrite(_NAME, name, entry(lease.seq), None) for name in names]
        ledger.leases.commit(
            lease, b"r" * 200, ok=len(names), errors=0, documents=writes, verify_delay_s=0.0
        )
        [lease] = ledger.leases.claim(Queue.SCRUB, owner="bench")
        right = [(_NAME, name, lease.seq) for name in names]
        ledger.leases.commit_verified(lease, right, raw_text_retention_s=0.0)
        ledger.maintenance.drop_due(10)


def moved(traffic: Traffic, source: str, target: str) -> dict[str, Any]:
    """Move the collection once, and return what it took."""
    mover = Mover(traffic.ledgers[source], traffic.ledgers)
    before = len(traffic.waits_s)
    began = time.monotonic()
    traffic.ledgers[source].moves.begin(_NAME, _NAME, target)
    switched_s = 0.0
    while (state := traffic.ledgers[source].moves.all()[_NAME]).ended is None:
        mover.step()
        if not switched_s and traffic.ledgers[source].moves.has_left(_NAME):
            switched_s = time.monotonic() - began
        for ledger in traffic.ledgers.values():  # a worker removes points meanwhile
            ledger.maintenance.gc_done([one.token for one in ledger.maintenance.gc_take()])
        time.sleep(0.1)
    return {
        "seconds": round(switched_s, 2),
        "mib": round(state.bytes_copied / 2**20, 2),
        "paused_s": state.paused_ms / 1000,
        "longest_wait_s": round(max(traffic.waits_s[before:], default=0.0), 2),
        "tries": state.tries,
    }


async def waiting_commands(urls: list[str], ledger: Ledger, count: int) -> dict[str, float]:
    """Let requests wait behind a fence; return what that costs its server.

    Args:
        urls: of the ledgers, the home ledger first.
        ledger: that has the collection.
        count: of requests.
    """
    addresses = [LedgerAddress(*row) for row in zip(("home", "b"), urls, strict=True)]
    ledgers = Ledgers.connect(addresses, replicas=0)
    params = IngestParams(collection=_NAME)

    async def ask(one: AsyncLedger) -> None:
        slices = list(cut(Kind.INGEST, params, [IngestItem("waits", _TEXT)]))
        await one.accept(NewJob(Kind.INGEST, Queue.BULK, slices, collection=_NAME))

    def served() -> tuple[int, float]:
        info: Any = ledger.moves.scripts.client.info()
        return info["total_commands_processed"], info["used_cpu_user"] + info["used_cpu_sys"]

    move = ledger.moves.begin(_NAME, _NAME, "b" if ledger.name == "home" else "home")
    fenced = move.model_copy(update={"stage": MoveStage.FENCE})
    await ledgers.collections()
    assert ledger.moves.step(move, fenced, "fence", with_=60_000)
    commands, cpu_s = served()
    waiting = [asyncio.create_task(ledgers.at(_NAME, ask)) for _ in range(count)]
    await asyncio.sleep(_FENCED_S)
    after, cpu_after_s = served()
    assert ledger.moves.step(fenced, move, "open")
    began = time.monotonic()
    await asyncio.gather(*waiting)
    accepted_s = time.monotonic() - began
    assert ledger.moves.step(move, move.model_copy(update={"ended": time.time()}), "forget")
    await ledgers.close()
    return {
        "waiting": count,
        "commands_a_second": round((after - commands) / _FENCED_S),
        "cpu_a_second": round((cpu_after_s - cpu_s) / _FENCED_S, 3),
        "accepted_after_s": round(accepted_s, 2),
    }


def main() -> None:
    """Fill a collection and move it there and back."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=20.0, help="jobs a second")
    parser.add_argument("--moves", type=int, default=4)
    parser.add_argument("--identities", type=int, default=0)
    parser.add_argument("--waiting", type=int, default=500)
    arguments = parser.parse_args()
    report = sheet.Sheet("bench_move")
    with servers(2) as found:
        ledgers = {
            name: Ledger(connect(one.url), name=name)
            for name, one in zip(("home", "b"), found, strict=True)
        }
        made = collection(_NAME).model_copy(update={"buckets": 4096})  # as a platform makes it
        kind: type[Traffic] = Traffic
        if arguments.identities:
            kind = LineTraffic
            made = made.model_copy(update={"kind": CollectionKind.LOGS, "buckets": 1})
        ledgers["home"].documents.collection_put(made)
        if arguments.identities:
            fill_lines(ledgers["home"], arguments.records, arguments.identities)
        else:
            fill(ledgers["home"], arguments.records)
        traffic = kind(ledgers, arguments.rate, arguments.records)
        threads = [
            threading.Thread(target=act) for act in (traffic.write, traffic.work, traffic.read)
        ]
        for thread in threads:
            thread.start()
        time.sleep(2.0)
        rows = []
        source, target = "home", "b"
        for _ in range(arguments.moves):
            with pinged([one.url for one in found]) as longest_s:
                row = moved(traffic, source, target)
            still_s = dict(zip(("home", "b"), longest_s, strict=True))
            row |= {"still_from_ms": round(still_s[source] * 1000)}
            row |= {"still_to_ms": round(still_s[target] * 1000)}
            rows.append(row)
            source, target = target, source
        traffic.over.set()
        for thread in threads:
            thread.join()
        waiting: dict[str, float] = {}
        if not arguments.identities:
            urls = [one.url for one in found]
            waiting = asyncio.run(waiting_commands(urls, ledgers[source], arguments.waiting))
        if arguments.identities:
            held = ledgers[source].logs.state(_NAME).lines
        else:
            held = ledgers[source].documents.holdings(_NAME).documents
        for one in ledgers.values():
            one.close()
    columns = ["seconds", "mib", "paused_s", "longest_wait_s", "tries"]
    columns += ["still_from_ms", "still_to_ms"]
    sheet.table(
        f"Moves of {arguments.records:,} records, {arguments.rate:g} jobs a second beside it",
        ["move", *columns],
        [[n, *(row[name] for name in columns)] for n, row in enumerate(rows, 1)],
    )
    report.finish(
        {
            "records": arguments.records,
            "identities": arguments.identities,
            "held_at_the_end": held,
            "moves": rows,
            "median_seconds": statistics.median(row["seconds"] for row in rows),
            "longest_still_ms": max(max(row["still_from_ms"], row["still_to_ms"]) for row in rows),
            "median_paused_s": statistics.median(row["paused_s"] for row in rows),
            "requests_that_wait": waiting,
            "reads": traffic.reads,
            "failed_reads": traffic.failed_reads,
        }
    )


if __name__ == "__main__":
    main()
