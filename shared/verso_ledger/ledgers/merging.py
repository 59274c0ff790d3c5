"""Lists and counts over several ledgers, as one ledger would give them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from verso_core.errors import JobUnknown, LedgerUnavailable, RequestInvalid
from verso_core.jobs import Kind, Queue, Status
from verso_ledger.async_client import AsyncLedger
from verso_ledger.ledgers.router import Ledgers
from verso_ledger.models import Backlog, DeadLetter, Depth, Health, JobRecord
from verso_ledger.names import group_of
from verso_ledger.pages import Page

_AGAIN_S = 1.0
_END = "-"
"""Stands in a cursor for a ledger whose list has ended."""

T = TypeVar("T")


class _ReadPage(Protocol[T]):
    """Reads a page of a ledger's list after a cursor."""

    async def __call__(self, ledger: AsyncLedger, *, after: str | None) -> Page[T]: ...


async def jobs(
    ledgers: Ledgers,
    tenant: str,
    *,
    after: str | None,
    limit: int,
    statuses: Iterable[Status],
    kinds: Iterable[Kind],
    reads: bool,
) -> Page[JobRecord]:
    """Return a tenant's jobs over all ledgers, as :func:`verso_ledger.pages.jobs` does of one.

    The clocks of the servers decide between jobs of different ledgers.

    Raises:
        RequestInvalid: ``after`` is no cursor.
        LedgerUnavailable: no ledger answers.
    """

    async def read(ledger: AsyncLedger, *, after: str | None) -> Page[JobRecord]:
        page = await ledger.jobs(
            tenant, after=after, limit=limit, statuses=statuses, kinds=kinds, reads=reads
        )
        return await _with_groups(ledgers, page)

    return await _page(ledgers, read, after=after, limit=limit, when=lambda job: job.created)


async def _with_groups(ledgers: Ledgers, page: Page[JobRecord]) -> Page[JobRecord]:
    """Return a page of a ledger's jobs with each group that one of them leads in its place."""
    kept = [
        (row, place) for row, place in zip(page.rows, page.places, strict=True) if leads(row.job_id)
    ]
    rows = [await whole(ledgers, row) for row, _ in kept]
    return Page(rows, page.cursor, [place for _, place in kept])


def leads(job_id: str) -> bool:
    """Whether users know a job by its id: it is alone, or leads its group."""
    group = group_of(job_id)
    return not group or next(iter(group.values())) == job_id


async def whole(ledgers: Ledgers, record: JobRecord) -> JobRecord:
    """Return the group that a job is of, or the job; as it is while a ledger is away."""
    if not group_of(record.job_id):
        return record
    with suppress(LedgerUnavailable, JobUnknown):
        return await ledgers.of_job(record.job_id).job(record.job_id)
    return record


async def dead(ledgers: Ledgers, tenant: str, *, after: str | None, limit: int) -> Page[DeadLetter]:
    """Return a tenant's dead letters over all ledgers, the newest first; as :func:`jobs`."""

    async def read(ledger: AsyncLedger, *, after: str | None) -> Page[DeadLetter]:
        return await ledger.dead(tenant, after=after, limit=limit)

    return await _page(ledgers, read, after=after, limit=limit, when=lambda letter: letter.died)


async def _page(
    ledgers: Ledgers,
    read: _ReadPage[T],
    *,
    after: str | None,
    limit: int,
    when: Callable[[T], float],
) -> Page[T]:
    """Return a page of several lists as one.

    A ledger that is away keeps its place in the cursor, so its rows come once it answers.
    """
    if not ledgers.several:
        return await read(ledgers.home, after=after)
    places = _places(after)
    left = [one for one in ledgers.all if places.get(one.name) != _END]

    async def page(ledger: AsyncLedger) -> Page[T]:
        if ledger not in left:
            return Page([], None)
        return await read(ledger, after=places.get(ledger.name) or None)

    found = await ledgers.each(page)
    rows = [
        (when(row), name, row, place)
        for name, own in found.items()
        for row, place in zip(own.rows, own.places, strict=True)
    ]
    rows.sort(key=lambda row: -row[0])
    taken, kept_back = rows[:limit], Counter(name for _, name, _, _ in rows[limit:])
    for _, name, _, place in taken:
        places[name] = place
    for name, own in found.items():
        if not kept_back[name]:
            places[name] = own.cursor or _END
    ended = all(places.get(one.name) == _END for one in ledgers.all)
    return Page([row for _, _, row, _ in taken], None if ended else _cursor(places))


