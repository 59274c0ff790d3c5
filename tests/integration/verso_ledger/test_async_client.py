"""Facts about the gateway's side of the ledger, against a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import pytest_asyncio
import redis

from verso_core.errors import (
    CollectionUnknown,
    IdempotencyConflict,
    JobUnknown,
    LedgerUnavailable,
    QueueFull,
)
from verso_core.jobs import Collection, CollectionKind, Kind, Queue, Status
from verso_core.segments import Reserved
from verso_ledger import AsyncLedger, Commit, Ledger, Limits, NewJob
from verso_ledger.codec.admission import STAGE_BYTES
from verso_ledger.connection import connect_async
from verso_ledger.events import job_events
from verso_ledger.keys import key
from verso_ledger.models import CollectionReplaced, Seen

Jobs = Callable[..., NewJob]
Q = Queue.INTERACTIVE


@pytest_asyncio.fixture
async def front(valkey_url: str) -> AsyncIterator[AsyncLedger]:
    """The gateway's side of an empty ledger."""
    found = AsyncLedger.from_url(valkey_url)
    yield found
    await found.close()


@pytest.fixture
def raw(valkey_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look behind the ledger."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


def _work_off(ledger: Ledger, slices: int) -> None:
    for lease in ledger.leases.claim(Q, owner="w", n=slices):
        ledger.leases.commit(lease, f"r{lease.number}".encode(), ok=2, errors=0)


async def _subscribed(front: AsyncLedger, waiters: int) -> None:
    """Wait until so many callers wait for their jobs, and hear of them."""
    events = front._events
    while (  # noqa: ASYNC110 - they tell nobody
        not events.connected or sum(map(len, events._end_waiters.values())) < waiters
    ):
        await asyncio.sleep(0.01)


async def test_wait_returns_as_soon_as_the_job_has_ended(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "POLL_SUBSCRIBED_S", 3600.0)  # nobody looks, all are told
    job_id = (await front.accept(new_job())).job_id
    waiting = asyncio.create_task(front.wait(job_id, 3600))
    await _subscribed(front, 1)
    await asyncio.sleep(0.3)  # what was asked before the subscription stood has been answered
    assert not waiting.done()
    await asyncio.to_thread(_work_off, ledger, 1)
    assert (await asyncio.wait_for(waiting, 60)).status is Status.SUCCEEDED


async def test_more_callers_than_connections_stand_in_line_for_one(valkey_url: str) -> None:
    """Each answer takes 0.6 of the 3 seconds allowed, so the seventh comes after more than them."""
    client = connect_async(valkey_url, timeout_s=3.0, connections=1)
    asked = [cast("Any", client.blpop(["nothing"], timeout=0.6)) for _ in range(7)]
    assert await asyncio.gather(*asked) == [None] * 7
    await client.aclose()


async def test_an_answer_that_came_while_this_process_stood_still_is_asked_for_again(
    valkey_url: str,
) -> None:
    client = connect_async(valkey_url, timeout_s=2.0, connections=1)
    asked = asyncio.ensure_future(cast("Any", client.blpop(["nothing"], timeout=0.2)))
    await asyncio.sleep(0.1)
    time.sleep(2.5)  # noqa: ASYNC251 - as on a busy machine
    assert await asked is None
    await client.aclose()


async def test_wait_gives_the_job_as_it_is_when_the_time_is_over(
    front: AsyncLedger, new_job: Jobs
) -> None:
    job_id = (await front.accept(new_job())).job_id
    assert (await front.wait(job_id, 0)).status is Status.QUEUED
    assert (await front.wait(job_id, 0.1)).status is Status.QUEUED


async def test_many_waiters_share_one_subscription(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs
) -> None:
    job_ids = [(await front.accept(new_job())).job_id for _ in range(20)]
    waiting = [asyncio.create_task(front.wait(job_id, 600)) for job_id in job_ids for _ in range(3)]
    await _subscribed(front, 60)
    await asyncio.to_thread(_work_off, ledger, 20)
    assert {record.status for record in await asyncio.gather(*waiting)} == {Status.SUCCEEDED}
    channels = await front._redis.pubsub_numsub("verso:news")
    assert channels[0][1] == 1
    assert front._events._waiters == {}


async def test_follow_gives_every_step_once_and_ends_with_the_job(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs
) -> None:
    job_id = (await front.accept(new_job(slices=3))).job_id

    async def follow() -> list[Any]:
        return [event async for event in front.follow(job_id)]

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.1)
    await asyncio.to_thread(_work_off, ledger, 3)
    events = await asyncio.wait_for(following, 60)
    assert [event.data["done"] for event in events] == [0, 1, 2, 3]
    assert [event.data["status"] for event in events] == [*["running"] * 3, "succeeded"]
    assert events == await front.events(job_id)
    assert [event async for event in front.follow(job_id, events[1].id)] == events[2:]
    assert [event async for event in front.follow(job_id, events[3].id)] == []


