"""Which documents a collection holds: a page at a time, bucket by bucket, never their texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from verso_core.errors import CollectionUnknown, PatchCorrupt, RequestInvalid
from verso_core.record import Entry, Flag
from verso_ledger import codec
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.pages import Page

_STEP = 32
_LOOKED_AT = 4096
"""Buckets looked at for one page: a collection with few documents has most of them empty."""


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A stored document.

    Attributes:
        id: as it came in.
        seq: number of the job that wrote it; a later job has a larger one.
        size_bytes: of its text.
        verified: an independent decode has given it back.
    """

    id: str
    seq: int
    size_bytes: int
    verified: bool


async def documents(
    client: Redis, name: str, *, after: str | None, limit: int
) -> Page[DocumentRow]:
    """Return a page of a collection's documents, in no order that means anything.

    A page ends with the bucket that fills it, so it may hold some more than ``limit``, or fewer
    before the list has ended. What is written or deleted meanwhile may be in the list or not;
    every other document is in it once. An entry that is damaged is left out: statistics count it.

    Args:
        client: the ledger's server.
        name: the collection, as users know it.
        after: cursor of the page before; None for the first page.
        limit: rows after which the page ends.

    Raises:
        CollectionUnknown: there is none of this name.
        RequestInvalid: ``after`` is no cursor.
    """
    if after is not None and not (after.isascii() and after.isdecimal()):
        raise RequestInvalid("expected a cursor of this list")
    uid, buckets = await _place(client, name)
    start = at = int(after or 0)
    rows: list[DocumentRow] = []
    while at < min(buckets, start + _LOOKED_AT):
        last = min(at + _STEP, buckets)
        with translated():
            async with client.pipeline(transaction=False) as pipe:
                for bucket in range(at, last):
                    pipe.hgetall(key("docs", uid, bucket))
                pages = await pipe.execute()
        for page in pages:
            rows += [row for item in page.items() if (row := _row(*item)) is not None]
            at += 1
            if len(rows) >= limit:
                return Page(rows, str(at) if at < buckets else None)
    return Page(rows, str(at) if at < buckets else None)


async def _place(client: Redis, name: str) -> tuple[str, int]:
    """Find the uid and the number of buckets of a collection, or of what its name stands for."""
    with translated():
        async with client.pipeline(transaction=True) as pipe:
            pipe.hgetall(key("collections"))
            pipe.hgetall(key("aliases"))
            pipe.smembers(key("hidden"))
            pipe.hgetall(key("uids"))
            rows, aliases, hidden, uids = await pipe.execute()
    found = codec.collections(rows, aliases=aliases, hidden=hidden).get(name)
    if found is None:
        raise CollectionUnknown(f"no collection is named {name[:64]!r}")
    return codec.text(uids[found.name.encode()]), found.buckets


def _row(document: Any, data: Any) -> DocumentRow | None:
    try:
        entry = Entry.unpack(data)
    except PatchCorrupt:
        return None
    if entry.flags & Flag.DELETED:
        return None
    verified = bool(entry.flags & Flag.VERIFIED)
    return DocumentRow(codec.text(document), entry.seq, entry.size_bytes, verified)
