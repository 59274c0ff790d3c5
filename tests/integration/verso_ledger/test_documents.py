"""Facts about documents, their verify phase and their garbage, against a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from verso_core.errors import CollectionBusy, CollectionExists, CollectionUnknown, VersoError
from verso_core.jobs import Collection, Kind, Precision, Queue, Status
from verso_core.record import MAX_SLOT, Entry, Flag
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
from verso_ledger.epoch import EpochState
from verso_ledger.keys import key

Jobs = Callable[..., NewJob]
Time = Callable[[float], None]
Collections = Callable[..., Collection]
Entries = Callable[..., bytes]


@pytest.fixture
def valkey_url(timed_url: str) -> str:
    """The server whose time tests let pass: what is not due yet stays so on a busy machine."""
    return timed_url


@pytest.fixture
def store(valkey_url: str, new_collection: Collections) -> Iterator[Ledger]:
    """A ledger that holds the empty collection ``c`` and collects garbage at once."""
    found = Ledger.from_url(valkey_url, policy=Policy(gc_delay_ms=0, sweep_buckets=5))
    found.documents.collection_put(new_collection())
    yield found
    found.close()


@pytest.fixture
def raw(valkey_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look behind the ledger."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def claim(store: Ledger, new_job: Jobs) -> Callable[..., Lease]:
    """Accept a job of one slice and claim it."""

    def take(kind: Kind = Kind.INGEST) -> Lease:
        queue = Queue.BULK if kind is Kind.INGEST else Queue.INTERACTIVE
        store.jobs.accept(new_job(kind))
        (lease,) = store.leases.claim(queue, owner="w")
        return lease

    return take


def _write(store: Ledger, lease: Lease, *writes: DocumentWrite | DocumentDelete) -> Commit:
    return store.leases.commit(lease, b"r", ok=2, errors=0, documents=writes, verify_delay_s=0)


def test_a_committed_entry_is_there_and_waits_to_be_verified(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    entry = new_entry(lease.seq)
    assert _write(store, lease, DocumentWrite("c", "d0", entry)) is Commit.DONE
    assert store.jobs.get(lease.job_id).status is Status.SUCCEEDED
    assert store.documents.entry("c", ["d0", "none"]) == {"d0": entry}
    assert store.maintenance.backlog().unverified == 1
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    assert (verify.phase, verify.payload, verify.seq) == (Phase.VERIFY, lease.payload, lease.seq)
    assert verify.slice_id == lease.slice_id
    assert raw.ttl(key("payload", lease.slice_id)) == -1


def test_settling_delays_the_verify_phase(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, pass_s: Time
) -> None:
    lease = claim()
    writes = [DocumentWrite("c", "d0", new_entry(lease.seq))]
    store.leases.commit(lease, b"r", ok=2, errors=0, documents=writes, verify_delay_s=1.0)
    assert store.leases.claim(Queue.SCRUB, owner="w") == []
    pass_s(1.05)
    assert len(store.leases.claim(Queue.SCRUB, owner="w")) == 1


@pytest.mark.parametrize("size", [5, 5000])
def test_verified_marks_the_entries_and_drops_the_texts_after_the_grace(
    store: Ledger,
    claim: Callable[..., Lease],
    new_entry: Entries,
    raw: redis.Redis,
    size: int,
    pass_s: Time,
) -> None:
    lease = claim()
    _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq, b"p" * size)))
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    right = [("c", "d0", lease.seq)]
    assert store.leases.commit_verified(verify, right, raw_text_retention_s=1.0) is Commit.DONE
    assert store.leases.commit_verified(verify, right, raw_text_retention_s=1.0) is Commit.DONE
    entry = Entry.unpack(store.documents.entry("c", ["d0"])["d0"])
    assert entry.flags == Flag.VERIFIED
    assert entry.records[0].payload == b"p" * size
    assert raw.exists(key("payload", lease.slice_id)) == 1
    assert store.maintenance.drop_due() == 0
    pass_s(1.05)
    assert store.maintenance.drop_due() == 1
    assert raw.exists(key("payload", lease.slice_id)) == 0
    assert raw.ttl(key("slice", lease.slice_id)) > 0
    backlog = store.maintenance.backlog()
    assert (backlog.unverified, backlog.unverified_bytes, backlog.to_drop) == (0, 0, 0)


def test_without_grace_the_texts_go_with_the_verification(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq)))
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    store.leases.commit_verified(verify, [("c", "d0", lease.seq)], raw_text_retention_s=0)
    assert raw.exists(key("payload", lease.slice_id)) == 0


def test_a_read_only_ledger_drops_no_text_and_marks_nothing(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    entry = new_entry(lease.seq)
    _write(store, lease, DocumentWrite("c", "d0", entry))
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    store.epoch.make_read_only(EpochState("lost", "", 1 << 30))
    right = [("c", "d0", lease.seq)]
    sealed = store.leases.commit_verified(verify, right, raw_text_retention_s=0)
    assert sealed is Commit.SEALED
    assert raw.exists(key("payload", lease.slice_id)) == 1
    assert store.documents.entry("c", ["d0"])["d0"] == entry
    store.epoch.accept_as_is()
    done = store.leases.commit_verified(verify, right, raw_text_retention_s=0)
    assert done is Commit.DONE
    assert raw.exists(key("payload", lease.slice_id)) == 0


def test_a_rewritten_entry_is_verified_once_more(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries
) -> None:
    lease = claim()
    _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq, b"bad")))
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    better = DocumentWrite("c", "d0", new_entry(lease.seq, b"good"))
    assert (
        store.leases.commit_verified(verify, [], rewritten=[better], verify_delay_s=0)
        is Commit.DONE
    )
    assert store.documents.entry("c", ["d0"])["d0"] == better.entry
    assert store.maintenance.gc_take() == []  # same sequence number, same points
    (again,) = store.leases.claim(Queue.SCRUB, owner="w")
    assert again.payload == lease.payload
    store.leases.commit_verified(again, [("c", "d0", lease.seq)], raw_text_retention_s=0)
    assert Entry.unpack(store.documents.entry("c", ["d0"])["d0"]).flags == Flag.VERIFIED


def test_verification_leaves_an_entry_alone_that_was_replaced_meanwhile(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries
) -> None:
    old = claim()
    _write(store, old, DocumentWrite("c", "d0", new_entry(old.seq)))
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    new = claim()
    _write(store, new, DocumentWrite("c", "d0", new_entry(new.seq, b"new")))
    rewrite = DocumentWrite("c", "d0", new_entry(old.seq, b"late"))
    store.leases.commit_verified(
        verify, [("c", "d0", old.seq)], rewritten=[rewrite], verify_delay_s=0
    )
    assert store.documents.entry("c", ["d0"])["d0"] == new_entry(new.seq, b"new")


def test_the_later_request_wins_whatever_order_they_commit_in(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries
) -> None:
    early, late = claim(), claim()
    _write(store, late, DocumentWrite("c", "d0", new_entry(late.seq, b"late")))
    _write(store, early, DocumentWrite("c", "d0", new_entry(early.seq, b"early")))
    assert Entry.unpack(store.documents.entry("c", ["d0"])["d0"]).seq == late.seq
    (lost,) = store.maintenance.gc_take()
    assert (lost.collection, lost.document) == ("c", "d0")
    assert lost.entry == new_entry(early.seq, b"early")


@pytest.mark.parametrize(("old_size", "new_size"), [(5, 5), (5000, 5), (5, 5000), (5000, 5000)])
def test_a_replaced_entry_is_discarded_with_its_bytes(
    store: Ledger,
    claim: Callable[..., Lease],
    new_entry: Entries,
    raw: redis.Redis,
    old_size: int,
    new_size: int,
) -> None:
    first = claim()
    _write(store, first, DocumentWrite("c", "d:0 ü", new_entry(first.seq, b"o" * old_size)))
    second = claim()
    entry = new_entry(second.seq, b"n" * new_size)
    _write(store, second, DocumentWrite("c", "d:0 ü", entry))
    assert store.documents.entry("c", ["d:0 ü"]) == {"d:0 ü": entry}
    assert dict(store.documents.entries("c")) == {"d:0 ü": entry}
    (token, collection, document, old) = store.maintenance.gc_take()[0]
    assert (collection, document, old) == ("c", "d:0 ü", new_entry(first.seq, b"o" * old_size))
    assert store.maintenance.gc_take() == []  # given out already
    store.maintenance.gc_done([token])
    assert store.maintenance.backlog().to_collect == 0
    assert not raw.keys(key("gcitem", "*"))
    assert len(raw.keys(key("long", "*"))) == (1 if new_size > 1024 else 0)


def test_garbage_that_was_not_reported_done_comes_again(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, pass_s: Time
) -> None:
    lease = claim()
    _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq)))
    gone = claim(Kind.DELETE)
    _write(store, gone, DocumentDelete("c", "d0"))
    assert len(store.maintenance.gc_take(lease_s=0.01)) == 1
    pass_s(0.02)
    assert len(store.maintenance.gc_take()) == 1


def test_a_deleted_document_stays_deleted_when_an_older_write_arrives_late(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    first, late = claim(), claim()
    _write(store, first, DocumentWrite("c", "d0", new_entry(first.seq)))
    delete = claim(Kind.DELETE)
    _write(store, delete, DocumentDelete("c", "d0"))
    assert store.documents.entry("c", ["d0"]) == {}
    store.maintenance.reap()
    _write(store, late, DocumentWrite("c", "d0", new_entry(late.seq)))
    assert store.documents.entry("c", ["d0"]) == {}
    assert {item.entry for item in store.maintenance.gc_take()} == {
        new_entry(first.seq),
        new_entry(late.seq),
    }
    store.maintenance.reap()
    assert not raw.keys(key("tombs", "*"))  # nothing older can arrive any more
    newer = claim()
    _write(store, newer, DocumentWrite("c", "d0", new_entry(newer.seq)))
    assert list(store.documents.entry("c", ["d0"])) == ["d0"]


def test_a_dead_write_that_is_replayed_does_not_undo_a_later_delete(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries
) -> None:
    dead = claim()
    store.leases.fail(dead, VersoError("no"))
    delete = claim(Kind.DELETE)
    _write(store, delete, DocumentDelete("c", "d0"))
    store.maintenance.reap()
    store.jobs.replay(dead.job_id)
    (again,) = store.leases.claim(Queue.BULK, owner="w")
    _write(store, again, DocumentWrite("c", "d0", new_entry(again.seq)))
    assert store.documents.entry("c", ["d0"]) == {}


def test_texts_are_kept_where_the_write_brings_them(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries
) -> None:
    lease = claim()
    _write(
        store,
        lease,
        DocumentWrite("c", "with", new_entry(lease.seq), text=b"\x00\xff"),
        DocumentWrite("c", "empty", new_entry(lease.seq), text=b""),
        DocumentWrite("c", "without", new_entry(lease.seq)),
    )
    asked = ["with", "empty", "without", "none"]
    assert store.documents.texts("c", asked) == {"with": b"\x00\xff", "empty": b""}
    delete = claim(Kind.DELETE)
    _write(store, delete, DocumentDelete("c", "with"))
    assert store.documents.texts("c", asked) == {"empty": b""}


def test_entries_goes_through_every_document_once(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries
) -> None:
    lease = claim()
    names = [f"d{n}" for n in range(300)]
    sizes = {name: 5000 if n % 7 == 0 else 5 for n, name in enumerate(names)}
    writes = [DocumentWrite("c", n, new_entry(lease.seq, b"p" * sizes[n])) for n in names]
    _write(store, lease, *writes)
    seen = list(store.documents.entries("c"))
    assert sorted(name for name, _ in seen) == sorted(names)
    assert all(Entry.unpack(e).records[0].payload == b"p" * sizes[d] for d, e in seen)
    assert store.documents.entry("c", names) == dict(seen)


def test_what_the_server_holds_in_memory_is_measured(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    for n in range(40):
        entry = new_entry(lease.seq, b"p" * (5000 if n % 7 == 0 else 5))
        _write(store, lease, DocumentWrite("c", f"d{n}", entry, b"text" * n))
    found = store.documents.memory("c")
    used = {
        kind: sum(raw.memory_usage(name) or 0 for name in raw.scan_iter(key(kind, "*")))
        for kind in ("docs", "long", "text")
    }
    assert found.entries == used["docs"] + used["long"]
    assert found.texts == used["text"]


def test_a_verify_that_dies_keeps_the_texts_and_can_be_replayed(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq)))
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w")
    store.leases.fail(verify, VersoError("no"))
    assert store.maintenance.backlog().dead == 1
    assert raw.ttl(key("payload", lease.slice_id)) == -1
    assert raw.ttl(key("job", lease.job_id)) == -1
    record = store.jobs.get(lease.job_id)
    assert (record.status, record.n_ok) == (Status.SUCCEEDED, 2)
    assert store.jobs.replay(lease.job_id) is Status.SUCCEEDED
    (again,) = store.leases.claim(Queue.SCRUB, owner="w")
    assert again.phase is Phase.VERIFY
    store.leases.commit_verified(again, [("c", "d0", lease.seq)], raw_text_retention_s=0)
    assert store.maintenance.backlog().dead == 0
    assert raw.ttl(key("job", lease.job_id)) > 0


def test_cancel_does_not_stop_the_verification_of_what_is_committed(
    store: Ledger, new_job: Jobs, new_entry: Entries
) -> None:
    job_id = store.jobs.accept(new_job(Kind.INGEST, slices=2)).job_id
    (lease,) = store.leases.claim(Queue.BULK, owner="w")
    _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq)))
    store.jobs.cancel(job_id)
    (verify,) = store.leases.claim(Queue.SCRUB, owner="w", n=5)
    assert (
        store.leases.commit_verified(verify, [("c", "d0", lease.seq)], raw_text_retention_s=0)
        is Commit.DONE
    )
    assert store.jobs.get(job_id).status is Status.CANCELLED


def test_a_collection_is_created_once_and_keeps_its_settings(
    store: Ledger, new_collection: Collections
) -> None:
    first = store.documents.collections()["c"]
    assert store.documents.collection_put(new_collection(dim=1)) == first
    assert store.documents.collection("c") == first
    assert first.int8_scale == 0.1 + 0.2
    with pytest.raises(CollectionExists):
        store.documents.collection_put(new_collection(precision=Precision.INT8))
    with pytest.raises(CollectionUnknown):
        store.documents.collection("none")
    with pytest.raises(CollectionUnknown):
        store.documents.entry("none", ["d"])


def test_artifact_slots_are_given_in_order_and_never_change(store: Ledger) -> None:
    assert [store.documents.collection_artifact("c", name) for name in ("a", "b", "a", "c")] == [
        0,
        1,
        0,
        2,
    ]
    assert store.documents.collection("c").artifacts == ("a", "b", "c")
    with pytest.raises(CollectionUnknown):
        store.documents.collection_artifact("none", "a")


def test_a_generation_that_is_gone_gets_no_slot(store: Ledger) -> None:
    store.documents.collection_artifact("c", "a")
    with pytest.raises(CollectionBusy):
        store.documents.collection_artifact("c", "a.0123456789abcdef")
    assert store.documents.collection("c").artifacts == ("a",)


def test_a_free_artifact_slot_is_given_again_and_no_more_than_there_are(store: Ledger) -> None:
    names = ["a", *(f"codec{n}" for n in range(MAX_SLOT))]
    assert [store.documents.collection_artifact("c", name) for name in names] == [*range(32)]
    with pytest.raises(CollectionBusy):
        store.documents.collection_artifact("c", "one more")
    freed = (*names[:7], "", *names[8:])
    store.documents.collection_change("c", lambda old: old.model_copy(update={"artifacts": freed}))
    assert store.documents.collection_artifact("c", "one more") == 7
    assert store.documents.collection_artifact("c", names[8]) == 8


def test_a_deleted_collection_is_gone_at_once_and_swept_later(
    store: Ledger,
    claim: Callable[..., Lease],
    new_entry: Entries,
    new_collection: Collections,
    raw: redis.Redis,
) -> None:
    lease = claim()
    writes = [
        DocumentWrite("c", f"d{n}", new_entry(lease.seq, b"p" * (5 + n * 100)), text=b"t")
        for n in range(50)
    ]
    _write(store, lease, *writes)
    store.documents.collection_delete("c")
    with pytest.raises(CollectionUnknown):
        store.documents.entry("c", ["d0"])
    with pytest.raises(CollectionUnknown):
        store.documents.collection_delete("c")
    store.documents.collection_put(new_collection())
    assert list(store.documents.entries(store.documents.collections()["c"].name)) == []
    for _ in range(4):  # 16 buckets, 5 at a time
        store.maintenance.drop_due()
    for kind in ("docs", "long", "text", "dropped"):
        assert not raw.keys(key(kind, "*") if kind != "dropped" else key(kind))


def test_a_write_asked_of_an_earlier_collection_does_not_reach_its_successor(
    store: Ledger,
    claim: Callable[..., Lease],
    new_entry: Entries,
    new_collection: Collections,
) -> None:
    before, early = claim(), claim()
    store.documents.collection_delete("c")
    own = store.documents.collection_put(new_collection()).name
    assert _write(store, before, DocumentWrite("c", "d0", new_entry(before.seq))) is Commit.DONE
    assert list(store.documents.entries(own)) == []
    _write(store, early, DocumentWrite(own, "d0", new_entry(early.seq)))
    assert list(store.documents.entries(own)) == []
    late = claim()
    _write(store, late, DocumentWrite(own, "d0", new_entry(late.seq)))
    assert [name for name, _ in store.documents.entries(own)] == ["d0"]


def test_a_collection_gets_an_own_name_that_none_before_it_had(
    store: Ledger, new_collection: Collections
) -> None:
    owns = [store.documents.collections()["c"].name]
    for _ in range(3):
        assert store.documents.collection_delete(owns[-1]) == [owns[-1]]
        assert store.documents.collections() == {}
        owns.append(store.documents.collection_put(new_collection()).name)
        assert {name: one.name for name, one in store.documents.collections().items()} == {
            "c": owns[-1]
        }
    assert len(set(owns)) == 4


def test_a_collection_is_found_by_each_name_as_in_the_list_of_all(
    store: Ledger, new_collection: Collections
) -> None:
    store.documents.collection_put(new_collection("again"))
    store.documents.collection_delete("again")
    own = store.documents.collection_put(new_collection("again")).name
    assert own != "again"
    listed = store.documents.collections()
    assert set(listed) == {"c", "again"}
    for name in ("c", "again", own, "none"):
        assert store.documents.named(name) == listed.get(name)


def test_a_list_has_what_changed_and_the_same_of_what_did_not(
    store: Ledger, new_collection: Collections
) -> None:
    store.documents.collection_put(new_collection("other"))
    before = store.documents.collections()
    changed = store.documents.collection_change(
        "c", lambda one: one.model_copy(update={"retention_days": 3.0})
    )
    after = store.documents.collections()
    assert after["c"] == changed
    assert after["c"] != before["c"]
    assert after["other"] is before["other"]
    store.documents.collection_delete("c")
    assert set(store.documents.collections()) == {"other"}


def test_the_vectors_of_a_deleted_collection_are_garbage(
    store: Ledger, new_collection: Collections
) -> None:
    store.documents.collection_delete("c")
    own = store.documents.collection_put(new_collection()).name
    store.documents.collection_delete(own)
    found = [(one.collection, one.document, one.entry) for one in store.maintenance.gc_take()]
    assert found == [("c", "", b""), (own, "", b"")]


def test_a_slice_that_deleted_a_collection_is_known_to_have_done_so(
    store: Ledger, claim: Callable[..., Lease], new_collection: Collections
) -> None:
    lease, other = claim(), claim()
    assert not store.documents.collection_deleted("c", by=lease.seq)
    store.documents.collection_delete("c", by=lease.seq)
    own = store.documents.collection_put(new_collection()).name
    assert store.documents.collection_deleted("c", by=lease.seq)
    assert not store.documents.collection_deleted("c", by=other.seq)
    for late in (lease, other):  # both were accepted before this one was made
        with pytest.raises(CollectionUnknown):
            store.documents.collection_delete(own, by=late.seq)
    assert store.documents.collections()["c"].name == own


@pytest.fixture
def hasty(valkey_url: str) -> Iterator[Ledger]:
    """A ledger that waits half a second for who makes a collection."""
    found = Ledger.from_url(valkey_url, policy=Policy(gc_delay_ms=0, room_ms=500))
    yield found
    found.close()


def test_room_that_was_made_for_a_collection_in_vain_is_garbage(
    hasty: Ledger, new_collection: Collections, pass_s: Time
) -> None:
    rooms: list[str] = []

    def ends(made: Collection) -> None:
        rooms.append(made.name)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hasty.documents.collection_put(new_collection("d"), prepare=ends)
    pass_s(0.55)
    kept = hasty.documents.collection_put(
        new_collection("d"), prepare=lambda made: rooms.append(made.name)
    )
    assert rooms == ["d", kept.name]
    assert rooms[0] != rooms[1]
    assert [(one.collection, one.document) for one in hasty.maintenance.gc_take()] == [("d", "")]


def test_who_takes_too_long_to_make_room_makes_it_again(
    hasty: Ledger, new_collection: Collections, pass_s: Time
) -> None:
    rooms: list[str] = []

    def slow(made: Collection) -> None:
        rooms.append(made.name)
        pass_s(0.55 if len(rooms) == 1 else 0)

    kept = hasty.documents.collection_put(new_collection("d"), prepare=slow)
    assert rooms == ["d", kept.name]
    assert {one.collection for one in hasty.maintenance.gc_take()} == {"d"}


def test_of_two_who_make_a_collection_the_first_makes_it(
    store: Ledger, new_collection: Collections
) -> None:
    first: list[Collection] = []

    def meanwhile(_: Collection) -> None:
        first.append(store.documents.collection_put(new_collection("d"), prepare=lambda _: None))

    assert store.documents.collection_put(new_collection("d"), prepare=meanwhile) == first[0]
    assert store.documents.collections()["d"] == first[0]


def test_a_write_into_a_collection_that_is_gone_changes_nothing(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    store.documents.collection_delete("c")
    assert _write(store, lease, DocumentWrite("c", "d0", new_entry(lease.seq))) is Commit.DONE
    assert not raw.keys(key("docs", "*"))


def test_buckets_stay_listpacks(
    store: Ledger, claim: Callable[..., Lease], new_entry: Entries, raw: redis.Redis
) -> None:
    lease = claim()
    writes = [DocumentWrite("c", f"d{n}", new_entry(lease.seq, b"p" * 990)) for n in range(100)]
    _write(store, lease, *writes)
    names = raw.keys(key("docs", "*"))
    assert {raw.object("ENCODING", name) for name in names} == {b"listpack"}
