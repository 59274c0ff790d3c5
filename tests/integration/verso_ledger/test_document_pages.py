"""The list of a collection's documents: every one once, by pages, and nothing that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import redis

from verso_core.errors import CollectionUnknown, RequestInvalid
from verso_core.jobs import Collection, Kind, Queue
from verso_core.record import Codec, Entry, Record, bucket_of
from verso_ledger import (
    AsyncLedger,
    DocumentDelete,
    DocumentRow,
    DocumentWrite,
    Ledger,
    NewJob,
)
from verso_ledger.keys import key


@pytest.fixture
async def front(valkey_url: str) -> AsyncIterator[AsyncLedger]:
    found = AsyncLedger.from_url(valkey_url)
    yield found
    await found.close()


def entry(seq: int, size: int, *, payload: bytes = b"p") -> bytes:
    record = Record(Codec.RAW, 0, bytes(8), bytes(4), payload)
    return Entry(seq=seq, size_bytes=size, records=(record,)).pack()


@pytest.fixture
def put(
    ledger: Ledger, new_job: Callable[..., NewJob], new_collection: Callable[..., Collection]
) -> Callable[..., None]:
    """Commit writes to the collection ``c``, which has 100 buckets."""
    ledger.documents.collection_put(new_collection(buckets=100))

    def commit(*writes: DocumentWrite | DocumentDelete) -> None:
        ledger.jobs.accept(new_job(Kind.INGEST))
        [lease] = ledger.leases.claim(Queue.BULK, owner="w")
        ledger.leases.commit(lease, b"", ok=1, errors=0, documents=writes)

    return commit


async def listed(front: AsyncLedger, limit: int) -> list[DocumentRow]:
    rows: list[DocumentRow] = []
    cursor = None
    while True:
        page = await front.documents("c", after=cursor, limit=limit)
        rows += page.rows
        if (cursor := page.cursor) is None:
            return rows


@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_pages_hold_every_document_once(
    front: AsyncLedger, put: Callable[..., None], limit: int
) -> None:
    put(*(DocumentWrite("c", f"d{n}", entry(5 + n, n), None) for n in range(60)))
    put(DocumentWrite("c", "long", entry(99, 12345, payload=bytes(40_000)), None))
    put(DocumentDelete("c", "d0"))
    rows = {row.id: row for row in await listed(front, limit)}
    assert len(rows) == 60
    assert rows["d7"] == DocumentRow("d7", 12, 7, verified=False)
    assert rows["long"].size_bytes == 12345
    assert len(await listed(front, limit)) == 60


async def test_a_damaged_entry_is_left_out(
    front: AsyncLedger, put: Callable[..., None], valkey_url: str
) -> None:
    put(*(DocumentWrite("c", f"d{n}", entry(5, n), None) for n in range(3)))
    with redis.Redis.from_url(valkey_url, decode_responses=True) as raw:
        uid = raw.hget(key("uids"), "c")
        raw.hset(key("docs", uid, bucket_of("d1", buckets=100)), "d1", "no entry")
    assert {row.id for row in await listed(front, 10)} == {"d0", "d2"}


async def test_no_cursor_and_no_collection_are_errors(
    front: AsyncLedger, put: Callable[..., None]
) -> None:
    with pytest.raises(RequestInvalid):
        await front.documents("c", after="x")
    with pytest.raises(CollectionUnknown):
        await front.documents("nope")
    assert (await front.documents("c", after="100")).rows == []
