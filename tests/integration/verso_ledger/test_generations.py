"""Fitted tables in the ledger: stored and named in one step, deleted with their last record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from verso_core.errors import CollectionUnknown
from verso_core.jobs import Collection
from verso_core.jobs.fitting import Fitting, Generation, GenerationStage
from verso_core.record import MAX_SLOT, Codec, Entry, Record
from verso_ledger import DocumentWrite, Ledger
from verso_ledger.keys import key

Collections = Callable[..., Collection]


@pytest.fixture
def store(valkey_url: str, new_collection: Collections) -> Iterator[Ledger]:
    """A ledger that holds the empty collection ``c``."""
    found = Ledger.from_url(valkey_url)
    found.documents.collection_put(new_collection())
    yield found
    found.close()


@pytest.fixture
def raw(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


def made(name: str) -> Generation:
    return Generation(
        id=name, stage=GenerationStage.CANARY, bytes=6, level=9.5, fitted=1_700_000_000.0
    )


def add(store: Ledger, name: str = "codec.1", *, number: int = 0, chunks: int = 1000) -> bool:
    return store.generations.add("c", made(name), b"tables", number=number, chunks=chunks)


def entry(*slots: int) -> bytes:
    records = tuple(Record(Codec.MIXTURE, slot, bytes(8), bytes(4), b"p") for slot in slots)
    return Entry(seq=1, size_bytes=1, records=records).pack()


def write(store: Ledger, document: str, old: bytes, new: bytes) -> None:
    """Put an entry in the place of another, as a repair does."""
    assert store.documents.repair("c", document, old=old, entry=new, text=None)


def put(store: Ledger, raw: redis.Redis, document: str, data: bytes) -> None:
    """Write an entry, and have everything counted again."""
    args = store.documents._locations.write_args([DocumentWrite("c", document, data)])
    name = key("docs", str(args[2]), str(args[3]))
    raw.hset(name, document, data)
    raw.delete(key("counts", str(args[2])))
    store.documents.holdings("c")


def test_tables_are_stored_and_named_in_one_step(store: Ledger) -> None:
    assert add(store)
    found = store.documents.collection("c")
    assert found.artifacts[-1] == "codec.1"
    assert found.fitting == Fitting(
        number=1, chunks=1000, gained=True, generations=(made("codec.1"),)
    )
    assert store.generations.tables("codec.1") == b"tables"


def test_a_fit_counts_once(store: Ledger) -> None:
    assert add(store)
    assert add(store)  # repeated
    assert not add(store, "codec.2")  # a second run of the same fit
    assert store.generations.tables("codec.2") is None
    assert store.documents.collection("c").fitting.number == 1


def test_a_fit_that_gained_nothing_is_counted(store: Ledger) -> None:
    store.generations.tried("c", number=0, chunks=1500)
    store.generations.tried("c", number=0, chunks=9999)
    assert store.documents.collection("c").fitting == Fitting(number=1, chunks=1500)


def test_a_collection_without_tables_is_stored_as_before(store: Ledger, raw: redis.Redis) -> None:
    row = raw.hget(key("collections"), "c")
    assert isinstance(row, bytes)
    assert b"fitting" not in row


def test_a_later_canary_retires_the_earlier(store: Ledger) -> None:
    add(store)
    add(store, "codec.2", number=1)
    stages = [one.stage for one in store.documents.collection("c").fitting.generations]
    assert stages == [GenerationStage.RETIRED, GenerationStage.CANARY]


def test_tables_stay_while_a_record_names_them(store: Ledger, raw: redis.Redis) -> None:
    add(store)
    slot = store.documents.collection("c").artifacts.index("codec.1")
    put(store, raw, "d", entry(slot, slot + 1, slot))
    assert store.documents.holdings("c").slots == {slot: 2, slot + 1: 1}
    assert not store.generations.drop("c", "codec.1")
    assert store.generations.tables("codec.1") == b"tables"
    write(store, "d", entry(slot, slot + 1, slot), entry(slot + 1))
    assert store.generations.drop("c", "codec.1")
    assert store.generations.tables("codec.1") is None


def test_a_slot_that_is_free_is_used_again(store: Ledger) -> None:
    add(store)
    before = store.documents.collection("c").artifacts
    assert store.generations.drop("c", "codec.1")
    assert store.documents.collection("c").fitting.generations == ()
    assert add(store, "codec.2", number=1)
    assert store.documents.collection("c").artifacts == (*before[:-1], "codec.2")


def test_when_all_slots_are_in_use_nothing_is_stored(store: Ledger) -> None:
    free = MAX_SLOT + 1 - len(store.documents.collection("c").artifacts)
    for number in range(free):
        assert add(store, f"codec.{number}", number=number)
    assert not add(store, "codec.last", number=free)
    assert store.generations.tables("codec.last") is None
    assert len(store.documents.collection("c").artifacts) == MAX_SLOT + 1


def test_a_deleted_collection_takes_its_tables_along(store: Ledger, raw: redis.Redis) -> None:
    add(store)
    store.documents.collection_delete("c")
    assert store.generations.tables("codec.1") is None
    assert not list(raw.scan_iter(f"{key('generations', '')}*"))
    with pytest.raises(CollectionUnknown):
        add(store)


def test_records_that_read_back_are_counted(store: Ledger) -> None:
    add(store)
    assert store.generations.verified("c", "codec.1", 5) == 5
    assert store.generations.verified("c", "codec.1", 3) == 8
