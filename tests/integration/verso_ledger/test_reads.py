"""A read whose caller waits leaves nothing behind once the caller was told its result."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis

from verso_core.errors import JobUnknown, LedgerUnavailable
from verso_core.jobs import Kind, Queue, Status
from verso_ledger import AsyncLedger, Ledger, NewJob
from verso_ledger.keys import PREFIX, key

Jobs = Callable[..., NewJob]
Q = Queue.INTERACTIVE


@pytest.fixture
async def front(valkey_url: str) -> AsyncIterator[AsyncLedger]:
    found = AsyncLedger.from_url(valkey_url)
    yield found
    await found.close()


@pytest.fixture
def raw(valkey_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look behind the ledger."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def read(ledger: Ledger, new_job: Jobs) -> Callable[..., str]:
    """Accept a search whose caller waits, and run it unless told otherwise."""

    def make(*, run: bool = True, brief_s: int = 60, result: bytes = b"r", **rest: object) -> str:
        job = new_job(Kind.SEARCH, items=1, wait=True, brief_s=brief_s, **rest)
        job_id = ledger.jobs.accept(job).job_id
        if run:
            (lease,) = ledger.leases.claim(Q, owner="w")
            ledger.leases.commit(lease, result, ok=1, errors=0)
        return job_id

    return make


def test_every_key_of_a_read_expires_within_the_minute_after_its_end(
    raw: redis.Redis, read: Callable[..., str]
) -> None:
    job_id = read(idempotency=("k", "a"))
    assert raw.exists(key("events", job_id)) == 0
    for name in (
        key("job", job_id),
        key("result", job_id),
        key("slice", f"{job_id}.0"),
        key("idem", "default:k"),
    ):
        assert 0 < raw.ttl(name) <= 60, name


def test_a_thousand_reads_leave_no_key_and_no_memory(
    raw: redis.Redis, read: Callable[..., str]
) -> None:
    def rest() -> set[bytes]:
        return set(raw.scan_iter(f"{PREFIX}*", count=10_000))

    read(brief_s=1)
    time.sleep(1.1)
    before, used = rest(), raw.info("memory")["used_memory_dataset"]
    for _ in range(1000):
        read(brief_s=1, result=bytes(10_000))
    deadline = time.monotonic() + 60
    while not rest() <= before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert rest() <= before
    assert raw.info("memory")["used_memory_dataset"] - used <= 1 << 20


async def test_a_read_whose_caller_was_not_told_is_kept_like_any_job(
    front: AsyncLedger, ledger: Ledger, raw: redis.Redis, read: Callable[..., str]
) -> None:
    job_id = read(run=False, idempotency=("k", "a"))
    assert await front.retain(job_id) is Status.QUEUED
    (lease,) = ledger.leases.claim(Q, owner="w")
    ledger.leases.commit(lease, b"r", ok=1, errors=0)
    for kind in ("job", "result", "events"):
        assert raw.ttl(key(kind, job_id)) > 60
    assert raw.ttl(key("idem", "default:k")) > 60
    assert [event.data["status"] for event in await front.events(job_id)] == [
        "queued",
        "running",
        "succeeded",
    ]
    assert [row.job_id for row in (await front.jobs("default")).rows] == [job_id]


async def test_a_read_that_ended_before_it_was_retained_is_kept_with_its_result(
    front: AsyncLedger, raw: redis.Redis, read: Callable[..., str]
) -> None:
    job_id = read(idempotency=("k", "a"))
    assert await front.retain(job_id) is Status.SUCCEEDED
    assert await front.retain(job_id) is Status.SUCCEEDED
    for name in (key("job", job_id), key("result", job_id), key("slice", f"{job_id}.0")):
        assert raw.ttl(name) > 60
    assert raw.ttl(key("idem", "default:k")) > 60
    assert [event async for event in front.follow(job_id)][-1].data["status"] == "succeeded"
    with pytest.raises(JobUnknown):
        await front.retain("nope")


async def test_reads_are_listed_among_the_jobs_only_when_asked_for(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs, read: Callable[..., str]
) -> None:
    made = []
    for _ in range(3):
        made += [read(), ledger.jobs.accept(new_job()).job_id]
        (lease,) = ledger.leases.claim(Q, owner="w")
        ledger.leases.commit(lease, b"r", ok=2, errors=0)
    jobs = await front.jobs("default")
    assert [row.job_id for row in jobs.rows] == made[1::2][::-1]
    found, cursor = [], None
    while True:  # pages of two go through both lists as one
        page = await front.jobs("default", after=cursor, limit=2, reads=True)
        found += [row.job_id for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == made[::-1]


def test_a_read_that_crashes_too_often_has_failed_and_is_no_dead_letter(
    ledger: Ledger, raw: redis.Redis, read: Callable[..., str]
) -> None:
    job_id = read(run=False)
    for _ in range(8):
        (lease,) = ledger.leases.claim(Q, owner="w")
        ledger.leases.retry(lease, LedgerUnavailable("no"), delay_s=0)
    record = ledger.jobs.get(job_id)
    assert record.status is Status.FAILED
    assert record.error is not None
    assert record.error["code"] == "ledger_unavailable"
    assert raw.zcard(key("dead")) == 0
    assert raw.exists(key("payload", f"{job_id}.0")) == 0
    assert 0 < raw.ttl(key("job", job_id)) <= 60


def test_the_file_is_rewritten_once_in_a_span(ledger: Ledger) -> None:
    assert ledger.maintenance.rewrite_file(every_s=600)
    assert not ledger.maintenance.rewrite_file(every_s=600)
