"""Several ledgers on real servers: where collections are made, and lists over all."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import ValkeyServer

from verso_core.errors import (
    JobUnknown,
    LedgerMisnamed,
    LedgerUnavailable,
    RequestInvalid,
    WebhookUnknown,
)
from verso_core.jobs import Collection, Kind
from verso_core.jobs.collections import Partitioned, Stage, partition_names
from verso_core.jobs.moves import MoveStage
from verso_core.settings import LedgerAddress
from verso_ledger import AsyncLedger, Ledger, Ledgers, NewJob, WorkSubscriber
from verso_ledger.connection import connect
from verso_ledger.events.work_signals import WorkSubscribers
from verso_ledger.ledgers import merging
from verso_ledger.ledgers.index import LedgerIndex
from verso_ledger.ledgers.webhooks import WebhooksOfAll
from verso_ledger.models import JobRecord
from verso_ledger.names import group_ids, group_of, ledger_of, new_job_id
from verso_ledger.pages import Page


class Pair:
    """Two servers, and the ledgers on them."""

    def __init__(self, home: ValkeyServer, other: ValkeyServer) -> None:
        self.servers = {"home": home, "b": other}
        self.sync = {
            name: Ledger(connect(server.url, timeout_s=30.0, retries=0), name=name)
            for name, server in self.servers.items()
        }

    def ledgers(self) -> Ledgers:
        """Connect as a gateway does."""
        addresses = [LedgerAddress(name, one.url) for name, one in self.servers.items()]
        return Ledgers.connect(addresses, replicas=0, at_home=["default"])


@pytest.fixture
def pair(valkey_server: Callable[..., ValkeyServer]) -> Iterator[Pair]:
    made = Pair(valkey_server(), valkey_server())
    yield made
    for one in made.sync.values():
        one.close()


async def all_jobs(ledgers: Ledgers, *, limit: int) -> list[JobRecord]:
    listed: list[JobRecord] = []
    cursor: str | None = None
    while True:
        page: Page[JobRecord] = await merging.jobs(
            ledgers, "t", after=cursor, limit=limit, statuses=(), kinds=(), reads=False
        )
        assert len(page.rows) <= limit
        listed += page.rows
        cursor = page.cursor
        if cursor is None:
            return listed


def test_an_id_says_the_ledger_of_its_job() -> None:
    assert ledger_of(new_job_id("b")) == "b"
    assert ledger_of(new_job_id("home")) == "home"
    assert len(new_job_id("home")) == 32
    assert ledger_of("0" * 32) == "home"


def test_pages_of_two_ledgers_are_one_list_newest_first(
    pair: Pair, new_job: Callable[..., NewJob]
) -> None:
    """However many a page has, each job is in the list once, and those of a ledger in order."""
    draw = random.Random(7)
    made: list[str] = []
    for _ in range(60):
        ledger = pair.sync[draw.choice(["home", "b", "b"])]
        made.append(ledger.jobs.accept(new_job(tenant="t")).job_id)

    async def run() -> None:
        ledgers = pair.ledgers()
        for limit in (1, 2, 7, 59, 60, 61, 1000):
            rows = await all_jobs(ledgers, limit=limit)
            # jobs of one millisecond have no order between ledgers, but the time of each decides
            times = [one.created for one in rows]
            assert times == sorted(times, reverse=True)
            listed = [one.job_id for one in rows]
            assert sorted(listed) == sorted(made)
            for name in pair.sync:
                own = [one for one in made if ledger_of(one) == name]
                assert [one for one in listed if ledger_of(one) == name] == own[::-1]
        # both servers have the clock of one machine, so a job made later has no earlier time
        created = {one.job_id: one.created for one in await all_jobs(ledgers, limit=1000)}
        in_order = [created[one] for one in made]
        assert in_order == sorted(in_order)
        with pytest.raises(RequestInvalid):
            await merging.jobs(
                ledgers, "t", after="17", limit=1, statuses=(), kinds=(), reads=False
            )
        await ledgers.close()

    asyncio.run(run())


def test_a_list_goes_on_without_a_ledger_that_is_away_and_has_its_rows_later(
    pair: Pair, new_job: Callable[..., NewJob]
) -> None:
    made = [pair.sync[name].jobs.accept(new_job(tenant="t")).job_id for name in ("home", "b") * 3]

    async def run() -> None:
        ledgers = pair.ledgers()
        pair.servers["b"].kill()
        first = await merging.jobs(
            ledgers, "t", after=None, limit=10, statuses=(), kinds=(), reads=False
        )
        assert {ledger_of(one.job_id) for one in first.rows} == {"home"}
        assert first.cursor is not None
        pair.servers["b"].start()
        while ledgers.away:  # noqa: ASYNC110 - what ends it is in the router
            await asyncio.sleep(0.1)
        rest = await merging.jobs(
            ledgers, "t", after=first.cursor, limit=10, statuses=(), kinds=(), reads=False
        )
        assert {one.job_id for one in (*first.rows, *rest.rows)} == set(made)
        assert rest.cursor is None
        await ledgers.close()

    asyncio.run(run())


def test_two_gateways_place_a_name_on_one_ledger(
    pair: Pair, new_collection: Callable[..., Collection]
) -> None:
    async def run() -> None:
        one, other = pair.ledgers(), pair.ledgers()
        for number in range(12):
            name = f"c{number}"
            placed = await asyncio.gather(one.for_new(name), other.for_new(name))
            assert len({ledger.name for ledger in placed}) == 1
            pair.sync[placed[0].name].documents.collection_put(new_collection(name))
        counts = await one.counts()
        assert sum(counts.values()) == 12
        assert min(counts.values()) >= 4  # equal servers get about as many
        assert (await other.of_collection("c3")).name == (await one.of_collection("c3")).name
        assert (await one.for_new("default")).name == "home"
        await one.home.placements.drain("b", drained=True)
        await one.collections()
        for number in range(4):
            assert (await one.for_new(f"later{number}")).name == "home"
        await one.close()
        await other.close()

    asyncio.run(run())


def test_a_collection_of_a_ledger_that_is_away_is_not_made_again_elsewhere(
    pair: Pair, new_collection: Callable[..., Collection]
) -> None:
    async def run() -> None:
        ledgers = pair.ledgers()
        await ledgers.home.placements.place("c", "b")
        pair.sync["b"].documents.collection_put(new_collection("c"))
        pair.servers["b"].kill()
        fresh = pair.ledgers()  # it has never seen the other ledger
        assert await fresh.collections() == {}
        with pytest.raises(LedgerUnavailable):
            await fresh.check_answers("c")
        assert (await fresh.for_new("c")).name == "b"
        pair.servers["home"].kill()
        with pytest.raises(LedgerUnavailable):
            await fresh.for_new("another")
        for one in (ledgers, fresh):
            await one.close()

    asyncio.run(run())


def test_a_name_is_made_again_once_its_ledger_was_drained_and_removed(
    pair: Pair, new_collection: Callable[..., Collection]
) -> None:
    """A ledger that this process alone does not know of is no removed one: it may have the name."""

    async def run() -> None:
        ledgers = pair.ledgers()
        placements = ledgers.home.placements
        await placements.place("c", "old")
        pair.sync["home"].moves.scripts.client.hset("verso:shut", "n:c", "gone old")
        with pytest.raises(LedgerUnavailable):
            await ledgers.for_new("c")
        await placements.drain("old", drained=True)
        await placements.drain("b", drained=True)
        assert (await ledgers.for_new("c")).name == "home"
        assert await placements.of("c") == "home"
        assert await placements.replace("c", "old", "b") == "home"
        pair.sync["home"].documents.collection_put(new_collection("c"))
        assert (await ledgers.for_new("c")).name == "home"
        await ledgers.close()

    asyncio.run(run())


def test_jobs_without_a_collection_are_spread_and_a_key_stays_on_its_ledger(
    pair: Pair, new_job: Callable[..., NewJob]
) -> None:
    async def run() -> None:
        ledgers = pair.ledgers()
        free = [(await ledgers.for_job(new_job())).name for _ in range(6)]
        assert sorted(free) == ["b"] * 3 + ["home"] * 3
        for number in range(20):
            job = new_job(idempotency=(f"key{number}", "hash"))
            assert len({(await ledgers.for_job(job)).name for _ in range(4)}) == 1
        assert (await ledgers.for_job(new_job(kind=Kind.TRAIN))).name == "home"
        ledgers.failed(ledgers.all[1])
        assert {(await ledgers.for_job(new_job())).name for _ in range(4)} == {"home"}
        with pytest.raises(JobUnknown):
            ledgers.of_job("0" * 32 + "-none")
        await ledgers.close()

    asyncio.run(run())


def test_own_names_of_two_ledgers_differ(
    pair: Pair, new_collection: Callable[..., Collection]
) -> None:
    """They share the vector store, and one may still remove the vectors of a deleted collection."""
    seen: set[str] = set()
    for _ in range(3):
        for ledger in pair.sync.values():
            made = ledger.documents.collection_put(new_collection("docs"))
            assert made.name not in seen
            seen.add(made.name)
            ledger.documents.collection_delete(made.name)
    assert len(seen) == 6


def test_a_webhook_is_on_every_ledger_or_on_none(pair: Pair) -> None:
    async def run() -> None:
        ledgers = pair.ledgers()
        webhooks = WebhooksOfAll(ledgers)
        hook = await webhooks.add("t", "https://example.org/a")
        for one in ledgers.all:
            assert await one.webhooks.all("t") == [hook]
        turned = await webhooks.rotate("t", hook.id)
        for one in ledgers.all:
            assert await one.webhooks.all("t") == [turned]
        pair.servers["b"].kill()
        with pytest.raises(LedgerUnavailable):
            await webhooks.add("t", "https://example.org/b")
        with pytest.raises(LedgerUnavailable):
            await webhooks.remove("t", hook.id)
        with pytest.raises(LedgerUnavailable):
            await webhooks.rotate("t", hook.id)
        assert await webhooks.all("t") == [turned]
        pair.servers["b"].start()
        again = await webhooks.rotate("t", hook.id)
        assert again.secrets(time.time()) == [again.secret, turned.secret, hook.secret]
        await webhooks.remove("t", hook.id)
        for one in ledgers.all:
            assert await one.webhooks.all("t") == []
        await ledgers.close()

    asyncio.run(run())


def test_messages_of_a_webhook_that_is_older_than_a_ledger_are_sent_again(pair: Pair) -> None:
    async def run() -> None:
        ledgers = pair.ledgers()
        webhooks = WebhooksOfAll(ledgers)
        made = await ledgers.home.webhooks.add("t", "https://example.org/")
        assert await webhooks.replay("t", made.id) == 0
        with pytest.raises(WebhookUnknown):
            await webhooks.replay("t", "wh_" + "0" * 32)
        await ledgers.close()

    asyncio.run(run())


def test_a_ledger_keeps_the_name_it_was_given(pair: Pair) -> None:
    pair.sync["b"].epoch.check_name("b")
    pair.sync["b"].epoch.check_name("b")
    with pytest.raises(LedgerMisnamed):
        pair.sync["b"].epoch.check_name("c")


def test_a_ledger_that_was_alone_does_not_become_one_of_several(
    pair: Pair, new_collection: Callable[..., Collection]
) -> None:
    """Its collections have plain own names, which may be those of the home ledger."""
    alone = Ledger(connect(pair.servers["b"].url))
    alone.documents.collection_put(new_collection("default"))
    with pytest.raises(LedgerMisnamed):
        pair.sync["b"].epoch.check_name("b")
    alone.epoch.check_name("home")
    alone.close()


def test_an_index_finds_jobs_and_collections(
    pair: Pair, new_job: Callable[..., NewJob], new_collection: Callable[..., Collection]
) -> None:
    ids = [pair.sync[name].jobs.accept(new_job()).job_id for name in ("home", "b")]
    index = LedgerIndex(pair.sync)
    foreign = "0" * 32 + "-gone"  # a ledger that is not configured here may still have it
    assert index.known([*ids, "0" * 32, "0" * 32 + "-b", foreign]) == {*ids, foreign}
    pair.sync["b"].documents.collection_put(new_collection("c"))
    assert index.ledger_of_collection("c").name == "b"
    pair.servers["b"].kill()
    with pytest.raises(LedgerUnavailable):
        index.known(ids)
    with pytest.raises(LedgerUnavailable):
        index.ledger_of_collection("c")


def test_a_slot_hears_of_work_on_either_ledger(pair: Pair, new_job: Callable[..., NewJob]) -> None:
    job = new_job()
    subscribers = WorkSubscribers(
        [WorkSubscriber(one._redis, job.queue) for one in pair.sync.values()]
    )
    subscribers.open()
    try:
        while subscribers.receive(0.5):  # that they listen is news as well
            pass
        for ledger in pair.sync.values():
            assert ledger.jobs.accept(new_job()).wakeup is False
            assert subscribers.receive(5.0)
            assert not subscribers.receive(0.1)
        pair.servers["b"].kill()
        assert pair.sync["home"].jobs.accept(new_job()).wakeup is False
        assert subscribers.receive(5.0)
    finally:
        subscribers.close()
    assert not subscribers.is_open


def test_many_that_wait_for_a_move_read_the_lists_together(
    pair: Pair, new_job: Callable[..., NewJob], new_collection: Callable[..., Collection]
) -> None:
    """And none of them asks for what it wants before its collection is served again."""
    pair.sync["home"].documents.collection_put(new_collection("moving"))
    moves = pair.sync["home"].moves
    move = moves.begin("moving", "moving", "b")
    fenced = move.model_copy(update={"stage": MoveStage.FENCE})
    assert moves.step(move, fenced, "fence", with_=60_000)
    client = moves.scripts.client
    asked = 0

    def calls(command: str) -> int:
        stats: Any = client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    async def run() -> None:
        ledgers = pair.ledgers()
        await ledgers.collections()

        async def ask(ledger: AsyncLedger) -> str:
            nonlocal asked
            asked += 1
            await ledger.accept(new_job(Kind.INGEST, collection="moving"))
            return ledger.name

        before = calls("hgetall")
        began = time.monotonic()
        waiting = [asyncio.create_task(ledgers.at("moving", ask)) for _ in range(50)]
        while asked < 50:  # noqa: ASYNC110 - they are callers and tell nobody
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        rounds = (time.monotonic() - began) / 0.1 + 2
        assert asked == 50
        assert calls("hgetall") - before <= 4 * rounds  # four hashes each
        assert moves.step(fenced, move, "open")
        assert await asyncio.gather(*waiting) == ["home"] * 50
        assert asked == 100
        await ledgers.close()

    asyncio.run(run())


def test_partitions_of_a_collection_are_placed_apart(
    pair: Pair, new_collection: Callable[..., Collection]
) -> None:
    """Evenly, and not on a ledger that is drained; those that are placed stay where they are."""

    async def run() -> None:
        ledgers = pair.ledgers()
        names = partition_names("parted", 4)
        await ledgers.place_apart(names[:3])
        await ledgers.place_apart(names)
        placed = [(await ledgers.for_new(name)).name for name in names]
        assert sorted(placed) == ["b", "b", "home", "home"]
        for name, ledger in zip(names, placed, strict=True):
            pair.sync[ledger].documents.collection_put(new_collection(name))
        await ledgers.place_apart(names)
        assert [(await ledgers.of_collection(name)).name for name in names] == placed
        await ledgers.home.placements.drain("b", drained=True)
        others = partition_names("others", 3)
        await ledgers.place_apart(others)
        assert {(await ledgers.for_new(name)).name for name in others} == {"home"}
        await ledgers.close()

    asyncio.run(run())


def test_what_is_noted_of_a_collection_of_partitions_is_listed_until_it_is_forgotten(
    pair: Pair,
) -> None:
    async def run() -> None:
        ledgers = pair.ledgers()
        state = Partitioned(partitions=3, owner="t")
        placements = ledgers.home.placements
        assert await placements.note("c", state, new=True)
        assert not await placements.note("c", Partitioned(partitions=5), new=True)
        await ledgers.collections()
        assert ledgers.partitioned == {"c": state}
        live = state.model_copy(update={"stage": Stage.LIVE})
        assert await placements.note("c", live)
        pair.servers["home"].kill()
        await ledgers.collections()  # what was read last holds while the home ledger is away
        await ledgers.collections()
        assert ledgers.partitioned == {"c": state}
        pair.servers["home"].start()
        while ledgers.away:  # noqa: ASYNC110 - what ends it is in the router
            await asyncio.sleep(0.1)
        await ledgers.collections()
        assert ledgers.partitioned == {"c": live}
        assert not await placements.step("c", state, None)
        assert await placements.step("c", live, None)
        await ledgers.collections()
        assert ledgers.partitioned == {}
        await ledgers.close()

    asyncio.run(run())


def test_ids_of_a_group_name_each_other(pair: Pair) -> None:
    ids = group_ids(["b", "home", "c1"])
    assert list(ids) == ["b", "home", "c1"]
    assert [ledger_of(one) for one in ids.values()] == ["b", "home", "c1"]
    assert all(group_of(one) == ids for one in ids.values())
    assert [merging.leads(one) for one in ids.values()] == [True, False, False]
    assert group_of(new_job_id("b")) == group_of(new_job_id("home")) == {}
    with pytest.raises(JobUnknown):
        pair.ledgers().of_job(ids["home"])
