"""Lists, a page at a time: a tenant's jobs and dead letters, a collection's documents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from redis.asyncio import Redis

from verso_core.errors import (
    CollectionBusy,
    CollectionUnknown,
    PatchCorrupt,
    RequestInvalid,
    error_body,
)
from verso_core.jobs import Collection, Kind, Status
from verso_core.record import Entry, Flag
from verso_ledger.codec import collection_rows, job_rows, scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import CollectionReplaced, DeadLetter, JobRecord, Phase, SliceFailures

_NO_CURSOR = "expected a cursor of this list"
_NUMBER = re.compile(r"[0-9]{1,19}")
_STEP = 256
_JOBS_READ = 8192
"""Jobs read for one page: a filter that fits few must not hold the server up."""
_BUCKETS_STEP = 32
_BUCKETS_READ = 4096
"""Buckets read for one page: a collection with few documents has most of them empty."""
_FAILURE_FIELDS = ("items", "err", "st", "ph", "code", "detail")
_DEAD_FIELDS = (
    "job", "n", "ten", "kind", "ph", "items", "bytes", "crash", "errs", "code", "detail",
)  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list, the newest first, and where the next one starts; None at the end.

    A page may be short, or even empty, before the list has ended: what a filter leaves out counts
    towards the work done for a page.

    ``places``: of a list of jobs or dead letters, the cursor that continues behind each row.
    """

    rows: list[T]
    cursor: str | None
    places: list[str] = field(default_factory=list)


