"""Random histories: whatever workers, callers and time do in whatever order, the promises hold.

A history keeps every lease it was ever given and uses old ones as gladly as new ones. What it
expects is counted outside the ledger: of all writes and deletes of a document that were committed,
the one with the highest sequence number stands.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from tests.integration.verso_ledger.recount import recounted

from verso_core.errors import EngineUnavailable, LedgerUnavailable, VersoError
from verso_core.jobs import Collection, Kind, Queue, Status
from verso_core.record import Entry, Flag
from verso_ledger import (
    Commit,
    DocumentDelete,
    DocumentWrite,
    Lease,
    Ledger,
    NewJob,
    Phase,
    Policy,
)
from verso_ledger.keys import key

DOCUMENTS = [f"d{n}" for n in range(12)]
STEPS = 400


class History:
    """One run of callers, workers and time against one ledger."""

    def __init__(
        self, ledger: Ledger, seed: int, new_job: Callable[..., NewJob], entry: Callable[..., bytes]
    ) -> None:
        self.ledger = ledger
        self.dice = random.Random(seed)
        self.new_job = new_job
        self.entry = entry
        self.jobs: list[str] = []
        self.leases: list[Lease] = []
        self.newest: dict[str, int] = {}
        self.committed: dict[str, list[int]] = defaultdict(list)
        self.standing: dict[str, tuple[int, str]] = {}
        self.ended: dict[str, Status] = {}

    def accept(self) -> None:
        kind = self.dice.choice([Kind.EMBED, Kind.INGEST, Kind.INGEST, Kind.DELETE])
        deadline = self.dice.choice([None, None, None, 0.02])
        slices = self.dice.randint(1, 3)
        job = self.new_job(kind, slices=slices, items=2, deadline_s=deadline)
        self.jobs.append(self.ledger.jobs.accept(job).job_id)

    def claim(self) -> None:
        queue = self.dice.choice(list(Queue))
        lease_s = self.dice.choice([0.001, 0.01, 30.0])
        n = self.dice.randint(1, 4)
        for lease in self.ledger.leases.claim(queue, owner="w", n=n, lease_s=lease_s):
            assert lease.fence > self.newest.get(lease.slice_id, 0)
            self.newest[lease.slice_id] = lease.fence
            self.leases.append(lease)

    def end(self) -> None:
        if self.leases:
            self.end_one(self.dice.choice(self.leases))

    def end_one(self, lease: Lease) -> None:
        if lease.phase is Phase.VERIFY:
            self.verify(lease)
        else:
            self.commit(lease)

    def commit(self, lease: Lease) -> None:
        writes: list[DocumentWrite | DocumentDelete] = []
        if lease.kind is not Kind.EMBED:
            # One lease always commits the same: what it writes hangs on its slice alone.
            chosen = random.Random(lease.slice_id).sample(DOCUMENTS, 2)
            for document in chosen:
                if lease.kind is Kind.DELETE:
                    writes.append(DocumentDelete("c", document))
                else:
                    size = 2000 if lease.seq % 5 == 0 else 20
                    payload = b"%d" % lease.seq * size
                    writes.append(DocumentWrite("c", document, self.entry(lease.seq, payload)))
        answer = self.ledger.leases.commit(
            lease, b"r", ok=1, errors=1, documents=writes, verify_delay_s=0
        )
        if lease.fence in self.committed[lease.slice_id]:
            assert answer is Commit.DONE  # the same fence may ask again
            return
        if answer is Commit.STALE:
            return
        assert not self.committed[lease.slice_id], "two fences committed one slice"
        assert lease.fence == self.newest[lease.slice_id], "a stale fence committed"
        self.committed[lease.slice_id].append(lease.fence)
        for write in writes:
            if lease.seq > self.standing.get(write.document, (0, ""))[0]:
                word = "gone" if isinstance(write, DocumentDelete) else "there"
                self.standing[write.document] = (lease.seq, word)

    def verify(self, lease: Lease) -> None:
        chosen = random.Random(lease.slice_id).sample(DOCUMENTS, 2)
        right = [("c", document, lease.seq) for document in chosen]
        rewritten = []
        if self.dice.random() < 0.2:
            rewritten = [DocumentWrite("c", chosen[0], self.entry(lease.seq, b"again"))]
        self.ledger.leases.commit_verified(
            lease, right, rewritten=rewritten, raw_text_retention_s=0.001, verify_delay_s=0
        )

    def give_back(self) -> None:
        if self.leases:
            lease = self.dice.choice(self.leases)
            how = self.dice.random()
            if how < 0.5:
                self.ledger.leases.retry(lease, EngineUnavailable("gone"), delay_s=0)
            elif how < 0.8:
                self.ledger.leases.release(lease)
            else:
                self.ledger.leases.fail(lease, VersoError("no"))

    def beat(self) -> None:
        held = self.dice.sample(self.leases, min(3, len(self.leases)))
        lost = self.ledger.leases.renew(held, 0.01)
        stale = {x.slice_id for x in held if x.fence < self.newest[x.slice_id]}
        assert stale <= lost

    def cancel_or_replay(self) -> None:
        if self.jobs:
            jobs = self.ledger.jobs
            self.dice.choice([jobs.cancel, jobs.replay, jobs.replay])(self._any_job())

    def look(self) -> None:
        if self.jobs:
            self.look_at(self._any_job())

    def look_at(self, job_id: str) -> None:
        """Check that a terminal state only ever changes from dead, by a replay."""
        record = self.ledger.jobs.get(job_id)
        before = self.ended.get(job_id)
        if before not in (None, Status.DEAD):
            assert record.status is before
        if record.status.terminal:
            assert record.n_ok + record.n_err == record.items
            assert record.done == record.slices
            self.ended[job_id] = record.status
        else:
            assert record.done < record.slices
            self.ended.pop(job_id, None)

    def maintain(self) -> None:
        time.sleep(self.dice.choice([0, 0.002]))
        self.ledger.maintenance.reap()
        self.ledger.maintenance.drop_due()
        taken = self.ledger.maintenance.gc_take()
        live = self.ledger.documents.entry("c", DOCUMENTS)
        for old in taken:
            assert live.get(old.document) != old.entry, "a live entry was given to the collector"
        self.ledger.maintenance.gc_done([old.token for old in taken])

    def step(self) -> None:
        what = self.dice.choices(
            [self.accept, self.claim, self.end, self.give_back, self.beat,
             self.cancel_or_replay, self.look, self.maintain],
            [3, 6, 6, 1.5, 1, 0.6, 2, 2],
        )[0]  # fmt: skip
        what()

    def calm_down(self) -> None:
        """Let good workers finish everything, and replay what died."""
        for _ in range(40):
            time.sleep(0.012)
            self.ledger.maintenance.reap()
            for queue in Queue:
                for lease in self.ledger.leases.claim(queue, owner="good", n=100, lease_s=30):
                    self.newest[lease.slice_id] = lease.fence
                    self.leases.append(lease)
            for lease in self.leases:
                if lease.fence == self.newest[lease.slice_id]:
                    self.end_one(lease)
            depths = self.ledger.maintenance.depths().values()
            backlog = self.ledger.maintenance.backlog()
            if not backlog.dead and not any(d.queued + d.delayed + d.running for d in depths):
                break
            for job_id in self.jobs:
                self.ledger.jobs.replay(job_id)
        time.sleep(0.01)  # the grace of the last verified slice
        self.ledger.maintenance.drop_due()

    def _any_job(self) -> str:
        return self.dice.choice(self.jobs[-8:])


@pytest.fixture
def hasty(valkey_url: str, new_collection: Callable[..., Collection]) -> Iterator[Ledger]:
    """A ledger without pauses, so that a history meets many crashes in little time."""
    found = Ledger.from_url(
        valkey_url, policy=Policy(max_errors=4, backoff_ms=(0, 0, 0), gc_delay_ms=0)
    )
    found.documents.collection_put(new_collection())
    yield found
    found.close()


def _check_slices(history: History, raw: redis.Redis) -> None:
    """The counters of a job are the sums over its slices, as the slices themselves have them."""
    for job_id in history.jobs:
        record = history.ledger.jobs.get(job_id)
        rows = [raw.hmget(key("slice", f"{job_id}.{n}"), "ok", "err") for n in range(record.slices)]
        assert sum(int(ok or 0) for ok, _ in rows) == record.n_ok
        assert sum(int(err or 0) for _, err in rows) == record.n_err


@pytest.mark.parametrize("seed", range(8))
def test_a_random_history_keeps_every_promise(
    hasty: Ledger,
    valkey_url: str,
    new_job: Callable[..., NewJob],
    new_entry: Callable[..., bytes],
    seed: int,
) -> None:
    history = History(hasty, seed, new_job, new_entry)
    for _ in range(STEPS):
        history.step()
    history.calm_down()

    for job_id in history.jobs:
        history.look_at(job_id)
    assert set(history.ended) == set(history.jobs)
    assert Status.DEAD not in history.ended.values()

    expected = {d for d, (_, word) in history.standing.items() if word == "there"}
    stored = dict(hasty.documents.entries("c"))
    assert set(stored) == expected
    for document, data in stored.items():
        entry = Entry.unpack(data)
        assert entry.seq == history.standing[document][0]
        assert entry.flags & Flag.VERIFIED

    assert hasty.documents.holdings("c") == recounted(hasty.documents.entries("c"))

    with redis.Redis.from_url(valkey_url) as raw:
        _check_slices(history, raw)
        load = {k: int(v) for k, v in raw.hgetall(key("load")).items() if v.isdigit()}
        assert {v for k, v in load.items() if not k.endswith(b":at")} <= {0}
        for kind in ("dead", "deadlines", "pending", "drop"):
            assert raw.zcard(key(kind)) == 0
        assert raw.keys(key("payload", "*")) == []
    assert len(history.jobs) > 20


def test_the_ledger_keeps_its_promises_while_its_server_is_killed(
    valkey_server: Callable[..., Any],
    new_collection: Callable[..., Collection],
    new_job: Callable[..., NewJob],
    new_entry: Callable[..., bytes],
) -> None:
    """Every step that a kill interrupts is simply asked again, as a real client would."""
    server = valkey_server()
    ledger = Ledger.from_url(
        server.url, policy=Policy(max_errors=4, backoff_ms=(0, 0, 0), gc_delay_ms=0)
    )
    ledger.documents.collection_put(new_collection())
    history = History(ledger, 99, new_job, new_entry)
    for number in range(STEPS):
        if number % 80 == 40:
            server.kill()
            with pytest.raises(LedgerUnavailable):
                history.ledger.jobs.get("x")
            server.start()
        history.step()
    history.calm_down()
    for job_id in history.jobs:
        history.look_at(job_id)
    assert set(history.ended) == set(history.jobs)
    expected = {d for d, (_, word) in history.standing.items() if word == "there"}
    assert set(dict(ledger.documents.entries("c"))) == expected
    assert ledger.documents.holdings("c") == recounted(ledger.documents.entries("c"))
    ledger.close()
