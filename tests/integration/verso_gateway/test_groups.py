"""Requests of several ledgers, stopped at every place, are sent again: nothing lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_gateway.conftest import collection
from tests.wire import Result, read_slice

from verso_core.errors import CollectionBusy, IdempotencyConflict, LedgerUnavailable, QueueFull
from verso_core.jobs import Kind, Queue, Status, cut
from verso_core.jobs.collections import partition_names, partition_of
from verso_core.jobs.ingest import DeleteItem, DeleteParams
from verso_core.record import Codec, Entry, Record
from verso_core.settings import LedgerAddress
from verso_gateway.bodies.ids import ID_CHARACTERS, ids_of_key
from verso_gateway.bodies.upload import Upload
from verso_ledger import (
    Accepted,
    AsyncLedger,
    DocumentDelete,
    DocumentWrite,
    JobOutcome,
    Ledger,
    Ledgers,
    NewJob,
)
from verso_ledger.ledgers import merging
from verso_ledger.ledgers.submission import GroupSubmission
from verso_ledger.names import group_of

NAME, PARTITIONS = "docs", 4
NAMES = partition_names(NAME, PARTITIONS)


class Stopped(Exception):
    """Raised where the process of a gateway ends."""


@dataclass
class Site:
    """Two ledgers with two partitions each, and a worker that stores what it is given."""

    servers: dict[str, ValkeyServer]
    ledgers: dict[str, Ledger]
    own: dict[str, tuple[str, str]] = field(default_factory=dict)

    def make(self) -> None:
        """Make the partitions, two on each ledger."""
        for name, ledger in zip(NAMES, ("home", "b", "b", "home"), strict=True):
            made = self.ledgers[ledger].documents.collection_put(collection(name))
            self.own[name] = ledger, made.name

    def connect(self) -> Ledgers:
        """Connect as a gateway does."""
        return Ledgers.connect(
            [LedgerAddress(name, one.url) for name, one in self.servers.items()], replicas=0
        )

    def work(self) -> int:
        """Do all work that waits; return the number of slices."""
        done = 0
        for ledger in self.ledgers.values():
            for queue in (Queue.INTERACTIVE, Queue.BULK):
                while leases := ledger.leases.claim(queue, owner="w", n=1):
                    [lease] = leases
                    done += 1
                    work = read_slice(lease.payload)
                    own = self.own[work.params["collection"]][1]
                    documents: list[DocumentWrite | DocumentDelete] = []
                    for item in work.items:
                        name = item.header["id"]
                        if work.kind is Kind.DELETE:
                            documents.append(DocumentDelete(own, name))
                        else:
                            documents.append(DocumentWrite(own, name, _entry(lease.seq, item.blob)))
                    rows = [{"ok": True, "id": item.header["id"]} for item in work.items]
                    ledger.leases.commit(
                        lease, Result(rows).pack(), ok=len(rows), errors=0, documents=documents
                    )
        return done

    def held(self) -> dict[str, bytes]:
        """Return the text of each document, of all partitions."""
        found: dict[str, bytes] = {}
        for number, (ledger, own) in enumerate(self.own.values()):
            for document, entry in self.ledgers[ledger].documents.entries(own):
                assert document not in found, f"{document} is doubled"
                assert partition_of(document, PARTITIONS) == number
                found[document] = Entry.unpack(entry).records[0].payload
        return found


def _entry(seq: int, text: bytes | None) -> bytes:
    record = Record(Codec.RAW, 0, b"hashhash", b"sums", text or b"")
    return Entry(seq=seq, size_bytes=len(text or b""), records=(record,)).pack()


@pytest.fixture
def site(valkey_server: Callable[..., ValkeyServer]) -> Iterator[Site]:
    servers = {"home": valkey_server(), "b": valkey_server()}
    made = Site(
        servers, {name: Ledger.from_url(one.url, name=name) for name, one in servers.items()}
    )
    made.make()
    yield made
    for one in made.ledgers.values():
        one.close()


class Gateway:
    """Takes in requests as a gateway does; stops or is refused at a place.

    Args:
        ledgers: of the site.
        place: which call of a ledger does not go well, from 0; None: all do.
        fault: what is raised there.
        late: the ledger has accepted the job before.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        *,
        place: int | None = None,
        fault: Exception | None = None,
        late: bool = False,
    ) -> None:
        self._left, self._fault, self._late = place, fault, late
        self.groups = GroupSubmission(ledgers, self._submit, self._known)

    async def _submit(self, ledger: AsyncLedger, job: NewJob, *, keep_s: int | None) -> Accepted:
        assert keep_s is None
        here = self._left == 0
        if self._left is not None:
            self._left -= 1
        if here and self._fault is not None and not self._late:
            raise self._fault
        accepted = await ledger.accept(job)
        if here and self._fault is not None:
            raise self._fault
        return accepted

    async def _known(self, _: NewJob) -> Accepted | None:
        return None

    async def send(self, job: NewJob, *, wait_s: float = 0.0) -> JobOutcome:
        """Take a request in."""
        return await self.groups.submit_and_wait(
            job, wait_s=wait_s, on_accepted=lambda _: None, keep_s=None
        )


