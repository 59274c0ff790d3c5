"""Sequence numbers that change where they are stored, between the acceptance and the verify.

Real ledger, real vector engine, real (tiny) model. The number decides which of two writes stands,
so damage of it must neither bring an old text back nor keep a slice from its end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores
from tests.wire import Item, cut

from verso_core.errors import RecordCorrupt
from verso_core.jobs import Kind, Queue
from verso_core.record import Flag, bucket_of
from verso_ledger import NewJob

TEXT = b"open failed: no such file"
LONG = random.Random(1).randbytes(2000)
SEQ_BITS = range(8, 56)
"""Where an entry holds its number: bytes 2 to 7."""


def accept(stores: Stores, texts: dict[str, bytes]) -> str:
    """Have an ingest accepted, which waits to be done; returns its only slice."""
    items = [Item({"id": name}, text) for name, text in texts.items()]
    slices = list(cut(Kind.INGEST, {"collection": "default"}, items))
    return stores.ledger.jobs.accept(NewJob(Kind.INGEST, Queue.BULK, slices)).job_id + ".0"


def store(stores: Stores, texts: dict[str, bytes]) -> str:
    """Take texts in and leave them unverified; returns their only slice."""
    slice_id = accept(stores, texts)
    stores.dispatcher.run_queue(Queue.BULK)
    return slice_id


def alter_head(stores: Stores, name: str, bit: int) -> None:
    """Flip a bit of what lies in the bucket."""
    key = f"verso:docs:{stores.uid('default')}:{bucket_of(name, buckets=BUCKETS)}"
    data = stores.redis.hget(key, name)
    assert isinstance(data, bytes)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    stores.redis.hset(key, name, bytes(changed))


def ended(stores: Stores, dead: int = 0) -> bool:
    """Verify what waits, and tell whether only dead letters are left."""
    stores.dispatcher.run_queue(Queue.SCRUB)
    stores.ledger.maintenance.drop_due()
    backlog = stores.ledger.maintenance.backlog()
    return (backlog.unverified, backlog.dead) == (dead, dead)


def code_of(stores: Stores, slice_id: str) -> bytes | None:
    found = stores.redis.hget(f"verso:slice:{slice_id}", "code")
    assert found is None or isinstance(found, bytes)
    return found


@pytest.mark.parametrize("text", [TEXT, LONG], ids=["short", "long"])
def test_an_entry_whose_number_is_damaged_is_written_again_by_its_own_slice(
    stores: Stores, text: bytes
) -> None:
    texts = {f"d{bit}": text for bit in SEQ_BITS}
    slice_id = store(stores, texts)
    before = {name: stores.stored(name) for name in texts}
    for bit in SEQ_BITS:
        alter_head(stores, f"d{bit}", bit)
    assert ended(stores)
    assert not stores.redis.exists(f"verso:payload:{slice_id}")
    for name, entry in before.items():
        now = stores.stored(name)
        assert (now.seq, now.damaged, now.flags & Flag.VERIFIED) == (
            entry.seq,
            False,
            Flag.VERIFIED,
        )
    assert [told for name in texts for told in stores.read(name)] == [text] * len(texts)


def test_a_damaged_entry_of_a_later_write_is_left_to_that_ones_slice(stores: Stores) -> None:
    store(stores, {"a": b"the older text"})
    store(stores, {"a": b"the later text"})
    alter_head(stores, "a", 8 * 12)
    assert stores.stored("a").damaged
    [source] = stores.dispatcher._sources
    # so that the older slice, which is first, does not come again at once
    source.executor._verify_delay_s = 0.05
    stores.dispatcher.run_queue(Queue.SCRUB)
    assert not stores.stored("a").damaged
    time.sleep(0.05)
    assert ended(stores)
    assert stores.read("a") == [b"the later text"]


def test_a_slice_whose_document_cannot_be_settled_is_a_dead_letter(stores: Stores) -> None:
    """What stands there is a later write's, is damaged, and its raw text is gone."""
    older = store(stores, {"a": b"the older text"})
    [lease] = stores.ledger.leases.claim(Queue.SCRUB, owner="one that ends")
    assert lease.slice_id == older
    store(stores, {"a": b"the later text"})
    stores.dispatcher.run_queue(Queue.SCRUB)
    stores.ledger.maintenance.drop_due()
    alter_head(stores, "a", 8 * 12)
    damaged = stores.ledger.documents.entry("default", ["a"])
    stores.ledger.leases.release(lease)
    assert ended(stores, dead=1)
    assert code_of(stores, older) == RecordCorrupt.code.encode()
    assert stores.redis.exists(f"verso:payload:{older}")
    assert stores.ledger.documents.entry("default", ["a"]) == damaged
    store(stores, {"a": b"the newest text"})
    stores.ledger.jobs.replay(older.partition(".")[0])
    assert ended(stores)
    assert stores.read("a") == [b"the newest text"]


@pytest.mark.parametrize(
    "change",
    [lambda n: str(n + 64), lambda n: str(n - 1), lambda _: "w"],
    ids=["up", "down", "no number"],
)
@pytest.mark.parametrize("when", ["waiting", "stored"])
def test_a_slice_whose_number_is_damaged_gets_it_back(
    stores: Stores, when: str, change: Callable[[int], str]
) -> None:
    slice_id = accept(stores, {"a": b"the older text", "b": b"its neighbour"})
    stored = when == "stored"
    if stored:
        stores.dispatcher.run_queue(Queue.BULK)
    later = accept(stores, {"a": b"the later text"})
    if stored:
        stores.dispatcher.run_queue(Queue.BULK)
    right = stores.redis.hget(f"verso:slice:{slice_id}", "seq")
    assert isinstance(right, bytes)
    stores.redis.hset(f"verso:slice:{slice_id}", "seq", change(int(right)))
    stores.dispatcher.run_queue(Queue.BULK)
    assert ended(stores)
    assert stores.redis.hget(f"verso:slice:{slice_id}", "seq") == right
    assert stores.stored("b").seq == int(right)
    assert stores.stored("b").flags & Flag.VERIFIED
    assert stores.read("a", "b") == [b"the later text", b"its neighbour"]
    assert not stores.redis.exists(f"verso:payload:{later}")


def test_a_slice_of_which_nothing_tells_the_number_is_a_dead_letter(stores: Stores) -> None:
    slice_id = store(stores, {"a": b"the older text"})
    store(stores, {"a": b"the later text"})
    stores.redis.hset(f"verso:slice:{slice_id}", "seq", 1_000_000)
    stores.redis.hset(f"verso:slice:{slice_id}", "cs", 2_000_000)
    assert ended(stores, dead=1)
    assert code_of(stores, slice_id) == RecordCorrupt.code.encode()
    assert stores.redis.exists(f"verso:payload:{slice_id}")
    assert stores.read("a") == [b"the later text"]