async def test_results_come_in_the_order_of_the_slices(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs
) -> None:
    job_id = (await front.accept(new_job(slices=3))).job_id
    leases = ledger.leases.claim(Q, owner="w", n=3)
    for lease in reversed(leases[1:]):
        ledger.leases.commit(lease, f"r{lease.number}".encode(), ok=2, errors=0)
    assert await front.results(job_id) == [None, b"r1", b"r2"]
    assert await front.results(job_id, first=1, count=1) == [b"r1"]
    assert await front.results(job_id, first=3) == []


async def test_cancel_and_replay_speak_of_the_status(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs
) -> None:
    job_id = (await front.accept(new_job())).job_id
    assert await front.replay(job_id) is Status.QUEUED  # nothing dead: nothing changes
    assert await front.cancel(job_id) is Status.CANCELLED
    assert await front.replay(job_id) is Status.CANCELLED
    assert (await front.wait(job_id, 5)).status is Status.CANCELLED
    dead = (await front.accept(new_job())).job_id
    for _ in range(8):
        (lease,) = ledger.leases.claim(Q, owner="w")
        ledger.leases.retry(lease, LedgerUnavailable("no"), delay_s=0)
    assert (await front.job(dead)).status is Status.DEAD
    assert await front.cancel(dead) is Status.DEAD
    assert await front.replay(dead) is Status.QUEUED


async def test_an_unknown_job_is_unknown_everywhere(front: AsyncLedger) -> None:
    for call in (front.job, front.results, front.cancel, front.replay):
        with pytest.raises(JobUnknown):
            await call("nope")
    with pytest.raises(JobUnknown):
        await front.wait("nope", 1)
    with pytest.raises(JobUnknown):
        [event async for event in front.follow("nope")]
    assert await front.events("nope") == []


async def test_accept_refuses_like_the_other_side(front: AsyncLedger, new_job: Jobs) -> None:
    first = await front.accept(new_job(idempotency=("k", "a"), limits=Limits(max_slices=1)))
    again = await front.accept(new_job(idempotency=("k", "a"), limits=Limits(max_slices=1)))
    assert (again.job_id, again.replayed) == (first.job_id, True)
    with pytest.raises(IdempotencyConflict):
        await front.accept(new_job(idempotency=("k", "b")))
    with pytest.raises(QueueFull):
        await front.accept(new_job(limits=Limits(max_slices=1)))


async def test_a_large_job_is_staged(front: AsyncLedger, ledger: Ledger, new_job: Jobs) -> None:
    job = new_job(slices=5, items=1, text=b"x" * 1_000_000)
    await front.accept(job)
    leases = ledger.leases.claim(Q, owner="w", n=5)
    assert [lease.payload for lease in leases] == [part.payload for part in job.slices]


async def test_what_the_worker_notes_the_gateway_sees(
    front: AsyncLedger,
    ledger: Ledger,
    new_job: Jobs,
    new_collection: Callable[..., Collection],
) -> None:
    ledger.liveness.note_embed()
    ledger.documents.collection_put(new_collection("b"))
    ledger.documents.collection_put(new_collection("a"))
    await front.accept(new_job())
    assert ((await front.health()).last_embed_age_s or 0) < 5
    assert list(await front.collections()) == ["a", "b"]
    assert ledger.maintenance.depths()[Q].queued == 1


async def test_a_dead_or_hung_server_is_said_and_then_forgotten(
    valkey_server: Callable[..., Any], new_job: Jobs
) -> None:
    server = valkey_server()
    front = AsyncLedger.from_url(server.url)
    job_id = (await front.accept(new_job())).job_id
    for end, begin in ((server.pause, server.resume), (server.kill, server.start)):
        await asyncio.to_thread(end)
        with pytest.raises(LedgerUnavailable):  # else it would wait for ever
            await front.accept(new_job())
        await asyncio.to_thread(begin)
        assert (await front.job(job_id)).status is Status.QUEUED
    await front.close()


async def test_a_waiter_outlives_a_restart_of_the_server(
    valkey_server: Callable[..., Any], new_job: Jobs
) -> None:
    server = valkey_server()
    front, ledger = AsyncLedger.from_url(server.url), Ledger.from_url(server.url)
    job_id = (await front.accept(new_job())).job_id
    waiting = asyncio.create_task(front.wait(job_id, 600))
    await _subscribed(front, 1)
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(_work_off, ledger, 1)
    assert (await waiting).status is Status.SUCCEEDED
    await front.close()
    ledger.close()


async def test_what_a_slice_tells_of_its_progress_is_an_event(
    front: AsyncLedger, ledger: Ledger, new_job: Jobs
) -> None:
    job_id = (await front.accept(new_job())).job_id
    [lease] = ledger.leases.claim(Q, owner="w")
    assert ledger.leases.report_progress(lease, {"epoch": 1, "loss": 0.5}) is Commit.DONE
    ledger.leases.commit(lease, b"r", ok=2, errors=0)
    assert ledger.leases.report_progress(lease, {"epoch": 2}) is Commit.STALE
    told = [event.data async for event in front.follow(job_id)]
    assert [one.get("progress") for one in told] == [None, {"epoch": 1, "loss": 0.5}, None]
    assert [one["status"] for one in told] == ["running", "running", "succeeded"]