async def request(key: str, rows: list[dict[str, Any]], *, keyed: bool = True) -> NewJob:
    """Return the job of an ingest."""
    upload = Upload(NAME, limit=1000, partitions=PARTITIONS, new_id=ids_of_key("default", key))
    await upload.read_documents([dict(row) for row in rows])
    job = NewJob(Kind.INGEST, Queue.BULK, upload.finish(), collection=NAME, parts=upload.parts)
    return replace(job, idempotency=(key, f"hash of {rows}")) if keyed else job


async def attempt(site: Site, job: NewJob, **fault: Any) -> JobOutcome:
    """Send a request in a process of its own, of which nothing is left when it stops."""
    ledgers = site.connect()
    try:
        return await Gateway(ledgers, **fault).send(job)
    except Stopped:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        raise
    finally:
        await asyncio.sleep(0)
        await ledgers.close()


FAULTS = (
    Stopped("the process ends"),
    QueueFull("no room", retry_after_s=1.0),
    LedgerUnavailable("no answer"),
)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_stops_a_request_it_is_stored_once_when_it_is_sent_again(
    site: Site, seed: int
) -> None:
    """A random history of writes, replacements and deletions equals a model."""
    draw = random.Random(seed)
    model: dict[str, bytes] = {}
    new = 0

    async def delete(document: str) -> None:
        ledgers = site.connect()
        where = f"{NAME}.{partition_of(document, PARTITIONS)}"
        slices = list(cut(Kind.DELETE, DeleteParams(collection=where), [DeleteItem(document)]))
        ledger = await ledgers.of_collection(where)
        await ledger.accept(NewJob(Kind.DELETE, Queue.INTERACTIVE, slices, collection=where))
        await ledgers.close()

    async def run() -> None:
        nonlocal new
        for number in range(40):
            if model and draw.random() < 0.2:
                gone = draw.choice(sorted(model))
                await delete(gone)
                del model[gone]
            else:
                rows: list[dict[str, Any]] = [
                    {"id": f"d{n}", "text": f"{number} of {n}"}
                    for n in draw.sample(range(30), draw.randrange(6))
                ]
                rows += [{"text": f"new {number}.{n}"} for n in range(draw.randrange(1, 4))]
                job = await request(f"key {number}", rows)
                while draw.random() < 0.6:
                    fault = draw.choice(FAULTS)
                    late = not isinstance(fault, QueueFull) and draw.random() < 0.5
                    if draw.random() < 0.5:
                        site.work()
                    try:
                        place = draw.randrange(3)
                        await attempt(site, job, place=place, fault=fault, late=late)
                    except type(fault):
                        continue
                if draw.random() < 0.3:
                    site.work()
                again = await request(f"key {number}", rows)
                outcome = await attempt(site, again)
                assert outcome.record.items == len(rows)
                model.update({row["id"]: row["text"].encode() for row in rows if "id" in row})
                made = [row for row in rows if "id" not in row]
                new += len(made)
            if draw.random() < 0.5:
                site.work()
                assert {n: t for n, t in site.held().items() if len(n) < ID_CHARACTERS} == model
        site.work()
        held = site.held()
        assert {name: text for name, text in held.items() if len(name) < ID_CHARACTERS} == model
        assert sum(len(name) >= ID_CHARACTERS for name in held) == new

    asyncio.run(run())


