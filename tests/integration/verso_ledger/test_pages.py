"""Lists of jobs and dead letters: complete, in order, and only of their owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import redis

from verso_core.errors import RequestInvalid, VersoError
from verso_core.jobs import Kind, Queue, Status
from verso_ledger import AsyncLedger, Ledger, NewJob
from verso_ledger.keys import key

Jobs = Callable[..., NewJob]


@pytest.fixture
async def front(valkey_url: str) -> AsyncIterator[AsyncLedger]:
    found = AsyncLedger.from_url(valkey_url)
    yield found
    await found.close()


async def test_pages_hold_every_job_once_the_newest_first(
    ledger: Ledger, front: AsyncLedger, new_job: Jobs
) -> None:
    made = [ledger.jobs.accept(new_job(slices=n % 3)).job_id for n in range(25)]
    ledger.jobs.accept(new_job(tenant="other"))
    found: list[str] = []
    cursor = None
    while True:
        page = await front.jobs("default", after=cursor, limit=7)
        found += [record.job_id for record in page.rows]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == made[::-1]
    assert (await front.jobs("nobody")).rows == []


async def test_a_list_may_be_of_some_states_and_kinds(
    ledger: Ledger, front: AsyncLedger, new_job: Jobs
) -> None:
    embed = ledger.jobs.accept(new_job()).job_id
    search = ledger.jobs.accept(new_job(Kind.SEARCH)).job_id
    await front.cancel(search)
    by_state = await front.jobs("default", statuses=[Status.CANCELLED])
    assert [record.job_id for record in by_state.rows] == [search]
    by_kind = await front.jobs("default", kinds=[Kind.EMBED, Kind.INGEST])
    assert [record.job_id for record in by_kind.rows] == [embed]
    assert (await front.jobs("default", kinds=[Kind.STATS])).rows == []


async def test_expired_jobs_leave_the_list(
    ledger: Ledger, front: AsyncLedger, new_job: Jobs, valkey_url: str
) -> None:
    gone = [ledger.jobs.accept(new_job()).job_id for _ in range(3)]
    kept = ledger.jobs.accept(new_job()).job_id
    with redis.Redis.from_url(valkey_url) as raw:
        raw.delete(*(key("job", job) for job in gone))
        assert [r.job_id for r in (await front.jobs("default")).rows] == [kept]
        for _ in range(5):
            ledger.maintenance.reap(2)  # a small page a time, so that several rounds are needed
        assert raw.zrange(key("jobs", "default"), 0, -1) == [kept.encode()]


async def test_dead_letters_tell_why_and_go_with_a_replay(
    ledger: Ledger, front: AsyncLedger, new_job: Jobs
) -> None:
    job = ledger.jobs.accept(new_job(Kind.INGEST, slices=3)).job_id
    ledger.jobs.accept(new_job(Kind.INGEST, tenant="other"))
    for lease in ledger.leases.claim(Queue.BULK, owner="w", n=4):
        ledger.leases.fail(lease, VersoError("no"))
    found = []
    cursor = None
    for _ in range(3):
        page = await front.dead("default", after=cursor, limit=1)
        found += page.rows
        cursor = page.cursor
    assert {(letter.job_id, letter.number) for letter in found} == {(job, n) for n in range(3)}
    assert (found[0].error["code"], found[0].items, found[0].kind) == ("internal", 2, Kind.INGEST)
    assert len((await front.dead("other")).rows) == 1
    await front.replay(job)
    # the cursor's slice is dead no longer: the list still goes on
    assert (await front.dead("default", after=cursor)).rows == []


@pytest.mark.parametrize("cursor", ["x", "-1", "1.é", "."])
async def test_a_cursor_that_is_none_is_refused(front: AsyncLedger, cursor: str) -> None:
    with pytest.raises(RequestInvalid):
        await front.dead("default", after=cursor)
    with pytest.raises(RequestInvalid):
        await front.jobs("default", after=cursor)