async def test_what_serves_is_told_by_workers_that_live(front: AsyncLedger, ledger: Ledger) -> None:
    ledger.liveness.note_serving("a", {"stable": "x"})
    assert await front.serving() == {}  # it never beat
    ledger.liveness.note_worker("a")
    assert await front.serving() == {"a": {"stable": "x"}}
    ledger.liveness.forget_worker("a")
    ledger.liveness.note_worker("a")
    assert await front.serving() == {}


async def test_a_trainer_is_known_by_its_beat_and_is_no_worker(
    front: AsyncLedger, ledger: Ledger
) -> None:
    ledger.liveness.note_trainer("t")
    health = await front.health()
    assert health.trainer_beat_age_s is not None
    assert health.trainer_beat_age_s < 5
    assert health.worker_beat_age_s is None
    ledger.liveness.forget_trainer("t")
    assert (await front.health()).trainer_beat_age_s is None


async def test_numbers_of_many_streams_are_reserved_in_a_few_exchanges(
    front: AsyncLedger, ledger: Ledger, new_collection: Callable[..., Collection]
) -> None:
    ledger.documents.collection_put(new_collection("logs", kind=CollectionKind.LOGS))
    asked: list[tuple[str, dict[str, str], int, str]] = [
        ("logs", {"pod": str(n)}, n + 1, "") for n in range(600)
    ]
    asked[300] = ("gone", {}, 1, "")
    for again in (False, True):
        await front._redis.script_flush()
        places = await front.reserve_each(asked)
        assert isinstance(places.pop(300), CollectionUnknown)
        made = [one for one in places if isinstance(one, Reserved)]
        assert [one.stream for one in made] == list(range(599))
        lines = [count for name, _, count, _ in asked if name == "logs"]
        assert [one.first for one in made] == (lines if again else [0] * 599)


async def test_a_job_is_not_accepted_for_a_collection_made_since_another_was_seen(
    front: AsyncLedger,
    ledger: Ledger,
    new_job: Jobs,
    new_collection: Callable[..., Collection],
) -> None:
    """Where the caller has seen none, as a gateway of an earlier release, any is as good."""
    job = new_job(Kind.INGEST, collection="c")
    seen = replace(job, seen={"c": Seen.of(ledger.documents.collection_put(new_collection()))})
    assert not (await front.accept(seen)).replayed
    large = replace(seen, slices=[replace(job.slices[0], payload=b"x" * (STAGE_BYTES + 1))])
    for _ in range(2):  # the second has an own name that is not the one that users know
        ledger.documents.collection_delete(ledger.documents.collections()["c"].name)
        made = ledger.documents.collection_put(new_collection())
        for one in (seen, large):
            with pytest.raises(CollectionReplaced):
                await front.accept(one)
        assert not (await front.accept(job)).replayed
        assert not (await front.accept(replace(job, seen={"c": Seen.of(made)}))).replayed


async def test_no_numbers_are_reserved_in_a_collection_made_since_another_was_seen(
    front: AsyncLedger, ledger: Ledger, new_collection: Callable[..., Collection]
) -> None:
    def make() -> str:
        return ledger.documents.collection_put(new_collection(kind=CollectionKind.LOGS)).made

    first = make()
    assert (await front.reserve("c", {"a": "b"}, 2, made=first)).first == 0
    ledger.documents.collection_delete("c")
    with pytest.raises(CollectionUnknown):
        await front.reserve("c", {"a": "b"}, 2, made=first)
    second = make()
    with pytest.raises(CollectionReplaced):
        await front.reserve("c", {"a": "b"}, 2, made=first)
    assert (await front.reserve("c", {"a": "b"}, 2, made=second)).first == 0
    assert (await front.reserve("c", {"a": "b"}, 2)).first == 2


async def test_a_flipped_bit_of_a_collection_makes_it_no_other(
    front: AsyncLedger,
    ledger: Ledger,
    raw: redis.Redis,
    new_job: Jobs,
    new_collection: Callable[..., Collection],
) -> None:
    made = ledger.documents.collection_put(new_collection(kind=CollectionKind.LOGS))
    row = cast("bytes", raw.hget(key("collections"), "c"))
    place = row.index(made.made.encode()) + 3
    flipped = row[:place] + bytes([row[place] ^ 1]) + row[place + 1 :]
    raw.hset(key("collections"), "c", flipped)
    job = new_job(Kind.INGEST, collection="c", seen={"c": Seen.of(made)})
    assert not (await front.accept(job)).replayed
    assert (await front.reserve("c", {}, 1, made=made.made)).first == 0
    ledger.documents.collection_delete("c")
    ledger.documents.collection_put(new_collection(kind=CollectionKind.LOGS))
    with pytest.raises(CollectionReplaced):
        await front.accept(job)