async def jobs(
    client: Redis,
    tenant: str,
    *,
    after: str | None,
    limit: int,
    statuses: frozenset[Status],
    kinds: frozenset[Kind],
    reads: bool,
) -> Page[JobRecord]:
    """Return a tenant's jobs, the newest first.

    Args:
        client: the ledger's server.
        tenant: whose.
        after: cursor of the page before; None for the first page.
        limit: most rows.
        statuses: only jobs in one of these; all if empty.
        kinds: only jobs of one of these; all if empty.
        reads: list reads whose callers wait, or were told their results in the last minute, too.

    Raises:
        RequestInvalid: ``after`` is no cursor.
    """
    rows: list[JobRecord] = []
    places: list[str] = []
    if after is not None:
        _check_number(after)
    lists = [key("jobs", tenant), *([key("reads", tenant)] if reads else [])]
    for _ in range(_JOBS_READ // _STEP):
        found = await _newest(client, lists, before=after)
        if not found:
            return Page(rows, None, places)
        names = [scalars.text(job_id) for job_id, _ in found]
        for job_id, (_, seq), fields in zip(
            names, found, await _hashes(client, names), strict=True
        ):
            after = str(int(seq))
            if not fields:
                continue  # expired
            record = job_rows.job_record(job_id, fields)
            if (not statuses or record.status in statuses) and (not kinds or record.kind in kinds):
                rows.append(record)
                places.append(after)
            if len(rows) == limit:
                return Page(rows, after, places)
    return Page(rows, after, places)


async def changed(
    client: Redis, job_ids: Sequence[str], *, tenant: str, kinds: frozenset[Kind], reads: bool
) -> list[JobRecord]:
    """Return those of some jobs that a tenant's list has, as they are now; as for :func:`jobs`."""
    found = []
    for job_id, fields in zip(job_ids, await _hashes(client, job_ids), strict=True):
        if not fields or (b"brief" in fields and not reads):
            continue  # expired, or a read whose caller waits
        record = job_rows.job_record(job_id, fields)
        if record.tenant == tenant and (not kinds or record.kind in kinds):
            found.append(record)
    return found


async def _newest(
    client: Redis, lists: Sequence[str], *, before: str | None
) -> list[tuple[bytes, float]]:
    """Return the newest members of several sorted sets as one list, with their numbers."""
    top = "+inf" if before is None else f"({before}"
    found: list[tuple[bytes, float]] = []
    with translated():
        for name in lists:
            rows: Any = await client.zrevrangebyscore(name, top, "-inf", 0, _STEP, withscores=True)
            found += rows
    return sorted(found, key=lambda row: -row[1])[:_STEP]


async def dead(client: Redis, tenant: str, *, after: str | None, limit: int) -> Page[DeadLetter]:
    """Return a tenant's dead letters, the newest first; arguments as for :func:`jobs`.

    Many slices may die in one millisecond, so a cursor names the slice and the time. If that slice
    is no longer dead, the list continues from its time: rows may be repeated, none is left out.
    """
    rows: list[DeadLetter] = []
    places: list[str] = []
    start = 0 if after is None else await _rank_after(client, after)
    for _ in range(_JOBS_READ // _STEP):
        with translated():
            found: Any = await client.zrange(
                key("dead"), start, start + _STEP - 1, desc=True, withscores=True
            )
            async with client.pipeline(transaction=False) as pipe:
                for slice_id, _at in found:
                    pipe.hmget(key("slice", scalars.text(slice_id)), *_DEAD_FIELDS)
                slices = await pipe.execute()
        for (slice_id, at_ms), values in zip(found, slices, strict=True):
            after = f"{int(at_ms)}.{scalars.text(slice_id)}"
            if values[0] is not None and scalars.text(values[2] or b"default") == tenant:
                rows.append(_letter([scalars.text(value or b"") for value in values], int(at_ms)))
                places.append(after)
            if len(rows) == limit:
                return Page(rows, after, places)
        start += len(found)
        if len(found) < _STEP:
            return Page(rows, None, places)
    return Page(rows, after, places)


def _letter(values: Sequence[str], at_ms: int) -> DeadLetter:
    job, number, tenant, kind, phase, items, size, crashes, errors, code, detail = values
    return DeadLetter(
        job_id=job,
        number=int(number),
        tenant=tenant or "default",
        kind=Kind(kind),
        phase=Phase(phase),
        items=int(items),
        size_bytes=int(size),
        crashes=int(crashes or 0),
        errors=int(errors or 0),
        error=scalars.error(code, detail),
        died=at_ms / 1000,
    )


async def _rank_after(client: Redis, after: str) -> int:
    at_ms, _, slice_id = after.partition(".")
    _check_number(at_ms)
    if not slice_id.isascii():
        raise RequestInvalid(_NO_CURSOR)
    with translated():
        rank: Any = await client.zrevrank(key("dead"), slice_id)
        if rank is not None:
            return int(rank) + 1
        return int(await client.zcount(key("dead"), f"({at_ms}", "+inf"))


def _check_number(cursor: str) -> None:
    """Check the number in a cursor: Redis takes no digits of other scripts, Python no thousands.

    Raises:
        RequestInvalid: it is none that a list gave.
    """
    if not _NUMBER.fullmatch(cursor):
        raise RequestInvalid(_NO_CURSOR)


async def failures(client: Redis, job_id: str, *, first: int, count: int) -> list[SliceFailures]:
    """Return what is known of the failed items of some of a job's slices, in order.

    A slice whose work ended well may have failed items: its result says which. Of one whose work
    did not, all items failed for one reason. A slice may be forgotten a little before the results
    of its job are.
    """
    with translated():
        async with client.pipeline(transaction=False) as pipe:
            for number in range(first, first + count):
                pipe.hmget(key("slice", f"{job_id}.{number}"), *_FAILURE_FIELDS)
            rows: list[list[bytes | None]] = await pipe.execute()
    return [_failures(*(None if one is None else scalars.text(one) for one in row)) for row in rows]


def _failures(
    items: str | None,
    failed: str | None,
    status: str | None,
    phase: str | None,
    code: str | None,
    detail: str | None,
) -> SliceFailures:
    if items is None or status is None:
        return SliceFailures(None, in_result=True)
    ended = Status(status)
    if phase == Phase.WORK and ended.terminal and ended is not Status.SUCCEEDED:
        error = scalars.error(code, detail or "") if code else error_body(ended.exception())
        return SliceFailures(int(items), error=error)
    return SliceFailures(int(items), in_result=int(failed or 0) > 0)


async def _hashes(client: Redis, job_ids: Sequence[str]) -> Sequence[Mapping[bytes, bytes]]:
    with translated():
        async with client.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hgetall(key("job", job_id))
            return cast("Sequence[Mapping[bytes, bytes]]", await pipe.execute())


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A stored document.

    Attributes:
        id: as it came in.
        seq: number of the job that wrote it; a later job has a larger one.
        size_bytes: of its text.
        verified: whether an independent decode returned the text.
    """

    id: str
    seq: int
    size_bytes: int
    verified: bool


async def documents(
    client: Redis, name: str, *, after: str | None, limit: int
) -> Page[DocumentRow]:
    """Return a page of a collection's documents, in an arbitrary order.

    A page ends with the bucket that fills it, so it may hold more than ``limit`` rows, or fewer
    before the list has ended. A document written or deleted meanwhile may be in the list or not;
    every other one is in it once. A damaged entry is left out; the statistics count it.

    Args:
        client: the ledger's server.
        name: the collection, as users know it.
        after: cursor of the page before; None for the first page.
        limit: rows after which the page ends.

    Raises:
        CollectionUnknown: there is none of this name.
        RequestInvalid: ``after`` is no cursor.
    """
    if after is not None:
        _check_number(after)
    uid, buckets = await _location(client, name)
    start = at = int(after or 0)
    rows: list[DocumentRow] = []
    while at < min(buckets, start + _BUCKETS_READ):
        last = min(at + _BUCKETS_STEP, buckets)
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


async def document_count(client: Redis, name: str) -> int:
    """Return how many documents a collection, as users know it, holds by its counts.

    Raises:
        CollectionUnknown: there is none of this name.
    """
    uid, _ = await _location(client, name)
    with translated():
        row: Any = await client.hget(key("counts", uid), "documents")
    return max(0, int(row or 0))


async def check_made(client: Redis, name: str, made: str) -> None:
    """Check that a collection is the one that a caller has seen: so is what was read before.

    One that has moved away is known until it is removed here, and no other one gets its name.

    Args:
        client: the ledger's server.
        name: the collection, as users know it.
        made: when the one seen was made, as :attr:`verso_core.jobs.Collection.made` says.

    Raises:
        CollectionBusy: it has moved to another ledger, and is removed here.
        CollectionReplaced: it was made at another time.
        CollectionUnknown: there is none of this name.
    """
    _, found = await _located(client, name, moved=True)
    if found.made != made:
        raise CollectionReplaced


async def _location(client: Redis, name: str) -> tuple[str, int]:
    """Find the uid and the number of buckets of a collection; as :func:`_located`."""
    uid, found = await _located(client, name)
    return uid, found.buckets


async def _located(client: Redis, name: str, *, moved: bool = False) -> tuple[str, Collection]:
    """Find the uid and the settings of a collection, or of what its name stands for.

    ``moved``: also of one that has moved to another ledger and is not removed yet.

    Raises:
        CollectionBusy: it has moved to another ledger.
        CollectionUnknown: there is none of this name.
    """
    asked, own = "", name
    while own != asked:
        asked = own
        with translated():
            async with client.pipeline(transaction=True) as pipe:
                pipe.hget(key("collections"), asked)
                pipe.hget(key("uids"), asked)
                pipe.hget(key("aliases"), name)
                pipe.sismember(key("hidden"), name)
                pipe.hget(key("shut"), f"n:{name}")
                row, uid, alias, hidden, shut = await pipe.execute()
        own = name if alias is None else scalars.text(alias)
    there = row is not None and not (alias is None and hidden)
    if scalars.has_moved(shut) and not (moved and there):
        raise CollectionBusy("the collection has just moved to another ledger")
    if not there:
        raise CollectionUnknown(f"no collection is named {name[:64]!r}")
    return scalars.text(uid), collection_rows.load(row)


def _row(document: Any, data: Any) -> DocumentRow | None:
    try:
        entry = Entry.unpack(data)
    except PatchCorrupt:
        return None
    if entry.flags & Flag.DELETED:
        return None
    verified = bool(entry.flags & Flag.VERIFIED)
    return DocumentRow(scalars.text(document), entry.seq, entry.size_bytes, verified)
