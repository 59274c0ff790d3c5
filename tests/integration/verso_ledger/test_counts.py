"""Facts about what the ledger counts of a collection: it equals a full recount, always."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.integration.verso_ledger.recount import recounted

from verso_core.errors import CollectionUnknown
from verso_core.jobs import Collection, Kind, Queue
from verso_core.record import Codec, Entry, Flag, Record, bucket_of
from verso_ledger import Counting, DocumentDelete, DocumentWrite, Ledger, NewJob, Policy
from verso_ledger.dump import dump
from verso_ledger.keys import key

SMALL = Policy(gc_delay_ms=0, count_entries=3)
BUCKETS = 16


@pytest.fixture
def store(valkey_url: str, new_collection: Callable[..., Collection]) -> Iterator[Ledger]:
    """A ledger that holds the empty collection ``c`` and counts three entries a step."""
    found = Ledger.from_url(valkey_url, policy=SMALL)
    found.documents.collection_put(new_collection(buckets=BUCKETS))
    yield found
    found.close()


@pytest.fixture
def raw(valkey_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look behind the ledger."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


def _entry(seq: int, dice: random.Random) -> bytes:
    """Build an entry of any size, format, flags and codecs."""
    records = tuple(
        Record(
            codec, dice.randrange(32), b"hashhash", b"sums", bytes(dice.choice((0, 9, 200, 900)))
        )
        for codec in dice.choices(list(Codec), k=dice.choice((0, 1, 1, 2, 9, 140)))
    )
    about = dice.choice((None, b"", b"meta"))
    flags = dice.choice((Flag.NONE, Flag.NONE, Flag.VERIFIED))
    apart = about == b"" and dice.random() < 0.5
    size = dice.choice((0, 127, 128, 1 << 40))
    return Entry(seq, size, records, flags, about, located=apart).pack()


class Life:
    """Writes, deletes, verifies, repairs and counts in any order."""

    def __init__(self, ledger: Ledger, new_job: Callable[..., NewJob], seed: int) -> None:
        self.ledger = ledger
        self.new_job = new_job
        self.dice = random.Random(seed)
        self.passes = 0

    def commit(self) -> None:
        kind = self.dice.choice((Kind.INGEST, Kind.INGEST, Kind.DELETE))
        self.ledger.jobs.accept(self.new_job(kind, slices=1, items=2))
        queue = Queue.BULK if kind is Kind.INGEST else Queue.INTERACTIVE
        for lease in self.ledger.leases.claim(queue, owner="w"):
            writes: list[DocumentWrite | DocumentDelete] = []
            for document in self._some(3):
                if kind is Kind.DELETE:
                    writes.append(DocumentDelete("c", document))
                else:
                    entry = _entry(lease.seq, self.dice)
                    writes.append(DocumentWrite("c", document, entry))
            self.ledger.leases.commit(
                lease, b"r", ok=1, errors=1, documents=writes, verify_delay_s=0
            )

    def verify(self) -> None:
        for lease in self.ledger.leases.claim(Queue.SCRUB, owner="w", n=2):
            right = [("c", document, lease.seq) for document in self._some(4)]
            again = [
                DocumentWrite("c", document, _entry(lease.seq, self.dice))
                for document in self.ledger.documents.entry("c", self._some(1))
                if self.dice.random() < 0.5
            ]
            self.ledger.leases.commit_verified(
                lease, right, rewritten=again, raw_text_retention_s=0, verify_delay_s=0
            )

    def repair(self) -> None:
        for document, old in self.ledger.documents.entry("c", self._some(2)).items():
            new = _entry(Entry.unpack(old).seq, self.dice)
            assert self.ledger.documents.repair("c", document, old=old, entry=new, text=None)

    def count(self) -> None:
        if self.ledger.documents.count("c", scrubbed=self.passes) is not Counting.MORE:
            self.passes += 1

    def step(self) -> None:
        self.dice.choices((self.commit, self.verify, self.repair, self.count), (4, 2, 1, 3))[0]()

    def _some(self, n: int) -> list[str]:
        return [f"d{self.dice.randrange(40)}" for _ in range(n)]


@pytest.mark.parametrize("seed", range(2))
def test_counts_equal_a_full_recount_whatever_is_written(
    store: Ledger, raw: redis.Redis, new_job: Callable[..., NewJob], seed: int
) -> None:
    life = Life(store, new_job, seed)
    for number in range(200):
        life.step()
        if number % 8 == 0:
            assert store.documents.holdings("c") == recounted(store.documents.entries("c"))
    found = store.documents.holdings("c")
    assert found == recounted(store.documents.entries("c"))
    assert found.documents > 10
    assert len(found.codecs) == len(Codec)
    assert life.passes > 2, "no count has come to its end"
    assert raw.hget(key("totals"), "counts:mended") is None
    assert any(raw.exists(name) for name in raw.keys(key("long", "*")))


def test_counts_begin_with_what_was_stored_before_there_were_any(
    store: Ledger, raw: redis.Redis, new_job: Callable[..., NewJob]
) -> None:
    life = Life(store, new_job, 7)
    for _ in range(40):
        life.commit()
    raw.unlink(*raw.keys(key("counts", "*")))
    for _ in range(40):  # none to add to, then some of the buckets
        life.step()
    assert store.documents.holdings("c") == recounted(store.documents.entries("c"))


def test_counts_survive_a_killed_server_and_a_copy(
    valkey_server: Callable[..., Any],
    new_collection: Callable[..., Collection],
    new_job: Callable[..., NewJob],
) -> None:
    server = valkey_server()
    ledger = Ledger.from_url(server.url, policy=SMALL)
    ledger.documents.collection_put(new_collection(buckets=BUCKETS))
    life = Life(ledger, new_job, 11)
    for number in range(60):
        life.step()
        if number % 20 == 10:
            server.kill()
            server.start()
            assert ledger.documents.holdings("c") == recounted(ledger.documents.entries("c"))
    with tempfile.TemporaryDirectory() as folder:
        dump(server.url, Path(folder) / "copy.rdb")
        assert key("counts").encode() in (Path(folder) / "copy.rdb").read_bytes()
    ledger.close()


def test_counts_that_are_wrong_are_mended_by_the_next_pass(
    store: Ledger, raw: redis.Redis, new_job: Callable[..., NewJob]
) -> None:
    life = Life(store, new_job, 3)
    for _ in range(30):
        life.commit()
    [name] = raw.keys(key("counts", "*"))
    raw.hincrby(name, "documents", 5)
    assert store.documents.holdings("c") != recounted(store.documents.entries("c"))
    assert store.documents.count("c") is Counting.KEPT  # not counted again
    while (step := store.documents.count("c", scrubbed=1)) is Counting.MORE:
        life.commit()
    assert step is Counting.MENDED
    assert store.documents.holdings("c") == recounted(store.documents.entries("c"))
    assert store.maintenance.backlog().totals["counts:mended"] == 1
    assert store.documents.count("c", scrubbed=1) is Counting.KEPT
    assert store.maintenance.backlog().totals["counts:mended"] == 1


def test_a_replaced_entry_that_cannot_be_read_has_all_counted_again(
    store: Ledger, raw: redis.Redis, new_job: Callable[..., NewJob]
) -> None:
    life = Life(store, new_job, 5)
    for _ in range(30):
        life.commit()
    document = next(iter(dict(store.documents.entries("c"))))
    [name] = [n for n in raw.keys(key("docs", "*")) if raw.hexists(n, document)]
    raw.hset(name, document, b"\x02rotten")
    before = store.documents.holdings("c")
    life.ledger.jobs.accept(new_job(Kind.DELETE))
    (lease,) = store.leases.claim(Queue.INTERACTIVE, owner="w")
    deletes = [DocumentDelete("c", document)]
    store.leases.commit(lease, b"r", ok=1, errors=0, documents=deletes, verify_delay_s=0)
    after = store.documents.holdings("c")
    assert after == recounted(store.documents.entries("c"))
    assert after.documents == before.documents - 1


def test_counts_go_with_their_collection(
    store: Ledger, raw: redis.Redis, new_collection: Callable[..., Collection]
) -> None:
    store.documents.collection_delete("c")
    assert not raw.keys(key("counts", "*"))
    with pytest.raises(CollectionUnknown):
        store.documents.holdings("c")
    made = store.documents.collection_put(new_collection(buckets=BUCKETS))
    assert store.documents.holdings(made.name).documents == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32), flips=st.lists(st.integers(0, 1 << 16), max_size=3))
def test_any_bytes_are_counted_as_they_are_read(
    store: Ledger, raw: redis.Redis, seed: int, flips: list[int]
) -> None:
    data = bytearray(_entry(7, random.Random(seed))[:1000])
    for flip in flips:
        data[flip // 8 % len(data)] ^= 1 << flip % 8
    # No entry in a bucket says that it is deleted, and Entry takes one that does only by its CRC.
    # One with the LONG flag would be looked up elsewhere.
    data[0] &= ~int(Flag.DELETED | Flag.LONG)
    name = key("docs", store.documents._locations.find("c")[0], bucket_of("d", buckets=BUCKETS))
    raw.hset(name, "d", bytes(data))
    raw.unlink(*raw.keys(key("counts", "*")))
    expected = recounted(store.documents.entries("c"))
    assume(expected.bytes_text <= 1 << 48)
    assert store.documents.holdings("c") == expected