def _cursor(places: dict[str, str]) -> str:
    return "~".join(f"{name}!{place}" for name, place in sorted(places.items()))


def _places(cursor: str | None) -> dict[str, str]:
    """Read a cursor of several lists.

    Raises:
        RequestInvalid: it is none.
    """
    if cursor is None:
        return {}
    pairs = [part.partition("!") for part in cursor.split("~")]
    if not all(mark for _, mark, _ in pairs):
        raise RequestInvalid("expected a cursor of this list")
    return {name: place for name, _, place in pairs}


async def changes(
    ledgers: Ledgers, tenant: str, *, kinds: Iterable[Kind], reads: bool
) -> AsyncIterator[list[JobRecord] | None]:
    """Yield a tenant's jobs of all ledgers as they change; see :meth:`AsyncLedger.changes`.

    None comes as well when a ledger goes away, and when it answers again.

    Raises:
        LedgerUnavailable: the only ledger does not answer.
    """
    chosen = tuple(kinds)
    if not ledgers.several:
        async for changed in ledgers.home.changes(tenant, kinds=chosen, reads=reads):
            yield changed
        return
    queue: asyncio.Queue[list[JobRecord] | None] = asyncio.Queue(maxsize=1)

    async def follow(ledger: AsyncLedger) -> None:
        while True:
            try:
                coming: Any = ledger.changes(tenant, kinds=chosen, reads=reads)
                async with aclosing(coming) as stream:
                    async for changed in stream:
                        await queue.put(await _groups(ledgers, changed))
            except LedgerUnavailable:
                ledgers.failed(ledger)
                await queue.put(None)
                await asyncio.sleep(_AGAIN_S)

    following = [asyncio.create_task(follow(one)) for one in ledgers.all]
    try:
        while True:
            yield await queue.get()
    finally:
        for task in following:
            task.cancel()


async def _groups(ledgers: Ledgers, changed: Sequence[JobRecord] | None) -> list[JobRecord] | None:
    if changed is None:
        return None
    found = [await whole(ledgers, one) for one in changed]
    return list({one.job_id: one for one in found}.values())


async def health(ledgers: Ledgers) -> Health:
    """Return the newest signs of life over all ledgers."""
    found = list((await ledgers.each(lambda one: one.health())).values())
    return Health(
        last_embed_age_s=_least(one.last_embed_age_s for one in found),
        worker_beat_age_s=_least(one.worker_beat_age_s for one in found),
        trainer_beat_age_s=_least(one.trainer_beat_age_s for one in found),
    )


def _least(ages: Iterable[float | None]) -> float | None:
    return min((age for age in ages if age is not None), default=None)


async def serving(ledgers: Ledgers) -> dict[str, dict[str, Any]]:
    """Return what each living worker said it serves, by its name."""
    found = await ledgers.each(lambda one: one.serving())
    return {name: state for own in reversed(found.values()) for name, state in own.items()}


async def depths(ledgers: Ledgers) -> dict[Queue, Depth]:
    """Return what waits and runs in each queue of all ledgers together."""
    found = list((await ledgers.each(lambda one: one.depths())).values())
    return {
        queue: Depth(
            queued=sum(own[queue].queued for own in found),
            delayed=sum(own[queue].delayed for own in found),
            running=sum(own[queue].running for own in found),
            oldest_s=max(own[queue].oldest_s for own in found),
        )
        for queue in found[0]
    }


async def backlog(ledgers: Ledgers) -> Backlog:
    """Return what waits outside the queues of all ledgers together."""
    first, *others = (await ledgers.each(lambda one: one.backlog())).values()
    return _sum_of(first, others)


def _sum_of(first: Backlog, others: Sequence[Backlog]) -> Backlog:
    totals: Counter[str] = Counter(first.totals)
    for one in others:
        totals.update(one.totals)
    added = (
        *("dead", "unverified", "unverified_bytes", "to_drop", "to_collect", "to_send"),
        *("staged_bytes", "orphans"),
    )
    every = [first, *others]
    return replace(
        first,
        totals=dict(totals),
        read_only=any(one.read_only for one in every),
        **{name: sum(getattr(one, name) for one in every) for name in added},
    )
