"""A storm: a whole platform under mixed load, and its processes killed or stopped at random.

    python -m tests.chaos.storm --faults 1000          (``make chaos``)

1. `verso up` on a new folder, callers at work (:mod:`tests.chaos.load`).
2. Again and again: a fault, then the time until a new embed and a new one-document ingest have both
   been done, which is the recovery time; then a pause of random length.
3. The callers stop, the platform comes to rest, and the judge looks at every promise.

A fault is a SIGKILL of one process or of several at once, a SIGSTOP for some seconds, a handful of
wake-ups that no one asked for, or the loss of all. Everything random follows from ``--seed``
except the times at which processes are hit. Each fault is one JSON line of the log, as is the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from redis.backoff import ConstantBackoff
from redis.retry import Retry
from tests.chaos.load import COLLECTION, Journal, Load, text_of
from tests.e2e.conftest import ARTIFACT, Platform

from verso_client import Client, Document, StoredText
from verso_core.errors import DocumentUnknown, VersoError
from verso_core.jobs import Kind, Queue, Status

PARTS = ("worker", "engine", "shard", "keeper", "gateway", "valkey")
IN_A_ROW = "several in a row"
_LOST_S = 300.0
"""Recovery that takes longer than this is no recovery."""
_AGAIN_S = 0.1
_REST_S = 60.0
"""A job that has not ended so long after the last caller left is lost: some leases and pauses."""
SETTINGS = {
    "VERSO_VERIFY_DELAY_S": "0.1",
    "VERSO_RAW_TEXT_RETENTION_S": "0",
    "VERSO_SCRUB_SHARE": "0",
    "VERSO_FREE_FLOOR_MIB": "1",
    "VERSO_FIT_AFTER_CHUNKS": "1000",  # as by default: fits are shot at as well
}


@dataclass
class Storm:
    """One run.

    Attributes:
        platform: what is shot at.
        journal: what callers were told.
        dice: draws the faults.
        log: gets a line of JSON for each fault, or for some in a row.
        recovery_s: seconds after each fault, by what it was.
        kills: processes that were killed.
        faults: how many there were.
        in_a_row: how likely another fault follows before the platform has recovered from one; the
            recovery is then measured from the last of them.
        pause_s: mean time after a recovery until the next fault, seconds.
    """

    platform: Platform
    journal: Journal
    dice: random.Random
    log: TextIO
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kills: int = 0
    faults: int = 0
    in_a_row: float = 0.0
    pause_s: float = 1.0

    def rage(self, *, faults: int, until: float) -> None:
        """Do so many faults, or fewer when the time (``time.monotonic``) is over."""
        with self.platform.client(patience_s=_LOST_S) as client:
            while self.faults < faults and time.monotonic() < until:
                self._one(client)
                time.sleep(self.dice.expovariate(1.0) * self.pause_s)

    def ways(self) -> dict[Callable[[], str], float]:
        """Return the faults that are drawn from, and how often each is drawn."""
        return {self._kill: 14, self._kill_several: 2, self._stop: 3, self._ring: 1}

    def _one(self, client: Client) -> None:
        what = [self._fault()]
        while self.dice.random() < self.in_a_row:
            time.sleep(self.dice.random())
            what.append(self._fault())
        started = time.monotonic()
        try:
            probe(client, f"probe/{self.faults}", self.journal)
        except VersoError as error:
            self.journal.wrong(f"no recovery from {', '.join(what)}: {error.code}")
        spent = time.monotonic() - started
        self.recovery_s[what[0] if len(what) == 1 else IN_A_ROW].append(spent)
        self._note({"fault": self.faults, "what": ", ".join(what), "recovery_s": round(spent, 2)})

    def _fault(self) -> str:
        ways = self.ways()
        what = self.dice.choices(list(ways), list(ways.values()))[0]()
        self.faults += 1
        return what

    def _kill(self) -> str:
        part = self.dice.choice(PARTS)
        self.platform.kill(part)
        self.kills += 1
        return f"kill {part}"

    def _kill_several(self) -> str:
        parts = self.dice.sample(PARTS, self.dice.randint(2, len(PARTS)))
        pids = [self.platform.pid(part) for part in parts]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # the child of one that was killed before it
            self.kills += 1
        return "kill several"

    def _stop(self) -> str:
        part = self.dice.choice(PARTS)
        pid = self.platform.pid(part)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.dice.choice([0.5, 3.0, 12.0]))  # 12 s outlasts a lease
        with contextlib.suppress(ProcessLookupError):  # its supervisor took it for hung
            os.kill(pid, signal.SIGCONT)
        return f"stop {part}"

    def _ring(self) -> str:
        """Double wake-ups, wake-ups for no queue, or none at all."""
        again = Retry(ConstantBackoff(_AGAIN_S), retries=round(_LOST_S / _AGAIN_S))
        again.call_with_retry(self._ring_once, lambda _: None)  # the ledger may be between lives
        return "wake-ups doubled or lost"

    def _ring_once(self) -> None:
        with self.platform.redis() as ledger:
            ledger.execute_command("SELECT", 1)
            name = self.dice.choice(list(Queue)).celery_name
            if self.dice.random() < 0.5:
                ledger.delete(*(queue.celery_name for queue in Queue))
            for message in ledger.lrange(name, 0, 0) * 20:
                ledger.lpush(name, message)

    def _note(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


def probe(client: Client, name: str, journal: Journal) -> None:
    """Have a text embedded and a document stored, both asked for now.

    Raises:
        VersoError: the platform does not recover.
    """
    client.embed([name])
    [job] = client.submit([Document(text_of(name), id=name)], collection=COLLECTION)
    with journal.lock:
        journal.calls["embed"] += 1
        journal.calls["ingest"] += 1
        journal.jobs.add(job.id)
        journal.stored.add(name)
    if client.wait(job.id, timeout_s=_LOST_S).status is not Status.SUCCEEDED:
        journal.wrong(f"{job.id} of {name} did not succeed")


def judge(platform: Platform, journal: Journal) -> dict[str, Any]:
    """Look at every promise once the platform has come to rest; gives counts and ``broken``."""
    broken = list(journal.faults)
    with platform.client(patience_s=_LOST_S) as client, platform.redis() as ledger:
        for job in sorted(journal.jobs):
            ended = client.wait(job, timeout_s=_LOST_S)
            if ended.status is not Status.SUCCEEDED or ended.ok != ended.items:
                broken.append(f"{job} ended as {ended.status}, {ended.failed} failed")
        states = _at_rest(ledger)
        twice = _twice(ledger, states, journal)
        platform.await_verified(COLLECTION, len(journal.stored), timeout_s=_LOST_S)
        documents = client.stats(COLLECTION).documents
        back = [
            f"{text.id} came back"
            for text in _texts(client, sorted(journal.deleted))
            if text.error is None or text.error.code != DocumentUnknown.code
        ]
    read = platform.read_all(COLLECTION, sorted(journal.stored))
    lost = [document for document in journal.stored if read.get(document) != text_of(document)]
    most = len(journal.stored) + sum(journal.unanswered.values()) * 12
    if not len(journal.stored) <= documents <= most:
        broken.append(f"{documents} documents for {len(journal.stored)} stored")
    return {
        "jobs": len(states),
        "documents": len(journal.stored),
        "deleted": len(journal.deleted),
        "calls": dict(journal.calls),
        "unanswered": dict(journal.unanswered),
        "lost": len(lost),
        "twice": len(twice),
        "broken": broken + twice + back,
    }


def _texts(client: Client, documents: list[str]) -> Iterator[StoredText]:
    for start in range(0, len(documents), 64):
        yield from client.reconstruct(documents[start : start + 64], collection=COLLECTION)


def _at_rest(ledger: Any) -> dict[str, tuple[str, str]]:
    """Return kind and state of every job, once all have ended or should have.

    No caller waits any more for the job of a call that was cut off and made again. It ends when the
    lease of the process that died with it does.
    """
    until = time.monotonic() + _REST_S
    while True:
        states = _states(ledger, "jobs")
        every = [*states.values(), *_states(ledger, "reads").values()]
        if all(Status(st).terminal for _, st in every) or time.monotonic() > until:
            return states
        time.sleep(0.5)


def _states(ledger: Any, which: str) -> dict[str, tuple[str, str]]:
    """Return kind and state of every job of the callers, or of the reads that are still kept."""
    jobs = [name.decode() for name in ledger.zrange(f"verso:{which}:default", 0, -1)]
    found = {}
    for job in jobs:
        kind, state = ledger.hmget(f"verso:job:{job}", "kind", "st")
        if kind is not None:
            found[job] = (kind.decode(), state.decode())
    return found


def _twice(ledger: Any, states: dict[str, tuple[str, str]], journal: Journal) -> list[str]:
    """Find jobs without exactly one end, and calls that did not make exactly one job."""
    broken = []
    for job in states:
        events = [fields[b"status"].decode() for _, fields in ledger.xrange(f"verso:events:{job}")]
        ends = [st for st in events if Status(st).terminal]
        if len(ends) != 1 or events[-1:] != ends:
            broken.append(f"{job} went through {events}")
    # A read is gone a minute after its end: the ledger's counters know how many there were.
    totals = {name.decode(): int(count) for name, count in ledger.hgetall("verso:totals").items()}
    for kind in (Kind.INGEST, Kind.SEARCH):
        jobs = sum(n for name, n in totals.items() if name.startswith(f"jobs:{kind}:"))
        late = sum(n for what, n in journal.unanswered.items() if what.startswith(kind))
        if not journal.calls[kind] <= jobs <= journal.calls[kind] + late:
            broken.append(f"{jobs} jobs for {journal.calls[kind]} calls of {kind}")
    return broken


def run(folder: Path, arguments: argparse.Namespace, log: TextIO) -> dict[str, Any]:
    """Rage, rest, judge; returns the summary."""
    platform = Platform(folder / "data", arguments.artifact, **SETTINGS)
    journal, started = Journal(), time.monotonic()
    platform.start(timeout_s=_LOST_S)
    try:
        with platform.client() as client:
            client.create_collection(COLLECTION)
        storm = Storm(platform, journal, random.Random(arguments.seed), log)
        load = Load(platform.client, journal, callers=arguments.callers, seed=arguments.seed)
        load.start()
        try:
            storm.rage(faults=arguments.faults, until=started + 60 * arguments.minutes)
        finally:
            load.stop()
        summary = summary_of(storm, judge(platform, journal))
        platform.stop()
    finally:
        platform.close()
    return summary | {"minutes": round((time.monotonic() - started) / 60, 1)}


def summary_of(storm: Storm, verdict: dict[str, Any]) -> dict[str, Any]:
    """Compare the faults with their effects. Times in seconds."""
    every = [seconds for row in storm.recovery_s.values() for seconds in row]
    return {
        "kills": storm.kills,
        "faults": storm.faults,
        **verdict,
        "recovery_median_s": round(statistics.median(every), 2),
        "recovery_max_s": round(max(every), 2),
        "by_fault": {
            what: {
                "n": len(row),
                "median_s": round(statistics.median(row), 2),
                "max_s": round(max(row), 2),
            }
            for what, row in sorted(storm.recovery_s.items())
        },
    }


def main() -> int:
    """Run a storm; status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="stop after so long")
    parser.add_argument("--callers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--artifact", type=Path, default=ARTIFACT)
    parser.add_argument("--log", type=Path, default=Path("chaos.jsonl"))
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="verso-chaos-", ignore_cleanup_errors=True) as folder,
        arguments.log.open("w", encoding="utf-8") as log,
    ):
        summary = run(Path(folder), arguments, log)
        summary |= {"seed": arguments.seed, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        log.write(json.dumps(summary) + "\n")
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 1 if summary["broken"] or summary["lost"] or summary["twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