def test_a_group_is_one_job_and_its_key_finds_it(site: Site) -> None:
    async def run() -> None:
        ledgers = site.connect()
        gateway = Gateway(ledgers)
        rows = [{"id": f"d{n}", "text": f"t{n}"} for n in range(40)]
        job = await request("k", rows)
        outcome = await gateway.send(job)
        job_id = outcome.record.job_id
        assert list(group_of(job_id)) == [*dict.fromkeys(site.own[name][0] for name in job.parts)]
        assert (outcome.record.items, outcome.record.status) == (40, Status.QUEUED)
        again = await gateway.send(await request("k", rows))
        assert again.record.job_id == job_id
        with pytest.raises(IdempotencyConflict):
            await gateway.send(await request("k", rows[:30]))
        page = await merging.jobs(
            ledgers, "default", after=None, limit=10, statuses=(), kinds=(), reads=False
        )
        assert [(one.job_id, one.items) for one in page.rows] == [(job_id, 40)]
        await asyncio.to_thread(site.work)
        group = ledgers.of_job(job_id)
        record = await group.wait(job_id, 60.0)
        assert (record.status, record.n_ok, record.done) == (Status.SUCCEEDED, 40, record.slices)
        every = await group.results(job_id)
        assert len(every) == record.slices
        for first in range(record.slices):
            assert await group.results(job_id, first=first, count=1) == [every[first]]
            assert record.place(first)[0] in group_of(job_id).values()
        told = [event.data async for event in group.follow(job_id)]
        assert told[-1]["status"] == "succeeded"
        assert told[-1]["done"] == record.slices
        await ledgers.close()

    asyncio.run(run())


def test_a_cancelled_group_ends_on_all_ledgers(site: Site) -> None:
    async def run() -> None:
        ledgers = site.connect()
        rows = [{"id": f"d{n}", "text": f"t{n}"} for n in range(40)]
        made = (await Gateway(ledgers).send(await request("k", rows))).record
        assert await ledgers.of_job(made.job_id).cancel(made.job_id) is Status.CANCELLED
        assert await asyncio.to_thread(site.work) == 0
        await ledgers.close()

    asyncio.run(run())


def test_what_others_have_taken_in_is_cancelled_if_one_refuses(site: Site) -> None:
    async def run() -> None:
        ledgers = site.connect()
        rows = [{"id": f"d{n}", "text": f"t{n}"} for n in range(40)]
        gateway = Gateway(ledgers, place=1, fault=QueueFull("no room", retry_after_s=1.0))
        with pytest.raises(QueueFull):
            await gateway.send(await request("k", rows, keyed=False))
        for _ in range(50):
            await asyncio.sleep(0.02)
        assert await asyncio.to_thread(site.work) == 0
        await ledgers.close()

    asyncio.run(run())


def test_a_request_is_sent_again_where_its_partitions_are_by_then(site: Site) -> None:
    async def run() -> None:
        ledgers = site.connect()
        rows = [{"id": f"d{n}", "text": f"t{n}"} for n in range(40)]
        gateway = Gateway(ledgers, place=1, fault=CollectionBusy("it moves"))
        outcome = await gateway.send(await request("k", rows))
        assert outcome.record.items == 40
        await asyncio.to_thread(site.work)
        record = await ledgers.of_job(outcome.record.job_id).job(outcome.record.job_id)
        assert record.status is Status.SUCCEEDED
        await ledgers.close()

    asyncio.run(run())
    assert len(site.held()) == 40


def test_a_wait_ends_with_the_results_of_all_ledgers(site: Site) -> None:
    async def run() -> None:
        ledgers = site.connect()
        rows = [{"id": f"d{n}", "text": f"t{n}"} for n in range(40)]
        job = await request("k", rows)
        sent = asyncio.create_task(Gateway(ledgers).send(job, wait_s=30.0))
        while not sent.done():
            await asyncio.to_thread(site.work)
            await asyncio.sleep(0.01)
        outcome = sent.result()
        assert outcome.record.status is Status.SUCCEEDED
        assert None not in outcome.results
        assert len(outcome.results) == len(job.slices)
        await ledgers.close()

    asyncio.run(run())
