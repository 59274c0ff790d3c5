"""Facts about the scrub's cursor and about repairs, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
import redis

from verso_core.jobs import Collection, Kind, Queue
from verso_core.record import Entry, Flag, bucket_of
from verso_ledger import Damage, DocumentWrite, Ledger, Move, NewJob
from verso_ledger.scrub import LISTED


@pytest.fixture
def store(ledger: Ledger, new_collection: Callable[..., Collection]) -> Ledger:
    ledger.documents.collection_put(new_collection())
    return ledger


def _write(
    store: Ledger,
    job: NewJob,
    make: Callable[..., bytes],
    document: str = "d",
    *,
    payload: bytes = b"patch",
    text: bytes | None = None,
) -> bytes:
    """Commit a document and return its entry."""
    store.jobs.accept(job)
    (lease,) = store.leases.claim(Queue.BULK, owner="w")
    entry = make(lease.seq, payload)
    store.leases.commit(
        lease, b"r", ok=1, errors=0, documents=[DocumentWrite("c", document, entry, text)]
    )
    return entry


def test_a_scrub_that_never_was_has_no_pass(ledger: Ledger) -> None:
    state = ledger.scrub.state()
    assert (state.turn, state.number, state.running, state.age_s) == (0, 0, False, None)
    assert state.progress({}) == 0.0


def test_of_two_moves_from_one_turn_the_second_changes_nothing(ledger: Ledger) -> None:
    assert ledger.scrub.move(0, Move(begin=True))
    assert not ledger.scrub.move(0, Move(begin=True))
    state = ledger.scrub.state()
    assert (state.turn, state.number, state.running) == (1, 1, True)
    found = Move(set={"bucket": 4}, add={"sound": 2, "damaged": 1}, damaged=[Damage("c", "ü")])
    assert [ledger.scrub.move(1, found), ledger.scrub.move(1, found)] == [True, False]
    state = ledger.scrub.state()
    assert (state.bucket, state.counts["sound"], state.damaged) == (4, 2, (Damage("c", "ü"),))
    assert ledger.maintenance.backlog().totals["scrub:sound"] == 2


def test_a_new_pass_forgets_orphans_of_collections_that_are_gone(
    ledger: Ledger, new_collection: Callable[..., Collection]
) -> None:
    """No pass comes to them any more, and only so many are recorded."""
    for name in ("c", "gone"):
        ledger.documents.collection_put(new_collection(name=name))
        assert ledger.documents.orphans(name, [UUID(int=1), UUID(int=2)], age_s=0.0) == []
    ledger.documents.collection_delete("gone")
    assert ledger.maintenance.backlog().orphans == 4
    assert ledger.scrub.move(0, Move(begin=True))
    assert ledger.maintenance.backlog().orphans == 2


def test_a_new_pass_counts_again_and_the_totals_go_on(ledger: Ledger) -> None:
    ledger.scrub.move(0, Move(begin=True))
    ledger.scrub.move(1, Move(add={"damaged": 1}, damaged=[Damage("c", "d")], set={"job": "j"}))
    ledger.scrub.request()
    assert ledger.scrub.state().asked
    ledger.scrub.move(2, Move(end=True))
    assert ledger.scrub.state().ended is not None
    ledger.scrub.move(3, Move(begin=True))
    state = ledger.scrub.state()
    assert (state.number, state.turn, state.running, state.asked) == (2, 4, True, False)
    assert (state.counts["damaged"], state.damaged, state.job_id) == (0, (), None)
    assert ledger.maintenance.backlog().totals["scrub:damaged"] == 1


def test_only_so_many_damaged_documents_are_listed(ledger: Ledger) -> None:
    many = [Damage("c", f"d{n}") for n in range(LISTED + 10)]
    ledger.scrub.move(0, Move(damaged=many))
    assert ledger.scrub.state().damaged == tuple(many[:LISTED])


def test_entries_of_a_range_of_buckets_are_those_that_lie_there(
    store: Ledger, new_job: Callable[..., NewJob], new_entry: Callable[..., bytes]
) -> None:
    names = [f"d{n}" for n in range(30)]
    for name in names:
        _write(store, new_job(Kind.INGEST), new_entry, name)
    for first, count in ((0, 16), (3, 5), (12, 99)):
        expected = {n for n in names if first <= bucket_of(n, buckets=16) < first + count}
        assert {n for n, _ in store.documents.entries("c", first=first, count=count)} == expected


@pytest.mark.parametrize("size", [5, 3000], ids=["short", "long"])
@pytest.mark.parametrize("new_size", [5, 3000], ids=["to short", "to long"])
def test_a_repair_swaps_the_entry_that_was_judged_and_discards_it(
    store: Ledger,
    new_job: Callable[..., NewJob],
    new_entry: Callable[..., bytes],
    size: int,
    new_size: int,
) -> None:
    old = _write(store, new_job(Kind.INGEST), new_entry, payload=b"o" * size, text=b"o")
    new = new_entry(Entry.unpack(old).seq, b"n" * new_size)
    assert store.documents.repair("c", "d", old=old, entry=new, text=b"n")
    assert store.documents.repair("c", "d", old=old, entry=new, text=b"n")  # the reply was lost
    assert store.documents.entry("c", ["d"]) == {"d": new}
    assert store.documents.texts("c", ["d"]) == {"d": b"n"}
    assert store.maintenance.backlog().to_collect == 1


def test_a_repair_of_what_was_replaced_or_deleted_changes_nothing(
    store: Ledger, new_job: Callable[..., NewJob], new_entry: Callable[..., bytes]
) -> None:
    old = _write(store, new_job(Kind.INGEST), new_entry)
    newer = _write(store, new_job(Kind.INGEST), new_entry, payload=b"newer")
    assert not store.documents.repair("c", "d", old=old, entry=new_entry(1, b"mended"), text=None)
    assert store.documents.entry("c", ["d"]) == {"d": newer}
    store.documents.collection_delete("c")
    assert not store.documents.repair("c", "d", old=newer, entry=newer, text=None)


def test_an_entry_cut_to_a_stump_keeps_no_later_write_out(
    store: Ledger, new_job: Callable[..., NewJob], new_entry: Callable[..., bytes], valkey_url: str
) -> None:
    for length in range(8):
        old = _write(store, new_job(Kind.INGEST), new_entry)
        with redis.Redis.from_url(valkey_url) as client:
            [name] = list(client.scan_iter("verso:docs:*"))
            client.hset(name, "d", old[:length])
        assert list(store.documents.entries("c")) == [("d", old[:length])]
        entry = _write(store, new_job(Kind.INGEST), new_entry, payload=b"later")
        assert store.documents.entry("c", ["d"]) == {"d": entry}


def test_a_repair_keeps_the_mark_of_a_verified_entry(
    store: Ledger, new_job: Callable[..., NewJob], new_entry: Callable[..., bytes]
) -> None:
    old = _write(store, new_job(Kind.INGEST), new_entry)
    entry = Entry.unpack(old)
    marked = Entry(entry.seq, entry.size_bytes, entry.records, Flag.VERIFIED).pack()
    assert store.documents.repair("c", "d", old=old, entry=marked, text=None)
    assert Entry.unpack(store.documents.entry("c", ["d"])["d"]).flags & Flag.VERIFIED


def test_a_sequence_number_that_was_never_given_out_keeps_no_later_write_out(
    store: Ledger, new_job: Callable[..., NewJob], new_entry: Callable[..., bytes], valkey_url: str
) -> None:
    old = _write(store, new_job(Kind.INGEST), new_entry)
    with redis.Redis.from_url(valkey_url) as client:
        [name] = list(client.scan_iter("verso:docs:*"))
        client.hset(name, "d", old[:2] + bytes([old[2] ^ 0x40]) + old[3:])
    entry = _write(store, new_job(Kind.INGEST), new_entry, payload=b"later")
    assert store.documents.entry("c", ["d"]) == {"d": entry}
    assert store.maintenance.backlog().to_collect == 1
