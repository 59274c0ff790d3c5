"""Copying a real server over its port, the freeze that keeps the copy whole, and the epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from verso_core.errors import CollectionBusy, LedgerUnavailable
from verso_core.jobs import Collection, Kind, Queue
from verso_ledger import Commit, DocumentDelete, DocumentWrite, Ledger, NewJob
from verso_ledger.dump import dump
from verso_ledger.epoch import Epoch

Time = Callable[[float], None]


@pytest.fixture
def valkey_url(timed_url: str) -> str:
    """The server whose time tests let pass: what is not due yet stays so on a busy machine."""
    return timed_url


@pytest.fixture
def guard(valkey_url: str) -> Iterator[Epoch]:
    with closing(Epoch.from_url(valkey_url)) as found:
        yield found


def discard_one(
    ledger: Ledger, new_job: Callable[..., NewJob], new_entry: Callable[..., bytes]
) -> None:
    """Write a document and delete it, so that its entry waits for collection."""
    for kind in (Kind.INGEST, Kind.DELETE):
        ledger.jobs.accept(new_job(kind))
        [lease] = ledger.leases.claim(
            Queue.BULK if kind is Kind.INGEST else Queue.INTERACTIVE, owner="w"
        )
        document: Any = DocumentDelete("c", "d0")
        if kind is Kind.INGEST:
            document = DocumentWrite("c", "d0", new_entry(lease.seq))
        assert (
            ledger.leases.commit(lease, b"r", ok=2, errors=0, documents=[document]) is Commit.DONE
        )


def test_nothing_is_collected_and_no_collection_deleted_while_frozen(
    ledger: Ledger,
    guard: Epoch,
    new_job: Callable[..., NewJob],
    new_entry: Callable[..., bytes],
    new_collection: Callable[..., Collection],
    pass_s: Time,
) -> None:
    ledger.documents.collection_put(new_collection())
    discard_one(ledger, new_job, new_entry)
    guard.freeze("me", seconds=30)
    pass_s(2.1)  # the wait that every discarded entry has
    assert ledger.maintenance.gc_take() == []
    with pytest.raises(CollectionBusy):
        ledger.documents.collection_delete("c")
    with pytest.raises(CollectionBusy):
        guard.freeze("another", seconds=30)
    assert guard.extend_freeze("me", seconds=30)
    assert not guard.extend_freeze("another", seconds=30)
    guard.thaw("another")
    assert ledger.maintenance.gc_take() == []
    guard.thaw("me")
    assert [one.document for one in ledger.maintenance.gc_take()] == ["d0"]
    ledger.documents.collection_delete("c")
    assert ledger.documents.collections() == {}


def test_a_freeze_lapses_and_whoever_held_it_is_told(guard: Epoch, pass_s: Time) -> None:
    guard.freeze("me", seconds=0.05)
    pass_s(0.1)
    assert not guard.extend_freeze("me", seconds=1)
    guard.freeze("another", seconds=1)


def test_an_epoch_stays_until_a_copy_begins_its_own(guard: Epoch) -> None:
    first = guard.current()
    assert first.before == ""
    assert guard.current() == first
    second = guard.start_new()
    assert (second.before, second.seq) == (first.epoch, first.seq)
    assert second.epoch != first.epoch
    assert guard.current() == second


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_a_dump_is_a_file_that_another_server_starts_from(
    valkey_server: Callable[..., Any], tmp_path: Path, diskless: str
) -> None:
    server = valkey_server(
        repl_diskless_sync=diskless, repl_diskless_sync_delay="0", requirepass=""
    )
    with redis.Redis.from_url(server.url) as client:
        rows = {f"k{n}": bytes([n % 256]) * (n % 900) for n in range(3000)}
        client.mset(rows)
        path = tmp_path / "dump.rdb"
        assert dump(server.url, path) == path.stat().st_size
        client.set("after", b"the copy was made")
    folder = tmp_path / "copy"
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.1.base.rdb").write_bytes(path.read_bytes())
    manifest = "file appendonly.aof.1.base.rdb seq 1 type b\n"
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text(manifest)
    copy = valkey_server(dir=str(folder))
    with redis.Redis.from_url(copy.url) as client:
        found = dict(zip(rows, client.mget(list(rows)), strict=True))
        assert found == rows
        assert client.dbsize() == len(rows)


def test_a_server_that_refuses_or_is_away_is_a_clear_error(
    valkey_server: Callable[..., Any], tmp_path: Path
) -> None:
    server = valkey_server()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "secret")
    with pytest.raises(LedgerUnavailable, match="refused"):
        dump(server.url, tmp_path / "a")
    with pytest.raises(LedgerUnavailable, match="AUTH"):
        dump(server.url.replace("//", "//:wrong@"), tmp_path / "b")
    assert dump(server.url.replace("//", "//:secret@"), tmp_path / "c") > 0
    server.kill()
    with pytest.raises(LedgerUnavailable, match="could not be copied"):
        dump(server.url, tmp_path / "d")
