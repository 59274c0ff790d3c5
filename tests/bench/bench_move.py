"""How long does a collection take to move to another ledger, and how long do its writes wait?

Two real servers, a collection of ``--records`` records of patches of usual size, and a keeper's
mover. Meanwhile a caller sends jobs of one text, as fast as ``--rate`` says, and a worker takes
every slice through its steps, verification included. It is measured, of each of ``--moves`` moves
there and back:

- the seconds from its start to the switch, and the bytes that were copied;
- how long the old ledger accepted no write, as the mover counts it;
- the longest time in which the caller's write was refused, which is what a user notices;
- reads: entries read one after another from the ledger that lists them, and how many failed.

Limited by the CPU of the two servers and of this process, which does all of it in Python.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import sheet
from bench_ledgers import collection, entry, servers

from verso_core.errors import CollectionBusy, CollectionUnknown
from verso_core.jobs import IngestItem, IngestParams, Kind, Queue, cut, read_slice
from verso_core.record import Entry
from verso_keeper.mover import Mover
from verso_ledger import DocumentWrite, Ledger, NewJob, Phase
from verso_ledger.connection import connect

_NAME = "moved"
_TEXT = b"Nov 26 08:00:00 host sshd[4711]: session opened for user u4711 by (uid=0)"
_FILL = 256


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


def main() -> None:
    """Fill a collection and move it there and back."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=20.0, help="jobs a second")
    parser.add_argument("--moves", type=int, default=4)
    arguments = parser.parse_args()
    report = sheet.Sheet("bench_move")
    with servers(2) as found:
        ledgers = {
            name: Ledger(connect(one.url), name=name)
            for name, one in zip(("home", "b"), found, strict=True)
        }
        made = collection(_NAME).model_copy(update={"buckets": 4096})  # as a platform makes it
        ledgers["home"].documents.collection_put(made)
        fill(ledgers["home"], arguments.records)
        traffic = Traffic(ledgers, arguments.rate, arguments.records)
        threads = [
            threading.Thread(target=act) for act in (traffic.write, traffic.work, traffic.read)
        ]
        for thread in threads:
            thread.start()
        time.sleep(2.0)
        rows = []
        source, target = "home", "b"
        for _ in range(arguments.moves):
            rows.append(moved(traffic, source, target))
            source, target = target, source
        traffic.over.set()
        for thread in threads:
            thread.join()
        held = ledgers[source].documents.holdings(_NAME).documents
        for one in ledgers.values():
            one.close()
    columns = ["seconds", "mib", "paused_s", "longest_wait_s", "tries"]
    sheet.table(
        f"Moves of {arguments.records:,} records, {arguments.rate:g} jobs a second beside it",
        ["move", *columns],
        [[n, *(row[name] for name in columns)] for n, row in enumerate(rows, 1)],
    )
    report.finish(
        {
            "records": arguments.records,
            "documents_at_the_end": held,
            "moves": rows,
            "median_seconds": statistics.median(row["seconds"] for row in rows),
            "median_paused_s": statistics.median(row["paused_s"] for row in rows),
            "reads": traffic.reads,
            "failed_reads": traffic.failed_reads,
        }
    )


if __name__ == "__main__":
    main()
